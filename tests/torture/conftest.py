"""The finished run that is damaged is the one of ``tests/runs``."""

from tests.runs.conftest import whole

__all__ = ["whole"]
