"""The site: it is built without a warning, asks no other host for anything, and its pages leave nothing out."""

from __future__ import annotations

import ast
import doctest
import functools
import http.server
import importlib
import importlib.util
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, sync_playwright

import rbprune
from rbprune.cli.app import VERBS, app
from rbprune.errors import RbpruneError
from rbprune.graph.reasons import REMEDIES, Kind
from rbprune.methods.channel_record import ChannelEvidence, JudgedSite
from rbprune.settings.recipe import load_recipe, shipped
from tests.test_examples import PAGES, ROOT, blocks

DOCS = ROOT / "docs"
WIDTHS = (390, 1200)
WORDS = ("Price", "Nat", "Site", "Stage", "Rate", "Dense epoch", "MAC", "Recipe", "Verdict", "Budget")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it, with warnings as errors."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where a browser finds the site."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser: the system's Chromium, or the one that playwright brings."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


class Loads(HTMLParser):
    """Collects the addresses that a browser fetches by itself; links for people to follow are not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [value for name in ("src", "srcset", "data") if (value := given.get(name))]
        if tag == "link":
            self.found.append(given.get("href") or "")


def is_elsewhere(address: str) -> bool:
    return address.startswith(("http:", "https:", "//"))


def test_no_file_of_the_site_loads_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text())
        assert [each for each in loads.found if is_elsewhere(each)] == [], page.name
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text()) == [], style.name


def test_pages_in_a_browser(address: str, browser: Browser) -> None:
    """No request elsewhere, no error in the console, nothing wider than the window; searching finds the glossary."""
    for width in WIDTHS:
        page = browser.new_page(viewport={"width": width, "height": 900})
        asked: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.on("console", lambda said, errors=errors: errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        for name in ("index", "tutorial", "choosing", "troubleshooting", "architecture", "reference"):
            page.goto(f"{address}/{name}.html")
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            assert page.locator("img").evaluate_all("all => all.filter(i => !i.naturalWidth).map(i => i.src)") == []
        if width == max(WIDTHS):
            page.click("input.md-search__input")
            page.locator("input.md-search__input").press_sequentially("undecided")
            page.wait_for_selector(".md-search-result__link", timeout=120_000)
            found = page.locator(".md-search-result__link").evaluate_all("all => all.map(a => a.href)")
            assert any("glossary" in link for link in found)
        assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
        assert errors == []
        page.close()


def test_architecture_is_drawn_with_the_arrows_of_its_source(site: Path) -> None:
    html = (site / "architecture.html").read_text()
    assert "flowchart BT" not in html
    assert 'class="flowchart"' in html and ">pruner</text>" in html


def test_the_reference_shows_every_public_name_with_its_defaults(site: Path) -> None:
    html = (site / "reference.html").read_text()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html))
    for name in set(rbprune.__all__) - {"models"}:
        assert re.search(rf'id="rbprune[\w.]*\.{name}"', html), name
    assert "max_error_rise: float | None = None" in text
    assert "seed: int = 0" in text
    assert "confidence: float" in text


def hooks(name: str = "hooks") -> Any:
    """A module of docs/assets, which is no package."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", DOCS / "assets" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["hooks", "doctests"])
def test_the_examples_of_what_builds_the_site(name: str) -> None:
    done = doctest.testmod(hooks(name))
    assert done.attempted and not done.failed


def test_the_navigation_has_the_pages_that_there_are(tmp_path: Path) -> None:
    for name in ("a.md", "b.md", "new.md"):
        (tmp_path / name).write_text("# page")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c.md").write_text("# page")
    nav = [{"One": ["a.md", "gone.md"]}, {"Two": ["gone.md"]}, "b.md"]
    config = hooks().on_config({"docs_dir": str(tmp_path), "nav": nav})
    assert config["nav"] == [{"One": ["a.md"]}, "b.md", {"More": ["deep/c.md", "new.md"]}]


def test_a_flowchart_has_a_box_for_each_name_and_an_arrow_for_each_pair() -> None:
    drawn = hooks().flowchart("flowchart BT\n    a --> b & c --> d\n    a --> d\n")
    assert re.findall(r"<text[^>]*>(\w+)<", drawn) == ["a", "b", "c", "d"]
    assert drawn.count('marker-end="url(#arrow)"') == 5


def command_lines() -> list[str]:
    """Every line that calls rbprune, with continued lines joined and the variables of its block filled in."""
    found = set()
    for block in (block for page in PAGES for block in blocks(page, "(?:bash|sh)")):
        given = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', block, re.MULTILINE))
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("rbprune "):
                whole = re.sub(r"\$(\w+)", lambda match, given=given: given[match[1]], re.split(r"\s+#\s", line)[0])
                found.add(whole.replace("seed=S ", "seed=0 ").strip())
    return sorted(found)


@pytest.mark.parametrize("line", command_lines())
def test_every_command_on_the_pages_can_be_parsed(line: str) -> None:
    words = shlex.split(line)[1:]
    command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    assert command.__name__ == words[0]
    settings = bound.arguments.get("set", [])
    if bound.arguments.get("recipe") in shipped():
        assert load_recipe(bound.arguments["recipe"], settings).model.name


def test_the_page_of_commands_shows_every_verb() -> None:
    shown = {line.split()[1] for block in blocks(DOCS / "commands.md", "bash") for line in block.splitlines()}
    assert set(VERBS) - shown == set()


def test_your_own_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "your_own"}
    found = blocks(DOCS / "your-own.md", "python")
    assert len(found) == 4
    for block in found:
        exec(compile(block, "docs/your-own.md", "exec"), names)
    before = rbprune.trace(names["MyNet"](), torch.zeros(2, 1, 8, 8)).macs()
    assert names["result"].summary["macs_ratio"] == pytest.approx(2, rel=0.05)
    assert rbprune.trace(names["model"], torch.zeros(2, 1, 8, 8)).macs() < 0.55 * before


def test_the_readme_is_short_and_has_its_picture() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 75
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (ROOT / picture).is_file()


def trouble() -> str:
    return " ".join((DOCS / "troubleshooting.md").read_text().split())


def all_errors() -> set[str]:
    """The names of all errors that rbprune defines."""
    for module in pkgutil.walk_packages(rbprune.__path__, "rbprune."):
        if "__main__" not in module.name and "embedded.make" not in module.name:
            importlib.import_module(module.name)
    waiting, found = [RbpruneError], set()
    while waiting:
        for error in waiting.pop().__subclasses__():
            if error.__module__.startswith("rbprune."):
                found.add(error.__name__)
                waiting.append(error)
    return found


def test_troubleshooting_has_an_entry_for_every_error() -> None:
    headings = set(re.findall(r"^### `(\w+)`$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE))
    assert len(all_errors()) > 15
    assert all_errors() - headings == set()


def test_troubleshooting_has_a_row_for_every_kind_of_reason() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| [^|]+ \| [^|]+ \|$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(kind.name for kind in Kind)
    assert set(REMEDIES) <= set(Kind)


def sentences(module: str, functions: str) -> list[str]:
    """The parts of at least three words of the texts that these functions can return, without what is filled in."""
    tree = ast.parse((ROOT / "src" / "rbprune" / module).read_text())
    found: list[str] = []
    for function in [node for node in tree.body if isinstance(node, ast.FunctionDef)]:
        if not re.fullmatch(functions, function.name):
            continue
        body = function.body[1:] if ast.get_docstring(function) else function.body
        for node in (node for statement in body for node in ast.walk(statement)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(" ".join(node.value.split()).strip(" ;,:."))
    return [text for text in found if len(text.split()) >= 3]


VERDICTS = [
    *sentences("train/outcome.py", "judge_run|_missed|_why_nothing|_kept_back|_remedy"),
    *sentences("runs/search_summary.py", "judge_search"),
]


def test_the_sentences_of_verdicts_are_found() -> None:
    assert len(VERDICTS) > 15
    assert "Better than the dense network by" in VERDICTS


@pytest.mark.parametrize("sentence", VERDICTS)
def test_troubleshooting_has_every_sentence_of_a_verdict(sentence: str) -> None:
    """A sentence that is new in the code needs an entry: what it means, and what to do."""
    assert sentence in trouble()


def test_troubleshooting_has_every_verdict_on_a_channel() -> None:
    either = torch.tensor([False, True])
    gone, asked, doubt = (column.flatten() for column in torch.meshgrid(either, either, either, indexing="ij"))
    nothing = torch.zeros(8)
    evidence = ChannelEvidence(nothing, nothing, doubt)
    words = set(JudgedSite(tuple(range(8)), nothing, asked, {}, evidence, gone).verdicts())
    assert len(words) >= 4
    for word in words:
        assert f"| `{word}` |" in trouble()


def test_the_glossary_explains_the_words_and_the_tutorial_says_them_first() -> None:
    glossary, tutorial = (DOCS / "glossary.md").read_text(), (DOCS / "tutorial.md").read_text()
    terms = re.findall(r"^\*\*([^*]+)\.\*\*", glossary, re.MULTILINE)
    assert terms == sorted(terms, key=str.lower)
    assert set(WORDS) - {part for term in terms for part in term.split(", ")} == set()
    for word in ("price", "nats", "site", "stage", "rate", "dense epochs", "MAC", "budget", "recipe"):
        assert f"*{word}*" in tutorial, word


def test_the_pictures_are_those_of_the_recorded_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "choosing.py"), "draw", str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, timeout=120)
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert len(drawn) == 5
    for name in drawn:
        assert (tmp_path / name).read_bytes() == (DOCS / "assets" / name).read_bytes(), name
