"""[shell] Plan for the records that only the old source has: counts, and the decision of a failback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hub.record import TopicPartition
from hub.replication.operations.divergence.diverged import diverged_topics
from hub.replication.operations.divergence.merging import plan_merge
from hub.replication.operations.divergence.restoring import restore_refusals
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.divergence import DivergedPartition
from hub.replication.ownership.operation_steps import Tail
from hub.topics.tree.confirmed_plans import plan_digest


@dataclass(frozen=True, slots=True)
class TailPlan:
    """Plan of a failback for the diverged partitions. ``superseded``: number of records that a merge leaves
    out, by partition. ``refused``: topics that cannot be restored, with the reason.
    """

    tail: Tail
    partitions: tuple[DivergedPartition, ...]
    superseded: Mapping[TopicPartition, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        return sorted({each.place.topic for each in self.partitions})

    @property
    def digest(self) -> str:
        """Digest of the decision and of home's records, which nobody adds to; records written away since
        are not in it.
        """
        rows = [f"{each.place} {each.common} {each.home_end} {each.before}" for each in self.partitions]
        return plan_digest([self.tail, *rows])

    def lines(self, home: str, away: str) -> list[str]:
        """Return the plan for people: counts of each partition, and what a restore refuses."""
        found = []
        for each in self.partitions:
            if each.only_home or (self.tail == "restore" and each.before):
                left = self.superseded.get(each.place, 0)
                found.append(each.text(home, away) + (f"; {left:,} are superseded" if left else ""))
        if self.tail == "restore" and self.topics:
            found.append(f"deleted at {home}, made again and filled from {away}: {', '.join(self.topics)}")
        found += [f'topic "{topic}" cannot be restored: {why}' for topic, why in sorted(self.refused.items())]
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "tail": self.tail,
            "diverged": [
                {**each.as_json(), "superseded": self.superseded.get(each.place, 0)}
                for each in self.partitions
            ],
            "not_restorable": dict(self.refused),
            "digest": self.digest,
        }


def plan_tail(world: MirroredClusters, home: str, away: str, tail: Tail) -> TailPlan:
    """Return the plan. ``away``: the side that serves the topics. A merge reads the records that differ, in
    compacted topics. Raises PeerError when a side does not answer.
    """
    if tail == "merge":
        merge = plan_merge(world, home, away)
        counts = {place: len(offsets) for place, offsets in merge.superseded.items()}
        return TailPlan(tail, tuple(row for topic in merge.topics for row in topic.partitions), counts)
    topics = diverged_topics(world, home, away)
    refused = restore_refusals(world, home, away) if tail == "restore" else {}
    return TailPlan(tail, tuple(row for topic in topics for row in topic.partitions), {}, refused)
