"""[core] Labels, and what routes and silences say of them.

A matcher names a label and what it must be: a text, or one of several. ``topic`` and ``node`` are places in the tree of
topics and take its patterns (``shop.**``); in others ``*`` stands for any characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from hub.topics.tree.tree import matches

Labels = tuple[tuple[str, str], ...]
Matchers = tuple[tuple[str, tuple[str, ...]], ...]

IN_TREE = ("topic", "node")


def labels_of(said: Mapping[str, str]) -> Labels:
    """Sorted, empty ones left out."""
    return tuple(sorted((name, value) for name, value in said.items() if value))


def matchers_of(said: Mapping[str, str | Sequence[str]]) -> Matchers:
    """``{"severity": "page", "topic": ["shop.**"]}`` as a value."""
    return tuple(
        sorted((name, (value,) if isinstance(value, str) else tuple(value)) for name, value in said.items())
    )


def fits(matchers: Matchers, labels: Labels) -> bool:
    """Whether every matcher finds its label; none fit everything.

    >>> fits(matchers_of({"topic": "shop.**"}), labels_of({"topic": "shop.orders", "severity": "page"}))
    True
    """
    return fits_in(matchers, dict(labels))


def fits_in(matchers: Matchers, said: Mapping[str, str]) -> bool:
    """The same of labels that were looked up before."""
    return all(
        name in said and any(_fits(name, pattern, said[name]) for pattern in patterns)
        for name, patterns in matchers
    )


def _fits(name: str, pattern: str, value: str) -> bool:
    if name in IN_TREE:
        return matches(pattern, value)
    return pattern == value or fnmatchcase(value, pattern.replace("[", "[[]"))
