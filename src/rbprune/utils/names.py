"""Names that somebody else chose (files, members of tars, classes), as one line of a list, a log or a terminal."""

from __future__ import annotations


def printable(name: object, keep: str = "") -> str:
    """The name with everything escaped that would break a line or move the cursor; bytes that are no text become a
    question mark.

    >>> printable("a\\nb\\x1b[2J.jpg") == "a\\\\nb\\\\x1b[2J.jpg", printable("Größe 3.jpg")
    (True, 'Größe 3.jpg')
    """
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in str(name))


def _escaped(character: str) -> str:
    lone = "\ud800" <= character <= "\udfff"  # half of a character, which no terminal can show
    return "\ufffd" if lone else character.encode("unicode_escape").decode("ascii")
