"""[shell] The registry's log, followed and applied to the state in memory, up to any position that a
caller waits for.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence

from hub.errors import HubError, PeerError
from hub.log import Log, Reader
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, UnreadableFact, fact_of
from hub.schema_registry.registry.state_machine import Registry

log = logging.getLogger(__name__)

LOG = TopicPartition(SCHEMAS_TOPIC, 0)
_PAUSE_S = 0.001  # after an empty poll: an in-memory log does not wait by itself
_RECORDS_S = 0.05  # existing records have mostly arrived by then
_MARKS_S = 1.0


def topic_warnings(policy: str | None, partitions: int) -> tuple[str, ...]:
    """Return what is wrong with the log's topic, as sentences. ``policy`` None: the broker decides."""
    found = []
    if policy is not None and policy != "compact":
        found.append(
            f'topic "{SCHEMAS_TOPIC}": cleanup.policy is "{policy}": schemas will vanish. '
            f"kafka-configs --alter --topic {SCHEMAS_TOPIC} --add-config cleanup.policy=compact"
        )
    if partitions != 1:
        found.append(
            f'topic "{SCHEMAS_TOPIC}" has {partitions} partitions: only partition 0 is read and written'
        )
    return tuple(found)


class AppliedLog:
    """State of a registry as of ``position``, the next offset of the log to read. Thread safe."""

    def __init__(self, cluster: Log, replication_factor: int, timeout_s: float) -> None:
        self.cluster, self.replication_factor, self.timeout_s = cluster, replication_factor, timeout_s
        self.registry = Registry()
        self.position = 0
        self.warnings: tuple[str, ...] = ()
        self.ready = threading.Event()
        self.stopped = threading.Event()
        self._appended = -1  # the position after this node's last append
        self.changed = threading.Condition()
        self._passing = threading.Lock()  # held by the thread that skips transaction markers

    def follow(self) -> None:
        """Read and apply the log until ``stopped``; after an error try again in a second."""
        while not self.stopped.is_set():
            try:
                self._ensure_topic()
                end = self.end()
                self._read_on(self.cluster.reader(), end)
                if self.position >= end:
                    self.ready.set()
                self._read_on(self.cluster.follower(), None)
            except HubError as error:
                log.warning("%s: read again in a second", error.message)
                self.stopped.wait(1.0)

    def be_ready(self) -> None:
        """Wait until queries can be answered. Raises PeerError (HUB-3034)."""
        if not self.ready.wait(self.timeout_s):
            raise PeerError(
                "the registry has not read its log yet",
                hint="check Kafka with hub doctor",
                code="HUB-3034",
            )

    def end(self, *, committed: bool = True) -> int:
        """Return the log's end; without ``committed``, with open transactions."""
        return self.cluster.end_offsets([SCHEMAS_TOPIC], committed=committed).get(LOG)

    def reach(self, position: int) -> None:
        """Wait until the state covers a position of the log."""
        for _ in self.reaching(position, time.monotonic() + self.timeout_s):
            pass

    def reaching(self, position: int, deadline: float) -> Iterator[None]:
        """``reach`` in steps: yields whenever more was applied. Raises PeerError after ``deadline``."""
        while True:
            with self.changed:
                # An append ends with its transaction marker: a single offset after it is that marker.
                if self.position == self._appended == position - 1:
                    self.position = position
                before = self.position
                if before >= position:
                    return
                remaining = deadline - time.monotonic()
                moved = self._moves_past(before, min(_RECORDS_S, remaining))
            if moved and remaining > 0:
                yield
            elif remaining <= 0 or self.stopped.is_set():
                raise PeerError(
                    f"the registry's log is read up to {self.position} of {position}",
                    hint="check Kafka with hub doctor",
                    code="HUB-3031",
                )
            else:
                self._pass_marks(min(_MARKS_S, remaining))

    def take_in(self, records: Sequence[NewRecord], after: int) -> None:
        """Apply this node's appended records, in the log's order.

        ``after`` is the offset after the last of them.

        One record that directly follows the position is applied at once: it is committed, and readers get it
        only some milliseconds later. Otherwise records of other producers may precede it or lie between
        several, so all of it is read back from the log.
        """
        first = after - 1
        with self.changed:
            # An append ends with its transaction marker: a single offset between two appends is that marker.
            only_a_mark = self.position == self._appended == first - 1
            if len(records) == 1 and (self.position == first or only_a_mark):
                new = records[0]
                record = Record(SCHEMAS_TOPIC, 0, first, 0, new.key, new.value, tuple(new.headers))
                self.registry.apply(fact_of(record))
                self.position = after
            self._appended = after
            self.changed.notify_all()
        self.reach(after)

    def _moves_past(self, position: int, timeout_s: float) -> bool:
        """Wait until more is applied; requires the state's lock."""
        self.changed.wait_for(lambda: self.position > position or self.stopped.is_set(), timeout_s)
        return self.position > position

    def _pass_marks(self, timeout_s: float) -> None:
        """Advance to the next record or the end of the log.

        A follower receives records at once, but notices offsets with only transaction markers late. One
        thread looks for all waiting ones.
        """
        if not self._passing.acquire(blocking=False):
            return
        try:
            before = self.position
            reached = self.cluster.next_records(Positions({LOG: before}), timeout_s).get(LOG)
            with self.changed:
                if self.position == before:
                    self.position = max(before, reached)
                    self.changed.notify_all()
        finally:
            self._passing.release()

    def _read_on(self, reader: Reader, end: int | None) -> None:
        """Read up to ``end``; None: until ``stop``."""
        with contextlib.closing(reader):
            reader.assign(Positions({LOG: self.position}))
            while not self.stopped.is_set() and (end is None or self.position < end):
                self._take(reader)

    def _take(self, reader: Reader) -> None:
        records = reader.poll(1_000, 0.2)
        reached = reader.position().get(LOG)
        if not records and reached <= self.position:
            self.stopped.wait(_PAUSE_S)
            return
        with self.changed:
            for record in records:
                if record.offset < self.position:
                    continue  # this node's own, taken in already
                conflicts, unreadable = len(self.registry.conflicts), len(self.registry.unreadable)
                try:
                    self.registry.apply(fact_of(record))
                except Exception as error:  # one record must not end the registry
                    log.exception("%s offset %d", SCHEMAS_TOPIC, record.offset)
                    self.registry.apply(UnreadableFact(record.offset, f"{type(error).__name__}: {error}"))
                for conflict in self.registry.conflicts[conflicts:]:
                    log.error("%s offset %d: %s", SCHEMAS_TOPIC, record.offset, conflict)
                for each in self.registry.unreadable[unreadable:]:
                    log.warning("%s offset %d is not a fact: %s", SCHEMAS_TOPIC, record.offset, each.reason)
            self.position = max(self.position, reached)
            self.changed.notify_all()

    def _ensure_topic(self) -> None:
        if not self.cluster.partition_counts([SCHEMAS_TOPIC]):
            self.cluster.create_topic(
                SCHEMAS_TOPIC,
                partitions=1,
                config={"cleanup.policy": "compact"},
                replication_factor=self.replication_factor,
            )
            return
        found = topic_warnings(self._policy(), self.cluster.topics()[SCHEMAS_TOPIC].partitions)
        for each in found:
            if each not in self.warnings:
                log.error("%s", each)
        self.warnings = found

    def _policy(self) -> str | None:
        """Return the topic's cleanup policy; None when the topic leaves it to the broker (then it is not
        compact).
        """
        configs = getattr(self.cluster, "topic_config", None)
        if configs is None:
            return self.cluster.topics()[SCHEMAS_TOPIC].config.get("cleanup.policy")
        found: str = configs([SCHEMAS_TOPIC])[SCHEMAS_TOPIC].get("cleanup.policy", "delete")
        return found
