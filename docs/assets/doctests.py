"""Shows the examples of docstrings (``>>> ...`` and what they print) as code on the page of the reference."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object


def fenced(text: str) -> str:
    """The same docstring with a fence around every example.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nMore.").replace("`", "~")
    'Adds.\\n\\n~~~pycon\\n>>> 1 + 1\\n2\\n~~~\\n\\nMore.'
    """
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if not inside and line.startswith(">>> "):
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines[:-1])


class DoctestBlocks(Extension):
    """Called by griffe for every object of the package."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Put fences into the docstring of an object, where it has one."""
        if obj.docstring is not None and ">>> " in obj.docstring.value and "```" not in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
