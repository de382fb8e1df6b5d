"""[edge] Hooks of mkdocs: the contents and the links of the help pages. ``mkdocs.yml`` names this file."""

from __future__ import annotations

from typing import Any

from hub.help.pages import INDEX, contents, without_outside_links


def on_config(config: Any) -> Any:
    """Set the navigation."""
    config.nav = [
        {"Event hub": f"{INDEX}.md"},
        *({part.title: [{title: f"{name}.md"} for name, title in part.pages]} for part in contents()),
    ]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links that leave the site."""
    return without_outside_links(markdown, page.file.src_uri)
