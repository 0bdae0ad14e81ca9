"""What mkdocs is told beside mkdocs.yml, so that the same pages can be read in the repository and on the site.

- The navigation leaves out pages that are not there, and pages that it does not name come at its end.
- A link to a file outside of docs/ (an example, the licence) leads to a page with the text of that file; a link to a
  folder is plain text.
- A ``mermaid`` block, which only some readers of Markdown can draw, becomes a picture with the same arrows: the script
  that draws it in a browser would be fetched from another host.
"""

from __future__ import annotations

import json
import re
from html import escape
from itertools import pairwise
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((\.\./[^)#\s]+)(#[^)]*)?\)")
FOLDER = re.compile(r"\[([^\]]*)\]\(([\w/-]+)\)")
MERMAID = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".cff": "yaml"}
BOX, GAP, ROW = 92, 16, 48


def pages_of(nav: Any) -> list[str]:
    """The pages that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    children = nav.values() if isinstance(nav, dict) else nav
    return [page for child in children for page in pages_of(child)]


def only_existing(nav: Any, docs: Path) -> Any:
    """The same navigation without pages that are not there, and without sections that have none left."""
    if isinstance(nav, str):
        return nav if (docs / nav).exists() else None
    if isinstance(nav, dict):
        found = {title: only_existing(child, docs) for title, child in nav.items()}
        return {title: child for title, child in found.items() if child} or None
    return [child for child in (only_existing(each, docs) for each in nav) if child]


def on_config(config: Any) -> Any:
    """Let the navigation hold the pages that there are."""
    docs = Path(config["docs_dir"])
    named = set(pages_of(config["nav"]))
    pages = (page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))
    others = sorted(page for page in pages if page not in named)
    config["nav"] = only_existing(config["nav"], docs) + ([{"More": others}] if others else [])
    return config


def target_page(path: str) -> str:
    """The page of the site that shows a file of the repository.

    >>> target_page("README.md"), target_page("CONTRIBUTING.md"), target_page("examples/own_loop.py")
    ('index.md', 'files/CONTRIBUTING.md', 'files/examples/own_loop.py.md')
    """
    if path == "README.md":
        return "index.md"
    return f"files/{path}" if path.endswith(".md") else f"files/{path}.md"


def outside(page: str, link: str) -> str | None:
    """The file of the repository that a link of a page leads to, where that is outside of docs/.

    >>> outside("index.md", "../examples/own_loop.py"), outside("results/vgg16.md", "../results.md")
    ('examples/own_loop.py', None)
    """
    target = normpath(f"docs/{dirname(page)}/{link}")
    return None if target.startswith("docs/") else target


def page_text(path: str) -> str:
    """A file of the repository as a page; links in it that lead elsewhere in the repository become plain text."""
    text = (ROOT / path).read_text()
    if path.endswith(".ipynb"):
        return f"*This is the notebook `{path}` of the repository, as it was run.*\n\n{notebook_text(json.loads(text))}"
    if not path.endswith(".md"):
        return f"# `{path}`\n\n```{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n```\n"

    def link(match: re.Match[str]) -> str:
        inside = re.fullmatch(r"docs/([\w-]+\.md)(#.*)?", match[2])
        return f"[{match[1]}](../{inside[1]}{inside[2] or ''})" if inside else match[1]

    return re.sub(r"\[([^\]]*)\]\(((?!https?:|#)[^)]*)\)", link, text)


def notebook_text(book: dict[str, Any]) -> str:
    """A notebook as Markdown: its text, its code, and what the code printed.

    >>> code = {"cell_type": "code", "source": "1 + 1", "outputs": [{"data": {"text/plain": "2"}}]}
    >>> print(notebook_text({"cells": [code]}).replace("`", "'"))
    '''python
    1 + 1
    '''
    <BLANKLINE>
    '''text
    2
    '''
    """
    parts = []
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = [out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell["outputs"]]
        shown = "".join("".join(each) for each in printed).rstrip()
        parts += [f"```text\n{shown}\n```"] if shown else []
    return "\n\n".join(parts)


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every file outside of docs/ that a page of docs/ links to."""
    linked = set()
    for file in files.documentation_pages():
        links = LINK.findall(Path(file.abs_src_path).read_text())
        linked |= {outside(file.src_uri, link) for link, _ in links} - {None, "README.md"}
    for path in sorted(linked):
        files.append(File.generated(config, target_page(path), content=page_text(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links that leave docs/ to their pages, and draw what mermaid would draw."""
    here = page.file.src_uri
    if here.startswith("files/"):
        return markdown

    def lead(match: re.Match[str]) -> str:
        target = outside(here, match[1])
        return match[0] if target is None else f"]({relpath(target_page(target), dirname(here))}{match[2] or ''})"

    markdown = LINK.sub(lead, markdown)
    markdown = FOLDER.sub(lambda match: match[1] if (ROOT / "docs" / match[2]).is_dir() else match[0], markdown)
    return MERMAID.sub(lambda match: flowchart(match[1]), markdown)


def arrows(source: str) -> list[tuple[str, str]]:
    """The arrows of a flowchart.

    >>> arrows("flowchart BT\\n  a --> b & c --> d")
    [('a', 'b'), ('a', 'c'), ('b', 'd'), ('c', 'd')]
    """
    found = []
    for line in source.splitlines()[1:]:
        steps = [[name.strip() for name in step.split("&")] for step in line.split("-->") if step.strip()]
        for before, after in pairwise(steps):
            found += [(a, b) for a in before for b in after]
    return found


def ranks(edges: list[tuple[str, str]]) -> dict[str, int]:
    """How many arrows lead to each name, on the longest way.

    >>> ranks([("a", "b"), ("a", "c"), ("b", "c")])
    {'a': 0, 'b': 1, 'c': 2}
    """
    found = {name: 0 for edge in edges for name in edge}
    for _ in found:
        for before, after in edges:
            found[after] = max(found[after], found[before] + 1)
    return found


def around(begin: tuple[float, float], end: tuple[float, float], width: float) -> str:
    """The way of an arrow that passes rows of boxes: beside all of them, on the side on which it begins or ends.

    >>> around((60, 200), (60, 100), 200)
    'M14,200H8V100H13'
    """
    (x1, y1), (x2, y2) = begin, end
    side = -1 if min((x1, x2), key=lambda x: -abs(x - width / 2)) < width / 2 else 1
    lane = GAP / 2 if side < 0 else width - GAP / 2
    return f"M{x1 + side * BOX / 2:g},{y1:g}H{lane:g}V{y2:g}H{x2 + side * (BOX / 2 + 1):g}"


def flowchart(source: str) -> str:
    """A flowchart as a picture: every name above all that lead to it."""
    edges = arrows(source)
    height = ranks(edges)
    rows = [[name for name, rank in height.items() if rank == level] for level in range(max(height.values()) + 1)]
    width = max(map(len, rows)) * (BOX + GAP) + 4 * GAP
    total = len(rows) * ROW
    place = {
        name: (width / 2 + (index - (len(row) - 1) / 2) * (BOX + GAP), total - level * ROW - ROW / 2)
        for level, row in enumerate(rows)
        for index, name in enumerate(row)
    }
    head = '<marker id="arrow" markerWidth="7" markerHeight="7" refX="6" refY="3" orient="auto">'
    head += '<path d="M0,0L7,3L0,6"/></marker>'
    parts = [f'<svg class="flowchart" viewBox="0 0 {width} {total}" width="{width}" role="img"><defs>{head}</defs>']
    for before, after in edges:
        (x1, y1), (x2, y2) = place[before], place[after]
        way = f"M{x1:g},{y1 - 14:g}L{x2:g},{y2 + 15:g}"
        if height[after] - height[before] > 1:
            way = around(place[before], place[after], width)
        parts.append(f'<path d="{way}" marker-end="url(#arrow)"/>')
    for name, (x, y) in place.items():
        parts.append(f'<rect x="{x - BOX / 2:g}" y="{y - 14:g}" width="{BOX}" height="28" rx="5"/>')
        parts.append(f'<text x="{x:g}" y="{y + 4:g}">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])
