"""What the documentation says runs, and what the settings are is what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import pytest
import tomli_w
import torch
from pydantic import BaseModel
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rbprune.cli import main
from rbprune.settings.recipe import shipped
from rbprune.settings.sections import Settings
from tests.integrations.yolo_networks import quiet_environment

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_example_runs(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    environment = {**os.environ, **quiet_environment(tmp_path_factory.mktemp("home")), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "examples" / name)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_compile(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


def tiny() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 8), nn.ReLU(), nn.Linear(8, 3)
    )


def test_readme_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tiny model and loader in place of the reader's own."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    images = torch.randn(64, 1, 6, 6)
    data = TensorDataset(images, images[:, 0].unflatten(1, (3, 2)).mean((2, 3)).argmax(1))
    loader = DataLoader(data, batch_size=32)
    model = tiny()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for inputs, labels in list(loader) * 60:  # what is not trained has no evidence for any of its channels
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    names: dict[str, Any] = {
        "model": model,
        "FreshModel": tiny,
        "train": data,
        "train_loader": loader,
        "val_loader": loader,
        "loader": loader,
        "x": data.tensors[0][:2],
    }
    found = blocks(ROOT / "README.md", "python")
    assert len(found) == 1  # the loop of one's own is on docs/your-own.md and docs/python.md, which run too
    for block in found:
        exec(compile(block, "README.md", "exec"), names)


def test_python_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks(DOCS / "python.md", "python"):
        exec(compile(block, "docs/python.md", "exec"), names)


def commands(verbs: str) -> list[str]:
    lines = [line for page in PAGES for block in blocks(page, "(?:bash|sh)") for line in block.splitlines()]
    found = {line.split("  #")[0].strip() for line in lines if re.match(rf"rbprune ({verbs}) ", line)}
    return sorted(line for line in found if "nets.py:make" not in line)  # test_tutorial.py runs it where that file is


@pytest.mark.parametrize("line", commands("inspect|count"))
def test_command_that_only_looks_runs(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    try:
        main(shlex.split(line)[1:])
    except SystemExit as stop:
        assert not stop.code


@pytest.mark.parametrize("line", commands("prune|train"))
def test_command_names_a_shipped_recipe(line: str) -> None:
    recipe = shlex.split(line)[2]
    assert recipe in shipped() or recipe.endswith(".toml")


def test_shipped_recipes_are_in_the_docs() -> None:
    page = (DOCS / "recipes.md").read_text()
    assert re.findall(r"^\| `([\w-]+)` \| .* \| [a-z]+ \|$", page, re.MULTILINE) == shipped()


def settings(section: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Every key of the settings and its default as the docs write it."""
    found: dict[str, str] = {}
    for name, info in section.model_fields.items():
        options = get_args(info.annotation) if isinstance(info.annotation, UnionType) else (info.annotation,)
        nested = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if nested:
            found |= settings(nested[0], f"{prefix}{name}.")
        if not nested or name == "price":
            found[f"{prefix}{name}"] = "required" if info.is_required() else in_toml(info.default)
    return found


def in_toml(default: object) -> str:
    """A default as the docs write it."""
    if default is None:
        return "none"
    return "`{}`" if default == {} else f"`{tomli_w.dumps({'key': default}).removeprefix('key = ').strip()}`"


def documented() -> dict[str, str]:
    rows = re.findall(r"^\| `([\w.]+)` \| (`.*?`|required|none) \| ", (DOCS / "recipes.md").read_text(), re.MULTILINE)
    found: dict[str, str] = {}
    for key, default in rows:
        phases = ("pretrain", "prune", "finetune") if key.startswith("PHASE.") else ("",)
        found |= {key.replace("PHASE", phase): default for phase in phases}
    return found


def test_every_setting_and_its_default_is_in_the_docs() -> None:
    assert documented() == settings(Settings)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        if target != "docs/results.md" and target != "results.md":
            assert (page.parent / target).exists(), target
