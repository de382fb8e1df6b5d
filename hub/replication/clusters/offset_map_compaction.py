"""[core] Which records of the map are due to be made fewer, and by which records: the map stays short, and stays exact.

A transaction leaves a record of the map for each partition that it carried. ``OffsetMapCompaction`` knows those of one link as they
stand in the map topic, by map partition; where many have gathered in one, they become few long ones, in one transaction::

    map partition 5   …|0: runs   …|90: runs   …|240: runs            three transactions of the mirror
                      …|0: runs of all three   …|90: -   …|240: -     one transaction of the chores

Why every reader has, at every moment, a map that is complete and exact:

1. *At once or not at all.* Longer values and tombstones are one transaction in one partition: a reader of committed records
   sees both or neither wherever the writer dies. In the log the values come first, so one that stops in between
   has runs twice, which ``OffsetMap`` takes as once.
2. *Nothing is lost to the cleaner.* It removes a record only for a later one of its key: the first key's has its runs too,
   and a tombstone lies behind the value that has them. Old records go to the very partition they stand in; between
   partitions there is neither order nor compaction.
3. *Nor to one that is reading.* It stops at the end that it asked for at first. If what was folded behind that end were
   cleaned before it came along, it would see neither. ``min.compaction.lag.ms`` of the topic is longer than any read,
   and where it is not, nothing is folded. (It counts from the records' times, which are the workers'.)
4. *No key gets other runs.* Engines write a key once, for source offsets go up within a topic's id. Only who forgets a
   link lets a key begin anew, and he holds shard -1 (``operate.forget``). So the chores fold as that shard's
   owner: open its writer, which fences and aborts whoever had it, then read to the end, then write. What was read is
   what stands there, or the write is refused.
5. *Only what is complete.* Records that a checkpoint covers and of its generation alone: ``offset_map`` leaves out runs
   of a former one by where they begin, so they are never joined with ours. Who waits for a map to reach its
   checkpoint waits for the newest records, which come after.

A shard's engine reads checkpoints, never the map: a fold that hangs holds no engine back, and readers of the map no longer
than the transaction's time-out.

Limits: kept are the keys and values of what is not long yet, some tens of bytes each; of a long unfolded map all, once,
as ``WrittenState`` does. Maps of a topic's former ids stay as they were left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import MAP_TOPIC, Checkpoint, MapRecord, folded, map_record_of
from hub.replication.maps.offset_map import runs_in

LONGEST_RUNS = 10_000  # in one folded record: some 60 KB, well below what brokers take
LEAST_RECORDS = 256  # so a run is written again some forty times at most until its record is long
MOST_RECORDS = 2_048  # in one transaction


@dataclass
class OffsetMapCompaction:
    """The records of one link's map that are not long yet, by map partition and by map: what stands in the topic as far as
    ``apply`` has heard of it."""

    link: str
    least: int = LEAST_RECORDS
    longest_runs: int = LONGEST_RUNS
    _short: dict[tuple[int, bytes], dict[bytes, bytes]] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Take in a record of the map topic; others are passed over."""
        key, value = record.key, record.value
        if record.topic != MAP_TOPIC or key is None or not key.startswith(f"{self.link}|".encode()):
            return
        place = record.partition, key.rpartition(b"|")[0]
        known = self._short.setdefault(place, {})
        # Half as long as may be: then any two neighbours fit into one, and each fold has something to do.
        if value is None or 2 * runs_in(value) > self.longest_runs:
            known.pop(key, None)
        else:
            known[key] = value
        if not known:
            del self._short[place]

    @property
    def due(self) -> bool:
        """Whether anywhere enough has gathered to be worth a transaction."""
        return any(len(known) >= self.least for known in self._short.values())

    def step(self, progress: WrittenState) -> list[NewRecord]:
        """One transaction: the records of one map in one map partition as fewer; the longest first, empty: nothing to do.

        ``progress`` has read as far as ``apply`` was told. Raises HubFault (HUB-5601) when the map contradicts itself.
        """
        covered = {_prefix(mark): mark for mark in progress.of(self.link).values()}
        for place, known in sorted(self._short.items(), key=lambda each: -len(each[1])):
            if len(known) < self.least:
                break
            number, of = place
            mark = covered.get(of)
            if mark is None or progress.table(self.link, TopicPartition(mark.topic, mark.partition)) is None:
                continue
            records = _covered(mark, number, known)
            if made := folded(records[:MOST_RECORDS], number, self.longest_runs):
                return made
        return []


def _prefix(mark: Checkpoint) -> bytes:
    """What the keys of its map begin with."""
    return f"{mark.link}|{mark.topic}|{mark.topic_id}|{mark.partition}".encode()


def _covered(mark: Checkpoint, number: int, known: dict[bytes, bytes]) -> Sequence[MapRecord]:
    """Those of the checkpoint's generation that it covers, oldest first."""
    read = (map_record_of(Record(MAP_TOPIC, number, -1, 0, key, value)) for key, value in known.items())
    found = [
        each
        for each in read
        if each is not None
        and each.runs[0].source >= mark.source_start
        and each.runs[0].target >= mark.target_start
        and each.runs[-1].source_end <= mark.source_next
        and each.runs[-1].target_end <= mark.target_next
    ]
    return sorted(found, key=lambda each: each.runs[0].source)
