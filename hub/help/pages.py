"""[shell] Help pages: Markdown files of ``docs/``, rendered once per process."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from hub.errors import NotFound, nearest

# Folder of each section in the contents, with its title.
SECTIONS = (
    ("tutorials", "Tutorials"),
    ("how-to", "How-to guides"),
    ("reference", "Reference"),
    ("explanation", "Explanation"),
    ("explanation/comparisons", "Comparisons"),
    ("runbooks", "Runbooks"),
    ("adr", "Decisions"),
)
INDEX = "index"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_EXTERNAL = re.compile(r"[a-z]+:|#|/")


@dataclass(frozen=True, slots=True)
class HelpPage:
    """A rendered page. ``name``: path below docs without ending, such as ``how-to/test-a-view``."""

    name: str
    title: str
    html: str


@dataclass(frozen=True, slots=True)
class HelpSection:
    """A section of the contents: its title, and (page, title) of each page."""

    title: str
    pages: tuple[tuple[str, str], ...]


def folder() -> Path:
    """Return the folder of the pages: next to this module in an installed hub, else docs of the checkout."""
    packaged = Path(__file__).with_name("pages")
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "docs"


@cache
def contents() -> tuple[HelpSection, ...]:
    """Return all sections. Pages are in the order of their titles; decisions and runbooks of their names."""
    return tuple(_section(name, title) for name, title in SECTIONS)


def _section(name: str, title: str) -> HelpSection:
    pages = [(f"{name}/{path.stem}", title_of(path)) for path in sorted((folder() / name).glob("*.md"))]
    by_title = name not in ("runbooks", "adr")
    return HelpSection(title, tuple(sorted(pages, key=lambda page: page[1].lower()) if by_title else pages))


def title_of(path: Path) -> str:
    """Return a page's first heading as plain text; the file's name for a page without."""
    match = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return re.sub(r"[`*]", "", match[1]) if match else path.stem


@cache
def page(name: str) -> HelpPage:
    """Return a page by its name. Raises NotFound with the nearest name."""
    known = [INDEX, *(each for section in contents() for each, _ in section.pages)]
    if name not in known:
        guess = nearest(name, known)
        raise NotFound(
            f'help page "{name[:100]}" does not exist',
            hint=f'did you mean "/help/{guess}"?' if guess else "/help lists all pages",
        )
    path = folder() / f"{name}.md"
    text = without_outside_links(path.read_text(encoding="utf-8"), f"{name}.md")
    return HelpPage(name, title_of(path), render(text, name))


def image(name: str) -> bytes:
    """Return a picture of ``docs/images``. Raises NotFound."""
    path = folder() / "images" / name
    if not re.fullmatch(r"[a-z0-9-]+\.png", name) or not path.is_file():
        raise NotFound(f'picture "{name[:100]}" does not exist')
    return path.read_bytes()


def without_outside_links(text: str, path: str) -> str:
    """Replace links that leave the folder of the pages by their text and the target's path in the repository.

    >>> without_outside_links("See [the rules](../../deploy/rules.yaml).", "how-to/x.md")
    'See the rules (`deploy/rules.yaml`).'
    """

    def replaced(match: re.Match[str]) -> str:
        words, target = match.groups()
        if _EXTERNAL.match(target):
            return match[0]
        at = posixpath.normpath(posixpath.join("docs", posixpath.dirname(path), target.partition("#")[0]))
        return match[0] if at.startswith("docs/") else f"{words} (`{at}`)"

    parts = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if at % 2 else _LINK.sub(replaced, part) for at, part in enumerate(parts))


def render(text: str, name: str = INDEX) -> str:
    """Return Markdown as HTML: headings have ids, links to pages lead below ``/help``."""
    markdown = MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(text)
    for token, content in _headings(tokens):
        token.attrSet("id", slug(content))
    for token in _inline(tokens):
        for attribute in ("href", "src"):
            target = token.attrGet(attribute)
            if isinstance(target, str):
                token.attrSet(attribute, address(target, name))
    html = str(markdown.renderer.render(tokens, markdown.options, {}))
    # What scrolls sideways must be reachable by keys.
    html = html.replace("<pre>", '<pre tabindex="0">').replace(
        "<table>", '<div class="scroll" tabindex="0"><table>'
    )
    return html.replace("</table>", "</table></div>")


def slug(heading: str) -> str:
    """Return the anchor of a heading, as mkdocs makes it.

    >>> slug("View = log: `ttl`")
    'view-log-ttl'
    """
    plain = re.sub(r"[^\w\s-]", "", heading).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


def address(target: str, name: str) -> str:
    """Return where a link of the page ``name`` leads on the server.

    >>> address("../reference/sql.md#functions", "how-to/test-a-view"), address("#rows", "x")
    ('/help/reference/sql#functions', '#rows')
    """
    if _EXTERNAL.match(target):
        return target
    path, hash, anchor = target.partition("#")
    at = posixpath.normpath(posixpath.join(posixpath.dirname(name), path.removesuffix(".md")))
    return f"/help/{at}{hash}{anchor}".replace(f"/help/{INDEX}", "/help")


def _headings(tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            yield token, tokens[at + 1].content


def _inline(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from token.children or ()
