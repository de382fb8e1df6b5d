"""[shell] A round of a sink with ``assemble:``: read the tables and the transaction topic, close
transactions, append their events with the positions.

Nothing is kept beside the positions of the group: open rows are read again
(``source_transactions/transactions.py``).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping, Sequence

from hub.errors import ConfigError, NotFound
from hub.kafka import KafkaCluster
from hub.log import Reader
from hub.materializers.engine.plans.topics import largest_records
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.source_transactions.changes import NotOfDebezium, SnapshotRow, boundary_of, change_of
from hub.materializers.source_transactions.decoding import ValueDecoder
from hub.materializers.source_transactions.transactions import Closed, Limits, Transactions
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.schema_registry.client.port import SchemaRegistry
from hub.sinks.assembling.domain_event import Unassembled, event_schema, events_of
from hub.sinks.assembling.entry import Assemble
from hub.sinks.commits import Commits
from hub.sinks.events import Delivered, RefusedRecord, SinkBatch, SinkEvent
from hub.sinks.selection import SinkSelection
from hub.sinks.sink import CHECK_S, COMMIT_S, PAGE, POLL_S, QUEUE_KB, Sink, begin_positions
from hub.sinks.sinks_file import SinkEntry
from hub.times import epoch_ms

# A transaction that is open for less is on its way.
_WAITING_S, _ENDS_S = 5.0, 1.0
_HEADROOM_BYTES = 1_024  # of a record's key and batch
_SNAPSHOT = "it is a row of a snapshot, which has no transaction"


def check_assembly(cluster: KafkaCluster, name: str, entry: SinkEntry) -> Mapping[str, int]:
    """Return the partitions of the topics that a sink assembles.

    Raises NotFound (HUB-1823) for a topic that does not exist, ConfigError (HUB-1830) if the transaction
    topic has several partitions: its order is that of the commits.
    """
    counts = cluster.partition_counts(entry.topics)
    for topic in entry.topics:
        if topic not in counts:
            raise NotFound(
                f'topic "{topic}" does not exist',
                hint="Debezium creates it with the first change, the transaction topic with "
                "`provide.transaction.metadata: true`; or correct its name in sinks.yaml",
                code="HUB-1823",
            )
    if counts[entry.source] > 1:
        raise ConfigError(
            f'sink "{name}": the transaction topic "{entry.source}" has {counts[entry.source]} partitions, '
            "and their records have no order",
            hint="declare it with `partitions: 1` in topics.yaml before the connector creates it; give the "
            "connector another `topic.transaction` if it exists",
            code="HUB-1830",
        )
    return counts


def register_schema(registry: SchemaRegistry, topic: str, assemble: Assemble) -> None:
    """Register the schema of the events. Raises CallerError if the registry refuses it, and ConfigError
    (HUB-1830) if a newer version of the topic's schema lacks a column.
    """
    schema = event_schema(topic, assemble)
    subject = f"{topic}-value"
    id = registry.register(subject, json.dumps(schema))
    newest = registry.latest(subject)
    if newest.id == id or newest.schema_type != "AVRO":
        return
    known = {each["name"] for each in json.loads(newest.schema).get("fields", ())}
    if lacking := [each["name"] for each in schema["fields"] if each["name"] not in known]:
        raise ConfigError(
            f'topic "{topic}": the newest version of its schema lacks the field {lacking[0]} of `assemble`',
            hint="correct the columns in sinks.yaml, or register a version with all of them",
            code="HUB-1830",
        )


class AssemblyRound:
    """One round, once everything is open."""

    def __init__(self, sink: Sink, stack: contextlib.ExitStack) -> None:
        self.sink, self.parts, entry = sink, sink.parts, sink.entry
        assert entry.assemble is not None and entry.topic is not None
        self.assemble, self.topic = entry.assemble, entry.topic.name
        self.parts.owners.act(sink.name, entry)
        cluster, registry = self.parts.cluster, self.parts.registry
        self.counts = check_assembly(cluster, sink.name, entry)
        self.source = TopicPartition(entry.source, 0)
        self.commits = Commits(sink.name, cluster, self.parts.settings)
        stack.callback(self.commits.close)
        selection = SinkSelection(entry, TopicTables(cluster, registry))
        self.target = self.parts.open_target(sink.name, entry, selection, sink.report_retry)
        stack.callback(self.target.close)
        self.at = begin_positions(sink, self.commits, self.target)
        _check_same_tables(sink, self.commits.committed)
        register_schema(registry, self.topic, self.assemble)
        self.most_bytes = largest_records(cluster, [self.topic])[self.topic] - _HEADROOM_BYTES
        self.commits.commit(Delivered(self.at), ())
        self.transactions = _transactions(self.assemble, self.source, self.at)
        self.collections = {each.topic: each.collection for each in self.assemble.tables.values()}
        self.decoder = ValueDecoder(registry)
        self.reader: Reader = cluster.follower(queue_kb=QUEUE_KB)
        stack.callback(self.reader.close)
        self.reading = self.transactions.to_read()
        self.reader.assign(self.at)

    def run(self, stop: threading.Event) -> None:
        """See Round."""
        self.sink.working()
        checked_s = committed_s = self._asked_s = time.monotonic()
        while not stop.is_set():
            for record in self.reader.poll(PAGE, POLL_S):
                self._take(record, time.monotonic())
            self.at = Positions({**self.at.offsets, **self.reader.position().offsets})
            now_s = time.monotonic()
            closed, strays = self.transactions.close(self._settled(now_s), now_s)
            delivered, refused = self._delivered(closed, stop)
            refused += [RefusedRecord(each.record, each.reason) for each in strays]
            if delivered.records or refused or now_s - committed_s > COMMIT_S:
                self.commits.commit(delivered, refused)
                committed_s = now_s
            self._report(delivered, len(refused), now_s)
            self._choose_partitions()
            if now_s - checked_s > CHECK_S:
                self.parts.owners.act(self.sink.name, self.sink.entry)
                checked_s = now_s
                if self.parts.cluster.partition_counts(self.sink.entry.topics) != self.counts:
                    break

    def _settled(self, now_s: float) -> frozenset[TopicPartition]:
        """Return the partitions that are read to their present ends; none unless something is overdue."""
        if not self.transactions.is_overdue(now_s) or now_s - self._asked_s < _ENDS_S:
            return frozenset()
        self._asked_s = now_s
        ends = self.parts.cluster.end_offsets(self.sink.entry.topics)
        return frozenset(place for place, end in ends if self.at.get(place) >= end)

    def _take(self, record: Record, now_s: float) -> None:
        if record.unread is None and record.value is None:
            return  # the tombstone after a deletion
        try:
            if record.unread is not None:
                raise NotOfDebezium(record.unread)
            value = self.decoder.value(record)
            if record.topic == self.source.topic:
                self.transactions.take_boundary(boundary_of(record, value), now_s)
                return
            change = change_of(record, value)
        except NotOfDebezium as error:
            self.transactions.take_stray(record, str(error))
            return
        if isinstance(change, SnapshotRow):
            if self.assemble.snapshot != "skip":
                self.transactions.take_stray(record, _SNAPSHOT)
        elif change.collection != self.collections[record.topic]:
            raise ConfigError(
                f'sink "{self.sink.name}": {record.topic} {record.partition}:{record.offset} is a change of '
                f'table "{change.collection}", not of "{self.collections[record.topic]}"',
                hint=f"write `table: {change.collection}` next to `topic`, or correct the topic",
                code="HUB-1830",
            )
        else:
            self.transactions.take_row(change, now_s)

    def _delivered(
        self, closed: Sequence[Closed], stop: threading.Event
    ) -> tuple[Delivered, list[RefusedRecord]]:
        """Return the records of closed transactions with the positions behind them, and what is refused."""
        events, refused = list[SinkEvent](), list[RefusedRecord]()
        for each in closed:
            try:
                if each.reason:
                    raise Unassembled(each.reason)
                made = events_of(self.assemble, each.id, each.at_ms, each.rows)
            except Unassembled as error:
                refused.append(RefusedRecord(each.boundary, str(error)))
                continue
            place = each.boundary
            events += [
                SinkEvent(place._replace(key=event.key, timestamp_ms=each.at_ms, headers=()), event.value)
                for event in made
            ]
        positions = self.transactions.positions(self.at)
        delivered = self.target.deliver(SinkBatch(events, positions, positions), stop, self.commits.bury)
        refused += delivered.refused
        misfits = {id(each.record) for each in delivered.refused}
        fitting = [each.record for each in events if id(each.record) not in misfits]
        records = list[NewRecord]()
        for record, new in zip(fitting, delivered.records, strict=True):
            if len(new.value or b"") > self.most_bytes:
                size = len(new.value or b"")
                reason = f"its event has {size:,} bytes, and {self.topic} takes {self.most_bytes:,}"
                refused.append(RefusedRecord(record, reason))
            else:
                records.append(new)
        return Delivered(positions, len(records), records=records), refused

    def _report(self, delivered: Delivered, refused: int, now_s: float) -> None:
        status = self.sink.status
        status.positions = delivered.positions
        waiting = self.transactions.waiting(now_s)
        status.oldest_ms = None if waiting is None else waiting.oldest_ms
        if waiting is not None and waiting.since_s > _WAITING_S:
            status.put(state="WAITING", trouble=f"{waiting.what}, for {waiting.since_s:.0f} s")
        else:
            self.sink.working()
        if delivered.events or refused:
            note = status.note
            status.put(
                delivered=note.delivered + delivered.events,
                refused=note.refused + refused,
                delivered_at_ms=epoch_ms(),
            )

    def _choose_partitions(self) -> None:
        """Read other partitions from now on, if those that are ahead must wait."""
        wanted = self.transactions.to_read()
        if wanted != self.reading:
            self.reading = wanted
            self.reader.assign(Positions({place: self.at.get(place) for place in wanted}))


def _check_same_tables(sink: Sink, held: Positions) -> None:
    """Raise ConfigError (HUB-1830) for a table that was added to a sink that has positions: the transactions
    of its earlier rows are closed.
    """
    known = {place.topic for place, _ in held}
    if known and (added := [each for each in sink.entry.topics if each not in known]):
        raise ConfigError(
            f'sink "{sink.name}": topic "{added[0]}" was added, and earlier transactions are closed',
            hint="give the sink another name, with `start: now` or another target topic",
            code="HUB-1830",
        )


def _transactions(assemble: Assemble, source: TopicPartition, at: Positions) -> Transactions:
    limits = Limits(assemble.most_rows, int(assemble.most_mb * 1_000_000), assemble.wait_s)
    tables = {each.topic: each.collection for each in assemble.tables.values()}
    return Transactions(source, tables, (place for place, _ in at if place != source), limits)
