"""[shell] The auditor: reads what anybody wrote to topics with a schema, judges it, copies violations to quarantine.

A step polls, judges, and appends copies and tallies in one transaction of the writer ``hub.auditor``. It starts from
the tallies in ``_hub.audit`` and nowhere else, after it has opened the writer: that fences an earlier auditor and ends
its last transaction. So each violation is copied once, in its partition's order, whatever was killed. The source topic
is never written. A partition with something that cannot be read is left there, told, and tried again every minute; all others are
judged on. Memory: one poll's records, a small queue for each partition, one tally for each partition.

``ConformanceResults`` follows ``_hub.audit`` for those who ask (GET /audit, /metrics).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from hub.config import Settings
from hub.errors import CallerError, Conflict, HubError, NotFound
from hub.kafka import own_cluster
from hub.kafka.reader import up_to
from hub.log import Cluster, Reader, Unreadable, Writer, WriterFenced
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.runtime import Backoff
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.values import check_of
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.runner import RUNNER, has_encoding_rules
from hub.topics.conformance.rules import (
    AUDIT_TOPIC,
    QUARANTINE_SUFFIX,
    ConformanceViolation,
    KnownSchema,
    Mode,
    Policy,
    Tally,
    copy_of,
    counters,
    judge,
    size_of,
    summary,
    tally_of,
)
from hub.topics.tree.tree import LiveTree

log = logging.getLogger(__name__)

WRITER_NAME = "hub.auditor"
_GIVE_WAY = 15  # of nice's 19
_LONGEST_REST_S = 5.0
MOST_RECORDS = 1_000
# Topics of the hub's own: their writers are the hub.
_OWN_PREFIXES = ("_", "views.")
_POLL_S = 0.25
_RESCAN_S = 2.0
_TALLY_S = 1.0
_QUEUE_KB = 1_024
_GATHER_MS = 500
_MOST_SCHEMAS = 10_000
_FENCED_PAUSE_S = 30.0
_AGAIN_S = 60.0  # what could not be read is tried again
_SILENT_S = 60.0
_KEPT_MS = 30 * 86_400_000
_DEFAULT_LARGEST = 1_048_588  # a broker's message.max.bytes where nobody says another
_HEADROOM = 65_536  # what the headers of a copy may add


class ConformanceLog(Cluster, Protocol):
    """A cluster that opens readers and writers and tells settings."""

    def reader(self) -> Reader: ...

    def follower(self) -> Reader: ...

    def writer(self, name: str | None = None) -> Writer: ...

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]: ...


class ConformanceSchemas(Protocol):
    """What the auditor asks of the registry."""

    def subjects(self) -> list[str]: ...

    def subjects_of(self, schema_id: int) -> frozenset[str]: ...

    def source(self, schema_id: int) -> SchemaSource: ...


class SchemaIdCache:
    """What the registry says of schema ids, remembered as far as it cannot change: a schema and that it belongs.

    That an id is not known, or not of a subject, holds for one batch (``forget``): whoever wrote the batch's records
    had registered before, and the registry is asked after they were read.
    """

    def __init__(self, registry: ConformanceSchemas) -> None:
        self.registry = registry
        self._checks: dict[int, KnownSchema] = {}
        self._right: dict[tuple[str, int], KnownSchema] = {}
        self._wrong: dict[tuple[str, int], KnownSchema | None] = {}

    def forget(self) -> None:
        self._wrong.clear()

    def of(self, subject: str) -> Callable[[int], KnownSchema | None]:
        """See hub.topics.conformance.rules.judge. Raises PeerError when the registry does not answer."""
        return lambda schema_id: self._ask(subject, schema_id)

    def _ask(self, subject: str, schema_id: int) -> KnownSchema | None:
        place = (subject, schema_id)
        known = self._right.get(place)
        if known is not None:
            return known
        if place in self._wrong:
            return self._wrong.get(place)  # forgotten meanwhile: it was wrong a moment ago
        try:
            belongs = subject in self.registry.subjects_of(schema_id)
        except NotFound:
            self._wrong[place] = None
            return None
        if not belongs:
            self._wrong[place] = foreign = KnownSchema(False, None)
            return foreign
        if len(self._right) >= _MOST_SCHEMAS:
            self._right.clear()
            self._checks.clear()
        if schema_id not in self._checks:
            self._checks[schema_id] = self._check(schema_id)
        self._right[place] = known = self._checks[schema_id]
        return known

    def _check(self, schema_id: int) -> KnownSchema:
        try:
            source = self.registry.source(schema_id)
            if has_encoding_rules(source):  # what is in the log is no body of the schema
                log.warning("schema id %d is encrypted as a whole, its records pass", schema_id)
                return KnownSchema(True, None)
            return KnownSchema(True, check_of(source), RUNNER.refusal_of(source))
        except CallerError as error:
            log.warning("schema id %d cannot be checked, its records pass: %s", schema_id, error.message)
            return KnownSchema(True, None)


class ConformanceChecker:
    """``step`` is the whole of its work; after any error ``close`` it, and the next step begins from the log."""

    def __init__(
        self,
        cluster: ConformanceLog,
        registry: ConformanceSchemas,
        mode_of: Callable[[str], Mode],
        *,
        policies: Sequence[Policy] = (),
        replication_factor: int = 1,
        now_s: Callable[[], float] = time.monotonic,
        open_reader: Callable[[], Reader] | None = None,
    ) -> None:
        self.cluster = cluster
        self.registry = registry
        self.mode_of = mode_of
        self.policies = policies
        self.replication_factor = replication_factor
        self.tallies: dict[TopicPartition, Tally] = {}
        self._now_s = now_s
        self._open_reader = open_reader or cluster.reader
        self._known = SchemaIdCache(registry)
        self._reader: Reader | None = None
        self._writer: Writer | None = None
        self._followed: frozenset[TopicPartition] = frozenset()
        self._aside: dict[TopicPartition, float] = {}  # not read until then
        self._topic_ids: dict[str, str] = {}
        self._modes: dict[str, Mode] = {}
        self._largest: dict[
            str, int
        ] = {}  # by source topic: bytes of a record that its quarantine takes, -1: it cannot be
        self._dirty: set[TopicPartition] = set()
        self._rescan_at_s = self._tally_at_s = float("-inf")

    def step(self, timeout_s: float = _POLL_S) -> int:
        """Judge what one poll gives and write down what was found; how many records. Raises HubError."""
        if self._writer is None:
            self._open()
        if self._now_s() >= self._rescan_at_s:
            self._follow()
            self._rescan_at_s = self._now_s() + _RESCAN_S
        assert self._reader is not None
        records = self._poll(self._reader, timeout_s)
        self._known.forget()
        copies: list[NewRecord] = []
        for record in records:
            self._judge(record, copies)
        if copies or (self._dirty and self._now_s() >= self._tally_at_s):
            self._write(copies)
        return len(records)

    def _poll(self, reader: Reader, timeout_s: float) -> Sequence[Record]:
        try:
            return reader.poll(MOST_RECORDS, timeout_s)
        except Unreadable as error:
            tally = self.tallies[error.place]
            if tally.unread != error.message:
                log.error("this partition is not audited on, all others are: %s", error.message)
                tally.unread = error.message
                self._dirty.add(error.place)
            self._aside[error.place] = self._now_s() + _AGAIN_S
            self._assign(self._followed - {error.place})
            return ()

    def flush(self) -> None:
        """Write down what was judged and is not written yet."""
        if self._dirty:
            self._write([])

    def close(self) -> None:
        """Forget everything that the log does not say."""
        reader, writer = self._reader, self._writer
        self._reader = self._writer = None
        self.tallies, self._followed, self._dirty = {}, frozenset(), set()
        self._aside = {}
        self._largest = {}
        self._rescan_at_s = float("-inf")
        if reader is not None:
            reader.close()
        if writer is not None:
            writer.close()

    # ---- judging

    def _judge(self, record: Record, copies: list[NewRecord]) -> None:
        tally = self.tallies[record.topic_partition]
        violation = judge(record, self._known.of(f"{record.topic}-value"), self.policies)
        copied: bool | None = None
        if violation is not None and tally.mode == "quarantine":
            copied = self._copy(record, violation, copies)
        tally.take(record, violation, copied)
        self._dirty.add(record.topic_partition)

    def _copy(self, record: Record, violation: ConformanceViolation, copies: list[NewRecord]) -> bool:
        copy = copy_of(record, violation)
        if record.topic not in self._largest:
            try:
                self._largest[record.topic] = self._quarantine(record.topic)
            except CallerError as error:
                # Kafka will not have such a topic (its name collides with another's, or is too long): that ends the
                # copies of this one, not the audit of all the others.
                log.error(
                    "%s: no quarantine, its violations are only counted: %s", record.topic, error.message
                )
                self._largest[record.topic] = -1
        if self._largest[record.topic] < 0:
            return False
        if size_of(copy) > self._largest[record.topic]:
            log.error(
                "%s partition %d offset %d: too large for quarantine",
                record.topic,
                record.partition,
                record.offset,
            )
            return False
        copies.append(copy)
        return True

    def _quarantine(self, topic: str) -> int:
        """The quarantine topic is there with the source's partitions, and takes records of so many bytes."""
        name = topic + QUARANTINE_SUFFIX
        topics = self.cluster.topics()
        largest = int(self.cluster.topic_config([topic])[topic].get("max.message.bytes", _DEFAULT_LARGEST))
        config = {"retention.ms": str(_KEPT_MS), "max.message.bytes": str(largest + _HEADROOM)}
        partitions = topics[topic].partitions
        if name not in topics:
            _create(self.cluster, name, partitions, config, self.replication_factor)
        elif topics[name].partitions < partitions:
            self.cluster.add_partitions(name, partitions)
        return int(self.cluster.topic_config([name])[name].get("max.message.bytes", _DEFAULT_LARGEST))

    def _write(self, copies: Sequence[NewRecord]) -> None:
        assert self._writer is not None
        tallies = [self.tallies[place].record() for place in sorted(self._dirty)]
        self._writer.append([*copies, *tallies])
        self._dirty.clear()
        self._tally_at_s = self._now_s() + _TALLY_S

    # ---- where to read

    def _open(self) -> None:
        """The name first: then nobody else writes, and what an earlier auditor wrote is all there."""
        if AUDIT_TOPIC not in self.cluster.topics():
            _create(self.cluster, AUDIT_TOPIC, 1, {"cleanup.policy": "compact"}, self.replication_factor)
        writer = self.cluster.writer(WRITER_NAME)
        reader = self._open_reader()
        try:
            self.tallies = read_tallies(self.cluster, reader)
            reader.assign(Positions())  # a poll without a topic to audit waits all the same
        except BaseException:
            reader.close()
            writer.close()
            raise
        self._writer, self._reader = writer, reader

    def _follow(self) -> None:
        """Read exactly the topics that have a schema and are to be audited, each from where it was judged to."""
        subjects = set(self.registry.subjects())
        topics = {
            name: topic
            for name, topic in self.cluster.topics().items()
            if f"{name}-value" in subjects and not name.startswith(_OWN_PREFIXES)
        }
        modes = {name: self.mode_of(name) for name in topics}
        wanted = {
            TopicPartition(name, partition): topic.topic_id
            for name, topic in topics.items()
            if modes[name] != "off"
            for partition in range(topic.partitions)
        }
        for place, topic_id in wanted.items():
            tally = self.tallies.get(place)
            if tally is None or tally.topic_id != topic_id:
                self.tallies[place] = Tally(*place, topic_id)
                self._dirty.add(place)
            if self.tallies[place].mode != modes[place.topic]:
                self.tallies[place].mode = modes[place.topic]
                self._dirty.add(place)
        ids = {place.topic: topic_id for place, topic_id in wanted.items()}
        now_s = self._now_s()
        self._aside = {place: until_s for place, until_s in self._aside.items() if now_s < until_s}
        places = frozenset(wanted.keys() - self._aside.keys())
        if places == self._followed and ids == self._topic_ids:
            return
        self._assign(places)
        self._topic_ids = ids
        self._largest.clear()  # a topic may have more partitions now, or be another

    def _assign(self, places: frozenset[TopicPartition]) -> None:
        names = sorted({place.topic for place in places})
        begin, end = self.cluster.beginning_offsets(names), self.cluster.end_offsets(names)
        for place in places:
            tally = self.tallies[place]
            before = tally.position
            tally.moved(begin.get(place), end.get(place))
            if tally.position != before:
                self._dirty.add(place)
                if before:
                    log.error(
                        "%s partition %d: offsets from %d are gone, the audit goes on at %d",
                        *(*place, before, tally.position),
                    )
        assert self._reader is not None
        self._reader.assign(Positions({place: self.tallies[place].position for place in places}))
        self._followed = places


def read_tallies(cluster: Cluster, reader: Reader) -> dict[TopicPartition, Tally]:
    """The latest tally of every partition. The reader is left assigned to the audit's topic, at its end. Raises PeerError when
    nothing comes for a minute."""
    end = cluster.end_offsets([AUDIT_TOPIC])
    reader.assign(cluster.beginning_offsets([AUDIT_TOPIC]))
    found: dict[TopicPartition, Tally] = {}
    for records in up_to(end, reader, _SILENT_S):
        for record in records:
            if record.value is not None:
                tally = tally_of(record)
                found[tally.topic_partition] = tally
    return found


def _create(
    cluster: Cluster, name: str, partitions: int, config: Mapping[str, str], replication_factor: int
) -> None:
    with contextlib.suppress(Conflict):  # another one was faster
        cluster.create_topic(
            name, partitions=partitions, config=config, replication_factor=replication_factor
        )


class ConformanceResults:
    """What the auditor found, as ``_hub.audit`` tells: followed in a thread of its own. ``start`` before use."""

    def __init__(self, cluster: ConformanceLog) -> None:
        self.cluster = cluster
        self._tallies: dict[TopicPartition, Tally] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="audit-results", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def rows(self) -> list[dict[str, Any]]:
        """See hub.topics.conformance.rules.summary."""
        with self._lock:
            return summary(self._tallies.values())

    def counters(self) -> list[tuple[str, str, Mapping[str, str], float]]:
        """See hub.topics.conformance.rules.counters."""
        with self._lock:
            return counters(self._tallies.values())

    def _run(self) -> None:
        backoff = Backoff(first_s=1.0, most_s=5.0)
        while not self._stop.is_set():
            reader: Reader | None = None
            try:
                if not self.cluster.partition_counts([AUDIT_TOPIC]):
                    self._stop.wait(_RESCAN_S)  # no auditor has run yet
                    continue
                reader = self.cluster.follower()
                found = read_tallies(self.cluster, reader)
                with self._lock:
                    self._tallies = found
                backoff.reset()
                self._follow(reader)
            except HubError as error:
                log.warning("the audit's results cannot be followed now: %s", error.message)
                self._stop.wait(backoff.next_s())
            finally:
                if reader is not None:
                    reader.close()

    def _follow(self, reader: Reader) -> None:
        while not self._stop.is_set():
            for record in reader.poll(1_000, 0.5):
                if record.value is not None:
                    tally = tally_of(record)
                    with self._lock:
                        self._tallies[tally.topic_partition] = tally


def mode_of(tree: LiveTree, topic: str) -> Mode:
    """What the tree says of a topic; ``report`` where it says nothing."""
    spec = tree.find(topic)
    return "report" if spec is None else spec.audit


def run(settings: Settings, stop: threading.Event) -> None:
    """Audit until ``stop`` is set. Kafka or registry away: it waits and goes on.

    It gives way to all else: on a full machine views come first, and a verdict a little later is as good.
    """
    os.nice(_GIVE_WAY)
    cluster = own_cluster(settings)
    registry = RegistryClient(settings.registry)
    tree = LiveTree(settings.project / "topics.yaml")
    auditor = ConformanceChecker(
        cluster,
        registry,
        lambda topic: mode_of(tree, topic),
        replication_factor=settings.replication_factor,
        open_reader=lambda: cluster.gatherer(queue_kb=_QUEUE_KB, wait_ms=_GATHER_MS),
    )
    backoff = Backoff(first_s=0.5, most_s=5.0)
    said = None
    while not stop.is_set():
        try:
            began_s = time.thread_time()
            auditor.step()
            # A long history is judged in its own time; what arrives live is far below this share.
            stop.wait(
                min(_LONGEST_REST_S, (time.thread_time() - began_s) * (1 / settings.audit_core_share - 1))
            )
            backoff.reset()
            if tree.error is not said and tree.error is not None:
                log.error("the tree of topics cannot be read, the audit goes on as before: %s", tree.error)
            said = tree.error
        except HubError as error:
            log.warning("the audit waits: %s", error)
            auditor.close()
            stop.wait(_FENCED_PAUSE_S if isinstance(error, WriterFenced) else backoff.next_s())
    try:
        auditor.flush()
    except HubError as error:
        log.warning("the last tallies were not written, their records are judged again: %s", error.message)
    auditor.close()
    registry.close()
