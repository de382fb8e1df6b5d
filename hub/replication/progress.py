"""[core] What mirrors wrote beside their records into one cluster, folded: how far, what is lost, and the maps."""

from __future__ import annotations

from dataclasses import dataclass, field

from hub.record import Record, TopicPartition
from hub.replication.checkpoint import (
    MAP_TOPIC,
    Checkpoint,
    Gap,
    MapRecord,
    checkpoint_of,
    map_record_of,
    newest,
    offset_map,
)
from hub.replication.offset_map import OffsetMap


@dataclass
class Progress:
    """What mirrors wrote beside their records into one cluster: how far, what is lost, and the maps.

    A transaction's end is marked in one partition after the other: a checkpoint may be seen before the map that belongs
    to it. ``table`` gives a map only when it reaches as far as its checkpoint.
    """

    checkpoints: dict[tuple[str, str, int], Checkpoint] = field(default_factory=dict)
    gaps: dict[bytes, Gap] = field(default_factory=dict)
    maps: dict[tuple[str, str, str, int], dict[bytes, MapRecord]] = field(default_factory=dict)
    _tables: dict[tuple[str, str, int], tuple[Checkpoint, int, OffsetMap]] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        if record.topic == MAP_TOPIC:
            found = map_record_of(record)
            if found is not None:
                self.maps.setdefault(found.of, {})[record.key or b""] = found
            elif record.key is not None:
                link, topic, topic_id, partition, _ = record.key.decode().split("|")
                self.maps.get((link, topic, topic_id, int(partition)), {}).pop(record.key, None)
            return
        if record.value is None:
            self._forget(record.key or b"")
            return
        said = checkpoint_of(record)
        if isinstance(said, Checkpoint):
            known = self.checkpoints.get((said.link, said.topic, said.partition))
            self.checkpoints |= newest([known, said] if known is not None else [said])
        elif isinstance(said, Gap):
            self.gaps[said.key] = said

    def _forget(self, key: bytes) -> None:
        self.gaps.pop(key, None)
        kind, _, rest = key.decode("utf-8", "replace").partition("|")
        if kind == "checkpoint" and rest.count("|") == 2:
            link, topic, partition = rest.split("|")
            self.checkpoints.pop((link, topic, int(partition)), None)

    def of(self, link: str) -> dict[TopicPartition, Checkpoint]:
        """The checkpoints of a link."""
        return {
            TopicPartition(topic, partition): found
            for (name, topic, partition), found in self.checkpoints.items()
            if name == link
        }

    def table(self, link: str, place: TopicPartition) -> OffsetMap | None:
        """The map of one partition; None while there is none, or not all of it is readable yet."""
        key = (link, *place)
        found = self.checkpoints.get(key)
        if found is None:
            return None
        records = self.maps.get((link, place.topic, found.topic_id, place.partition), {})
        known = self._tables.get(key)
        if known is not None and known[0] == found and known[1] == len(records):
            return known[2]
        made = offset_map(found, records.values())
        reaches = made.runs[-1].target_end if len(made) else found.target_start
        if reaches < found.target_next:
            return None
        self._tables[key] = found, len(records), made
        return made
