"""[core] Page of the view workbench: topics and views that a statement can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hub.observability.overview.overview import Overview, TopicKind

MOST_LISTED = 60


@dataclass(frozen=True, slots=True)
class WorkbenchPage:
    """Values of the page. ``more``: topics with these words that are not listed. ``known``: whether Kafka has
    listed its topics. ``chosen``: topics that are shown with their fields at once."""

    topics: tuple[str, ...]
    more: int
    views: tuple[str, ...]
    q: str
    sql: str
    chosen: tuple[str, ...]
    known: bool


def workbench_page(overview: Overview, q: str, sql: str, chosen: Sequence[str]) -> WorkbenchPage:
    """Return the page: topics with every word of ``q`` in their name, the chosen ones first."""
    wanted = q.lower().split()
    events = [line.name for line in overview.topics if line.kind is TopicKind.events]
    names = [name for name in events if all(word in name.lower() for word in wanted)]
    first = [name for name in chosen if name in names]
    ordered = [*first, *(name for name in names if name not in first)]
    return WorkbenchPage(
        tuple(ordered[:MOST_LISTED]),
        max(0, len(ordered) - MOST_LISTED),
        tuple(view.name for view in overview.views),
        q,
        sql,
        tuple(first),
        overview.kafka_answered,
    )
