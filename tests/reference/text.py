"""Markdown of the generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_LONGEST_CELL = 25


def cell(text: str) -> str:
    """Return the text as the content of a table's cell: one line, without bars and tags."""
    plain = re.sub(r"\s+", " ", text).strip().replace("|", "\\|")
    return re.sub(r"<(?=[a-zA-Z/])", "&lt;", plain)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; [] without rows."""
    lines = ["| " + " | ".join(cell(each) for each in row) + " |" for row in rows]
    if not lines:
        return []
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *lines, ""]


def sentence(text: str) -> str:
    """Return the text as one line with a capital and a period."""
    plain = re.sub(r"\s+", " ", text).strip()
    plain = plain[:1].upper() + plain[1:]
    return plain if not plain or plain[-1] in ".!?:" else f"{plain}."


def prose(text: str) -> str:
    """Return the text as a paragraph in which no angle bracket begins a tag."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"``", "`", text))
    return "".join(p if p.startswith("`") else re.sub(r"<(?=[a-zA-Z/])", "&lt;", p) for p in parts)


def noted_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table whose last cells have at most 25 words;
    a longer one is a list entry behind the table."""
    short, notes = [], []
    for row in rows:
        *others, text = row
        if len(text.split()) > _LONGEST_CELL:
            notes.append(f"- {others[0]}: {text}")
            text = "See below the table."
        short.append((*others, text))
    return [*table(heads, short), *notes, *([""] if notes else [])]
