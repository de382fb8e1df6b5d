"""[core] Written state of one cluster: positions, gaps and offset maps, folded from what mirrors wrote next
to their records.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hub.record import Record, TopicPartition
from hub.replication.maps.checkpoint import (
    MAP_TOPIC,
    Checkpoint,
    Gap,
    MapRecord,
    checkpoint_of,
    map_record_of,
    newest,
    offset_map,
)
from hub.replication.maps.imported_copy import ImportedCopy, copied_of
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.rewriting.filter_history import FilterPeriod, is_ruled, ruled_of


@dataclass
class WrittenState:
    """Checkpoints, gaps and offset maps that mirrors wrote into one cluster.

    Transaction end markers are written to one partition after the other: a checkpoint may be visible before
    the map that belongs to it. ``table`` returns a map only when it reaches its checkpoint.
    """

    checkpoints: dict[tuple[str, str, int], Checkpoint] = field(default_factory=dict)
    gaps: dict[bytes, Gap] = field(default_factory=dict)
    keys: dict[tuple[str, str, str, int], set[tuple[int, bytes]]] = field(default_factory=dict)
    only: frozenset[str] | None = None
    copied: dict[bytes, ImportedCopy] = field(default_factory=dict)
    _rules: dict[tuple[str, str, str, int], dict[bytes, dict[int, FilterPeriod]]] = field(
        default_factory=dict
    )
    _checkpoints: dict[bytes, dict[int, Checkpoint | Gap]] = field(default_factory=dict)
    _waiting: dict[tuple[str, str, str, int], dict[tuple[int, bytes], MapRecord]] = field(
        default_factory=dict
    )
    _tables: dict[tuple[str, str, int], tuple[Checkpoint, OffsetMap]] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Apply a record of the checkpoints or of the map. A tombstone affects only its own partition of
        those
        topics: partitions have no common order, and a key deleted in one may be used again in another.
        """
        if record.key is None:
            return
        if record.topic == MAP_TOPIC:
            self._mapped(record, record.key)
            return
        if is_ruled(record):
            self._ruled(record, record.key)
            return
        if (copied := copied_of(record)) is not None:
            self.copied[record.key] = copied
            return
        self.copied.pop(record.key, None)
        checkpoint, places = checkpoint_of(record), self._checkpoints.setdefault(record.key, {})
        if checkpoint is not None:
            places[record.partition] = checkpoint
        else:
            places.pop(record.partition, None)
        self._judge(record.key, places)

    def _ruled(self, record: Record, key: bytes) -> None:
        _, link, topic, topic_id, partition, _ = key.decode().split("|")
        places = self._rules.setdefault((link, topic, topic_id, int(partition)), {}).setdefault(key, {})
        filter_period = ruled_of(record)
        if filter_period is not None:
            places[record.partition] = filter_period
        else:
            places.pop(record.partition, None)

    def _mapped(self, record: Record, key: bytes) -> None:
        link, topic, topic_id, partition, _ = key.decode().split("|")
        of = link, topic, topic_id, int(partition)
        if self.only is not None and link not in self.only:
            return
        if self.only is None:
            keys = self.keys.setdefault(of, set())
            (keys.discard if record.value is None else keys.add)((record.partition, key))
        # A table keeps the runs it has taken: a tombstone follows either a compaction, whose longer value has
        # the runs, or the removal of the whole link, whose tables are removed with its checkpoints.
        map_record, waiting = map_record_of(record), self._waiting.setdefault(of, {})
        if map_record is None:
            waiting.pop((record.partition, key), None)
        else:
            waiting[record.partition, key] = map_record

    def _judge(self, key: bytes, places: dict[int, Checkpoint | Gap]) -> None:
        """Update the state of a key from all partitions of the topic in which it exists."""
        marks = newest(each for each in places.values() if isinstance(each, Checkpoint))
        gap = next((each for each in places.values() if isinstance(each, Gap)), None)
        self.checkpoints |= marks
        if gap is not None:
            self.gaps[key] = gap
        if places:
            return
        self.gaps.pop(key, None)
        kind, _, rest = key.decode("utf-8", "replace").partition("|")
        if kind == "checkpoint" and rest.count("|") == 2:
            link, topic, partition = rest.split("|")
            self.checkpoints.pop((link, topic, int(partition)), None)
            self._tables.pop((link, topic, int(partition)), None)

    def of(self, link: str) -> dict[TopicPartition, Checkpoint]:
        """Return the checkpoints of a link."""
        return {
            TopicPartition(topic, partition): found
            for (name, topic, partition), found in self.checkpoints.items()
            if name == link
        }

    def copied_at(self, link: str, place: TopicPartition) -> ImportedCopy | None:
        """Return how far a copy reaches that an import took over; None: there is none."""
        return next(
            (
                each
                for each in self.copied.values()
                if (each.link, each.topic, each.partition) == (link, *place)
            ),
            None,
        )

    def rules_at(self, link: str, place: TopicPartition) -> tuple[FilterPeriod, ...]:
        """Return the rules under which one partition's records were made, of its checkpoint's topic; oldest
        first.
        """
        mark = self.checkpoints.get((link, *place))
        if mark is None:
            return ()
        filter_periods = self._rules.get((link, place.topic, mark.topic_id, place.partition), {})
        every = [each for places in filter_periods.values() for each in list(places.values())[:1]]
        return tuple(sorted(every, key=lambda each: each.first))

    def rules_of(self, link: str) -> list[FilterPeriod]:
        """Return ``rules_at`` of every partition that a link ever mirrored, except for deleted state."""
        return [
            each
            for of, known in self._rules.items()
            if of[0] == link
            for places in known.values()
            for each in list(places.values())[:1]
        ]

    def table(self, link: str, place: TopicPartition) -> OffsetMap | None:
        """Return the map of one partition; None while there is none, or not all of it is readable yet.

        The map is updated incrementally with the records since the last call; their originals are not kept.
        """
        key = (link, *place)
        checkpoint = self.checkpoints.get(key)
        if checkpoint is None:
            return None
        of = link, place.topic, checkpoint.topic_id, place.partition
        runs = sorted(run for each in self._waiting.get(of, {}).values() for run in each.runs)
        table = self._known(key, checkpoint)
        reaches = max((run.target_end for run in runs), default=checkpoint.target_start)
        if table is not None:
            reaches = max(reaches, table.target_next)
        if reaches < checkpoint.target_next:
            return None
        if table is None:
            checkpoints = (
                [MapRecord(link, place.topic, checkpoint.topic_id, place.partition, tuple(runs))]
                if runs
                else []
            )
            table = offset_map(checkpoint, checkpoints)
        else:
            for run in runs:
                if run.source >= checkpoint.source_start and run.target >= checkpoint.target_start:
                    table.add(run)
            table.advance(checkpoint.source_next, checkpoint.target_next)
        self._waiting.pop(of, None)
        self._tables[key] = checkpoint, table
        return table

    def table_back(self, link: str, there: Checkpoint) -> OffsetMap | None:
        """Return the map of the opposite link, if it is about the same topics as ``there``; None as in
        ``table``.
        """
        place = TopicPartition(there.topic, there.partition)
        checkpoint = self.checkpoints.get((link, *place))
        return self.table(link, place) if checkpoint is not None and checkpoint.goes_back(there) else None

    def _known(self, key: tuple[str, str, int], checkpoint: Checkpoint) -> OffsetMap | None:
        """Return the table so far, if the checkpoint has the same start."""
        before, table = self._tables.get(key, (None, None))
        return table if before is not None and _beginning(before) == _beginning(checkpoint) else None


def _beginning(mark: Checkpoint) -> tuple[object, ...]:
    return mark.topic_id, mark.target_topic_id, mark.generation, mark.source_start, mark.target_start
