"""A table of text that the terminal, a Markdown file and a page can all show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.table import Table


@dataclass(frozen=True)
class PlainTable:
    """A table whose cells are text already; the first ``names`` columns hold words, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    note: str = ""

    def markdown(self) -> str:
        """The table in Markdown, its title above and its note below.

        >>> print(PlainTable("LeNet", ("method", "error %"), (("rbp", "0.90"),)).markdown())
        LeNet
        <BLANKLINE>
        | method | error % |
        |---|---|
        | rbp | 0.90 |
        <BLANKLINE>
        """
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.columns, *self.rows)]
        lines.insert(1, "|" + "---|" * len(self.columns))
        return "\n".join([self.title, "", *lines, *(["", self.note] if self.note else []), ""])

    def rich_table(self) -> Table:
        """The table as the terminal shows it."""
        found = Table(title=self.title, box=box.SIMPLE, title_justify="left", caption=self.note or None)
        found.caption_justify = "left"
        for number, name in enumerate(self.columns):
            justify: Literal["left", "right"] = "right" if number >= self.names else "left"
            longest = max(map(len, name.split()), default=0)  # words of the heads are not broken
            found.add_column(name, justify=justify, overflow="fold", no_wrap=number == 0, min_width=longest)
        for cells in self.rows:
            found.add_row(*cells)
        return found
