"""[shell] Copy records of a topic into generations, in transactions with the position that is reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hub.errors import Conflict
from hub.log import Log, up_to
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.repairs.journal import SILENT_S, RepairJournal
from hub.repairs.model import (
    SOURCE_HEADER,
    GenerationChange,
    generation_topic,
    progress_key,
    without_source,
)
from hub.repairs.outcomes import RepairOutcome, counted

# The most that a record may have in a topic while it is copied; the topics of users get their own limit back.
LARGEST_COPY: Final = "100000000"
_GENERATION_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": LARGEST_COPY,
    "message.timestamp.type": "CreateTime",
}
# Source of a record that was copied from an earlier generation: no reader of the topic is at its position.
_OF_BASE: Final = -1
_TRANSACTION_BYTES: Final = 8 << 20
Outcomes = Callable[[Sequence[Record]], Sequence[RepairOutcome]]


def copied(records: Sequence[Record]) -> list[RepairOutcome]:
    """Return the outcomes of a copy that repairs nothing."""
    return [
        RepairOutcome("unchanged")
        if each.unread is None
        else RepairOutcome("refused", reason=f"it is not read: {each.unread}")
        for each in records
    ]


def make_generations(journal: RepairJournal, change: GenerationChange) -> None:
    """Create the topics of the current and of the next generation, if they do not exist."""
    names = [generation_topic(journal.topic, each) for each in (journal.state.current, change.target)]
    there = journal.cluster.partition_counts(names)
    for name in names:
        if name not in there:
            journal.cluster.create_topic(
                name,
                partitions=change.partitions,
                config=_GENERATION_CONFIG,
                replication_factor=change.replication_factor,
            )


def copy_base(journal: RepairJournal, change: GenerationChange, check: Callable[[], None]) -> None:
    """Copy the generation ``base`` into the next one. It can be repeated, and continues where it was."""
    assert change.base is not None
    target = generation_topic(journal.topic, change.target)
    name = generation_topic(journal.topic, change.base)
    ends = journal.cluster.end_offsets([name])
    start = Positions({tp: _reached(journal, change, "base", tp, 0) for tp, _ in ends})
    for records, position in pages(journal.cluster, start, ends):
        check()
        made = [archived_copy(each, target, _OF_BASE, each.value) for each in records]
        journal.append(made, progress=_progress(journal, change, "base", position))


def copy_topic(
    journal: RepairJournal, ends: Positions, outcomes: Outcomes, check: Callable[[], None]
) -> GenerationChange:
    """Copy the topic's records into both generations, at least up to ``ends``; return the change with its
    counts. It can be repeated, and continues where it was. Raises Conflict (HUB-1332) for a refused event.
    """
    change = journal.state.change
    assert change is not None
    start = Positions(
        {tp: _reached(journal, change, "topic", tp, change.began.get(str(tp.partition), 0)) for tp, _ in ends}
    )
    for records, position in pages(journal.cluster, start, ends):
        check()
        results = outcomes(records)
        made = _both_copies(journal, change, records, results)
        change = replace(change, counts=dict(Counter(change.counts) + counted(results)))
        progress = _progress(journal, change, "topic", position)
        journal.append(made, replace(journal.state, change=change), progress)
    return change


def carry_over(journal: RepairJournal, records: Sequence[Record]) -> None:
    """Append events that came while the topic was made again to both generations, in one transaction with the
    next round of the change.
    """
    change = journal.state.change
    assert change is not None
    topics = [generation_topic(journal.topic, each) for each in (journal.state.current, change.target)]
    ends = dict(change.ends)
    made: list[NewRecord] = []
    for record in records:
        partition = record.partition % change.partitions
        place = str(partition)
        source = ends.get(place, 0)
        moved = record._replace(partition=partition)
        made += (archived_copy(moved, topic, source, record.value) for topic in topics)
        ends[place] = source + 1
    counts = dict(Counter(change.counts) + Counter({"carried over": len(records)}))
    after = replace(
        change,
        step="switch",
        topic_id=change.new_id,
        new_id="",
        round=change.round + 1,
        ends=ends,
        counts=counts,
    )
    journal.append(made, replace(journal.state, change=after))


def archived_copy(record: Record, topic: str, source: int, value: bytes | None) -> NewRecord:
    """Return the copy of a record for a generation. ``source``: its position in its topic."""
    headers = (*without_source(record.headers), (SOURCE_HEADER, b"%d" % source))
    return NewRecord(topic, record.key, value, headers, record.timestamp_ms, record.partition)


def pages(cluster: Log, start: Positions, ends: Positions) -> Iterator[tuple[Sequence[Record], Positions]]:
    """Yield parts of about 8 MB with the positions after them, at least up to ``ends``. Raises PeerError."""
    reader = cluster.reader()
    try:
        reader.assign(start)
        reached = start
        for records in up_to(ends, reader, SILENT_S):
            position = reader.position()
            for part in parts_of(records, _TRANSACTION_BYTES)[:-1]:
                records = records[len(part) :]
                after = {each.topic_partition: each.offset + 1 for each in part}
                reached = Positions({**reached.offsets, **after})
                yield part, reached
            if position != reached:
                yield records, position
                reached = position
    finally:
        reader.close()


def parts_of(records: Sequence[Record], most_bytes: int) -> list[Sequence[Record]]:
    """Divide records into parts of at most ``most_bytes`` (of one record at least), in their order."""
    parts: list[list[Record]] = [[]]
    size = 0
    for record in records:
        added = len(record.key or b"") + len(record.value or b"")
        if parts[-1] and size + added > most_bytes:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += added
    return list(parts)


def refused(record: Record, reason: str) -> Conflict:
    """Return the error of an event that the repair refuses."""
    return Conflict(
        f'topic "{record.topic}" partition {record.partition} offset {record.offset}: '
        f"the repair is refused: {reason}",
        hint="correct the script or the SQL; --plan lists the refused events",
        code="HUB-1332",
    )


def _both_copies(
    journal: RepairJournal,
    change: GenerationChange,
    records: Sequence[Record],
    results: Sequence[RepairOutcome],
) -> list[NewRecord]:
    """Return the records of the current generation that its archive lacks, and those of the next one."""
    archive = generation_topic(journal.topic, journal.state.current)
    target = generation_topic(journal.topic, change.target)
    archived = journal.state.archived
    made: list[NewRecord] = []
    for record, result in zip(records, results, strict=True):
        if result.kind == "refused":
            raise refused(record, result.reason)
        if record.offset >= archived.get(str(record.partition), 0):
            made.append(archived_copy(record, archive, record.offset, record.value))
        values = (record.value,) if result.kind == "unchanged" else result.values
        made += (archived_copy(record, target, record.offset, each) for each in values)
    return made


def _reached(
    journal: RepairJournal, change: GenerationChange, work: str, tp: TopicPartition, start: int
) -> int:
    return int(journal.noted(work, change.target, tp.partition).get("next", start))


def _progress(
    journal: RepairJournal, change: GenerationChange, work: str, position: Positions
) -> dict[bytes, Mapping[str, int] | None]:
    return {
        progress_key(journal.topic, work, change.target, tp.partition): {"next": at} for tp, at in position
    }
