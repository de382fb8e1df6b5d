"""[shell] A registry node: the state in memory, fed by one thread; writes fenced, appended, read back, then answered.

Any number of nodes may take writes. A write opens the writer anew when another node fenced it, catches up, and
decides on what it then knows; so a decision is always made on the end of the log. Reads answer from memory, also
while Kafka is away.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from hub.errors import ConfigError, HubError, PeerError
from hub.log import Cluster, Reader, Writer, WriterFenced
from hub.record import Positions, TopicPartition
from hub.schema_registry.facts import SCHEMAS_TOPIC, fact_of, record_of
from hub.schema_registry.registry import Command, Refused, Registry

log = logging.getLogger(__name__)
T = TypeVar("T")

WRITER_NAME = "hub.schema-registry"
_LOG = TopicPartition(SCHEMAS_TOPIC, 0)
_MOST_PAUSE_S = 0.2


class Log(Cluster, Protocol):
    """A cluster that also opens readers and writers."""

    def reader(self) -> Reader: ...

    def writer(self, name: str | None = None) -> Writer: ...


class Node:
    """One registry. Thread safe. ``start`` before use, ``stop`` after."""

    def __init__(self, cluster: Log, *, replication_factor: int = 1, timeout_s: float = 10.0) -> None:
        self.cluster = cluster
        self.replication_factor = replication_factor
        self.timeout_s = timeout_s
        self.registry = Registry()
        self.position = 0
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._writer: Writer | None = None
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._refused: ConfigError | None = None
        self._thread: threading.Thread | None = None

    def start(self, wait_s: float | None = None) -> bool:
        """Make the topic when it is missing, read it to its end, go on following it: in a thread, for ever.

        Waits at most ``wait_s`` (default: the node's time-out) and returns whether it is ready; until it is, questions
        wait and then raise PeerError, so that a server can serve all else while Kafka is away. Raises ConfigError
        when the topic would lose schemas (cleanup.policy).
        """
        self._thread = threading.Thread(target=self._follow, name="schema-registry", daemon=True)
        self._thread.start()
        ready = self._ready.wait(self.timeout_s if wait_s is None else wait_s)
        if self._refused is not None:
            raise self._refused
        return ready

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self.timeout_s)
        if self._writer is not None:
            self._writer.close()

    def read(self, question: Callable[[Registry], T]) -> T:
        """Ask the state; it does not change while ``question`` runs."""
        self._be_ready()
        with self._changed:
            return question(self.registry)

    def submit(self, command: Command) -> tuple[Any, int]:
        """Carry a command out: (its answer, the log position after it). Raises Refused; PeerError when Kafka is away."""
        self._be_ready()
        with self._writing:
            deadline = time.monotonic() + self.timeout_s
            while time.monotonic() < deadline:
                try:
                    if self._writer is None:
                        self._writer = self.cluster.writer(WRITER_NAME)
                    self._reach(self._end())
                    decision = self.read(lambda registry: registry.decide(command))
                    if decision.facts:
                        after = self._writer.append([record_of(fact) for fact in decision.facts])
                        self._reach(after.get(_LOG))
                    return decision.answer, self.position
                except WriterFenced:
                    # Another node wrote: catch up, decide again; after a pause of chance, or both would fence for ever.
                    self._writer = None
                    self._stop.wait(random.uniform(0.0, _MOST_PAUSE_S))
                except PeerError:
                    self._writer = None
                    raise
            raise PeerError(
                "the registry's other nodes write without a pause", hint="try again", code="HUB-3030"
            )

    def _be_ready(self) -> None:
        if not self._ready.wait(self.timeout_s):
            if self._refused is not None:
                raise self._refused
            raise PeerError(
                "the registry has not read its log yet",
                hint="is Kafka well? hub doctor tells",
                code="HUB-3034",
            )

    def _end(self) -> int:
        return self.cluster.end_offsets([SCHEMAS_TOPIC]).get(_LOG)

    def _reach(self, position: int) -> None:
        """Wait until the state covers a position of the log."""
        deadline = time.monotonic() + self.timeout_s
        with self._changed:
            while self.position < position:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self._stop.is_set():
                    raise PeerError(
                        f"the registry's log is read up to {self.position} of {position}",
                        hint="is Kafka well? hub doctor tells",
                        code="HUB-3031",
                    )
                self._changed.wait(remaining)

    def _follow(self) -> None:
        """The one place that applies: read on, for ever; what fails is tried again after a pause."""
        while not self._stop.is_set():
            reader: Reader | None = None
            try:
                self._ensure_topic()
                end = self._end()
                reader = self.cluster.reader()
                reader.assign(Positions({_LOG: self.position}))
                while not self._stop.is_set():
                    self._take(reader)
                    if self.position >= end:
                        self._ready.set()
            except ConfigError as error:
                log.error("%s", error)
                self._refused = error
                return
            except HubError as error:
                log.warning("%s: read again in a second", error.message)
                self._stop.wait(1.0)
            finally:
                if reader is not None:
                    reader.close()

    def _take(self, reader: Reader) -> None:
        records = reader.poll(1_000, 0.2)
        reached = reader.position().get(_LOG)
        if not records and reached <= self.position:
            return
        with self._changed:
            for record in records:
                conflicts = len(self.registry.conflicts)
                fact = fact_of(record)
                self.registry.apply(fact)
                for conflict in self.registry.conflicts[conflicts:]:
                    log.error("%s offset %d: %s", SCHEMAS_TOPIC, record.offset, conflict)
            self.position = max(self.position, reached)
            self._changed.notify_all()

    def _ensure_topic(self) -> None:
        if SCHEMAS_TOPIC not in self.cluster.topics():
            self.cluster.create_topic(
                SCHEMAS_TOPIC,
                partitions=1,
                config={"cleanup.policy": "compact"},
                replication_factor=self.replication_factor,
            )
            return
        policy = self._policy()
        if policy is not None and policy != "compact":
            raise ConfigError(
                f'topic "{SCHEMAS_TOPIC}": cleanup.policy is "{policy}": schemas would vanish',
                hint=f"kafka-configs --alter --topic {SCHEMAS_TOPIC} --add-config cleanup.policy=compact",
                code="HUB-1210",
            )

    def _policy(self) -> str | None:
        """The topic's cleanup policy; None when the topic leaves it to the broker (then it is not compact)."""
        configs = getattr(self.cluster, "topic_config", None)
        if configs is None:
            return self.cluster.topics()[SCHEMAS_TOPIC].config.get("cleanup.policy")
        found: str = configs([SCHEMAS_TOPIC])[SCHEMAS_TOPIC].get("cleanup.policy", "delete")
        return found


__all__ = ["Node", "Refused"]
