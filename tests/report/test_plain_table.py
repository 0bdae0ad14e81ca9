from __future__ import annotations

import io

from rich.console import Console

from rbprune.report.plain_table import PlainTable

TABLE = PlainTable("LeNet", ("method", "left", "error %"), (("rbp", "4-2", "0.90"), ("l1", "", "10.10")), 2, "A note.")


def test_markdown_has_a_line_per_row_between_title_and_note() -> None:
    assert TABLE.markdown().splitlines() == [
        "LeNet",
        "",
        "| method | left | error % |",
        "|---|---|---|",
        "| rbp | 4-2 | 0.90 |",
        "| l1 |  | 10.10 |",
        "",
        "A note.",
    ]


def test_in_the_terminal_words_stand_left_and_numbers_right() -> None:
    console = Console(file=io.StringIO(), width=60)
    console.print(TABLE.rich_table())
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert [lines[i] for i in (0, 2, 4, 5, 7)] == [
        "LeNet",
        "  method   left   error %",
        "  rbp      4-2       0.90",
        "  l1                10.10",
        "A note.",
    ]
