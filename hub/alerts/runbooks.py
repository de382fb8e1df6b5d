"""[shell] Runbooks: pages that explain an alert and its remedy (docs/runbooks/NAME.md), and their subset of
Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hub.errors import NotFound, did_you_mean


class RunbookBlock(NamedTuple):
    """A block of a page. ``kind`` is h1, h2, p, ul (one entry per line) or pre. Spans of ``lines`` are (True
    for code, text).
    """

    kind: str
    lines: tuple[tuple[tuple[bool, str], ...], ...]


def folder() -> Path:
    """Return the folder of the pages: next to this module in an installed hub, else docs/runbooks of the
    project.
    """
    packaged = Path(__file__).with_name("pages")
    return packaged if packaged.exists() else Path(__file__).parents[2] / "docs" / "runbooks"


@cache
def names() -> tuple[str, ...]:
    """Return the names of all pages."""
    return tuple(sorted(path.stem for path in folder().glob("*.md")))


def runbook(name: str) -> tuple[RunbookBlock, ...]:
    """Return the blocks of a page. Raises NotFound."""
    if name not in names():
        raise NotFound(
            f'runbook "{name[:60]}" does not exist',
            hint=did_you_mean(name, names(), f"there are: {', '.join(names())}"),
        )
    return tuple(blocks((folder() / f"{name}.md").read_text(encoding="utf-8")))


def blocks(text: str) -> Iterator[RunbookBlock]:
    """Split a page into blocks."""
    for part in re.split(r"\n\s*\n", text.strip()):
        lines = part.splitlines()
        if part.startswith(("# ", "## ")):
            yield RunbookBlock("h1" if part.startswith("# ") else "h2", (spans(part.lstrip("# ")),))
        elif part.startswith("- "):
            entries: list[str] = []
            for line in lines:
                if line.startswith("- "):
                    entries.append(line[2:])
                else:
                    entries[-1] += f" {line.strip()}"
            yield RunbookBlock("ul", tuple(map(spans, entries)))
        else:
            yield RunbookBlock("p", (spans(" ".join(lines)),))


def spans(text: str) -> tuple[tuple[bool, str], ...]:
    """Split text into spans: ``(False, "look at "), (True, "hub lag")``. Links are replaced by their text."""
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    parts = plain.split("`")
    return tuple((number % 2 == 1, part) for number, part in enumerate(parts) if part)
