"""[core] Read-your-writes: whether a store covers the write whose token a reader sends.

A token is the position after a write, ``topic:partition:offset``. A store covers it when its source positions
for the view do, or (for one key, without waiting for the batch's progress record) when the row's provenance
has an event at or past the write as its source's latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hub.errors import CallerError
from hub.record import Positions
from hub.topics.tree.tree import matches

POSITION_HEADER = "Hub-Position"
CATCHING_UP_HEADER = "Hub-Catching-Up"
"""Header of answers with rows of views that still read a backlog: their names, by commas."""
CatchingUp = Callable[[Iterable[str]], tuple[str, ...]]
"""From names of views to those of them that still read a backlog."""


def wanted(token: str | None, source_topics: frozenset[str], view: str) -> Positions:
    """Return the positions of a token that concern a view; writes to other topics are not waited for.

    ``source_topics`` may be patterns: a topic that was created a moment ago is in no batch yet, but its write
    is waited for.

    Raises CallerError when the token names none of the view's topics, because the wait would never end.
    """
    if not token:
        return Positions()
    positions = Positions.parse(token)
    if not source_topics:
        return positions  # the view has no reported batch yet: wait for the whole token
    mine = Positions(
        {
            tp: offset
            for tp, offset in positions
            if any(matches(topic, tp.topic) for topic in sorted(source_topics))
        }
    )
    if positions and not mine:
        other = next(iter(positions))[0].topic
        raise CallerError(
            f'position token: topic "{other}" is not a source of view "{view}"',
            hint=f"its sources: {', '.join(sorted(source_topics))}",
            code="HUB-1003",
        )
    return mine


def is_token(text: str) -> bool:
    """Return whether a text is a position token, such as ``orders:0:5``."""
    try:
        return bool(Positions.parse(text))
    except CallerError:
        return False


def row_covers(row_sources: Mapping[str, Any] | None, token: Positions) -> bool:
    """Return whether the row's own provenance covers every position of the token."""
    if not row_sources or not token:
        return not token
    covered = {
        (origin["topic"], origin["partition"]): origin["offset"] + 1
        for origin in row_sources.values()
        if origin is not None
    }
    return all(covered.get((tp.topic, tp.partition), 0) >= offset for tp, offset in token)
