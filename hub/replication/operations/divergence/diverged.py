"""[shell] Partitions of which only the old source has records, counted on both sides. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hub.record import Positions, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.clusters.readers import read_progress
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import Checkpoint, Gap
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap
from hub.replication.operations.catch_up import HomeTail, tails
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.divergence import DivergedPartition, older_ranges
from hub.replication.ownership.links import Link, opposite
from hub.replication.verification.comparable import complete_tables

_LOOK_S = 15.0


@dataclass(frozen=True, slots=True)
class DivergedTopic:
    """A topic that has a tail in any of its partitions. ``marks``: checkpoints of the link from home."""

    link: Link
    topic: str
    partitions: tuple[DivergedPartition, ...]
    marks: Mapping[TopicPartition, Checkpoint]


def diverged_topics(world: MirroredClusters, home: str, away: str) -> list[DivergedTopic]:
    """Return the topics of which only ``home`` has records now, by name. ``away``: the side that serves them.

    Raises PeerError when a side does not answer, or its maps are not complete.
    """
    by_link: dict[str, tuple[Link, set[str]]] = {}
    for each in _with_records(world.clusters[home], tails(world, home, away, home)):
        by_link.setdefault(each.link.name, (each.link, set()))[1].add(each.mark.topic)
    there = read_progress(world.clusters[home]) if by_link else WrittenState()
    found = [
        each for link, topics in by_link.values() for each in _of_link(world, link, sorted(topics), there)
    ]
    return sorted(found, key=lambda each: each.topic)


def _with_records(home: ClusterHandle, found: list[HomeTail]) -> list[HomeTail]:
    """Return the tails that have a committed record; one that cannot be read in time counts as having one."""
    firsts = Positions({each.mark.place: each.first for each in found})
    following = home.kafka.next_records(firsts, _LOOK_S) if found else Positions()
    return [each for each in found if following.get(each.mark.place, each.first) < each.end]


def _of_link(
    world: MirroredClusters, link: Link, topics: list[str], there: WrittenState
) -> list[DivergedTopic]:
    home, away = world.clusters[link.source], world.clusters[link.target]
    written, tables = complete_tables(away, link.name, topics)
    known, marks = topics_of(home), written.of(link.name)
    offsets = _Offsets(
        home.kafka.beginning_offsets(topics),
        home.kafka.end_offsets(topics, committed=False),
        away.kafka.beginning_offsets(topics),
        away.kafka.end_offsets(topics, committed=False),
    )
    found = []
    for topic in topics:
        back = opposite(world.file, link, topic)
        rows = []
        for number in range(known[topic].partitions):
            tp = TopicPartition(topic, number)
            mark = marks.get(tp)
            backward = there.table_back(back, mark) if back is not None and mark is not None else None
            of = link.name, *tp, known[topic].topic_id
            gaps = [
                gap
                for gap in written.gaps.values()
                if (gap.link, gap.topic, gap.partition, gap.topic_id) == of
            ]
            rows.append(_row(tp, offsets, mark, tables.get(tp), backward, gaps))
        own = {tp: mark for tp, mark in marks.items() if tp.topic == topic}
        found.append(DivergedTopic(link, topic, tuple(rows), own))
    return found


class _Offsets(NamedTuple):
    home_first: Positions
    home_end: Positions
    away_first: Positions
    away_end: Positions


def _row(
    tp: TopicPartition,
    offsets: _Offsets,
    mark: Checkpoint | None,
    forward: OffsetMap | None,
    backward: OffsetMap | None,
    gaps: list[Gap],
) -> DivergedPartition:
    first, end = offsets.home_first.get(tp), offsets.home_end.get(tp)
    mirrored, away_common = (0, 0) if mark is None else (mark.source_next, mark.target_next)
    came, sent = (0, 0) if backward is None else (backward.target_next, backward.source_next)
    common = min(max(first, mirrored, came), end)
    away_first = offsets.away_first.get(tp)
    begins_at = _home_offset(forward, backward, away_first)
    return DivergedPartition(
        tp,
        first,
        common,
        end,
        away_first,
        max(away_common, sent),
        offsets.away_end.get(tp),
        older_ranges(first, common, begins_at, gaps),
    )


def _home_offset(forward: OffsetMap | None, backward: OffsetMap | None, away_first: int) -> int:
    """Return home's offset of the first record that away still has; 0 where nothing was mirrored."""
    if forward is None:
        return 0
    if backward is not None:
        return TwoWayOffsetMap(forward, backward).reverse(away_first).offset
    return forward.source_start if away_first <= forward.target_start else forward.reverse(away_first).offset
