"""[shell] Make a topic again and fill it from its next generation, each record once.

Each transaction has records of the generation, the position reached, and the position after the last record
in the topic. An event of another producer between two of them, or among the records of one, is found by the
offsets before the transaction is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from hub.errors import Conflict
from hub.log import AppendWithdrawn, between
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.repairs.copying import LARGEST_COPY, pages
from hub.repairs.holding import LIMIT, NOTHING
from hub.repairs.journal import SILENT_S, RepairJournal
from hub.repairs.model import (
    FilledPartition,
    GenerationChange,
    generation_topic,
    progress_key,
    source_of,
    without_source,
)

# Settings that a topic gets back when it is filled: they would alter or refuse the events of the past.
_LATER: Final = (
    LIMIT,
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
)

_DECIDED_S = 30.0
_POLL_S = 0.01


class Interrupted(Exception):
    """Another producer appended to the topic while it was filled."""


def create_again(journal: RepairJournal, change: GenerationChange) -> None:
    """Create the topic; it refuses events until ``open_for_fill``."""
    config = {name: value for name, value in change.config.items() if name not in _LATER}
    config |= {LIMIT: NOTHING, "message.timestamp.type": "CreateTime"}
    journal.cluster.create_topic(
        journal.topic,
        partitions=change.partitions,
        config=config,
        replication_factor=change.replication_factor,
    )


def open_for_fill(journal: RepairJournal) -> None:
    """Let the topic accept records of every size."""
    journal.cluster.alter_config(journal.topic, {LIMIT: LARGEST_COPY})


def restore_settings(journal: RepairJournal, change: GenerationChange) -> None:
    """Give the topic the settings that it had."""
    journal.cluster.alter_config(journal.topic, {name: change.config.get(name) for name in _LATER})


def fill(
    journal: RepairJournal, wanted: Mapping[int, Sequence[int]], check: Callable[[], None]
) -> dict[int, FilledPartition]:
    """Fill the topic, and return the state of each partition. It can be repeated, and continues where it was.
    ``wanted``: positions of groups before the repair, by partition. Raises Interrupted.
    """
    change = journal.state.change
    assert change is not None
    generation = generation_topic(journal.topic, change.target)
    filled = filled_partitions(journal, change)
    ends = journal.cluster.end_offsets([generation])
    start = Positions({tp: filled[tp.partition].next for tp, _ in ends})
    for records, position in pages(journal.cluster, start, ends):
        check()
        filled |= _append_page(journal, change, records, position, filled, wanted)
    return filled


def filled_partitions(journal: RepairJournal, change: GenerationChange) -> dict[int, FilledPartition]:
    """Return the state of each partition, as the journal has it."""
    found: dict[int, FilledPartition] = {}
    for partition in range(change.partitions):
        noted = journal.noted("fill", change.target, change.round, partition)
        found[partition] = FilledPartition(
            int(noted.get("next", 0)), int(noted.get("end", 0)), noted.get("marks", {})
        )
    return found


def late_events(journal: RepairJournal, filled: Mapping[int, FilledPartition]) -> list[Record]:
    """Return the committed records of other producers: those after the records of the fill."""
    ends = journal.cluster.end_offsets([journal.topic])
    start = Positions({tp: filled[tp.partition].end if tp.partition in filled else 0 for tp, _ in ends})
    return list(between(start, ends, journal.cluster.reader(), SILENT_S))


def _append_page(
    journal: RepairJournal,
    change: GenerationChange,
    records: Sequence[Record],
    position: Positions,
    filled: Mapping[int, FilledPartition],
    wanted: Mapping[int, Sequence[int]],
) -> dict[int, FilledPartition]:
    """Append one page in a transaction, and return the partitions that moved. Raises Interrupted."""
    topic = journal.topic
    moved = {tp.partition: replace(filled[tp.partition], next=at) for tp, at in position}
    touched = {each.partition: moved[each.partition] for each in records}
    at = _expected_begins(journal, touched)
    marks = {number: dict(each.marks) for number, each in touched.items()}
    made: list[NewRecord] = []
    for record in records:
        number = record.partition
        _mark(marks[number], wanted.get(number, ()), source_of(record), at[number])
        headers = without_source(record.headers)
        made.append(NewRecord(topic, record.key, record.value, headers, record.timestamp_ms, number))
        at[number] += 1
    moved |= {number: replace(moved[number], end=end, marks=marks[number]) for number, end in at.items()}

    def contiguous(after: Positions) -> None:
        for number, end in at.items():
            if after.get(TopicPartition(topic, number)) != end:
                raise AppendWithdrawn("another producer appended to the topic", end)

    progress: dict[bytes, Mapping[str, Any] | None] = {
        progress_key(topic, "fill", change.target, change.round, number): {
            "next": each.next,
            "end": each.end,
            "marks": each.marks,
        }
        for number, each in moved.items()
        if each != filled[number]
    }
    try:
        journal.append(made, progress=progress, check=contiguous)
    except AppendWithdrawn:
        raise Interrupted from None
    return moved


def _expected_begins(journal: RepairJournal, filled: Mapping[int, FilledPartition]) -> dict[int, int]:
    """Return the offset that the next record of each partition gets. Raises Interrupted if another producer
    has appended after the records of the fill, or has a transaction open there.
    """
    places = {number: TopicPartition(journal.topic, number) for number in filled}
    committed = _decided_ends(journal, list(places.values()))
    # A commit of the fill leaves its marker after the last record. More may be the rest of a killed one.
    unsure = {
        tp
        for number, tp in places.items()
        if committed.get(tp) - filled[number].end > (1 if filled[number].end else 0)
    }
    if unsure:
        start = Positions({tp: filled[tp.partition].end for tp in unsure})
        stop = Positions({tp: committed.get(tp) for tp in unsure})
        for _ in between(start, stop, journal.cluster.reader(), SILENT_S):
            raise Interrupted
    return {number: committed.get(tp) for number, tp in places.items()}


def _decided_ends(journal: RepairJournal, places: Sequence[TopicPartition]) -> Positions:
    """Return the ends once no transaction is open: the marker of a commit comes a moment after it."""
    deadline = time.monotonic() + _DECIDED_S
    while True:
        ends = journal.cluster.end_offsets([journal.topic], committed=False)
        committed = journal.cluster.end_offsets([journal.topic])
        if all(ends.get(tp) == committed.get(tp) for tp in places):
            return committed
        if time.monotonic() > deadline:
            raise Interrupted
        time.sleep(_POLL_S)


def _mark(marks: dict[str, int], wanted: Sequence[int], source: int, at: int) -> None:
    """Note the new position of each wanted one that is not after ``source``."""
    for each in wanted:
        if each <= source and str(each) not in marks:
            marks[str(each)] = at


def require_partitions(change: GenerationChange, partitions: int, topic: str) -> None:
    """Raise Conflict if a topic that was made again has other partitions than before."""
    if partitions != change.partitions:
        raise Conflict(
            f'topic "{topic}" has {partitions} partitions, and its generations have {change.partitions}',
            hint="delete it with Kafka's tools and continue: hub topic repair TOPIC --continue",
            code="HUB-1942",
        )
