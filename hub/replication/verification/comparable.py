"""[edge] Inputs of a verification: a link's partitions with checkpoints, complete maps, gaps and ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial

from hub.errors import PeerError
from hub.record import TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.readers import WrittenStateReader, read_progress
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.maps.two_way_offset_map import foreign_ranges
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link, opposite
from hub.replication.verification.local_records import born_at_target
from hub.replication.verification.verify import ComparedPartition

_COMPLETE_S = 15.0


def complete_tables(
    reached: ClusterHandle, link: str, topics: Iterable[str] = ()
) -> tuple[WrittenState, dict[TopicPartition, OffsetMap]]:
    """Return the maps of a link, each complete up to its checkpoint. Raises PeerError when one is not
    complete in time.
    """
    only = set(topics)
    reader = WrittenStateReader(reached)
    deadline = time.monotonic() + _COMPLETE_S
    try:
        while True:
            progress = reader.refresh()
            wanted = [tp for tp in progress.of(link) if not only or tp.topic in only]
            found = {tp: table for tp in wanted if (table := progress.table(link, tp)) is not None}
            if len(found) == len(wanted):
                return progress, found
            if time.monotonic() > deadline:
                missing = min(set(wanted) - found.keys())
                raise PeerError(
                    f'topic "{missing.topic}" partition {missing.partition}: the map does '
                    "not reach its checkpoint",
                    hint="a transaction is still open; if it stays so, part of the map was deleted",
                    code="HUB-3614",
                )
            time.sleep(0.1)
    finally:
        reader.close()


def compared(
    file: MirrorsFile,
    link: Link,
    clusters: Mapping[str, ClusterHandle],
    control: Control,
    topics: Iterable[str] = (),
) -> list[ComparedPartition]:
    """Return every partition that the link has mirrored, ready for ``verify``."""
    source, target = clusters[link.source], clusters[link.target]
    progress, tables = complete_tables(target, link.name, topics)
    other = read_progress(source) if control.operations else WrittenState()
    newer = _Newer(target, link.name)
    config = source.kafka.topic_config(sorted({tp.topic for tp in tables} & source.kafka.topics().keys()))
    found = []
    for tp, table in sorted(tables.items()):
        mark = progress.of(link.name)[tp]
        gaps = tuple(
            gap
            for gap in progress.gaps.values()
            if (gap.link, gap.topic, gap.partition, gap.topic_id) == (link.name, *tp, mark.topic_id)
        )
        back = opposite(file, link, tp.topic) if control.operations else None
        backward = other.table_back(back, mark) if back is not None else None
        foreign = foreign_ranges(backward, 0, backward.target_next) if backward is not None else []
        compacted = "compact" in config.get(tp.topic, {}).get("cleanup.policy", "delete")
        ruled = progress.rules_at(link.name, tp)
        own = born_at_target(file, link, control, mark, progress.copied_at(link.name, tp), backward)
        now = partial(newer.table, tp)
        found.append(ComparedPartition(tp, mark, table, gaps, tuple(foreign), compacted, ruled, own, now))
    return found


class _Newer:
    """The current maps of a link; read at the first call, then incrementally."""

    def __init__(self, target: ClusterHandle, link: str) -> None:
        self._target, self._link = target, link
        self._reader: WrittenStateReader | None = None

    def table(self, place: TopicPartition) -> OffsetMap | None:
        if self._reader is None:
            self._reader = WrittenStateReader(self._target, only=frozenset({self._link}))
        return self._reader.refresh().table(self._link, place)
