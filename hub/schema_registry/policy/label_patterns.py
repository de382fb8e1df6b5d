"""[core] Patterns of labels as nodes of a tree: which topics stand at or below one, and which of two comes first.

A pattern is labels joined by dots; ``*`` is exactly one label, ``**`` any number of them, also none, and stands at most
once. A node holds for every topic that fits it and for everything below: ``retail`` for ``retail.orders.eu``. Where
a node begins to hold for a topic is its depth: the fewest labels of the topic that fit the pattern.

The order on a topic's trail, ancestors first::

    1. depth                        retail  before  retail.*  (a node above before one below)
    2. labels written out           **.chat before  nyc.*.chat
    3. ``**`` before none           **.chat before  *.chat
    4. fewer ``*``                  **.chat before  **.*.chat
    5. label by label: ** , * , written out          *.orders before retail.*
    6. the text, so that no two are ever equal

So of two nodes that begin at the same depth, one whose topics are a part of the other's comes later, and decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Labels = tuple[str, ...]

_LABEL = re.compile(r"[a-zA-Z0-9_-]+|\*\*?")
_LONGEST = 249  # characters; Kafka's limit of a topic's name
_UNSEEN = "?"  # a label that no pattern can write out


def labels_of(name: str) -> Labels:
    """The labels of a topic or a pattern; the empty name has none: it is the root."""
    return tuple(name.split(".")) if name else ()


def checked(pattern: str) -> str:
    """The pattern itself. Raises ValueError with the way out."""
    for label in pattern.split("."):
        if not _LABEL.fullmatch(label):
            raise ValueError(
                f'pattern "{pattern[:80]}": label "{label[:80]}" may have letters, digits, "_" and "-", '
                f'or be "*" (one label) or "**" (any number)'
            )
    if len(pattern) > _LONGEST:
        raise ValueError(f'pattern "{pattern[:60]}…" has {len(pattern)} characters, Kafka allows {_LONGEST}')
    if labels_of(pattern).count("**") > 1:
        raise ValueError(f'pattern "{pattern}": "**" may stand once')
    return pattern


def fits(pattern: Labels, labels: Labels) -> bool:
    """Whether exactly these labels are what the pattern says."""
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
    return all(said in ("*", label) for said, label in zip(pattern, labels, strict=False))


def depth(pattern: Labels, topic: Labels) -> int | None:
    """With how many of the topic's labels the node begins to hold for it; None when it does not."""
    if "**" not in pattern:
        return len(pattern) if fits(pattern, topic[: len(pattern)]) else None
    return next((n for n in range(len(pattern) - 1, len(topic) + 1) if fits(pattern, topic[:n])), None)


def specificity(pattern: Labels) -> tuple[object, ...]:
    """The order of nodes of one depth, the least specific first."""
    kinds = tuple({"**": 0, "*": 1}.get(label, 2) for label in pattern)
    return (kinds.count(2), -kinds.count(0), kinds.count(1), kinds, pattern)


def trail(patterns: Iterable[Labels], topic: Labels) -> list[Labels]:
    """The nodes that hold for a topic, ancestors first."""
    found = [(n, specificity(each), each) for each in patterns if (n := depth(each, topic)) is not None]
    return [each for *_, each in sorted(found)]


def ancestors_first(patterns: Iterable[Labels]) -> list[Labels]:
    """Every node after those above it."""
    return sorted(patterns, key=lambda each: (len(each) - each.count("**"), specificity(each)))


def is_ancestor(above: Labels, below: Labels) -> bool:
    """Whether ``above`` holds, and comes first on the trail, wherever ``below`` holds."""
    if above == below or not _covers(above, below):
        return False
    return not _covers(below, above) or specificity(above) < specificity(below)


def _covers(above: Labels, below: Labels) -> bool:
    """Whether every topic at or below ``below`` is at or below ``above``.

    Exact: a label that no pattern writes out fits wildcards only, and more labels for a ``**`` than the other pattern
    has change nothing.
    """
    written_out = {*above} - {"*", "**"}
    if not written_out <= {*below}:
        return False
    if len(written_out) == len(above):
        return below[: len(above)] == above
    return all(depth(above, each) is not None for each in _instances(below, len(above) + 1))


def _instances(pattern: Labels, most: int) -> Iterator[Labels]:
    one = tuple(_UNSEEN if label == "*" else label for label in pattern)
    if "**" not in one:
        yield one
        return
    cut = one.index("**")
    for count in range(most + 1):
        yield (*one[:cut], *(_UNSEEN,) * count, *one[cut + 1 :])
