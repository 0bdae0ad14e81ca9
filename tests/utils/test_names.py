"""Names of others on one line."""

from __future__ import annotations

import os

from rbprune.utils.names import printable, shown


def test_a_name_cannot_break_a_line_nor_move_the_cursor() -> None:
    assert printable("a\r\n\x1b[31m\u2028\u202eb") == "a\\r\\n\\x1b[31m\\u2028\\u202eb"
    assert printable("Größe 3 é") == "Größe 3 é"
    assert printable(os.fsdecode(b"\xff.jpg")) == "\ufffd.jpg"
    assert printable("two\nlines", keep="\n") == "two\nlines"


def test_a_value_is_shown_within_a_line() -> None:
    assert shown({"a": 1}) == "{'a': 1}"
    assert len(shown("x" * 10_000)) < 250
    assert shown([1 << 20000]) == "a list that is too long to print"
