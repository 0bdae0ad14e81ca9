from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import chromium
from tests.report.fake import write_run


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a finished run of 25 sites."""
    write_run(tmp_path)
    return tmp_path
