"""[core] Labels that stand for all labels: one for each way in which label patterns can match a label.

A label pattern is written out (``orders``) or has ``*`` for any number of characters (``orders-*``). The
result is exact: the patterns are read as automata over characters, and every reachable state of their product
is visited. A label that is written out is distinguished from every other label.

Limit: the product grows with the number of patterns that begin with ``*``.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterable, Sequence

from hub.errors import ConfigError

_CHARACTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits + "_-"  # of Kafka's names
_UNSEEN = "x"

# Positions in patterns, as (index of the pattern, next character of it).
_Positions = frozenset[tuple[int, int]]


def too_many_overlaps() -> ConfigError:
    """Return the error about patterns that have too many combinations to be checked."""
    return ConfigError(
        "mirrors: the patterns overlap in too many ways to be checked",
        hint='use patterns that begin with a written label, such as "nyc.**", rather than "**.a.*" or "*-a"',
        code="HUB-1604",
    )


def distinct_labels(patterns: Iterable[str], most_states: int) -> list[str]:
    """Return labels such that every possible label matches the same patterns as one of them: those that are
    written out first, sorted, then one for each other combination of patterns.

    Raises ConfigError (HUB-1604) if the automata have more than ``most_states`` states together.
    """
    every = set(patterns)
    partly = sorted(each for each in every if "*" in each)
    written = sorted(every - set(partly))
    if not partly:
        return [*written, _unseen(written)]
    return [*written, *_other_labels(partly, frozenset(written), most_states)]


def _unseen(written: Collection[str]) -> str:
    label = _UNSEEN
    while label in written:
        label += _UNSEEN
    return label


def _other_labels(partly: Sequence[str], written: frozenset[str], most_states: int) -> Iterable[str]:
    """Return a shortest label, not in ``written``, for each set of patterns that such labels match."""
    used = {character for text in (*partly, *written) for character in text} - {"*"}
    alphabet = [*sorted(used), *[each for each in _CHARACTERS if each not in used][:1]]
    beginnings = {label[:end] for label in written for end in range(len(label) + 1)}
    start = _skipped(partly, ((index, 0) for index in range(len(partly))))
    # A label that begins a written one has a state of its own, so that no written label stands for others.
    reached: set[tuple[_Positions, str | None]] = {(start, "" if "" in beginnings else None)}
    edge, found = [("", start)], dict[frozenset[int], str]()
    while edge:
        following = []
        for label, positions in edge:
            for character in alphabet:
                longer, after = label + character, _after(partly, positions, character)
                if longer not in written:
                    fits = frozenset(index for index, at in after if at == len(partly[index]))
                    found.setdefault(fits, longer)
                state = (after, longer if longer in beginnings else None)
                if state not in reached:
                    reached.add(state)
                    following.append((longer, after))
        if len(reached) > most_states:
            raise too_many_overlaps()
        edge = following
    return found.values()


def _after(partly: Sequence[str], positions: _Positions, character: str) -> _Positions:
    moved = set[tuple[int, int]]()
    for index, at in positions:
        if at < len(partly[index]):
            if partly[index][at] == "*":
                moved.add((index, at))
            elif partly[index][at] == character:
                moved.add((index, at + 1))
    return _skipped(partly, moved)


def _skipped(partly: Sequence[str], positions: Iterable[tuple[int, int]]) -> _Positions:
    """Return the positions with those behind a ``*``, which may match nothing."""
    found = set[tuple[int, int]]()
    for index, at in positions:
        found.add((index, at))
        if at < len(partly[index]) and partly[index][at] == "*":
            found.add((index, at + 1))
    return frozenset(found)
