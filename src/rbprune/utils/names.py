"""Names that somebody else chose (files, members of tars, classes), as one line of a list, a log or a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


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


def shown(value: object) -> str:
    """A value of a file as an error shows it: not more than fits a line, and also where Python will not print it.

    >>> shown("a"), shown([7] * 1000)[:12], shown(1 << 20000)
    ("'a'", '[7, 7, 7, 7,', 'an int that is too long to print')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more than 4300 digits, or a list in a list in a list ...
        kind = type(value).__name__
        return f"{'an' if kind == 'int' else 'a'} {kind} that is too long to print"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


_LONGEST_VALUE = 200


def distinct_names(folders: Iterable[Path]) -> dict[str, Path]:
    """Folders by as much of their paths, from the end, as tells them apart; a folder that is named twice counts once.

    >>> list(distinct_names([Path("/runs/a/demo"), Path("/runs/b/demo")]))
    ['a/demo', 'b/demo']
    """
    paths, depth = list(dict.fromkeys(folder.resolve() for folder in folders)), 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return {"/".join(path.parts[-depth:]): path for path in paths}
