"""[shell] State of a topic's generations in Kafka, and the writer of everything that a repair writes.

To open the journal fences the writer of an earlier process, and ends its last transaction. So the state that
is read afterwards is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from hub.errors import Conflict
from hub.log import ConditionalWriter, GroupWriter, Log, ensure_topic, whole
from hub.record import NewRecord, Positions
from hub.repairs.model import (
    STATE_TOPIC,
    TopicGenerations,
    progress_key,
    state_key,
    state_of,
    state_text,
)

SILENT_S = 60.0


class JournalWriter(ConditionalWriter, GroupWriter, Protocol):
    """A writer whose appends may be withdrawn, and that commits positions of groups."""


class JournalLog(Log, Protocol):
    """A cluster whose named writers are conditional ones."""

    def writer(self, name: str | None = None) -> JournalWriter: ...


@dataclass
class RepairJournal:
    """State of one topic's generations. ``state`` and ``progress`` are as of the last append."""

    cluster: JournalLog
    topic: str
    writer: JournalWriter
    state: TopicGenerations
    progress: dict[bytes, Mapping[str, Any]] = field(default_factory=dict)

    def append(
        self,
        records: Sequence[NewRecord] = (),
        state: TopicGenerations | None = None,
        progress: Mapping[bytes, Mapping[str, Any] | None] = {},
        check: Callable[[Positions], None] | None = None,
    ) -> Positions:
        """Append records, the state and positions in one transaction. ``progress`` None: it is deleted.
        Raises WriterFenced if another process continues the repair; AppendWithdrawn of ``check``; PeerError.
        """
        everything = [*records, *self._notes(state, progress)]
        after = self.writer.append(everything) if check is None else self.writer.append_if(everything, check)
        self._take(state, progress)
        return after

    def finish(
        self, state: TopicGenerations, groups: Mapping[str, Positions], check: Callable[[], None]
    ) -> None:
        """Commit positions of groups with the state, and delete all progress, in one transaction. Raises
        GroupsLeftAlone of ``check``, or for groups that refuse their positions.
        """
        progress = dict.fromkeys(self.progress)
        self.writer.append_with_groups(self._notes(state, progress), groups, check)
        self._take(state, progress)

    def noted(self, *names: object) -> Mapping[str, Any]:
        """Return the progress of a piece of work; empty if there is none."""
        return self.progress.get(progress_key(self.topic, *names), {})

    def _notes(
        self, state: TopicGenerations | None, progress: Mapping[bytes, Mapping[str, Any] | None]
    ) -> list[NewRecord]:
        """Return the records of the state and of positions."""
        notes = [
            NewRecord(STATE_TOPIC, key, None if value is None else orjson.dumps(value), partition=0)
            for key, value in progress.items()
        ]
        if state is not None:
            notes.append(NewRecord(STATE_TOPIC, state_key(self.topic), state_text(state), partition=0))
        return notes

    def _take(
        self, state: TopicGenerations | None, progress: Mapping[bytes, Mapping[str, Any] | None]
    ) -> None:
        self.state = state or self.state
        for key, value in progress.items():
            if value is None:
                self.progress.pop(key, None)
            else:
                self.progress[key] = value

    def reopen(self) -> None:
        """Open the writer again: a topic that was made again is another one for its connections."""
        self.writer.close()
        self.writer = self.cluster.writer(_writer_name(self.topic))


@contextmanager
def open_journal(cluster: JournalLog, topic: str, replication_factor: int) -> Iterator[RepairJournal]:
    """Open the journal of a topic for writing. Raises PeerError."""
    ensure_topic(cluster, STATE_TOPIC, replication_factor=replication_factor)
    writer = cluster.writer(_writer_name(topic))
    journal: RepairJournal | None = None
    try:
        state, progress = _read(cluster, topic)
        journal = RepairJournal(cluster, topic, writer, state, progress)
        yield journal
    finally:
        (writer if journal is None else journal.writer).close()


def read_state(cluster: Log, topic: str) -> TopicGenerations:
    """Return the generations of a topic. Raises PeerError."""
    if not cluster.partition_counts([STATE_TOPIC]):
        return TopicGenerations(topic)
    return _read(cluster, topic)[0]


def require_change(state: TopicGenerations) -> None:
    """Raise Conflict (HUB-1942) if no change of the topic is under way."""
    if state.change is None:
        raise Conflict(
            f'topic "{state.topic}": no repair is under way',
            hint="hub topic generations lists the repairs of a topic",
            code="HUB-1942",
        )


def _read(cluster: Log, topic: str) -> tuple[TopicGenerations, dict[bytes, Mapping[str, Any]]]:
    state, progress = TopicGenerations(topic), dict[bytes, Mapping[str, Any]]()
    prefix = progress_key(topic) + b" "
    for record in whole(cluster, STATE_TOPIC, SILENT_S):
        key = record.key or b""
        if key == state_key(topic):
            state = TopicGenerations(topic) if record.value is None else state_of(record.value)
        elif key.startswith(prefix):
            if record.value is None:
                progress.pop(key, None)
            else:
                progress[key] = orjson.loads(record.value)
    return state, progress


def _writer_name(topic: str) -> str:
    return f"hub.generations.{topic}"
