"""Which line of the user's model something comes from."""

from __future__ import annotations

import sys
import traceback
from functools import cache
from types import FrameType


def current_source_line() -> str | None:
    """File and line of the innermost frame of the model's own: fx's stack traces take ten times as long."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith("rbprune/graph/tracing/trace.py"):
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def error_source_line(error: Exception) -> str:
    """The user's line on which an error happened, in brackets; nothing where it is not known."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


@cache
def is_users(file: str) -> bool:
    """Whether a file of source is neither torch's nor one of those that follow the model."""
    return not any(part in file for part in ("/torch/", "/rbprune/graph/"))
