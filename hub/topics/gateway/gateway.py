"""[shell] Produce gateway: encode records with their topic's schema, write them, answer when they are
acknowledged.

::

    admit (bounded) ─▶ workers: split, look up topic and schema, encode ─▶ sender ─▶ acknowledged ─▶ the answer

``submit`` does not block: it returns a future that completes when every record is acknowledged by all in-sync
replicas, or refused. Requests and bytes in progress are bounded; requests above the limit are refused at once
(429), and so are requests for a moment after Kafka did not answer (503). The gateway has its own worker
threads and its own acknowledgement thread, so the server's threads stay free for reads.

A request with an idempotency key is answered from memory, or from the marks that its records carry in the
log. Each topic is searched once, for records of earlier processes, and again for each request with an unknown
outcome. Such a request is refused (503) while its records may still arrive (see ``idempotency.py``).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hub.caller import sees_topic
from hub.errors import CallerError, HubError, HubFault, NotFound, PeerError, nearest
from hub.kafka import KafkaCluster, KafkaSender
from hub.kafka.connection import AWAY, BARRED
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.avro_encoder import MOST_STEPS
from hub.schema_registry.codecs.values import Encoder
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.contracts.rules import RuleRefused
from hub.schema_registry.contracts.runner import RUNNER
from hub.topics.conformance.auditor import SchemaIdCache
from hub.topics.conformance.rules import judge
from hub.topics.gateway.idempotency import (
    SETTLES_S,
    WINDOW_S,
    AnswerMemory,
    FoundRequest,
    SearchedRequests,
    UnknownOutcomes,
    fingerprint,
    found_in,
    mark,
    other_body,
)
from hub.topics.gateway.produce_request import (
    FORMATS,
    IDEMPOTENCY_HEADER,
    MOST_RECORDS,
    MOST_REQUEST_BYTES,
    PRODUCER_HEADER,
    Busy,
    Data,
    Malformed,
    RecordRequest,
    TooLarge,
    Unprocessable,
    as_json,
    event_of,
    plain_bytes,
    record_of,
    refused_line,
    status_of,
    values_of,
    written_line,
)
from hub.topics.gateway.rule_dead_letters import dead_copy, error_with_copy, may_be_dead_in
from hub.topics.tree.tree import LiveTree
from hub.tracing import Span, Trace, spans, with_trace

log = logging.getLogger(__name__)

MOST_REQUESTS = 256
MOST_BYTES = 64 << 20
# An empty object may be encoded as a record of long defaults.
_MOST_ENCODED_BYTES = 2 * MOST_REQUEST_BYTES
_WORKERS = 4
_AWAY_S = 1.0
_TOPIC_AGE_S = 10.0
_SCHEMA_AGE_S = 30.0
_NO_SCHEMA_AGE_S = 2.0
_MOST_KNOWN = 2_000
_MOST_SEARCHED = 20_000  # records at the end of a topic that are searched for marks
_MOST_SEARCHED_TOPICS = 50
_SEARCH_S = 10.0
_UNHEARD = "HUB-3013"


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """A request body for a topic. ``form`` is "record" for API v3 or "event" for the short form, whose key is
    the value of ``key_field``. ``trace`` is the trace context of the request.
    """

    topic: str
    body: bytes
    form: Literal["record", "event"] = "record"
    lines: bool = False
    key_field: str | None = None
    producer: str | None = None
    idempotency_key: str | None = None
    trace: Trace | None = None

    def fingerprint(self) -> str:
        about = (self.form, self.key_field, self.producer, self.lines)
        return fingerprint(repr(about).encode(), self.body)


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    """Answer to a produce request. ``lines`` are in the order of the request's records. If ``single``, there
    was one record and ``status`` is its status.
    """

    status: int
    lines: tuple[dict[str, Any], ...]
    position: Positions = field(default_factory=Positions)
    single: bool = True
    repeated: bool = False


# Return why no record may be written to a topic now, None if writing is allowed. Must not block for long, nor
# raise.
Refuses = Callable[[str], HubError | None]
# Called for each record that is in the log, with its partition and offset. Must not raise.
Took = Callable[[NewRecord, TopicPartition, int], None]


@dataclass(slots=True)
class _GatewayTopic:
    partitions: int
    asked_at_s: float


@dataclass(slots=True)
class _Latest:
    """Cached schema id of a subject's latest version, or of one version. ``id`` None: there is none."""

    id: int | None
    asked_at_s: float


class Slot:
    """Capacity reserved for one request. Call ``release`` once it is answered; ``release`` is idempotent."""

    def __init__(self, gateway: Gateway, size: int) -> None:
        self._gateway = gateway
        self._size: int | None = size

    def shrink(self, size: int) -> None:
        """Return capacity if the body is smaller than reserved."""
        if self._size is not None and size < self._size:
            self._gateway._give_back(self._size - size, 0)
            self._size = size

    def release(self) -> None:
        size, self._size = self._size, None
        if size is not None:
            self._gateway._give_back(size, 1)


class _Batch:
    """Records of one request in progress. ``settled`` is called once, when every record has its line."""

    def __init__(self, count: int, settled: Callable[[_Batch], None], give_up_at_s: float) -> None:
        self.lines: list[dict[str, Any] | None] = [None] * count
        self.after: dict[TopicPartition, int] = {}
        self.unknown = False  # True if the outcome of a sent record is unknown
        self.passing = False  # True if a record was refused for a reason that may not apply to a retry
        self.give_up_at_s = give_up_at_s
        self._left = count
        self._settled = settled
        self._lock = threading.Lock()

    def settle(
        self, index: int, line: dict[str, Any], after: tuple[TopicPartition, int] | None = None
    ) -> None:
        with self._lock:
            if self.lines[index] is not None:
                return
            self.lines[index] = line
            self._left -= 1
            if after is not None:
                place, offset = after
                self.after[place] = max(self.after.get(place, 0), offset)
            done = self._left == 0
        if done:
            self._settled(self)

    def refuse(self, index: int, error: HubError) -> None:
        if isinstance(error, PeerError):
            self.passing = True
            if error.code == _UNHEARD:
                self.unknown = True
        self.settle(index, refused_line(error))

    def refuse_rest(self, error: HubError) -> None:
        for index, line in enumerate(self.lines):
            if line is None:
                self.refuse(index, error)


class Gateway:
    """Produce gateway. Thread safe. Call ``start`` before use and ``stop`` after."""

    def __init__(
        self,
        cluster: KafkaCluster,
        registry: RegistryClient,
        tree: LiveTree | None = None,
        took: Took = lambda _new, _place, _offset: None,
        refuses: Refuses = lambda _topic: None,
    ) -> None:
        self.cluster = cluster
        self.refuses = refuses
        self.took = took
        self.registry = registry
        self.tree = tree
        self._workers = ThreadPoolExecutor(_WORKERS, "produce")
        self._lock = threading.Lock()
        self._requests = self._bytes = 0
        self._away_until_s = float("-inf")
        self._heard_at_s = float("-inf")
        self._sender: KafkaSender | None = None
        self._sending = threading.Lock()
        self._batches: set[_Batch] = set()
        self._topics: dict[str, _GatewayTopic] = {}
        self._latest: dict[str, _Latest] = {}
        self._known = SchemaIdCache(registry)
        self._versions: dict[tuple[str, int], _Latest] = {}
        self._encoders: OrderedDict[int, tuple[Encoder, str]] = OrderedDict()
        self._cluster_id: str | None = None
        self._memory: AnswerMemory[Future[GatewayAnswer]] = AnswerMemory()
        self._unheard = UnknownOutcomes()
        self._searched: dict[str, SearchedRequests] = {}
        self._searching = threading.Lock()
        self._made_at_s = time.monotonic()
        self._stop = threading.Event()
        self._poller: threading.Thread | None = None

    def start(self) -> None:
        self._poller = threading.Thread(target=self._poll, name="produce-acknowledged", daemon=True)
        self._poller.start()

    def stop(self) -> None:
        """Stop the gateway; wait up to 5 s for outstanding acknowledgements."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(HubError):
            if self._sender is not None:
                self._sender.flush(min(5.0, self.cluster.timeout_s))
        self._stop.set()
        if self._poller is not None:
            self._poller.join(5.0)

    def cluster_id(self) -> str:
        """Return the cluster id, cached. Raises PeerError if it is not cached and Kafka does not answer."""
        if self._cluster_id is None:
            self._cluster_id = self.cluster.cluster_id()
        return self._cluster_id

    # ---- input

    def admit(self, size: int) -> Slot:
        """Reserve capacity for a request of up to ``size`` bytes. Raises TooLarge; Busy, PeerError (nothing
        was written).
        """
        if size > MOST_REQUEST_BYTES:
            raise TooLarge(
                f"the request has {size} bytes, {MOST_REQUEST_BYTES} are allowed", hint="send several"
            )
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._away_until_s:
                raise self.cluster.down("append", "it did not a moment ago; nothing was written")
            if self._requests >= MOST_REQUESTS or self._bytes + size > MOST_BYTES:
                if self._requests and now_s - self._heard_at_s > _AWAY_S:
                    raise self.cluster.down("append", "the queue is full; nothing was written")
                raise Busy(
                    f"{self._requests} requests with {self._bytes} bytes are under way",
                    hint="try again; nothing was written",
                )
            if self._requests == 0:
                self._heard_at_s = now_s
            self._requests += 1
            self._bytes += size
        return Slot(self, size)

    def _give_back(self, size: int, requests: int) -> None:
        with self._lock:
            self._bytes -= size
            self._requests -= requests

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
                with self._lock:
                    known = self._memory.find(request.topic, key, print_, time.monotonic())
                    if known is None:
                        self._memory.keep(request.topic, key, print_, answer, time.monotonic())
            except CallerError as error:
                answer.set_result(_refusal(error))
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

    def _work(self, request: ProduceRequest, print_: str, answer: Future[GatewayAnswer]) -> None:
        try:
            self._begin(request, print_, answer)
        except HubError as error:
            self._away(error)
            self._finish(request, answer, _refusal(error), keep=False)
        except Exception:
            log.exception("a produce request failed")
            fault = HubFault("the gateway failed; the outcome is unknown", hint="the server's log says why")
            self._finish(request, answer, _refusal(fault), keep=False, unheard=True)

    def _begin(self, request: ProduceRequest, print_: str, answer: Future[GatewayAnswer]) -> None:
        if (refused := self.refuses(request.topic)) is not None:
            raise refused
        topic = self._topic(request.topic)
        cluster_id = self.cluster_id()
        records = self._records(request)
        single = len(records) == 1
        key, now_ms = request.idempotency_key, int(time.time() * 1000)
        found = None if key is None else self._in_log(request.topic, key, print_, len(records), now_ms)

        def settled(batch: _Batch) -> None:
            self._batches.discard(batch)
            lines = tuple(line for line in batch.lines if line is not None)
            status = int(lines[0]["error_code"]) if single else 200
            repeated = found is not None and len(found.places) >= len(lines)
            made = GatewayAnswer(status, lines, Positions(batch.after), single, repeated)
            written = any(line["error_code"] == 200 for line in lines)
            self._finish(request, answer, made, keep=written and not batch.passing, unheard=batch.unknown)

        span = _begun(request, len(records))

        def traced(batch: _Batch) -> None:
            if span is not None:
                _ended(span, batch)
            settled(batch)

        give_up_at_s = time.monotonic() + self.cluster.timeout_s + 5.0
        batch = _Batch(len(records), traced, give_up_at_s)
        self._batches.add(batch)
        encoded = 0
        for index, asked in enumerate(records):
            try:
                if isinstance(asked, HubError):
                    raise asked
                new, schema_id = self._encoded(request.topic, topic, asked, now_ms)
                encoded += len(new.value or b"") + len(new.key or b"")
                if encoded > _MOST_ENCODED_BYTES:
                    raise TooLarge(
                        f"the request's records have more than {_MOST_ENCODED_BYTES} bytes encoded"
                    )
            except HubError as error:
                self._away(error)
                copy = self._dead_copy(request.topic, topic, asked, error, now_ms)
                if copy is None:
                    batch.refuse(index, error)
                else:
                    self._send_copy(batch, index, copy, error)
                continue
            except Exception as error:
                # Refuse this record only: an unfinished batch would hold its slot.
                log.exception("a record could not be made")
                batch.refuse(index, HubFault(f"the record could not be made: {type(error).__name__}"))
                continue
            if request.producer is not None:
                new = _with_header(new, PRODUCER_HEADER, request.producer.encode())
            new = replace(new, headers=with_trace(new.headers, request.trace if span is None else span.trace))
            if key is not None:
                said = mark(key, print_, index, len(records), now_ms)
                new = _with_header(new, IDEMPOTENCY_HEADER, said)
            place = None if found is None else found.places.get(index)
            if place is not None:
                at = TopicPartition(request.topic, place.partition)
                line = _written(cluster_id, at, place.offset, place.timestamp_ms, new, schema_id)
                batch.settle(index, line, (at, place.offset + 1))
            else:
                self._send(batch, index, new, cluster_id, schema_id)

    def _finish(
        self,
        request: ProduceRequest,
        answer: Future[GatewayAnswer],
        made: GatewayAnswer,
        *,
        keep: bool,
        unheard: bool = False,
    ) -> None:
        """Complete the answer. ``keep``: remember it for repeated requests. ``unheard``: the outcome is
        unknown, so retries search the log.
        """
        key = request.idempotency_key
        if key is not None:
            with self._lock:
                if keep:
                    self._memory.weigh(request.topic, key, 300 * len(made.lines))
                else:
                    self._memory.forget(request.topic, key)
                if unheard:
                    given_up = self._unheard.add(request.topic, key, time.monotonic())
                    if given_up is not None:
                        self._searched.pop(given_up, None)
        with contextlib.suppress(InvalidStateError):  # a request that failed is answered once
            answer.set_result(made)

    # ---- parsing and encoding

    def _records(self, request: ProduceRequest) -> list[RecordRequest | HubError]:
        found: list[RecordRequest | HubError] = []
        for each in self._values(request):
            if len(found) >= MOST_RECORDS:
                raise TooLarge(
                    f"the request has more than {MOST_RECORDS} records; none was written", hint="send several"
                )
            if isinstance(each, CallerError):
                found.append(each)
                continue
            try:
                value, size = each
                if request.form == "record":
                    found.append(record_of(value, size))
                else:
                    found.append(event_of(value, size, request.key_field))
            except HubError as error:
                found.append(error)
        if not found:
            raise Malformed("the body has no record")
        return found

    def _values(self, request: ProduceRequest) -> Any:
        for each in values_of(request.body, lines=request.lines):
            if request.form == "event" and not isinstance(each, CallerError) and isinstance(each[0], list):
                yield from ((value, len(as_json(value, "value"))) for value in each[0])
            else:
                yield each

    def _encoded(
        self, name: str, topic: _GatewayTopic, asked: RecordRequest, now_ms: int
    ) -> tuple[NewRecord, int | None]:
        if asked.partition is not None and asked.partition >= topic.partitions:
            raise NotFound(
                f'topic "{name}" partition {asked.partition} does not exist: it has {topic.partitions}'
            )
        key, _ = self._bytes_of(name, "key", asked.key, asked)
        value, schema_id = self._bytes_of(name, "value", asked.value, asked)
        timestamp_ms = now_ms if asked.timestamp_ms is None else asked.timestamp_ms
        return NewRecord(name, key, value, asked.headers, timestamp_ms, asked.partition), schema_id

    def _bytes_of(
        self, topic: str, part: str, given: Data, asked: RecordRequest
    ) -> tuple[bytes | None, int | None]:
        """Return (bytes, schema id or None) of a key or a value."""
        if given.data is None:
            return None, None
        subject = f"{topic}-{part}"
        if given.type in ("JSON", "STRING", "BINARY"):
            plain = plain_bytes(given, part)
            if self._latest_id(subject) is not None:
                self._must_be_right(topic, part, plain)
            return plain, None
        schema_id = self._chosen(subject, given)
        if schema_id is None:
            if part == "key" and given.type is None and isinstance(given.data, str):
                return given.data.encode(), None
            raise Unprocessable(
                f'topic "{topic}" has no schema for its {part}s (subject "{subject}")',
                hint='register one, or say the type: {"type": "JSON", "data": …}',
                code="HUB-1324",
            )
        steps = min(MOST_STEPS, 20_000 + 4 * asked.size)
        encoder, form = self._encoder(schema_id)
        if given.type is not None and FORMATS[given.type] != form:
            raise Unprocessable(
                f"{part}: type {given.type}, and the schema with id {schema_id} is {form}",
                hint='leave "type" out: the schema decides',
                code="HUB-1323",
            )
        return frame(schema_id, encoder.body(given.data, part, steps)), schema_id

    def _must_be_right(self, topic: str, part: str, plain: bytes | None) -> None:
        """Check that raw bytes for a topic with a schema pass the conformance check. Raises Unprocessable."""
        if part != "value":
            return
        self._known.forget()
        violation = judge(Record(topic, 0, 0, 0, None, plain), self._known.of(f"{topic}-value"))
        if violation is not None:
            raise Unprocessable(
                f'topic "{topic}" has a schema, and the value is not in its format: {violation.detail}',
                hint='leave "type" out: the JSON is written in the schema\'s format',
                code="HUB-1325",
            )

    # ---- schemas

    def _chosen(self, subject: str, given: Data) -> int | None:
        """Return the schema id that a record requests, else the subject's latest, None if it has none. Raises
        Unprocessable.
        """
        if given.subject is not None and given.subject != subject:
            raise Unprocessable(f'subject "{given.subject}" is not the topic\'s', hint=f'it is "{subject}"')
        try:
            if given.schema_id is not None:
                self._known.forget()
                known = self._known.of(subject)(given.schema_id)
                if known is None or not known.belongs:
                    raise Unprocessable(f'schema id {given.schema_id} is not of subject "{subject}"')
                return given.schema_id
            if given.schema_version is not None:
                return self._version_id(subject, given.schema_version)
        except NotFound as error:
            raise Unprocessable(
                error.message, hint=f"hub schema versions {subject} shows what there is"
            ) from None
        return self._latest_id(subject)

    def _version_id(self, subject: str, version: int) -> int | None:
        """Return the schema id of a version, cached for 30 s because a permanently deleted subject restarts
        at version 1. An older result is used while the registry is unreachable.
        """
        known, now_s = self._versions.get((subject, version)), time.monotonic()
        if known is not None and now_s - known.asked_at_s <= _SCHEMA_AGE_S:
            return known.id
        try:
            found = self.registry.version(subject, version).id
        except PeerError:
            if known is None or known.id is None:
                raise
            found = known.id
        if len(self._versions) >= _MOST_KNOWN:
            self._versions.clear()
        self._versions[subject, version] = _Latest(found, now_s)
        return found

    def _latest_id(self, subject: str) -> int | None:
        """Return the latest schema id, cached for 30 s; an older one while the registry is unreachable."""
        known, now_s = self._latest.get(subject), time.monotonic()
        if known is not None:
            age_s = _SCHEMA_AGE_S if known.id is not None else _NO_SCHEMA_AGE_S
            if now_s - known.asked_at_s <= age_s:
                return known.id
        try:
            found: int | None = self.registry.latest(subject).id
        except NotFound:
            found = None
        except PeerError:
            if known is None or known.id is None:
                raise
            found = known.id  # a registered schema stays valid
        if len(self._latest) >= _MOST_KNOWN:
            self._latest.clear()
        self._latest[subject] = _Latest(found, now_s)
        return found

    def _encoder(self, schema_id: int) -> tuple[Encoder, str]:
        known = self._encoders.get(schema_id)
        if known is None:
            source = self.registry.source(schema_id)
            known = (RUNNER.encoder_of(source), source.schema_type)
            with self._lock:
                self._encoders[schema_id] = known
                if len(self._encoders) > _MOST_KNOWN:
                    self._encoders.popitem(last=False)
        return known

    # ---- topics

    def _topic(self, name: str) -> _GatewayTopic:
        """Return the topic, cached for 10 s. Raises NotFound with the nearest name; PeerError."""
        known, now_s = self._topics.get(name), time.monotonic()
        if known is not None and now_s - known.asked_at_s <= _TOPIC_AGE_S:
            return known
        found = self.cluster.topics()
        self._topics = {each: _GatewayTopic(topic.partitions, now_s) for each, topic in found.items()}
        if name not in self._topics:
            guess = nearest(name, filter(sees_topic, found))
            raise NotFound(
                f'topic "{name[:249]}" does not exist',
                hint=f'did you mean "{guess}"?' if guess else "hub topic ls",
            )
        return self._topics[name]

    # ---- output

    def _send(
        self, batch: _Batch, index: int, new: NewRecord, cluster_id: str, schema_id: int | None
    ) -> None:
        assert new.timestamp_ms is not None
        timestamp_ms = new.timestamp_ms

        def acknowledged(place: TopicPartition, offset: int, error: HubError | None) -> None:
            self._heard_at_s = time.monotonic()
            if error is None:
                self.took(new, place, offset)
                line = _written(cluster_id, place, offset, timestamp_ms, new, schema_id)
                batch.settle(index, line, (place, offset + 1))
                return
            self._away(error)
            if isinstance(error, NotFound):
                self._topics.pop(new.topic, None)
            batch.refuse(index, _unknown(error) if isinstance(error, PeerError) else error)

        try:
            sender = self._open()
        except HubError as error:  # refuse this record only: those before it are already sent
            return batch.refuse(index, error)
        try:
            sender.send(new, acknowledged)
        except CallerError as error:
            batch.refuse(index, error)
        except HubError as error:
            batch.refuse(index, _unknown(error))
            self._drop(sender)

    def _dead_copy(
        self, name: str, topic: _GatewayTopic, asked: RecordRequest | HubError, error: HubError, now_ms: int
    ) -> NewRecord | None:
        """Build the copy for the DLQ action of the rule that refused the record; None if no action or no
        permission exists.
        """
        if not isinstance(error, RuleRefused) or not error.dlq_topic or isinstance(asked, HubError):
            return None
        if not may_be_dead_in(error.dlq_topic) or self.refuses(error.dlq_topic) is not None:
            return None
        try:
            self._topic(error.dlq_topic)
            without = replace(asked, value=Data(), partition=None)
            key = self._encoded(name, topic, without, now_ms)[0].key
        except HubError:  # invalid key, or no such topic: no copy is possible
            return None
        return dead_copy(error, name, key, as_json(asked.value.data, "value"), asked.headers)

    def _send_copy(self, batch: _Batch, index: int, copy: NewRecord, error: HubError) -> None:
        """Send the copy, and refuse the record once the outcome of the copy is known."""

        def acknowledged(place: TopicPartition, offset: int, failed: HubError | None) -> None:
            self._heard_at_s = time.monotonic()
            batch.refuse(index, error_with_copy(error, copy.topic, None if failed else (place, offset)))

        try:
            self._open().send(copy, acknowledged)
        except HubError:
            batch.refuse(index, error_with_copy(error, copy.topic, None))

    def _open(self) -> KafkaSender:
        with self._sending:
            if self._sender is None:
                self._sender = self.cluster.sender(delivery_timeout_s=self.cluster.timeout_s)
            return self._sender

    def _drop(self, sender: KafkaSender) -> None:
        """Discard a failed sender so that a new one is opened. Its callbacks report the outcome of its
        records.
        """
        with self._sending:
            if self._sender is sender:
                self._sender = None
        sender.drop()
        with contextlib.suppress(HubError):
            sender.poll(1.0)

    def _poll(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except Exception:  # the only acknowledgement thread must keep running
                log.exception("acknowledgements")
                self._stop.wait(0.5)

    def _step(self) -> None:
        sender = self._sender
        if sender is None:
            self._stop.wait(0.05)
            return
        try:
            sender.poll(0.1)
        except HubError as error:
            log.warning("the gateway's producer is opened anew: %s", error.message)
            self._drop(sender)
        now_s = time.monotonic()
        for batch in [each for each in self._batches.copy() if now_s > each.give_up_at_s]:
            batch.refuse_rest(_unknown(self.cluster.down("append", "not acknowledged in time")))

    def _away(self, error: HubError) -> None:
        if error.code in (AWAY, BARRED):
            self._away_until_s = time.monotonic() + _AWAY_S

    # ---- earlier requests in the log

    def _in_log(self, topic: str, key: str, print_: str, count: int, now_ms: int) -> FoundRequest | None:
        """Find the request's records that are already in the log. Raises Conflict if the key belongs to
        another request; PeerError, also while missing records may still arrive.
        """
        with self._searching:
            now_s = time.monotonic()
            with self._lock:
                known = self._searched.get(topic)
                unheard = self._unheard.holds(topic, key, now_s)
            if known is None or unheard or self._may_lack(known, now_s):
                known = self._search(topic, known, now_s)
                with self._lock:
                    if len(self._searched) >= _MOST_SEARCHED_TOPICS:
                        self._searched.clear()
                    self._searched[topic] = known
            found = known.requests.get(key)
            if found is not None and now_ms - found.begun_at_ms > WINDOW_S * 1000:
                found = None
            if found is not None and found.fingerprint != print_:
                raise other_body(key)
            if unheard and (found is None or len(found.places) < count):
                if known.hides:
                    raise _still_open(topic, "a transaction of another producer is open in it")
                with self._lock:
                    settled = self._unheard.settled(topic, key, now_s)
                if not settled:
                    raise _still_open(topic, "its records may still be on their way")
        return found

    def _may_lack(self, known: SearchedRequests, now_s: float) -> bool:
        """Return True if the search may have missed records that an earlier process had in progress when it
        ended.
        """
        early = known.begun_at_s - self._made_at_s < SETTLES_S
        return early or (known.hides and now_s - self._made_at_s <= WINDOW_S)

    def _search(self, topic: str, known: SearchedRequests | None, now_s: float) -> SearchedRequests:
        """Search the last records of the topic for marks, continuing after an earlier search where possible.
        Raises PeerError.
        """
        # Read the log end before the readable end, so that records written in between do not look hidden.
        last = self.cluster.end_offsets([topic], committed=False)
        begin, end = self.cluster.beginning_offsets([topic]), self.cluster.end_offsets([topic])
        hides = not end.covers(last)
        each = max(1, _MOST_SEARCHED // max(1, len(end)))
        start = Positions({place: max(begin.get(place), offset - each) for place, offset in end})
        before: dict[str, FoundRequest] = {}
        if known is not None and end.covers(known.upto) and len(known.requests) <= _MOST_SEARCHED:
            start, before = start.advanced(known.upto), dict(known.requests)
        if start.covers(end):
            return SearchedRequests(before, end, now_s, hides)
        reader = self.cluster.reader(queue_kb=1_024)
        records: list[Record] = []
        deadline = time.monotonic() + _SEARCH_S
        try:
            reader.assign(start)
            while not reader.position().covers(end):
                if time.monotonic() > deadline:
                    raise PeerError(
                        f'topic "{topic}": its last records are not read in {_SEARCH_S:g} s, so nobody knows whether '
                        "the request was written; nothing was written now",
                        hint="try again",
                        code="HUB-3043",
                    )
                found = reader.poll(1_000, 0.2)
                records += (_marked(record) for record in found if record.header(IDEMPOTENCY_HEADER))
        finally:
            reader.close()
        return SearchedRequests(
            found_in(records, IDEMPOTENCY_HEADER, before), reader.position(), now_s, hides
        )


def _marked(record: Record) -> Record:
    """Drop key and value to save memory."""
    return Record(
        record.topic, record.partition, record.offset, record.timestamp_ms, None, None, record.headers
    )


def _refusal(error: HubError) -> GatewayAnswer:
    return GatewayAnswer(status_of(error), (refused_line(error),))


def _repeat(first: Future[GatewayAnswer], answer: Future[GatewayAnswer]) -> None:
    made = first.result()
    answer.set_result(GatewayAnswer(made.status, made.lines, made.position, made.single, True))


def _unknown(error: HubError) -> PeerError:
    return PeerError(
        f"{error.message}; the outcome is unknown",
        hint="send it again with the same Idempotency-Key, or with the event's own id",
        code=_UNHEARD,
    )


def _still_open(topic: str, why: str) -> PeerError:
    return PeerError(
        f'topic "{topic}": the outcome of an earlier try is still open, {why}; nothing was written now',
        hint="send it again with the same Idempotency-Key in a second or two",
        code="HUB-3043",
    )


def _begun(request: ProduceRequest, count: int) -> Span | None:
    known = spans()
    if known is None:
        return None
    return known.start(
        f"send {request.topic}",
        "producer",
        parent=request.trace,
        attributes={
            "messaging.system": "kafka",
            "messaging.operation.type": "send",
            "messaging.operation.name": "send",
            "messaging.destination.name": request.topic,
            "messaging.batch.message_count": count,
        },
    )


def _ended(span: Span, batch: _Batch) -> None:
    """End the span: with partition and offset if all records are in one partition, with the error if nothing
    was written.
    """
    lines = [line for line in batch.lines if line is not None]
    first = next((line for line in lines if line["error_code"] == 200), None)
    if first is None:
        return span.end(str(lines[0]["error_code"]) if lines else "_OTHER")
    if len({line.get("partition_id") for line in lines}) == 1:
        span.put(messaging__destination__partition__id=str(first["partition_id"]))
        span.put(messaging__kafka__offset=int(first["offset"]))
    return span.end()


def _with_header(new: NewRecord, name: str, value: bytes) -> NewRecord:
    kept = (
        tuple(each for each in new.headers if each[0] != name) if name == IDEMPOTENCY_HEADER else new.headers
    )
    if name == PRODUCER_HEADER and any(each[0] == name for each in kept):
        return new  # the record sets the header itself
    return NewRecord(new.topic, new.key, new.value, (*kept, (name, value)), new.timestamp_ms, new.partition)


def _written(
    cluster_id: str,
    place: TopicPartition,
    offset: int,
    timestamp_ms: int,
    new: NewRecord,
    schema_id: int | None,
) -> dict[str, Any]:
    return written_line(
        cluster_id,
        place.topic,
        place.partition,
        offset,
        timestamp_ms,
        None if new.key is None else len(new.key),
        None if new.value is None else len(new.value),
        schema_id,
    )
