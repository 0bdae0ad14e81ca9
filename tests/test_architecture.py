"""The house keeps its shape: rooms import downwards only, files hold one idea, every module with logic has its test."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "rbprune"
MODULES = {
    ".".join(("rbprune", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

ROOMS = (
    *("errors", "utils", "bayes", "graph", "methods", "settings", "logging", "data", "models", "pruner", "train"),
    *("report", "measure", "runs", "export", "api", "integrations", "reproduce", "cli"),
)
"""From the ground up: a room imports only from those before it."""
GRAPH_ROOMS = ("", "cutting", "rules", "tracing")
"""Inside the graph, from below to above; "" is the folder itself."""
ABOVE_CUTTING = {"rbprune.graph.channel_graph"}
"""Modules of that folder which may use cutting."""
LONGEST = 300
TABLES = {"graph/rules/tables.py"}
"""Tables of rules may be longer."""


def imports_of(module: str) -> set[str]:
    """The modules of the package that a module imports when it is loaded; those for types alone do not count."""
    found = set()
    for node in ast.walk(_without_type_checking(ast.parse(MODULES[module].read_text()))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rbprune":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "rbprune"}
    return found - {module}


def _without_type_checking(tree: ast.Module) -> ast.Module:
    def is_guard(node: ast.stmt) -> bool:
        return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"

    tree.body = [node for node in tree.body if not is_guard(node)]
    return tree


IMPORTS = {module: imports_of(module) for module in MODULES}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "rbprune"


def test_every_module_is_in_a_room() -> None:
    assert {room_of(module) for module in MODULES} == {*ROOMS, "rbprune", "__main__"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_the_rooms_below_it(room: str) -> None:
    allowed = {*ROOMS[: ROOMS.index(room) + 1]}
    wrong = [
        f"{module} imports {other}"
        for module, others in IMPORTS.items()
        if room_of(module) == room
        for other in others
        if room_of(other) not in allowed
    ]
    assert wrong == []


def height_in_graph(module: str) -> float:
    parts = module.split(".")[2:]
    return 1.5 if module in ABOVE_CUTTING else GRAPH_ROOMS.index(parts[0] if len(parts) > 1 else "")


def test_inside_the_graph_imports_go_one_way_too() -> None:
    graph = [m for m in MODULES if m.startswith("rbprune.graph.") and MODULES[m].stem != "__init__"]
    pairs = [(module, other) for module in graph for other in IMPORTS[module] if other in graph]
    assert len(pairs) > 60
    assert [pair for pair in pairs if height_in_graph(pair[1]) > height_in_graph(pair[0])] == []


def test_no_two_modules_import_each_other_in_a_circle() -> None:
    plain = {module: {o for o in others if o != "rbprune"} for module, others in IMPORTS.items() if module != "rbprune"}
    try:
        list(TopologicalSorter(plain).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_check_of_the_rooms_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(IMPORTS, "rbprune.bayes.dirac", {"rbprune.train.runner"})
    with pytest.raises(AssertionError, match="rbprune.bayes.dirac imports rbprune.train.runner"):
        test_a_room_imports_only_from_the_rooms_below_it("bayes")


def test_only_public_modules_lie_at_the_top() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"} == {"api", "pruner", "errors"}


@pytest.mark.parametrize("path", MODULES.values(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    if path.relative_to(PACKAGE).as_posix() not in TABLES:
        assert len(path.read_text().splitlines()) <= LONGEST


def test_no_two_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def has_logic(path: Path) -> bool:
    """Whether a module decides or repeats anything, so that there is something to be tested."""
    return any(isinstance(node, ast.If | ast.For | ast.While) for node in ast.walk(ast.parse(path.read_text())))


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES.values() if has_logic(p) and not p.stem.startswith("__")],
    ids=lambda path: path.relative_to(PACKAGE).as_posix(),
)
def test_a_module_with_logic_has_its_namesake_in_the_tests(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    assert (ROOT / "tests" / relative.parent / f"test_{relative.name}").is_file()


def test_the_page_on_the_architecture_names_every_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert [room for room in ROOMS if not re.search(rf"`{room}[/`.]", page)] == []
