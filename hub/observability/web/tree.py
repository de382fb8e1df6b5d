"""[core] Topics as a tree by their labels, for display: ``crm`` over ``customers`` and ``consent``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hub.observability.overview.overview import TopicLine


@dataclass(frozen=True, slots=True)
class TopicBranch:
    """Topics below one first label, with their sums. ``leaves``: (rest of the name, topic)."""

    label: str
    leaves: tuple[tuple[str, TopicLine], ...]

    @property
    def events(self) -> int:
        return sum(topic.events for _, topic in self.leaves)

    @property
    def events_per_second(self) -> float | None:
        rates = [topic.events_per_second for _, topic in self.leaves if topic.events_per_second is not None]
        return sum(rates) if rates else None

    @property
    def undecodable(self) -> int:
        return sum(topic.undecodable for _, topic in self.leaves)


def branches(topics: Iterable[TopicLine]) -> tuple[TopicBranch, ...]:
    """Group topics by their first label, in order; changelogs of views (label ``views``) come last."""
    grouped: dict[str, list[tuple[str, TopicLine]]] = {}
    for topic in topics:
        label, _, rest = topic.name.partition(".")
        grouped.setdefault(label, []).append((rest or label, topic))
    order = sorted(grouped, key=lambda label: (label == "views", label))
    return tuple(
        TopicBranch(label, tuple(sorted(grouped[label], key=lambda leaf: leaf[0]))) for label in order
    )
