"""Ultralytics keeps its settings, and matplotlib its fonts, out of the home of whoever tests, and asks no network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _ultralytics_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("YOLO_CONFIG_DIR", str(tmp_path_factory.mktemp("ultralytics")))
        patched.setenv("MPLCONFIGDIR", str(tmp_path_factory.mktemp("matplotlib")))
        patched.setenv("YOLO_OFFLINE", "1")
        patched.setenv("YOLO_AUTOINSTALL", "0")
        yield
