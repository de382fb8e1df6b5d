"""[core] Patterns of labels as nodes of a tree: the topics that a node covers, and the order of nodes.

A pattern is labels joined by dots; ``*`` is exactly one label, ``**`` any number of them, including none, and
occurs at most once. A node applies to every topic that matches it and to everything below: ``retail`` to
``retail.orders.eu``. The depth of a node for a topic is the smallest number of the topic's labels that match
the pattern.

Order of nodes on a topic's trail, ancestors first::

    1. depth                        retail  before  retail.*  (a node above before one below)
    2. labels written out           **.chat before  nyc.*.chat
    3. ``**`` before none           **.chat before  *.chat
    4. fewer ``*``                  **.chat before  **.*.chat
    5. label by label: ** , * , written out          *.orders before retail.*
    6. the text, so that no two are ever equal

Of two nodes with equal depth, one whose topics are a subset of the other's therefore comes later, and wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Labels = tuple[str, ...]

_LABEL = re.compile(r"[a-zA-Z0-9_-]+|\*\*?")
_LABEL_WITH_STARS = re.compile(r"\*\*?|\*?[a-zA-Z0-9_-]+(\*[a-zA-Z0-9_-]+)*\*?")
_LONGEST = 249  # characters; Kafka's limit of a topic's name
_UNSEEN = "?"  # a label that no pattern contains


def labels_of(name: str) -> Labels:
    """Return the labels of a topic or a pattern; the root, with the empty name, has none."""
    return tuple(name.split(".")) if name else ()


def checked(pattern: str, *, stars_inside: bool = False) -> str:
    """Return the pattern if it is valid. Raises ValueError with a fix.

    ``stars_inside``: a label may contain ``*`` (any number of characters), as in ``orders-*``.
    """
    allowed = _LABEL_WITH_STARS if stars_inside else _LABEL
    for label in pattern.split("."):
        if not allowed.fullmatch(label):
            inside = ' and "*" for any characters' if stars_inside else ""
            raise ValueError(
                f'pattern "{pattern[:80]}": label "{label[:80]}" may have letters, digits, "_" and "-"'
                f'{inside}, or be "*" (one label) or "**" (any number)'
            )
    if len(pattern) > _LONGEST:
        raise ValueError(f'pattern "{pattern[:60]}…" has {len(pattern)} characters, Kafka allows {_LONGEST}')
    if labels_of(pattern).count("**") > 1:
        raise ValueError(f'pattern "{pattern}": "**" may occur once')
    return pattern


def fits(pattern: Labels, labels: Labels) -> bool:
    """Return True if the pattern matches exactly these labels."""
    if "**" not in pattern:
        return len(pattern) == len(labels) and _same(pattern, labels)
    cut = pattern.index("**")
    head, tail = pattern[:cut], pattern[cut + 1 :]
    return (
        len(labels) >= len(head) + len(tail)
        and _same(head, labels)
        and _same(tail, labels[len(labels) - len(tail) :])
    )


def _same(pattern: Labels, labels: Labels) -> bool:
    return all(part in ("*", label) for part, label in zip(pattern, labels, strict=False))


def depth(pattern: Labels, topic: Labels) -> int | None:
    """Return the number of the topic's labels at which the node begins to apply; None when it does not."""
    if "**" not in pattern:
        return len(pattern) if fits(pattern, topic[: len(pattern)]) else None
    return next((n for n in range(len(pattern) - 1, len(topic) + 1) if fits(pattern, topic[:n])), None)


def specificity(pattern: Labels) -> tuple[object, ...]:
    """Return the sort key of nodes with equal depth, least specific first."""
    kinds = tuple({"**": 0, "*": 1}.get(label, 2) for label in pattern)
    return (kinds.count(2), -kinds.count(0), kinds.count(1), kinds, pattern)


def trail(patterns: Iterable[Labels], topic: Labels) -> list[Labels]:
    """Return the nodes that apply to a topic, ancestors first."""
    found = [(n, specificity(each), each) for each in patterns if (n := depth(each, topic)) is not None]
    return [each for *_, each in sorted(found)]


def ancestors_first(patterns: Iterable[Labels]) -> list[Labels]:
    """Sort nodes so that each comes after those above it."""
    return sorted(patterns, key=lambda each: (len(each) - each.count("**"), specificity(each)))


def is_ancestor(above: Labels, below: Labels) -> bool:
    """Return True if ``above`` applies, and comes first on the trail, wherever ``below`` applies."""
    if above == below or not _covers(above, below):
        return False
    return not _covers(below, above) or specificity(above) < specificity(below)


def _covers(above: Labels, below: Labels) -> bool:
    """Return True if ``above`` covers every topic at or below ``below``.

    Exact: only wildcards match a label that no pattern writes out, and a ``**`` that matches more labels than
    the other pattern has changes nothing.
    """
    written_out = {*above} - {"*", "**"}
    if not written_out <= {*below}:
        return False
    if len(written_out) == len(above):
        return below[: len(above)] == above
    return all(depth(above, each) is not None for each in _instances(below, len(above) + 1))


def _instances(pattern: Labels, most: int) -> Iterator[Labels]:
    instance = tuple(_UNSEEN if label == "*" else label for label in pattern)
    if "**" not in instance:
        yield instance
        return
    cut = instance.index("**")
    for count in range(most + 1):
        yield (*instance[:cut], *(_UNSEEN,) * count, *instance[cut + 1 :])
