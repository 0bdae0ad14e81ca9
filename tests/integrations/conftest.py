"""Ultralytics keeps its settings, and matplotlib its fonts, out of the home of whoever tests, and asks no network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integrations.yolo_networks import quiet_environment


@pytest.fixture(autouse=True, scope="session")
def _ultralytics_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in quiet_environment(tmp_path_factory.mktemp("ultralytics")).items():
            patched.setenv(name, value)
        yield
