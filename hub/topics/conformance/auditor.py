"""[shell] Conformance checker: judge all records of topics with a schema, and copy violations to quarantine.

A step polls, judges, and appends copies and tallies in one transaction of the writer ``hub.auditor``. It
starts from the tallies in ``_hub.audit`` only, read after it has opened the writer: this fences an earlier
checker and ends its last transaction. Each violation is therefore copied exactly once, in the order of its
partition, even after a crash. The source topic is never written. A partition with an unreadable record stops
there, is reported, and is retried every minute; all others continue. Memory: one poll's records, a small
queue and a tally per partition.

``ConformanceResults`` follows ``_hub.audit`` for readers (GET /audit, /metrics).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence

from hub.config import Settings
from hub.errors import CallerError, HubError
from hub.kafka import own_cluster
from hub.log import Log, Reader, Unreadable, Writer, WriterFenced, ensure_topic
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.runtime import Backoff
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.encryption.sealing import SEALER
from hub.topics.conformance.results import RESCAN_S, read_tallies
from hub.topics.conformance.rules import (
    AUDIT_TOPIC,
    QUARANTINE_SUFFIX,
    ConformanceViolation,
    Mode,
    Policy,
    Tally,
    copy_of,
    judge,
    size_of,
)
from hub.topics.conformance.schema_ids import SchemaIdCache
from hub.topics.tree.erasable import seal_by_tree
from hub.topics.tree.tree import LiveTree

log = logging.getLogger(__name__)
WRITER_NAME = "hub.auditor"
_GIVE_WAY = 15  # out of nice's 19
_LONGEST_REST_S = 5.0
MOST_RECORDS = 1_000
# Topics of the hub itself: only the hub writes them.
_OWN_PREFIXES = ("_", "views.")
_POLL_S = 0.25
_TALLY_S = 1.0
_QUEUE_KB = 1_024
_GATHER_MS = 500
_FENCED_PAUSE_S = 30.0
_AGAIN_S = 60.0  # retry interval of unreadable partitions
_KEPT_MS = 30 * 86_400_000
_DEFAULT_LARGEST = 1_048_588  # a broker's default for message.max.bytes
_HEADROOM = 65_536  # maximum size of the headers of a copy


class ConformanceChecker:
    """Conformance checker. Call ``step`` repeatedly. After any error call ``close``; the next step restarts
    from the log.
    """

    def __init__(
        self,
        cluster: Log,
        registry: SchemaRegistry,
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
        self._aside: dict[TopicPartition, float] = {}  # partitions that are not read before this time
        self._topic_ids: dict[str, str] = {}
        self._largest: dict[
            str, int
            # by source topic: maximum record size of its quarantine topic in bytes, -1: it cannot be created
        ] = {}
        self._dirty: set[TopicPartition] = set()
        self._rescan_at_s = self._tally_at_s = float("-inf")

    def step(self, timeout_s: float = _POLL_S) -> int:
        """Judge the records of one poll and write the results. Returns the number of records. Raises
        HubError.
        """
        if self._writer is None:
            self._open()
        if self._now_s() >= self._rescan_at_s:
            self._follow()
            self._rescan_at_s = self._now_s() + RESCAN_S
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
        """Write results that are not written yet."""
        if self._dirty:
            self._write([])

    def close(self) -> None:
        """Drop all state; the next step reads it from the log."""
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

    # ---- judgement

    def _judge(self, record: Record, copies: list[NewRecord]) -> None:
        tally = self.tallies[record.topic_partition]
        violation = judge(record, self._known.of(f"{record.topic}-value"), self.policies)
        copied: bool | None = None
        # A copy would have the clear text of a person, and nothing would erase it.
        is_erasable = SEALER.fields_of(record.topic) is not None
        if violation is not None and tally.mode == "quarantine" and not is_erasable:
            copied = self._copy(record, violation, copies)
        tally.take(record, violation, copied)
        self._dirty.add(record.topic_partition)

    def _copy(self, record: Record, violation: ConformanceViolation, copies: list[NewRecord]) -> bool:
        copy = copy_of(record, violation)
        if record.topic not in self._largest:
            try:
                self._largest[record.topic] = self._quarantine(record.topic)
            except CallerError as error:
                # Kafka rejects this topic name (it collides with another, or is too long): this ends the
                # copies of this topic, not the check of the others.
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
        """Create or extend the quarantine topic to the source's partitions. Returns its maximum record size
        in bytes.
        """
        name = topic + QUARANTINE_SUFFIX
        topics = self.cluster.topics()
        largest = int(self.cluster.topic_config([topic])[topic].get("max.message.bytes", _DEFAULT_LARGEST))
        config = {"retention.ms": str(_KEPT_MS), "max.message.bytes": str(largest + _HEADROOM)}
        partitions = topics[topic].partitions
        if name not in topics:
            copies = self.replication_factor
            ensure_topic(self.cluster, name, config, replication_factor=copies, partitions=partitions)
        elif topics[name].partitions < partitions:
            self.cluster.add_partitions(name, partitions)
        return int(self.cluster.topic_config([name])[name].get("max.message.bytes", _DEFAULT_LARGEST))

    def _write(self, copies: Sequence[NewRecord]) -> None:
        assert self._writer is not None
        tallies = [self.tallies[place].record() for place in sorted(self._dirty)]
        self._writer.append([*copies, *tallies])
        self._dirty.clear()
        self._tally_at_s = self._now_s() + _TALLY_S

    # ---- assignment

    def _open(self) -> None:
        """Open the writer first: this fences other writers and completes what an earlier checker left
        open.
        """
        ensure_topic(self.cluster, AUDIT_TOPIC, replication_factor=self.replication_factor)
        writer = self.cluster.writer(WRITER_NAME)
        reader = self._open_reader()
        try:
            self.tallies = read_tallies(self.cluster, reader)
            reader.assign(Positions())  # a poll without assigned topics also waits
        except BaseException:
            reader.close()
            writer.close()
            raise
        self._writer, self._reader = writer, reader

    def _follow(self) -> None:
        """Assign exactly the topics that have a schema and are to be checked, each from its tally's
        position.
        """
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
        self._largest.clear()  # a topic may have more partitions now, or have been recreated

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
                        "%s partition %d: offsets from %d are gone, the conformance check continues at %d",
                        *(*place, before, tally.position),
                    )
        assert self._reader is not None
        self._reader.assign(Positions({place: self.tallies[place].position for place in places}))
        self._followed = places


def clear_text_policy(registry: SchemaRegistry) -> Policy:
    """Return the policy that finds erasable fields in clear text, as a writer past the hub leaves them."""

    def judged(record: Record, _schema_id: int) -> str | None:
        try:
            names = SEALER.clear_fields(record.topic, record.value or b"", registry)
        except CallerError as error:
            return error.message
        except BrokenValue:
            return None
        listed = ", ".join(names)
        return f"erasable fields are in clear text: {listed}; write through the hub" if names else None

    return judged


def mode_of(tree: LiveTree, topic: str) -> Mode:
    """Return the topic's mode in the tree; ``report`` by default."""
    spec = tree.find(topic)
    return "report" if spec is None else spec.audit


def run(settings: Settings, stop: threading.Event) -> None:
    """Run the checker until ``stop`` is set. While Kafka or the registry is unavailable, it waits and
    retries.

    It runs at low priority: views matter more than quick results.
    """
    os.nice(_GIVE_WAY)
    cluster = own_cluster(settings)
    registry = RegistryClient(settings.registry)
    tree = LiveTree(settings.project / "topics.yaml")
    seal_by_tree(settings.project, settings.erase_kek)
    auditor = ConformanceChecker(
        cluster,
        registry,
        lambda topic: mode_of(tree, topic),
        policies=(clear_text_policy(registry),),
        replication_factor=settings.replication_factor,
        open_reader=lambda: cluster.gatherer(queue_kb=_QUEUE_KB, wait_ms=_GATHER_MS),
    )
    backoff = Backoff(first_s=0.5, most_s=5.0)
    logged_error = None
    while not stop.is_set():
        try:
            began_s = time.thread_time()
            auditor.step()
            # A long history is checked at a limited share of a core; live traffic needs far less than this
            # share.
            stop.wait(
                min(_LONGEST_REST_S, (time.thread_time() - began_s) * (1 / settings.audit_core_share - 1))
            )
            backoff.reset()
            if tree.error is not logged_error and tree.error is not None:
                log.error(
                    "the tree of topics cannot be read, the previous one stays in force: %s", tree.error
                )
            logged_error = tree.error
        except HubError as error:
            log.warning("the audit waits: %s", error)
            auditor.close()
            stop.wait(_FENCED_PAUSE_S if isinstance(error, WriterFenced) else backoff.next_s())
    try:
        auditor.flush()
    except HubError as error:
        log.warning("the last counts were not written, their records are checked again: %s", error.message)
    auditor.close()
    registry.close()
