"""[core] Compaction of the offset map: replace many short map records by few long ones; the map stays exact.

A transaction writes a map record for each partition that it carried. ``OffsetMapCompaction`` tracks those of
one link as they are in the map topic, by map partition; where many have accumulated in one, they become few
long ones, in one transaction::

    map partition 5   …|0: runs   …|90: runs   …|240: runs            three transactions of the mirror
                      …|0: runs of all three   …|90: -   …|240: -     one transaction of the link tasks

Why every reader has, at every moment, a map that is complete and exact:

1. *Atomic.* Longer values and tombstones are one transaction in one partition: a reader of committed records
   sees both or neither wherever the writer dies. In the log the values come first, so a reader that stops in
   between has runs twice, which ``OffsetMap`` takes as once.
2. *The cleaner removes nothing that is needed.* It removes a record only for a later one of its key: the
   first key's later record has its runs, too, and a tombstone comes after the value that has them. New
   records go to the same partition as the old ones; between partitions there is neither order nor compaction.
3. *Slow readers lose nothing.* A reader stops at the end that it asked for at first. If records compacted
   beyond that end were cleaned before it reached them, it would see neither. ``min.compaction.lag.ms`` of the
   topic is longer than any read, and where it is not, nothing is compacted. (It counts from the records'
   timestamps, which are the workers'.)
4. *A key never gets other runs.* Engines write a key once, because source offsets only grow within a topic's
   id. Only deleting a link's state lets a key start again, and that requires shard -1 (``operator.forget``).
   So the link tasks compact as that shard's owner: open its writer, which fences and aborts the former owner,
   then read to the end, then write. Either what was read is still current, or the write is refused.
5. *Only complete ranges.* Only records that a checkpoint covers, and of its generation: ``offset_map``
   excludes runs of a former generation by where they begin, so they are never joined with current ones. A
   reader that waits for a map to reach its checkpoint waits for the newest records, which come after.

A shard's engine reads checkpoints, never the map: a compaction that hangs does not hold an engine back, and
readers of the map at most for the transaction's timeout.

Limits: keys and values of records that are not long yet are held in memory, some tens of bytes each; of a
long uncompacted map all, once, as in ``WrittenState``. Maps of a topic's former ids stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import MAP_TOPIC, Checkpoint, MapRecord, folded, map_record_of
from hub.replication.maps.offset_map import runs_in

LONGEST_RUNS = 10_000  # per compacted record: about 60 KB, well below brokers' limits
LEAST_RECORDS = 256  # so a run is rewritten about forty times at most until its record is long
MOST_RECORDS = 2_048  # per transaction


@dataclass
class OffsetMapCompaction:
    """Records of one link's map that are not long yet, by map partition and by map, as of the
    last ``apply``.
    """

    link: str
    least: int = LEAST_RECORDS
    longest_runs: int = LONGEST_RUNS
    _short: dict[tuple[int, bytes], dict[bytes, bytes]] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Apply a record of the map topic; ignores others."""
        key, value = record.key, record.value
        if record.topic != MAP_TOPIC or key is None or not key.startswith(f"{self.link}|".encode()):
            return
        place = record.partition, key.rpartition(b"|")[0]
        known = self._short.setdefault(place, {})
        # At most half of the limit: then any two neighbors fit into one record, and each compaction has
        # something to do.
        if value is None or 2 * runs_in(value) > self.longest_runs:
            known.pop(key, None)
        else:
            known[key] = value
        if not known:
            del self._short[place]

    @property
    def due(self) -> bool:
        """True if any map has accumulated enough records to be worth a transaction."""
        return any(len(known) >= self.least for known in self._short.values())

    def step(self, progress: WrittenState) -> list[NewRecord]:
        """Return one transaction that replaces records of one map in one map partition by fewer; the map with
        the most records first; empty: nothing to do.

        ``progress`` must have read as far as ``apply``. Raises HubFault (HUB-5601) when the map contradicts
        itself.
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
    """Return the key prefix of the checkpoint's map."""
    return f"{mark.link}|{mark.topic}|{mark.topic_id}|{mark.partition}".encode()


def _covered(mark: Checkpoint, number: int, known: dict[bytes, bytes]) -> Sequence[MapRecord]:
    """Return the map records of the checkpoint's generation that it covers, oldest first."""
    read = (map_record_of(Record(MAP_TOPIC, number, -1, 0, key, value)) for key, value in known.items())
    map_records = [
        each
        for each in read
        if each is not None
        and each.runs[0].source >= mark.source_start
        and each.runs[0].target >= mark.target_start
        and each.runs[-1].source_end <= mark.source_next
        and each.runs[-1].target_end <= mark.target_next
    ]
    return sorted(map_records, key=lambda each: each.runs[0].source)
