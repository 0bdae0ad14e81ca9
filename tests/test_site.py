"""The site: it is built without a warning, and asks no other host for anything."""

from __future__ import annotations

import doctest
import functools
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import rbprune
from tests.report.browser import chromium
from tests.test_examples import DOCS, ROOT

WIDTHS = (390, 1200)


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
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


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


def test_pages_in_a_browser(address: str, browser: Any) -> None:
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
