"""[shell] What is known of everything, as who asks may see it: topics, views, readers. Behind it nothing is left out twice.

What watches in the background asks the collector and the monitor themselves: there nobody asks, and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hub.caller import CALLER, HUB, Action, may, sees_topic, sees_view
from hub.observability.consumers import LagRow
from hub.observability.overview import Overview, TopicLine
from hub.observability.web.pages.completeness import Ledgered
from hub.observability.web.pages.estate import HasTopics
from hub.topics.tree import TopicSpec


class HasLag(Protocol):
    round_s: float | None

    def rows(self) -> Sequence[LagRow]: ...


@dataclass(frozen=True)
class SeenTopics:
    """See hub.observability.web.pages.estate.HasTopics."""

    collector: HasTopics

    def overview(self) -> Overview:
        return seen_overview(self.collector.overview())

    def line(self, topic: str) -> TopicLine | None:
        return self.collector.line(topic) if sees_topic(topic) else None

    def other_lines(self, kind: str) -> Sequence[TopicLine]:
        return [each for each in self.collector.other_lines(kind) if sees_topic(each.name)]

    def names(self) -> Sequence[str]:
        return [each for each in self.collector.names() if sees_topic(each)]


@dataclass(frozen=True)
class SeenLag:
    """See hub.observability.routes.HasRows."""

    monitor: HasLag

    @property
    def round_s(self) -> float | None:
        return self.monitor.round_s

    def rows(self) -> Sequence[LagRow]:
        return seen_rows(self.monitor.rows())


def seen_overview(overview: Overview) -> Overview:
    """The topics and views that may be seen; of a view the sources that may; Kafka Connect to who reads the hub."""
    if CALLER.get() is None:
        return overview
    views = []
    for view in overview.views:
        if sees_view(view.name):
            sources = tuple(each for each in view.sources if sees_topic(each.topic))
            lag = view.lag if view.lag is None or sees_topic(view.lag.topic) else replace(view.lag, topic="")
            views.append(replace(view, sources=sources, lag=lag))
    return replace(
        overview,
        topics=tuple(each for each in overview.topics if sees_topic(each.name)),
        views=tuple(views),
        connect=overview.connect if may(Action.read, HUB) else None,
    )


def seen_rows(rows: Sequence[LagRow]) -> Sequence[LagRow]:
    """Readers of topics and views that may be seen; those of nothing at all, to who sees the hub."""
    if CALLER.get() is None:
        return rows

    def seen(row: LagRow) -> bool:
        if row.topic is None and row.view is None:
            return may(Action.describe, HUB)
        return (row.topic is None or sees_topic(row.topic)) and (row.view is None or sees_view(row.view))

    return [row for row in rows if seen(row)]


def seen_tree(tree: Mapping[str, TopicSpec]) -> Mapping[str, TopicSpec]:
    return tree if CALLER.get() is None else {name: spec for name, spec in tree.items() if sees_topic(name)}


def seen_ledger(ledger: Ledgered) -> Ledgered:
    if CALLER.get() is None:
        return ledger
    return replace(
        ledger,
        topics=[each for each in ledger.topics if sees_topic(each.topic)],
        minutes=lambda topic: ledger.minutes(topic) if sees_topic(topic) else None,
    )
