"""[shell] Verification of a mirror: read the committed records of both sides and compare their digests.

Each partition is compared over the range that both sides have: from where mirroring began (or retention has
reached, on either side) to the checkpoint. The target's offsets are translated back by the map, so a wrong
map is found as well as a wrong record. Digests are of ranges of source offsets; in the ranges that differ the
records are compared one by one, and those that differ are listed up to a limit.

Records that compaction removed on one side only are no difference: of compacted topics only records of both
sides are compared.

A committed record of the target that the map does not name is *foreign*: somebody else wrote it into the copy
(except for local records, see local_records.py). Records after the checkpoint are checked, too; those that
the mirror wrote meanwhile are named by a newer map. Transaction markers and aborted records are ignored.

For topics with a record filter or field masking, the mirror's rules are applied to the source's records
first; to each range the rules under which it was mirrored (rewriting/filter_history.py), whatever the file
has now. Without the key of a hash, or with another one, the values of that range are not compared, and the
verdict reports it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hub.kafka.protocol import broker_client
from hub.kafka.protocol.broker_client import BrokerCluster
from hub.kafka.protocol.record_batch import within
from hub.record import TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.registries import Registries, registries
from hub.replication.maps.checkpoint import Checkpoint, Gap
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.rewriting.filter_history import FilterPeriod, FilterVersion, history_text, stretches_of
from hub.replication.rewriting.record_filter import RecordRewriter, RulesNotApplicable
from hub.replication.rewriting.reencode import fields_of, rest_of
from hub.replication.verification.committed_records import _FETCH_BYTES, committed_records, writer_of
from hub.replication.verification.differences import Differences, DifferingRecord, foreign_record
from hub.replication.verification.digest import Digest, DigestRange, RangeDifference, differences, hash_of
from hub.replication.verification.local_records import EVER, Ranges
from hub.security import variable_of

RANGE = 10_000
_LOOKS_BEHIND, _LOOK_AGAIN_S = 4, 1.0
_WRITERS = 10  # foreign records whose producer is looked up

Hashed = Iterator[tuple[int, int]]
"""(source offset, hash) in ascending order."""


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """Result of one partition over source offsets [first, end). ``differs_at``: the first source offset at
    which the sides differ, None when they do not. ``why``: how they differ, or why the partition was not
    compared. ``rules``: the rules applied to the source's records before the comparison. ``listed``: the
    first differences; ``more``: the number of others.
    """

    place: TopicPartition
    first: int
    end: int
    records: int
    digest: Digest
    differs_at: int | None = None
    ranges: tuple[RangeDifference, ...] = ()
    why: str = ""
    compared: bool = True
    rules: str = ""
    listed: tuple[DifferingRecord, ...] = ()
    more: int = 0

    @property
    def equal(self) -> bool:
        return self.compared and self.differs_at is None


@dataclass(frozen=True, slots=True)
class ComparedPartition:
    """Input of a comparison: a partition with its checkpoint, map and gaps. ``foreign``: source offsets that
    came from the target. ``compacted``: one side may have fewer records. ``ruled``: the rules under which its
    records were made. ``own``: target offsets that may have records of others (local_records.py). ``newer``:
    returns the current map, None while it cannot be read.
    """

    place: TopicPartition
    checkpoint: Checkpoint
    table: OffsetMap
    gaps: tuple[Gap, ...] = ()
    foreign: tuple[tuple[int, int], ...] = ()
    compacted: bool = False
    ruled: tuple[FilterPeriod, ...] = ()
    own: Ranges = ()
    newer: Callable[[], OffsetMap | None] = lambda: None


@dataclass(frozen=True, slots=True)
class _RewriteRules:
    """Rules for records from source offset ``first`` on. ``blind``: they need a key that is not available."""

    first: int
    shaper: RecordRewriter | None
    blind: bool = False


class Verifier:
    """Comparison of partitions of two clusters. ``progress`` is called with the number of source offsets
    compared since its last call. Close it.
    """

    def __init__(
        self,
        source: ClusterHandle,
        target: ClusterHandle,
        progress: Callable[[int], None] = lambda more: None,
        secrets: Mapping[str, str] | None = None,
        fetch_bytes: int = _FETCH_BYTES,
    ) -> None:
        self.source, self.target = (
            BrokerCluster(source.access, source.name),
            BrokerCluster(target.access, target.name),
        )
        self._progress, self._secrets, self._fetch_bytes = progress, secrets or {}, fetch_bytes
        self._schemas = registries(source, target, registers=False)
        self._ways: tuple[_RewriteRules, ...] = ()
        self._gaps: tuple[Gap, ...] = ()

    def close(self) -> None:
        self.source.close()
        self.target.close()
        if isinstance(self._schemas, Registries):
            self._schemas.close()

    def verify(self, each: ComparedPartition, newest: int | None = None, limit: int = 1) -> PartitionVerdict:
        """Compare one partition, or its ``newest`` source offsets; list ``limit`` differences. Raises
        PeerError, CallerError.
        """
        mark = each.checkpoint
        stretches = list(stretches_of(each.ruled, mark.source_start, mark.source_next))
        rules_text = history_text(stretches)
        self._gaps = each.gaps
        ways = []
        for first, _, rules in stretches:
            way, missing = self._way(first, rules)
            ways.append(way)
            rules_text += "".join(f"; values not compared: {why}" for why in missing)
        self._ways = tuple(ways)
        try:
            return replace(self._verify(each, newest, limit), rules=rules_text)
        except RulesNotApplicable as error:
            why = f"its rules cannot be applied: {error.message}"
            return PartitionVerdict(each.place, 0, 0, 0, Digest(), why=why, compared=False, rules=rules_text)

    def _way(self, first: int, rules: FilterVersion) -> tuple[_RewriteRules, list[str]]:
        """Return the rules to apply to a range, and the keys that are missing for it."""
        if rules.shape is None:
            return _RewriteRules(first, None), []
        others = rules.other_keys(self._secrets)
        missing = [
            f"{variable_of(key)} is not set" for key in sorted(rules.shape.secrets - self._secrets.keys())
        ]
        missing += [f"{variable_of(key)} is another now" for key in sorted(others)]
        shape = rules.shape.unmasked() if missing else rules.shape
        return _RewriteRules(
            first, RecordRewriter(shape, self._schemas, self._secrets), bool(missing)
        ), missing

    def _way_of(self, offset: int) -> _RewriteRules:
        at = bisect_right(self._ways, offset, key=lambda way: way.first)
        return self._ways[max(0, at - 1)] if self._ways else _RewriteRules(0, None)

    def _verify(self, each: ComparedPartition, newest: int | None, limit: int) -> PartitionVerdict:
        place = each.place
        for cluster in (self.source, self.target):
            refused = cluster.refresh([place.topic])
            for error in refused.values():
                gone = (
                    isinstance(error, broker_client.BrokerBusy)
                    and error.kafka_code == broker_client.UNKNOWN_TOPIC
                )
                why = f"the topic is not in {cluster.name} any more" if gone else error.message
                return PartitionVerdict(place, 0, 0, 0, Digest(), why=why, compared=False)
        if self.source.topics[place.topic].topic_id != each.checkpoint.topic_id:
            why = "the source's topic was recreated since it was mirrored"
            return PartitionVerdict(place, 0, 0, 0, Digest(), why=why, compared=False)
        first, end = self._stretch(each)
        if newest is not None:
            first = max(first, end - newest)
        count, found, foreign = Digest(), Differences(limit), Differences(limit)
        different: tuple[RangeDifference, ...] = ()
        if first < end:
            ours = list(_ranges(self._counted(self._ours(each, first, end), first, end)))
            theirs = list(_ranges(self._theirs(each, first, end, foreign, whole=newest is None)))
            for one in ours:
                count = count.then(one.digest)
            different = differences(ours, theirs)
            self._list_differences(each, different, first, end, found)
        self._behind(each, foreign)
        listed = sorted([*found.listed, *foreign.listed], key=DifferingRecord.place)[: max(1, limit)]
        listed[:_WRITERS] = [self._with_writer(place, each) for each in listed[:_WRITERS]]
        if not listed:
            return PartitionVerdict(place, first, max(first, end), count.count, count)
        more = found.count + foreign.count - len(listed)
        return PartitionVerdict(
            place, first, max(first, end), count.count, count, listed[0].at, different, listed[0].why,
            listed=tuple(listed), more=more,
        )  # fmt: skip

    def _with_writer(self, place: TopicPartition, each: DifferingRecord) -> DifferingRecord:
        """Say who wrote a foreign record, and when."""
        if each.source is not None or each.target is None:
            return each
        writer = writer_of(self.target, place, each.target)
        return each._replace(why=f"{each.why} ({writer})") if writer else each

    def _stretch(self, each: ComparedPartition) -> tuple[int, int]:
        """Return the source offsets that both sides still have."""
        place, mark = each.place, each.checkpoint
        begins = self.source.offsets([place], broker_client.EARLIEST)[place]
        there = self.target.offsets([place], broker_client.EARLIEST)[place]
        first = max(mark.source_start, begins)
        if there > mark.target_start:
            first = max(first, each.table.reverse(there).offset)
        return first, mark.source_next

    def _ours(self, each: ComparedPartition, first: int, end: int) -> Hashed:
        for offset, hashed in self._read(self.source, each.place, first, end, self._shaped):
            if not within(each.foreign, offset):
                yield offset, hashed(offset)

    def _theirs(
        self,
        each: ComparedPartition,
        first: int,
        end: int,
        foreign: Differences | None = None,
        *,
        whole: bool = False,
    ) -> Hashed:
        """Yield hashes of the copy's records by their source offsets. ``foreign`` collects records that the
        map does not name; ``whole``: also from the beginning of the copy.
        """
        table = each.table
        blind = any(way.blind for way in self._ways)

        def shaped(offset: int, rest: bytes) -> bytes:
            return (
                _without_value(rest) if blind and self._way_of(table.reverse(offset).offset).blind else rest
            )

        there = self.target.offsets([each.place], broker_client.EARLIEST)[each.place]
        begins = max(each.checkpoint.target_start if whole else table.translate(first).offset, there)
        for offset, hashed in self._read(self.target, each.place, begins, table.target_next, shaped):
            back = table.reverse(offset)
            # Unmapped records did not come by this mirror: they came by the other direction, were born here,
            # or are foreign.
            if back.kind == "exact" and first <= back.offset < end and offset < table.target_next:
                yield back.offset, hashed(back.offset)
            elif back.kind == "hole" and foreign is not None and not within(each.own, offset):
                foreign.add(foreign_record(back.offset, offset))

    def _behind(self, each: ComparedPartition, foreign: Differences) -> None:
        """Check the records after the checkpoint: the mirror wrote them meanwhile, or they are foreign."""
        begins, place = each.table.target_next, each.place
        end = self.target.offsets([place], isolation=broker_client.READ_COMMITTED)[place]
        if end <= begins or any(first <= begins and last == EVER for first, last in each.own):
            return
        table, left = each.newer() or each.table, list[int]()
        for raw in committed_records(self.target, place, begins, end, self._fetch_bytes):
            if within(each.own, raw.offset):
                continue
            if raw.offset >= table.target_next:
                left.append(raw.offset)
            elif (back := table.reverse(raw.offset)).kind != "exact":
                foreign.add(foreign_record(back.offset, raw.offset))
        for _ in range(_LOOKS_BEHIND):
            # Transaction end markers are written to one partition after the other: the map may not be
            # readable yet.
            if not left or left[-1] < table.target_next:
                break
            time.sleep(_LOOK_AGAIN_S)
            newer = each.newer()
            if newer is None:
                return  # not judged
            table = newer
        for offset in left:
            back = table.reverse(offset)
            if back.kind != "exact" or offset >= table.target_next:
                foreign.add(foreign_record(back.offset, offset))

    def _counted(self, records: Hashed, first: int, end: int) -> Hashed:
        reported_end = first
        for offset, hashed in records:
            if offset - reported_end >= RANGE:
                self._progress(offset - reported_end)
                reported_end = offset
            yield offset, hashed
        self._progress(end - reported_end)

    def _list_differences(
        self,
        each: ComparedPartition,
        different: Iterable[RangeDifference],
        first: int,
        end: int,
        found: Differences,
    ) -> None:
        """List differing records in the ranges that differ; skips those that compaction alone explains."""
        table = each.table
        for one in different:
            begins, ends = max(first, one.first), min(end, one.end)
            ours, theirs = dict(self._ours(each, begins, ends)), dict(self._theirs(each, begins, ends))
            for offset in sorted({*ours, *theirs}):
                if ours.get(offset) == theirs.get(offset):
                    continue
                if offset in ours and offset in theirs:
                    made = (
                        " from what the mirror's rules make of the source's"
                        if self._way_of(offset).shaper
                        else ""
                    )
                    there = table.translate(offset).offset
                    found.add(DifferingRecord(offset, offset, there, f"the records differ{made}"))
                elif each.compacted:
                    continue
                elif offset in ours:
                    if not any(gap.first <= offset < gap.end for gap in each.gaps):
                        found.add(DifferingRecord(offset, offset, None, "it is missing at the target"))
                else:
                    there = table.translate(offset).offset
                    found.add(
                        DifferingRecord(offset, offset, there, "the target has it, the source does not")
                    )

    def _shaped(self, offset: int, rest: bytes) -> bytes | None:
        """Return a record of the source as the copy must have it; None: the copy must not have it."""
        way = self._way_of(offset)
        if way.shaper is None:
            return rest
        try:
            made = way.shaper.apply(rest)
        except RulesNotApplicable as error:
            # An unreadable record was left out and recorded as a gap when it was mirrored, or its partition
            # stopped there.
            if any(gap.first <= offset < gap.end for gap in self._gaps):
                return None
            raise RulesNotApplicable(f"offset {offset}: {error.message}") from None
        return None if made is None else _without_value(made) if way.blind else made

    def _read(
        self,
        cluster: BrokerCluster,
        place: TopicPartition,
        first: int,
        end: int,
        shaped: Callable[[int, bytes], bytes | None],
    ) -> Iterator[tuple[int, Callable[[int], int]]]:
        """Yield the committed records of [first, end): offset, and a function from the source offset to the
        hash.
        """
        for raw in committed_records(cluster, place, first, end, self._fetch_bytes):
            if (rest := shaped(raw.offset, raw.rest)) is not None:
                yield raw.offset, _hasher(raw.timestamp_ms, rest)


def _without_value(rest: bytes) -> bytes:
    found = fields_of(rest)
    return rest_of(found.key, None, found.headers)


def _hasher(timestamp_ms: int, rest: bytes) -> Callable[[int], int]:
    # Key, value and headers keep their bytes in the copy, so the bytes are hashed, not their meaning.
    return lambda offset: hash_of(offset, timestamp_ms, None, rest, ())


def _ranges(records: Hashed) -> Iterator[DigestRange]:
    block, digest = -1, Digest()
    for offset, hashed in records:
        if offset // RANGE != block:
            if digest.count:
                yield DigestRange(block * RANGE, (block + 1) * RANGE, digest)
            block, digest = offset // RANGE, Digest()
        digest = digest.add(hashed)
    if digest.count:
        yield DigestRange(block * RANGE, (block + 1) * RANGE, digest)


def summary(verdicts: Iterable[PartitionVerdict]) -> Mapping[str, int]:
    """Count the partitions that are equal, differ, or could not be compared."""
    found = {"equal": 0, "different": 0, "not_compared": 0}
    for each in verdicts:
        found["equal" if each.equal else "different" if each.compared else "not_compared"] += 1
    return found
