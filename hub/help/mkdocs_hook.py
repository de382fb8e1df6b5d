"""[edge] Hooks of mkdocs: the contents and the links of the help pages. ``mkdocs.yml`` names this file."""

from __future__ import annotations

import re
from typing import Any

from hub.help.pages import INDEX, contents, without_outside_links

_ENTRY = re.compile(r"(?:[-*]|\d+\.) ")


def on_config(config: Any) -> Any:
    """Set the navigation."""
    config.nav = [
        {"Event hub": f"{INDEX}.md"},
        *({part.title: [{title: f"{name}.md"} for name, title in part.pages]} for part in contents()),
    ]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links that leave the site, and set lists apart from paragraphs."""
    return with_room_before_lists(without_outside_links(markdown, page.file.src_uri))


def with_room_before_lists(text: str) -> str:
    """Put an empty line before each list that follows a paragraph directly: CommonMark needs none, mkdocs
    does.

    >>> with_room_before_lists("Colors:\\n- red")
    'Colors:\\n\\n- red'
    """
    lines: list[str] = []
    fenced = in_list = False
    for line in text.split("\n"):
        fenced ^= line.startswith("```")
        entry = not fenced and _ENTRY.match(line) is not None
        if entry and not in_list and lines and lines[-1].strip():
            lines.append("")
        in_list = entry or (in_list and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines)
