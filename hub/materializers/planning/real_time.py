"""[core] SQL that Spark's real-time mode supports; anything else is refused with the reason and the nearest
form.

Follows Spark 4.3's list of operators and their behavior: filters, projections, generators, unions and one
aggregation, by key or window, which a watermark may close. Joins of streams and sessions are not supported,
and each source is read once. A view is refused when its file is checked, not when Spark starts after an hour
of bulk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sqlglot import exp

from hub.errors import ConfigError
from hub.materializers.definition.sql_query import Query

_LIVE = "write `mode: live`: the same view in micro-batches, from the same state"


def check(query: Query, kind: str, reason: str, nearest: str) -> None:
    """Raise ConfigError (HUB-2108) when a view of this class (``kind``) cannot run in real time.

    ``reason`` and ``nearest`` are the class's reason and nearest native form.
    """
    why = refused(query, kind, reason, nearest)
    if why is not None:
        what, form = why
        raise ConfigError(
            f'view "{query.view.name}": real-time mode does not take it: {what}',
            hint=f"{form}; or {_LIVE}" if form else _LIVE,
            code="HUB-2108",
        )


def refused(query: Query, kind: str, reason: str, nearest: str) -> tuple[str, str] | None:
    """Return (why not, the nearest form that works); None when real-time mode supports the view."""
    if kind == "incremental":
        return f"incremental, {reason}; the incremental engine does that batch by batch", nearest
    if kind == "join":
        return (
            f"join, {reason}; it joins no streams, and would read a static table at its checkpoints only",
            "an entity view (`fields:`) brings events of many topics together by key, and runs in real time",
        )
    if kind == "session":
        return (
            "session: a session is written when the watermark has closed it, and it writes rows as they grow",
            "GROUP BY window(event_time, '10 minutes') gives each window's row as it grows",
        )
    twice = next((name for name, times in Counter(_read(query, query.tree)).items() if times > 1), None)
    if twice is not None:
        topic = query.view.sources[twice].topic
        return (
            f'the SQL reads source "{twice}" more than once, which it does in micro-batches only',
            (
                f"give the second place a source of its own, of the same topic: "
                f"{twice}_again: {{topic: {topic}}}"
            ),
        )
    return None


def _read(query: Query, node: exp.Expr) -> Iterator[str]:
    """Yield the sources that a query reads, as often as it reads them."""
    if isinstance(node, exp.Subquery):
        yield from _read(query, node.this)
    elif isinstance(node, exp.SetOperation):
        yield from _read(query, node.this)
        yield from _read(query, node.expression)
    elif isinstance(node, exp.Select):
        for relation in query.scope(node).relations:
            if relation.source is not None:
                yield relation.source
            elif relation.query is not None:
                yield from _read(query, relation.query)
