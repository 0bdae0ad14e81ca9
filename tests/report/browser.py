"""The pages in a real browser (chromium, driven by playwright), which sees what a reader sees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (390, 1000, 1600)
"""A phone, half a screen, a whole one."""
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, or a skipped test that says what is missing."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no chromium is installed (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=[*QUIET, "--disable-component-update"])
        yield browser
        browser.close()


class OpenPage:
    """A page of ours in the browser: what it complained of, what it asked for, and what can be seen of it."""

    def __init__(self, browser: Any, file: Path, width: int = 1000, scheme: str = "light") -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.resolve().as_uri())

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def beyond_cards(self) -> list[str]:
        """Texts of charts that leave the card that they are drawn in."""
        script = """() => [...document.querySelectorAll('.card svg text')].filter(text => {
            const inner = text.getBoundingClientRect(), outer = text.closest('.card').getBoundingClientRect();
            return inner.width > 0 && (inner.left < outer.left - 1 || inner.right > outer.right + 1);
        }).map(text => text.textContent)"""
        return list(self.page.evaluate(script))

    def smallest_text(self) -> float:
        """The height in pixels, on the screen, of the smallest letters of the charts that are shown."""
        script = """() => Math.min(...[...document.querySelectorAll('svg text')].map(text => {
            const svg = text.ownerSVGElement, scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            return scale ? parseFloat(getComputedStyle(text).fontSize) * scale : 1000;
        }))"""
        return float(self.page.evaluate(script))

    def text(self, selector: str) -> str:
        """What can be seen of an element, in one line."""
        return " ".join(self.page.locator(selector).first.inner_text().split())
