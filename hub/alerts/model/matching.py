"""[core] Labels, and the matchers of routes and silences.

A matcher names a label and its allowed values. ``topic`` and ``node`` are places in the topic tree and take
its patterns (``shop.**``); in other labels ``*`` stands for any characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from hub.topics.tree.tree import matches

Labels = tuple[tuple[str, str], ...]
Matchers = tuple[tuple[str, tuple[str, ...]], ...]

IN_TREE = ("topic", "node")


def labels_of(labels: Mapping[str, str]) -> Labels:
    """Return the labels sorted, without empty ones."""
    return tuple(sorted((name, value) for name, value in labels.items() if value))


def matchers_of(patterns: Mapping[str, str | Sequence[str]]) -> Matchers:
    """Convert ``{"severity": "page", "topic": ["shop.**"]}`` to matchers."""
    return tuple(
        sorted(
            (name, (value,) if isinstance(value, str) else tuple(value)) for name, value in patterns.items()
        )
    )


def fits(matchers: Matchers, labels: Labels) -> bool:
    """Return True if every matcher matches its label. No matchers match everything.

    >>> fits(matchers_of({"topic": "shop.**"}), labels_of({"topic": "shop.orders", "severity": "page"}))
    True
    """
    return fits_in(matchers, dict(labels))


def fits_in(matchers: Matchers, labels: Mapping[str, str]) -> bool:
    """``fits()`` for labels as a mapping."""
    return all(
        name in labels and any(_value_fits(name, pattern, labels[name]) for pattern in patterns)
        for name, patterns in matchers
    )


def _value_fits(name: str, pattern: str, value: str) -> bool:
    if name in IN_TREE:
        return matches(pattern, value)
    return pattern == value or fnmatchcase(value, pattern.replace("[", "[[]"))
