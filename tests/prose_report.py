"""Measure the language of what people read: ``./run check --report`` prints it, tests/unit/test_prose.py
keeps it.

Rules are heuristics: a private word or an inverted sentence is a place to look at, not a verdict. Terms of
the field that look like private words are not counted: dead-letter records, Java's heap, "is no longer".
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS_OF_CELL = 25

_FRAGMENT = re.compile(
    r"(What|Whether|Of|The same|So "
    r"many|Such|Who|Whom|Whose|That|Those|How|Where|When|Nothing|None|As|By|Until|Twice|Not|Only|Once|And|But|Or|Which|Here|There|It)\b"
)
_FIELD = re.compile(
    r"dead[- ]letter\w*|(ASCII|Unicode.s) letters"
    r"|(off-)?heap\w*|(is|are) no longer|there (is|are) no|letters, digits"
    r"|hands over|damaged_rebuilds",
    re.IGNORECASE,
)
_PRIVATE = re.compile(
    r"\b(letters?|hands|told|tells?|said|says|chores?|damaged?|doubts?|sight|twin|desk|beside|foresee|anew|whom|thereof|goes on"  # noqa: E501
    r"|go on|well\?|is no [a-z]+|are no [a-z]+|so many|who comes|stands? still|acts? for|that which|what is "
    r"not|what was|what they|what it|of what|for what|by whom|it is (said|told|known|seen))\b",
    re.IGNORECASE,
)


def is_private(kind: str, text: str) -> bool:
    """Return whether a text breaks a rule. ``kind``: docs, ADR, messages, docstrings or comments."""
    if kind == "docstrings" and _FRAGMENT.match(text):
        return True
    return _PRIVATE.search(_FIELD.sub("", text)) is not None


def giant_cells(text: str) -> list[str]:
    """Return the cells of a page's tables with more than 25 words."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [cell for row in rows for cell in row.split("|") if len(cell.split()) > MOST_WORDS_OF_CELL]


def texts_of_python(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, kind, text) of summaries of docstrings, messages of raised errors, and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                first = node.body[0].lineno
                yield (
                    first,
                    "docstrings",
                    re.sub(r"^\[\w+\]\s*", "", text.split("\n\n")[0]).replace("\n", " "),
                )
        if isinstance(node, ast.Raise) and node.exc is not None:
            for part in ast.walk(node.exc):
                if (
                    isinstance(part, ast.Constant)
                    and isinstance(part.value, str)
                    and part.value.count(" ") > 2
                ):
                    yield part.lineno, "messages", part.value
    for number, line in enumerate(source.splitlines(), 1):
        comment = re.search(r"(?:^|\s)# (?!type:|noqa|pragma)(.+)", line)
        if comment:
            yield number, "comments", comment[1]


def texts(root: Path = ROOT) -> Iterator[tuple[str, int, str, str]]:
    """Yield (path, line, kind, text) of everything in hub/, docs/ and the README that people read."""
    listed = subprocess.run(
        ["git", "ls-files", "hub", "docs", "README.md"], cwd=root, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split():
        path = root / name
        if path.suffix == ".py" and path.is_file():
            for line, kind, text in texts_of_python(path.read_text(encoding="utf-8")):
                yield name, line, kind, text
        elif path.suffix == ".md" and path.is_file():
            kind = "ADR" if name.startswith("docs/adr/") else "docs"
            for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if text.count(" ") > 3:
                    yield name, line, kind, text.strip()


def private(root: Path = ROOT) -> Counter[str]:
    """Return the number of texts that break a rule, by kind."""
    return Counter(kind for _, _, kind, text in texts(root) if is_private(kind, text))


def places(kind: str, root: Path = ROOT) -> list[str]:
    """Return ``path:line: text`` of the texts of one kind that break a rule."""
    return [
        f"{name}:{line}: {text[:120]}"
        for name, line, each, text in texts(root)
        if each == kind and is_private(each, text)
    ]
