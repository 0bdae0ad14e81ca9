"""The advice to the C library is taken."""

from __future__ import annotations

import platform

import pytest

from rbprune.utils.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_glibc_takes_the_advice() -> None:
    assert keep_freed_memory()
