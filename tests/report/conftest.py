from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.fake import write_run


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a finished run of 25 sites."""
    write_run(tmp_path)
    return tmp_path
