"""[core] One change between two schemas, and the words that all formats share."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# Depth of types that are compared. A limit of our own: Python's is per process, and a library may raise it.
MOST_CHAINED = 200
_INVISIBLE = frozenset({"doc", "title", "description", "metadata", "spelling", "aliases", "sort order"})


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change.

    ``kind`` is for programs (``field added``), ``path`` uses names (``item.qty``; "" is the schema).
    """

    kind: str
    path: str
    what: str

    def __str__(self) -> str:
        return self.what

    @property
    def is_visible_to_readers(self) -> bool:
        """True if a reader of the events could notice it; not for docs, metadata, aliases and sort orders."""
        return self.kind not in _INVISIBLE


def counted(step: Callable[..., Iterator[SchemaChange]]) -> Callable[..., Iterator[SchemaChange]]:
    """Limit the recursion of a method to ``MOST_CHAINED``; the depth is in the instance's ``_depth``."""

    @functools.wraps(step)
    def deeper(self: Any, *arguments: Any) -> Iterator[SchemaChange]:
        if self._depth == MOST_CHAINED:
            raise RecursionError
        self._depth += 1
        yield from step(self, *arguments)
        self._depth -= 1

    return deeper


def as_json(value: Any) -> str:
    """Return a JSON value as text, of at most 80 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def same_json(a: Any, b: Any) -> bool:
    """Return True if two JSON values are the same; to Python, true equals 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return bool(a == b)


def json_key(value: Any) -> str:
    """Return a text that is equal for JSON values that are the same."""
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value, sort_keys=True)


def ticked(names: Sequence[Any], most: int = 20) -> str:
    """Return names in backticks, the first ``most`` of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{each}`" for each in names[:most]) + more


def doc_changes(path: str, called: str, old: Any, new: Any, word: str = "doc") -> Iterator[SchemaChange]:
    """Yield the change of a text that readers do not see."""
    if same_json(old, new):
        return
    if old is None:
        message = f"{called} got the {word} {as_json(new)}"
    elif new is None:
        message = f"{called} lost its {word}"
    else:
        message = f"the {word} of {called} is now {as_json(new)}"
    yield SchemaChange(word, path, message)


def field_path(path: str, name: str) -> str:
    """Return the path of a field below another."""
    return f"{path}.{name}" if path else name
