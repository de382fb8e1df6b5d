"""[shell] Pages that say what an alert means and what to do: docs/runbooks/NAME.md, and the little Markdown that they use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hub.errors import NotFound, nearest


class RunbookBlock(NamedTuple):
    """``kind``: h1, h2, p, ul (an entry a line) or pre. Spans of ``text`` are (is code, words)."""

    kind: str
    lines: tuple[tuple[tuple[bool, str], ...], ...]


def folder() -> Path:
    """Beside this module in an installed hub, else in the documents of the project."""
    packaged = Path(__file__).with_name("pages")
    return packaged if packaged.exists() else Path(__file__).parents[2] / "docs" / "runbooks"


@cache
def names() -> tuple[str, ...]:
    """Every page, by name."""
    return tuple(sorted(path.stem for path in folder().glob("*.md")))


def runbook(name: str) -> tuple[RunbookBlock, ...]:
    """A page's blocks. Raises NotFound."""
    if name not in names():
        guess = nearest(name, names())
        raise NotFound(
            f'there is no runbook "{name[:60]}"',
            hint=f'did you mean "{guess}"?' if guess else f"there are: {', '.join(names())}",
        )
    return tuple(blocks((folder() / f"{name}.md").read_text(encoding="utf-8")))


def blocks(text: str) -> Iterator[RunbookBlock]:
    """The blocks of such a page."""
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
    """``(False, "look at "), (True, "hub lag")``; links are their words."""
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    parts = plain.split("`")
    return tuple((number % 2 == 1, part) for number, part in enumerate(parts) if part)
