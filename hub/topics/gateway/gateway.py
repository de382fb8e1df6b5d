"""[shell] Produce gateway: encode records with their topic's schema, write them, answer when they are
acknowledged.

::

    admit (bounded) ─▶ workers: split, look up topic and schema, encode ─▶ sender ─▶ acknowledged ─▶ the answer

``submit`` does not block: it returns a future that completes when every record is acknowledged by all in-sync
replicas, or refused. The gateway has its own worker threads and its own acknowledgement thread, so the
server's threads stay free for reads.

The parts: ``admission.py`` bounds what is in progress, ``produce_request.py`` parses, ``record_encoder.py``
encodes, ``gateway_sender.py`` holds the producer, ``produce_batch.py`` collects the answer, and
``repeated_requests.py`` finds earlier tries of a request.
"""  # noqa: E501

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace

from hub.caller import sees_topic
from hub.errors import CallerError, HubError, HubFault, NotFound, PeerError, did_you_mean
from hub.kafka import KafkaCluster
from hub.kafka.connection import AWAY, BARRED
from hub.record import NewRecord, TopicPartition
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.contracts.rules import RuleRefused
from hub.times import epoch_ms
from hub.topics.gateway.admission import Admission, Slot, spent_events
from hub.topics.gateway.expected_version.appender import Appended, Appender, append_of
from hub.topics.gateway.expected_version.version import KeyVersion, require_one
from hub.topics.gateway.gateway_sender import GatewaySender
from hub.topics.gateway.idempotency import FoundRequest, mark
from hub.topics.gateway.own_headers import with_own_headers
from hub.topics.gateway.produce_batch import (
    GatewayAnswer,
    ProduceBatch,
    ProduceRequest,
    outcome_unknown,
    refusal,
    written_line,
)
from hub.topics.gateway.produce_request import (
    MOST_REQUEST_BYTES,
    Data,
    RecordRequest,
    TooLarge,
    as_json,
    records_of,
)
from hub.topics.gateway.produce_spans import begin_span, end_span
from hub.topics.gateway.record_encoder import GatewaySchemas, RequestEncoder
from hub.topics.gateway.repeated_requests import RepeatedRequests
from hub.topics.gateway.rule_dead_letters import dead_copy, error_with_copy, may_be_dead_in
from hub.topics.tree.tree import LiveTree
from hub.tracing import Trace

log = logging.getLogger(__name__)

# An empty object may be encoded as a record of long defaults.
_MOST_ENCODED_BYTES = 2 * MOST_REQUEST_BYTES
_WORKERS = 4
_TOPIC_AGE_S = 10.0
_GIVE_UP_S = 5.0
"""How long a request waits for its acknowledgements after Kafka's client has given its records up."""

# Return why no record may be written to a topic now, None if writing is allowed. Must not block for long, nor
# raise.
Refuses = Callable[[str], HubError | None]
# Called for each record that is in the log, with its partition and offset. Must not raise.
Took = Callable[[NewRecord, TopicPartition, int], None]


@dataclass(slots=True)
class _GatewayTopic:
    partitions: int
    read_at_s: float


@dataclass(slots=True)
class _Writing:
    """A request whose records are being encoded and sent. ``found``: its records of an earlier try.
    ``encoded_bytes`` of its records so far.
    """

    request: ProduceRequest
    batch: ProduceBatch
    encoder: RequestEncoder
    cluster_id: str
    print_: str
    count: int
    repeated: FoundRequest | None
    trace: Trace | None
    encoded_bytes: int = 0


class Gateway:
    """Produce gateway. Thread safe. Call ``start`` before use and ``stop`` after."""

    def __init__(
        self,
        cluster: KafkaCluster,
        registry: SchemaRegistry,
        tree: LiveTree | None = None,
        took: Took = lambda _new, _place, _offset: None,
        refuses: Refuses = lambda _topic: None,
    ) -> None:
        self.cluster = cluster
        self.refuses = refuses
        self.took = took
        self.tree = tree
        self.admission = Admission(lambda why: cluster.down("append", why))
        self.schemas = GatewaySchemas(registry)
        self.repeated = RepeatedRequests(cluster, cluster.timeout_s + _GIVE_UP_S)
        self.sender = GatewaySender(cluster, self._give_up)
        self.appender = Appender(cluster)
        self.batches: set[ProduceBatch] = set()
        self._workers = ThreadPoolExecutor(_WORKERS, "produce")
        self._topics: dict[str, _GatewayTopic] = {}
        self._cluster_id: str | None = None

    def start(self) -> None:
        self.sender.start()

    def stop(self) -> None:
        """Stop the gateway; wait up to 5 s for outstanding acknowledgements."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        self.appender.close()
        self.sender.stop()

    def cluster_id(self) -> str:
        """Return the cluster id, cached. Raises PeerError if it is not cached and Kafka does not answer."""
        if self._cluster_id is None:
            self._cluster_id = self.cluster.cluster_id()
        return self._cluster_id

    def admit(self, size: int) -> Slot:
        """Reserve capacity for a request of up to ``size`` bytes. Raises TooLarge; Busy, PeerError (nothing
        was written).
        """
        return self.admission.admit(size, time.monotonic())

    def submit(self, request: ProduceRequest, slot: Slot) -> Future[GatewayAnswer]:
        """Process a request and return its future answer. Errors of the whole request are answers, too. The
        slot is released when the future completes.
        """
        answer: Future[GatewayAnswer] = Future()
        answer.add_done_callback(lambda _: slot.release())
        key, print_ = request.idempotency_key, ""
        if key is not None:
            print_ = request.fingerprint()
            try:
                known = self.repeated.begin(request.topic, key, print_, answer)
            except CallerError as error:
                answer.set_result(refusal(error))
                return answer
            if known is not None:
                known.add_done_callback(lambda first: _repeat(first, answer))
                return answer
        # Keep the caller's context: a hint must not name a topic that the caller may not see.
        self._workers.submit(copy_context().run, self._work, request, print_, answer)
        return answer

    def write(self, request: ProduceRequest) -> GatewayAnswer:
        """Submit a request and wait for its answer."""
        return self.submit(request, self.admit(len(request.body))).result(self.cluster.timeout_s * 3)

    def version(self, topic: str, key: str) -> KeyVersion | None:
        """Return the version of a key, with all events that are committed now. Raises NotFound, CallerError,
        PeerError.
        """
        encoder = RequestEncoder(self.schemas, topic, self._topic(topic).partitions, epoch_ms())
        encoded = encoder.encoded(RecordRequest(Data("STRING", key), Data()))[0].key
        return self.appender.version(topic, encoded or b"", time.monotonic() + self.cluster.timeout_s)

    # ---- one request, in a worker

    def _work(self, request: ProduceRequest, print_: str, answer: Future[GatewayAnswer]) -> None:
        try:
            self._begin(request, print_, answer)
        except HubError as error:
            self._note_away(error)
            self._finish(request, answer, refusal(error), keep=False)
        except Exception:
            log.exception("a produce request failed")
            fault = HubFault("the gateway failed; the outcome is unknown", hint="see the server's log")
            self._finish(request, answer, refusal(fault), keep=False, unknown=True)

    def _begin(self, request: ProduceRequest, print_: str, answer: Future[GatewayAnswer]) -> None:
        if (refused := self.refuses(request.topic)) is not None:
            raise refused
        topic = self._topic(request.topic)
        cluster_id = self.cluster_id()
        form, lines, key_field = request.form, request.lines, request.key_field
        records = records_of(request.body, lines=lines, form=form, key_field=key_field)
        count, key = spent_events(request.topic, len(records)), request.idempotency_key
        now_ms = epoch_ms()
        if request.expected_version is not None:  # such an append finds its earlier try itself
            require_one(len(records))
            key = None
        found = None
        if key is not None:
            found = self.repeated.in_log(request.topic, key, print_, count, now_ms, request.retry_ms)
        span = begin_span(request, count)

        def settled(batch: ProduceBatch) -> None:
            if span is not None:
                end_span(span, batch)
            self.batches.discard(batch)
            self._finish(request, answer, batch.answer(found), keep=batch.is_kept, unknown=batch.unknown)

        batch = ProduceBatch(count, settled, time.monotonic() + self.cluster.timeout_s + _GIVE_UP_S)
        self.batches.add(batch)
        encoder = RequestEncoder(self.schemas, request.topic, topic.partitions, now_ms)
        trace = request.trace if span is None else span.trace
        writing = _Writing(request, batch, encoder, cluster_id, print_, count, found, trace)
        for index, record in enumerate(records):
            self._write_record(writing, index, record)

    def _finish(
        self,
        request: ProduceRequest,
        answer: Future[GatewayAnswer],
        made: GatewayAnswer,
        *,
        keep: bool,
        unknown: bool = False,
    ) -> None:
        """Complete the answer. ``keep``: remember it for repeated requests. ``unknown``: its outcome is
        unknown, so retries search the log.
        """
        key = request.idempotency_key
        if key is not None:
            self.repeated.finish(request.topic, key, len(made.lines), keep=keep, unknown=unknown)
        with contextlib.suppress(InvalidStateError):  # a request that failed is answered once
            answer.set_result(made)

    # ---- one record

    def _write_record(self, writing: _Writing, index: int, record: RecordRequest | HubError) -> None:
        """Encode and send a record, or refuse it."""
        try:
            if isinstance(record, HubError):
                raise record
            new, schema_id = writing.encoder.encoded(record)
            writing.encoded_bytes += len(new.value or b"") + len(new.key or b"")
            if writing.encoded_bytes > _MOST_ENCODED_BYTES:
                raise TooLarge(f"the request's records have more than {_MOST_ENCODED_BYTES} bytes encoded")
        except HubError as error:
            self._note_away(error)
            copy = self._dead_copy(writing.encoder, record, error)
            if copy is None:
                writing.batch.refuse(index, error)
            else:
                self._send_copy(writing.batch, index, copy, error)
            return
        except Exception as error:
            # Refuse this record only: an unfinished batch would hold its slot.
            log.exception("a record could not be made")
            writing.batch.refuse(index, HubFault(f"the record could not be made: {type(error).__name__}"))
            return
        mark_ = None
        if writing.request.idempotency_key is not None:
            named, now_ms = writing.request.idempotency_key, writing.encoder.now_ms
            mark_ = mark(named, writing.print_, index, writing.count, now_ms)
        new = with_own_headers(new, writing.request.producer, writing.trace, mark_)
        place = None if writing.repeated is None else writing.repeated.places.get(index)
        if place is not None:
            at = TopicPartition(new.topic, place.partition)
            line = written_line(writing.cluster_id, at, place.offset, place.timestamp_ms, new, schema_id)
            writing.batch.settle(index, line, (at, place.offset + 1))
        elif writing.request.expected_version is not None:
            self._append(writing, index, new, schema_id)
        else:
            self._send(writing.batch, index, new, writing.cluster_id, schema_id)

    def _send(
        self, batch: ProduceBatch, index: int, new: NewRecord, cluster_id: str, schema_id: int | None
    ) -> None:
        assert new.timestamp_ms is not None
        timestamp_ms = new.timestamp_ms

        def acknowledged(place: TopicPartition, offset: int, error: HubError | None) -> None:
            self.admission.note_answer(time.monotonic())
            if error is None:
                self.took(new, place, offset)
                line = written_line(cluster_id, place, offset, timestamp_ms, new, schema_id)
                batch.settle(index, line, (place, offset + 1))
                return
            self._note_away(error)
            if isinstance(error, NotFound):
                self._topics.pop(new.topic, None)
            batch.refuse(index, outcome_unknown(error) if isinstance(error, PeerError) else error)

        try:
            sender = self.sender.open()
        except HubError as error:  # refuse this record only: those before it are already sent
            return batch.refuse(index, error)
        try:
            sender.send(new, acknowledged)
        except CallerError as error:
            batch.refuse(index, error)
        except HubError as error:
            batch.refuse(index, outcome_unknown(error))
            self.sender.drop(sender)

    def _append(self, writing: _Writing, index: int, new: NewRecord, schema_id: int | None) -> None:
        """Append the record if its key has the expected version."""

        def done(result: Appended | HubError) -> None:
            if isinstance(result, HubError):
                self._note_away(result)
                writing.batch.refuse(index, result)
                return
            if not result.repeated:
                self.took(new, result.place, result.offset)
            line = written_line(
                writing.cluster_id, result.place, result.offset, new.timestamp_ms or 0, new, schema_id
            )
            writing.batch.settle(index, line, (result.place, result.offset + 1))

        until_s, partitions = time.monotonic() + self.cluster.timeout_s, writing.encoder.partitions
        try:
            append = append_of(writing.request, writing.print_, new, partitions, until_s)
        except CallerError as error:
            writing.batch.refuse(index, error)
            return
        self.appender.submit(append, done)

    def _dead_copy(
        self, encoder: RequestEncoder, record: RecordRequest | HubError, error: HubError
    ) -> NewRecord | None:
        """Build the copy for the DLQ action of the rule that refused the record; None if no action or no
        permission exists.
        """
        if not isinstance(error, RuleRefused) or not error.dlq_topic or isinstance(record, HubError):
            return None
        if not may_be_dead_in(error.dlq_topic) or self.refuses(error.dlq_topic) is not None:
            return None
        try:
            self._topic(error.dlq_topic)
            key = encoder.encoded(replace(record, value=Data(), partition=None))[0].key
        except HubError:  # invalid key, or no such topic: no copy is possible
            return None
        return dead_copy(error, encoder.topic, key, as_json(record.value.data, "value"), record.headers)

    def _send_copy(self, batch: ProduceBatch, index: int, copy: NewRecord, error: HubError) -> None:
        """Send the copy, and refuse the record once the outcome of the copy is known."""

        def acknowledged(place: TopicPartition, offset: int, failed: HubError | None) -> None:
            self.admission.note_answer(time.monotonic())
            batch.refuse(index, error_with_copy(error, copy.topic, None if failed else (place, offset)))

        try:
            self.sender.open().send(copy, acknowledged)
        except HubError:
            batch.refuse(index, error_with_copy(error, copy.topic, None))

    # ---- Kafka

    def _topic(self, name: str) -> _GatewayTopic:
        """Return the topic, cached for 10 s. Raises NotFound with the nearest name; PeerError."""
        known, now_s = self._topics.get(name), time.monotonic()
        if known is not None and now_s - known.read_at_s <= _TOPIC_AGE_S:
            return known
        found = self.cluster.topics()
        self._topics = {each: _GatewayTopic(topic.partitions, now_s) for each, topic in found.items()}
        if name not in self._topics:
            raise NotFound(
                f'topic "{name[:249]}" does not exist',
                hint=did_you_mean(name, filter(sees_topic, found), "hub topic ls"),
            )
        return self._topics[name]

    def _give_up(self) -> None:
        """Refuse the records that were not acknowledged in time; their outcome is unknown."""
        now_s = time.monotonic()
        for batch in [each for each in self.batches.copy() if now_s > each.give_up_at_s]:
            batch.refuse_rest(outcome_unknown(self.cluster.down("append", "not acknowledged in time")))

    def _note_away(self, error: HubError) -> None:
        if error.code in (AWAY, BARRED):
            self.admission.away(time.monotonic())


def _repeat(first: Future[GatewayAnswer], answer: Future[GatewayAnswer]) -> None:
    answer.set_result(replace(first.result(), repeated=True))
