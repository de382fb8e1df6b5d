"""[core] What mirrors wrote beside their records into one cluster, folded: how far, what is lost, and the maps."""

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
    """What mirrors wrote beside their records into one cluster: how far, what is lost, and the maps.

    A transaction's end is marked in one partition after the other: a checkpoint may be seen before the map that belongs
    to it. ``table`` gives a map only when it reaches as far as its checkpoint.
    """

    checkpoints: dict[tuple[str, str, int], Checkpoint] = field(default_factory=dict)
    gaps: dict[bytes, Gap] = field(default_factory=dict)
    keys: dict[tuple[str, str, str, int], set[tuple[int, bytes]]] = field(default_factory=dict)
    only: frozenset[str] | None = None
    copied: dict[bytes, ImportedCopy] = field(default_factory=dict)
    _rules: dict[tuple[str, str, str, int], dict[bytes, dict[int, FilterPeriod]]] = field(
        default_factory=dict
    )
    _said: dict[bytes, dict[int, Checkpoint | Gap]] = field(default_factory=dict)
    _waiting: dict[tuple[str, str, str, int], dict[tuple[int, bytes], MapRecord]] = field(
        default_factory=dict
    )
    _tables: dict[tuple[str, str, int], tuple[Checkpoint, OffsetMap]] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Take in a record of the checkpoints or of the map. A tombstone is about its own partition of those topics only:
        between partitions there is no order, and what was forgotten in one may have begun anew in another."""
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
        said, places = checkpoint_of(record), self._said.setdefault(record.key, {})
        if said is not None:
            places[record.partition] = said
        else:
            places.pop(record.partition, None)
        self._judge(record.key, places)

    def _ruled(self, record: Record, key: bytes) -> None:
        _, link, topic, topic_id, partition, _ = key.decode().split("|")
        places = self._rules.setdefault((link, topic, topic_id, int(partition)), {}).setdefault(key, {})
        found = ruled_of(record)
        if found is not None:
            places[record.partition] = found
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
        # What a table has taken in already stays there: a tombstone follows a fold, whose longer value has the runs, or
        # the whole link is forgotten, and its tables with its checkpoints.
        found, waiting = map_record_of(record), self._waiting.setdefault(of, {})
        if found is None:
            waiting.pop((record.partition, key), None)
        else:
            waiting[record.partition, key] = found

    def _judge(self, key: bytes, places: dict[int, Checkpoint | Gap]) -> None:
        """What a key stands for, of all partitions in which it stands."""
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
        """The checkpoints of a link."""
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
        """Under which rules one partition's records were made, of the topic that its checkpoint is about; oldest first."""
        mark = self.checkpoints.get((link, *place))
        if mark is None:
            return ()
        known = self._rules.get((link, place.topic, mark.topic_id, place.partition), {})
        every = [each for places in known.values() for each in list(places.values())[:1]]
        return tuple(sorted(every, key=lambda each: each.first))

    def rules_of(self, link: str) -> list[FilterPeriod]:
        """The same of everything that a link ever mirrored and was not told to forget."""
        return [
            each
            for of, known in self._rules.items()
            if of[0] == link
            for places in known.values()
            for each in list(places.values())[:1]
        ]

    def table(self, link: str, place: TopicPartition) -> OffsetMap | None:
        """The map of one partition; None while there is none, or not all of it is readable yet.

        It grows by what was read since it was asked for last, and what it has taken in is not kept beside it.
        """
        key = (link, *place)
        found = self.checkpoints.get(key)
        if found is None:
            return None
        of = link, place.topic, found.topic_id, place.partition
        runs = sorted(run for each in self._waiting.get(of, {}).values() for run in each.runs)
        table = self._known(key, found)
        reaches = max((run.target_end for run in runs), default=found.target_start)
        if table is not None:
            reaches = max(reaches, table.target_next)
        if reaches < found.target_next:
            return None
        if table is None:
            said = (
                [MapRecord(link, place.topic, found.topic_id, place.partition, tuple(runs))] if runs else []
            )
            table = offset_map(found, said)
        else:
            for run in runs:
                if run.source >= found.source_start and run.target >= found.target_start:
                    table.add(run)
            table.advance(found.source_next, found.target_next)
        self._waiting.pop(of, None)
        self._tables[key] = found, table
        return table

    def table_back(self, link: str, there: Checkpoint) -> OffsetMap | None:
        """The map of a link that goes back, where it is about the topics that ``there`` is about; None as in ``table``."""
        place = TopicPartition(there.topic, there.partition)
        found = self.checkpoints.get((link, *place))
        return self.table(link, place) if found is not None and found.goes_back(there) else None

    def _known(self, key: tuple[str, str, int], found: Checkpoint) -> OffsetMap | None:
        """The table so far, when the checkpoint is of the same beginning."""
        before, table = self._tables.get(key, (None, None))
        return table if before is not None and _beginning(before) == _beginning(found) else None


def _beginning(mark: Checkpoint) -> tuple[object, ...]:
    return mark.topic_id, mark.target_topic_id, mark.generation, mark.source_start, mark.target_start
