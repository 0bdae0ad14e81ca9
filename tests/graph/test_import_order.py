"""Inside the room ``graph``, imports go one way: the basics, then cutting, then rules, then tracing."""

from __future__ import annotations

import ast
from pathlib import Path

import rbprune.graph

ROOT = Path(rbprune.graph.__file__).parent
ORDER = ("", "cutting", "rules", "tracing")
"""Sub-rooms from below to above; "" is the folder itself."""
ABOVE_CUTTING = ("channel_graph", "cost")
"""Modules of the folder itself that may use cutting."""


def modules() -> dict[str, Path]:
    """Every module of the room by its dotted name; packages are what their ``__init__`` hands on, and left out."""
    paths = [path for path in ROOT.rglob("*.py") if path.name != "__init__.py"]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the room that a file imports, at any depth of its code."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    found = {name.removeprefix("rbprune.graph.") for name in names if name.startswith("rbprune.graph.")}
    homes = {name if name in known else name.rpartition(".")[0] for name in found}
    return {"rules.registry" if name == "rules" else name for name in homes}  # what the package hands on is from there


def height(module: str) -> float:
    room = module.rpartition(".")[0]
    return 1.5 if module in ABOVE_CUTTING else ORDER.index(room)


def test_no_module_imports_one_of_a_room_above_it() -> None:
    known = modules()
    assert len(known) > 20
    wrong = {(a, b) for a, path in known.items() for b in imports(path, known) if height(b) > height(a)}
    assert wrong == set()


def test_no_modules_form_a_cycle() -> None:
    known = modules()
    below = {name: imports(path, known) - {name} for name, path in known.items()}
    while free := [name for name, needs in below.items() if not needs & below.keys()]:
        for name in free:
            del below[name]
    assert below == {}
