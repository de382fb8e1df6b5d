"""[shell] One audit run: read the part of a topic that is not in ``_hub.ledger`` yet, count it, and write
entries.

::

    log, from where it was audited to the last stable offset ─▶ entries *log*     at most STRETCH offsets each
    receipts without a counterpart ─ the log at their offsets ──────▶ entries *found*
    log entries without a counterpart ─ the mirror's target, by its map ─▶ entries *mirror*

A killed run leaves complete entries, and the next run continues after them. Repeated reads overwrite their
entries. Each record is read once, so a run costs as much as reading the new records; memory is bounded by one
range. A read error ends its partition only: an entry gives the reason, and the next run retries from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from hub.completeness.balances import of_newest
from hub.completeness.batch_reader import OffsetRange, ReadRecord
from hub.completeness.counts import (
    COUNTS_TOPIC,
    MOST_CELLS,
    Cells,
    CountEntry,
    Counts,
    Holes,
    MinuteHoles,
    bucket_of,
    covered,
    named,
)
from hub.completeness.receipt_search import MissingRecord, ReceiptSearch, _repeated, offsets_text
from hub.completeness.receipts import create_counts_topic, with_topic_ids
from hub.errors import CallerError, NotFound, PeerError, did_you_mean
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import BrokerCluster, ClusterAccess
from hub.kafka.protocol.record_batch import CorruptBatch
from hub.log import whole
from hub.record import Positions, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.verification.verify import ComparedPartition
from hub.times import epoch_ms

STRETCH = 100_000
_SILENT_S = 60.0

ReportProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class MirrorCopy:
    """A mirror of the topic: its target, and the comparable part of each partition."""

    name: str
    target: ClusterHandle
    compared: Mapping[TopicPartition, ComparedPartition]


@dataclass
class TopicCounter:
    """Counter for one topic of one cluster. ``copies`` are the mirrors that carry it. Call ``close`` after
    use.
    """

    kafka: KafkaCluster
    access: ClusterAccess
    topic: str
    copies: Sequence[MirrorCopy] = ()
    replication_factor: int = 1
    now_ms: Callable[[], int] = epoch_ms
    ledger: Counts = field(default_factory=Counts)
    cluster: BrokerCluster = field(init=False)
    targets: dict[str, BrokerCluster] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = BrokerCluster(self.access, self.kafka.bootstrap)

    def close(self) -> None:
        for each in (self.cluster, *self.targets.values()):
            each.close()

    def run(self, report_progress: ReportProgress = lambda _done, _all: None) -> int:
        """Count new records and write the entries. Returns the number of entries. Raises NotFound,
        PeerError.
        """
        topics = self.kafka.topics()
        if self.topic not in topics:
            raise NotFound(
                f'topic "{self.topic}" does not exist',
                hint=did_you_mean(self.topic, topics, "hub topic ls"),
            )
        if self.topic == COUNTS_TOPIC:
            raise CallerError("the ledger does not audit itself", hint="name another topic")
        create_counts_topic(self.kafka, self.replication_factor)
        self.ledger = read_counts(self.kafka)
        self._reach()
        begins, ends = self.kafka.beginning_offsets([self.topic]), self.kafka.end_offsets([self.topic])
        policy = self.kafka.effective_config([self.topic]).get(self.topic, {}).get("cleanup.policy") or ""
        writer, written, done = self.kafka.writer(), 0, 0
        total = sum(end - self._start(place, begins.get(place)) for place, end in ends)
        try:
            for place, end in sorted(ends.offsets.items()):
                for entry in self._partition(place, begins.get(place), end, compact="compact" in policy):
                    writer.append([entry.record()])
                    written += 1
                    if entry.tier == "log" and not entry.why:
                        done += entry.end - entry.first
                        report_progress(done, max(total, done))
        finally:
            writer.close()
        self.ledger = read_counts(self.kafka)
        return written

    def missing(self, bucket_ms: int, most: int = 100) -> list[MissingRecord]:
        """Return the records of a minute that are on one side only, or duplicated. Reads both sides again.
        Raises like ``run``, and CorruptBatch.
        """
        self.ledger = read_counts(self.kafka)
        self._reach()
        begins = self.kafka.beginning_offsets([self.topic])
        missing: list[MissingRecord] = []
        entries = [entry for entry in of_newest(self.ledger.of(self.topic)) if bucket_ms in entry.cells]
        for entry in entries:
            first = max(entry.first, begins.get(entry.place))
            if len(missing) >= most or entry.tier not in ("source", "log"):
                continue
            ours = list(OffsetRange(self.cluster, entry.place, first, entry.end).records())
            if entry.tier == "source":
                there = {record.offset for record in ours}
                # Limited to the requested number: a producer may claim any number of receipts.
                lacking = (each for each in offsets_text(entry.runs, first) if each not in there)
                reason = "acknowledged, not in the log"
                missing += [
                    MissingRecord("source", entry.instance, entry.partition, offset, None, reason)
                    for offset in islice(lacking, most - len(missing))
                ]
                continue
            ours = [record for record in ours if bucket_of(record.timestamp_ms) == bucket_ms]
            missing += _repeated(entry, ours)
            for copy in self.copies:
                missing += self._differing(copy, entry, ours, bucket_ms)
        return missing[:most]

    # ---- one partition

    def _partition(
        self, place: TopicPartition, begin: int, end: int, *, compact: bool
    ) -> Iterator[CountEntry]:
        # Entries of this log, and entries without a topic id.
        entries = [
            entry
            for entry in self.ledger.of(self.topic)
            if entry.partition == place.partition and entry.topic_id in ("", self._topic_id)
        ]
        start = self._start(place, begin)
        for entry in entries:
            if entry.tier == "log" and entry.why and entry.first < start:
                # The unread range has been deleted: there is nothing left to read.
                yield replace(entry, end=entry.first, why="", at_ms=self.now_ms())
        seeking = ReceiptSearch.of(entries, begin, end, self.now_ms())
        yield from seeking.lost
        if seeking.first < start:
            behind = OffsetRange(self.cluster, place, seeking.first, start)
            try:
                for record in behind.records():
                    seeking.take(record)
            except PeerError:  # unreadable now; those receipts wait until it is readable again
                seeking.give_up(behind.reached, start)
        logs = [
            entry
            for entry in entries
            if entry.tier == "log" and not entry.why and entry.topic_id == self._topic_id
        ]
        while start < end:
            entry = self._stretch(place, start, min(start + STRETCH, end), seeking, compact=compact)
            if entry.why:
                yield replace(entry, end=end)
                break
            if entry.end == start:
                break  # the rest is not committed
            logs.append(entry)
            start = entry.end
            yield entry
        yield from seeking.found_entries(start, compact=compact)
        for copy in self.copies:
            yield from self._copied(copy, place, entries, logs)

    def _stretch(
        self, place: TopicPartition, first: int, end: int, seeking: ReceiptSearch, *, compact: bool
    ) -> CountEntry:
        """Count an offset range up to where it is readable; sets ``why`` if nothing is."""
        stretch, cells, ids = OffsetRange(self.cluster, place, first, end, compact), Cells(), Counter[int]()
        reached: int | None = None
        again = Counter[int]()
        why = ""
        try:
            for record in stretch.records():
                cells.add(record.timestamp_ms, record.id, record.size)
                ids[record.id] += 1
                if ids[record.id] > 1:
                    again[bucket_of(record.timestamp_ms)] += 1
                seeking.take(record)
                if len(cells) >= MOST_CELLS:
                    reached = record.offset + 1
                    break
        except PeerError as error:
            # If all of Kafka is unavailable, the entry with this reason cannot be written, and the run fails
            # there.
            why = error.message if stretch.reached == first else ""
        spots = {
            minute: MinuteHoles(stretch.spots.get(minute, Holes()), again[minute])
            for minute in sorted({*stretch.spots, *again})
        }
        return CountEntry(
            *(
                "log",
                "",
                *place,
                first,
                stretch.reached if reached is None else reached,
                self.now_ms(),
                cells,
            ),
            topic_id=self._topic_id,
            holes=stretch.holes,
            repeated=again.total(),
            spots=spots,
            compact=compact,
            why=why,
        )

    def _start(self, place: TopicPartition, begin: int) -> int:
        known = covered(self.ledger.of(self.topic), place, self._topic_id)
        return max(begin, known[-1][1] if known else begin)

    @property
    def _topic_id(self) -> str:
        return self.cluster.topics[self.topic].topic_id

    def _reach(self) -> None:
        for error in self.cluster.refresh([self.topic]).values():
            raise error
        for copy in self.copies:
            made = self.targets.setdefault(copy.name, BrokerCluster(copy.target.access, copy.target.name))
            for error in made.refresh([self.topic]).values():
                raise error

    # ---- mirrors

    def _copied(
        self,
        copy: MirrorCopy,
        place: TopicPartition,
        entries: Iterable[CountEntry],
        logs: Iterable[CountEntry],
    ) -> Iterator[CountEntry]:
        """Yield the target's side of every log entry that has none and is mirrored by now."""
        known = {
            (each.first, each.end)
            for each in entries
            if (each.tier, each.instance, each.topic_id, each.why)
            == ("mirror", copy.name, self._topic_id, "")
        }
        each = copy.compared.get(place)
        if each is None or each.checkpoint.topic_id != self._topic_id:
            return
        for log in logs:
            if (log.first, log.end) in known or log.end > each.checkpoint.source_next:
                continue
            cells, why = Cells(), self._why_not(copy, each, log)
            if not why:
                try:
                    for record, _ in self._theirs(copy, each, log):
                        cells.add(record.timestamp_ms, record.id, record.size)
                except CorruptBatch as error:
                    cells, why = Cells(), error.message
            yield named(log, "mirror", cells, self.now_ms(), instance=copy.name, why=why)

    def _why_not(self, copy: MirrorCopy, each: ComparedPartition, log: CountEntry) -> str:
        if each.foreign:
            return "both directions were mirrored: hub mirror verify compares them"
        if log.first < each.checkpoint.source_start and log.cells:
            return f"it was mirrored from offset {each.checkpoint.source_start} on"
        begin = copy.target.kafka.beginning_offsets([self.topic]).get(each.place)
        if log.cells and begin > max(each.checkpoint.target_start, each.table.translate(log.first).offset):
            return "the target's retention has deleted records that were not compared yet"
        return ""

    def _theirs(
        self, copy: MirrorCopy, each: ComparedPartition, log: CountEntry
    ) -> Iterator[tuple[ReadRecord, int]]:
        """Yield the target's records for a source range, each with its source offset."""
        table = each.table
        begin = copy.target.kafka.beginning_offsets([self.topic]).get(each.place)
        first = max(table.translate(log.first).offset, each.checkpoint.target_start, begin)
        whole = log.end >= each.checkpoint.source_next
        end = table.target_next if whole else table.translate(log.end).offset
        for record in OffsetRange(self.targets[copy.name], each.place, first, end).records():
            back = table.reverse(record.offset)
            if back.kind == "exact" and log.first <= back.offset < log.end:
                yield record, back.offset

    def _differing(
        self, copy: MirrorCopy, log: CountEntry, ours: Sequence[ReadRecord], bucket_ms: int
    ) -> Iterator[MissingRecord]:
        each = copy.compared.get(log.place)
        if each is None or log.end > each.checkpoint.source_next or each.foreign:
            return
        here = {(record.offset, record.id) for record in ours}
        there = {
            (offset, record.id)
            for record, offset in self._theirs(copy, each, log)
            if bucket_of(record.timestamp_ms) == bucket_ms
        }
        for reason, those in (("not at the target", here - there), ("at the target only", there - here)):
            for offset, record_id in sorted(those):
                yield MissingRecord("mirror", copy.name, log.partition, offset, f"{record_id:016x}", reason)


def read_counts(kafka: KafkaCluster, silent_s: float = _SILENT_S) -> Counts:
    """Read the current entries; empty without the topic. Raises PeerError if nothing arrives for
    ``silent_s``.
    """
    ledger = Counts()
    if COUNTS_TOPIC in kafka.topics():
        for record in whole(kafka, COUNTS_TOPIC, silent_s):
            ledger.apply(record)
    return ledger


def write_entries(
    kafka: KafkaCluster, entries: Sequence[CountEntry], replication_factor: int = 1
) -> Positions:
    """Write entries that were counted elsewhere (a view's comparison, a producer's receipts). Raises
    PeerError.
    """
    create_counts_topic(kafka, replication_factor)
    writer = kafka.writer()
    try:
        return writer.append([entry.record() for entry in with_topic_ids(kafka, entries)])
    finally:
        writer.close()
