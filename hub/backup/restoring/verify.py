"""[shell] Verify a backup: digests and checksums of every segment, and a trial restore compared record by
record.

The trial reads the restored topics with an ordinary consumer, and the segments with the parser of batches:
the two have nothing in common.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hub.backup.restoring.restore import RestorePlan, RestoreRequest, plan_restore, restore
from hub.backup.saving.segment_writer import records_from
from hub.backup.storage.manifest import Manifest, SavedPartition, SavedSegment
from hub.backup.storage.vault import Vault
from hub.errors import HubError, PeerError
from hub.kafka.protocol.record_batch import batches_in, is_intact
from hub.log import Reader
from hub.record import Positions, Record, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.rewriting.reencode import RawRecord, fields_of, records_in

SILENCE_S = 60.0
_POLL = 2_000
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class BackupDefect:
    """Something that is wrong: in which partition and object, at which offset."""

    tp: TopicPartition
    object: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of a verification. ``records``: checked ones; ``compared``: of a trial restore."""

    run: int
    segments: int
    records: int
    raw_bytes: int
    findings: tuple[BackupDefect, ...]
    seconds: float
    compared: int = 0


def verify(vault: Vault, run: Manifest, progress: Progress = lambda _done, _all: None) -> VerifyReport:
    """Check every segment of a run. Raises PeerError when the storage does not answer."""
    begun_s = time.monotonic()
    segments = list(run.segments())
    findings: list[BackupDefect] = [
        each
        for topic in run.topics.values()
        for number, partition in enumerate(topic.partitions)
        for each in _order(TopicPartition(topic.name, number), partition)
    ]
    records = size = 0
    for done, (tp, segment) in enumerate(segments, 1):
        found = check_segment(vault, tp, segment)
        findings += found
        if not found:
            records, size = records + segment.records, size + segment.raw_bytes
        progress(done, len(segments))
    return VerifyReport(run.number, len(segments), records, size, tuple(findings), time.monotonic() - begun_s)


def _order(tp: TopicPartition, saved: SavedPartition) -> Iterator[BackupDefect]:
    """Yield segments that do not begin after the end of the one before."""
    position = saved.start
    for segment in saved.segments:
        if segment.first < position:
            yield BackupDefect(
                tp, segment.name, segment.first, f"it begins before {position}, the end of the last"
            )
        position = segment.next


def check_segment(vault: Vault, tp: TopicPartition, segment: SavedSegment) -> list[BackupDefect]:
    """Return what is wrong with a segment: its digest, a batch's checksum, the order of offsets,
    the count."""
    try:
        content = vault.segment(segment)
    except HubError as error:
        if isinstance(error, PeerError) and error.retriable:
            raise
        return [BackupDefect(tp, segment.name, segment.first, error.message)]
    at, records = -1, 0
    for batch in batches_in(content):
        if not is_intact(batch):
            return [BackupDefect(tp, segment.name, batch.base_offset, "the checksum of its batch is wrong")]
        if batch.last_offset <= at:
            return [BackupDefect(tp, segment.name, batch.base_offset, f"its batch is after offset {at}")]
        at, records = batch.last_offset, records + records_from(batch, segment.first)
    if records != segment.records or len(content) != segment.raw_bytes:
        reason = f"it has {records} records in {len(content)} bytes, and {segment.records} in the manifest"
        return [BackupDefect(tp, segment.name, segment.first, reason)]
    return []


def try_restore(
    vault: Vault, run: int, target: ClusterHandle, progress: Progress = lambda _done, _all: None
) -> tuple[int, list[BackupDefect]]:
    """Restore a run's topics into a scratch cluster and compare them; return (records, findings). Changelogs
    of views are included. Raises PeerError when the cluster does not answer.
    """
    plan = plan_restore(
        target, vault, RestoreRequest(("**", "views.**"), run=run, schemas=False, groups=False)
    )
    restore(target, vault, plan, progress)
    compared, findings = 0, []
    for tp in plan.partitions:
        records, finding = compare(vault, plan, target, tp)
        compared += records
        if finding is not None:
            findings.append(finding)
    return compared, findings


def compare(
    vault: Vault, plan: RestorePlan, target: ClusterHandle, tp: TopicPartition
) -> tuple[int, BackupDefect | None]:
    """Compare one restored partition with its segments: key, value, headers and timestamp, in order. Returns
    the number of equal records and the first difference.
    """
    saved = plan.partitions[tp].saved
    reader = target.kafka.reader()
    equal = 0
    try:
        reader.assign(Positions({tp: target.kafka.beginning_offsets([tp.topic]).get(tp)}))
        ends = target.kafka.end_offsets([tp.topic])
        restored = _records(reader, ends.get(tp), tp)
        for segment in saved.segments:
            for record in _saved_records(vault, segment):
                other = next(restored, None)
                if other is None:
                    return equal, BackupDefect(
                        tp, segment.name, record.offset, "the restored topic ends before it"
                    )
                if not is_same(record, other):
                    return equal, BackupDefect(
                        tp, segment.name, record.offset, f"it differs from the restored offset {other.offset}"
                    )
                equal += 1
        rest = next(restored, None)
    finally:
        reader.close()
    if rest is not None:
        return equal, BackupDefect(
            tp, "", rest.offset, "the restored topic has a record that is not in the backup"
        )
    return equal, None


def _saved_records(vault: Vault, segment: SavedSegment) -> Iterator[RawRecord]:
    for batch in batches_in(vault.segment(segment)):
        yield from (each for each in records_in(batch) if each.offset >= segment.first)


def _records(reader: Reader, end: int, tp: TopicPartition) -> Iterator[Record]:
    """Yield the records up to ``end``. Raises PeerError after ``SILENCE_S`` without progress."""
    deadline = time.monotonic() + SILENCE_S
    while (at := reader.position().get(tp)) < end:
        yield from reader.poll(_POLL, 0.5)
        if reader.position().get(tp) != at:
            deadline = time.monotonic() + SILENCE_S
        elif time.monotonic() > deadline:
            raise PeerError(
                f'topic "{tp.topic}" partition {tp.partition}: nothing was read for {SILENCE_S:g} s',
                hint="is the cluster running?",
                code="HUB-3803",
            )


def is_same(saved: RawRecord, restored: Record) -> bool:
    """Return whether two records have the same key, value, headers and timestamp.

    >>> from hub.replication.rewriting.reencode import rest_of
    >>> saved = RawRecord(7, 1_000, 0, rest_of(b"k", None, [(b"h", b"1")]))
    >>> is_same(saved, Record("t", 0, 3, 1_000, b"k", None, (("h", b"1"),)))
    True
    """
    headers = tuple((name.encode(), content) for name, content in restored.headers)
    mine = saved.timestamp_ms, *fields_of(saved.rest)
    return mine == (restored.timestamp_ms, restored.key, restored.value, headers)
