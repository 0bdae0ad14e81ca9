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

LOW_CONTRAST = """() => {
    const parse = colour => colour.match(/[\\d.]+/g).map(Number);
    const linear = value => value <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
    const light = colour => {
        const [red, green, blue] = parse(colour).map(value => linear(value / 255));
        return .2126 * red + .7152 * green + .0722 * blue;
    };
    const behind = element => {
        for (; element; element = element.parentElement) {
            const colour = getComputedStyle(element).backgroundColor, parts = parse(colour);
            if (parts.length < 4 || parts[3] > 0) return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const low = new Set();
    for (const e of document.querySelectorAll('p, b, span, td, th, h1, h2, h3, small, dt, dd, li, text, code, a')) {
        const style = getComputedStyle(e), ink = light(e.tagName === 'text' ? style.fill : style.color);
        if (!e.textContent.trim() || !e.getClientRects().length) continue;
        const page = light(behind(e));
        const ratio = (Math.max(ink, page) + .05) / (Math.min(ink, page) + .05);
        if (ratio < 4.5) low.add(`${e.tagName} ${ratio.toFixed(2)} ${e.textContent.trim().slice(0, 30)}`);
    }
    return [...low].slice(0, 10);
}"""
"""Texts whose contrast with what is behind them, as WCAG computes it, is below the 4.5 that it asks for."""


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

    def overlapping(self) -> list[str]:
        """Pairs of texts of one chart that lie on each other, by more than the empty part of a line of letters."""
        script = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
            const texts = [...svg.querySelectorAll('text')].filter(text => text.getClientRects().length);
            const boxes = texts.map(text => text.getBoundingClientRect());
            return texts.flatMap((text, i) => texts.slice(i + 1).filter((_, k) => {
                const a = boxes[i], b = boxes[i + 1 + k], line = .25 * Math.min(a.height, b.height);
                const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                return across > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > line;
            }).map(other => `${text.textContent} / ${other.textContent}`));
        })"""
        return list(self.page.evaluate(script))

    def low_contrast(self) -> list[str]:
        """Texts that can hardly be told from what is behind them."""
        return list(self.page.evaluate(LOW_CONTRAST))

    def smallest_text(self) -> float:
        """The height in pixels, on the screen, of the smallest letters of the charts that are shown."""
        script = """() => Math.min(...[...document.querySelectorAll('svg text')].map(text => {
            const svg = text.ownerSVGElement, scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            return scale ? parseFloat(getComputedStyle(text).fontSize) * scale : 1000;
        }))"""
        return float(self.page.evaluate(script))

    def check(self) -> None:
        """It asked for nothing, complained of nothing, fits, and its letters can be read."""
        assert self.complaints == []
        assert self.requests == [self.page.url], "nothing but the page itself"
        assert self.overflow <= 0
        assert self.beyond_cards() == []
        assert self.overlapping() == []
        assert self.smallest_text() >= 9

    def text(self, selector: str) -> str:
        """What can be seen of an element, in one line."""
        return " ".join(self.page.locator(selector).first.inner_text().split())
