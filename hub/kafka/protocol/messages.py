"""[core] Fetch and Produce, one of each for many partitions, packed by hand.

kafka-python's schemas cost about 0.3 ms for each request, which only the rare ones can spend.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from hub.kafka.protocol.primitives import FETCH, PRODUCE, count, skip_tags, take_count, take_text, text
from hub.record import TopicPartition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class RequestSender(Protocol):
    """Port to a connection that sends requests."""

    def version(self, api: int, wanted: int, least: int = 0) -> int: ...

    def send(self, api: int, version: int, body: Sequence[bytes | memoryview], *, flexible: bool) -> None: ...


# ---- Fetch


class FetchFrom(NamedTuple):
    """The position of a reader and the leader epoch that it knows."""

    tp: TopicPartition
    topic_id: uuid.UUID
    leader_epoch: int
    position: int


class Fetched(NamedTuple):
    """One partition's share of a Fetch answer: batches in ``buffer[start:end]``;
    ``error`` is Kafka's code."""

    tp: TopicPartition
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]
    buffer: bytearray
    start: int
    end: int


_FETCH_IDS = 13  # topics by id from here on, and flexible since 12
_FETCH_NAMES = 11
_FETCH_PART = struct.Struct(">iiq")
_FETCH_ANSWER = struct.Struct(">ihqqq")
_OLD_FETCH_ANSWER = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_LONG = struct.Struct(">q")
_NO_SESSION = struct.pack(">ii", 0, -1)


def send_fetch(
    connection: RequestSender,
    wanted: Sequence[FetchFrom],
    *,
    max_wait_ms: int,
    max_bytes: int,
    partition_bytes: int,
    isolation: int = READ_COMMITTED,
) -> int:
    """Request batches and return the version of the request, which ``fetched`` needs. Requests by topic id if
    the broker supports it (Kafka 3.1), so that a recreated topic is never taken for the old one.
    """
    by_id = all(each.topic_id.int for each in wanted)
    version = connection.version(FETCH, _FETCH_IDS if by_id else _FETCH_NAMES, 4)
    if version < _FETCH_IDS:
        version = connection.version(FETCH, _FETCH_NAMES, _FETCH_NAMES)
    flexible = version >= _FETCH_IDS
    body = bytearray(struct.pack(">iiiib", -1, max_wait_ms, 1, max_bytes, isolation) + _NO_SESSION)
    by_topic: dict[tuple[str, uuid.UUID], list[FetchFrom]] = {}
    for each in wanted:
        by_topic.setdefault((each.tp.topic, each.topic_id), []).append(each)
    body += count(len(by_topic), flexible=flexible)
    for (name, identity), parts in by_topic.items():
        body += identity.bytes if flexible else text(name)
        body += count(len(parts), flexible=flexible)
        for each in parts:
            body += _FETCH_PART.pack(each.tp.partition, each.leader_epoch, each.position)
            if flexible:
                body += b"\xff\xff\xff\xff"  # last fetched epoch: for followers
            body += struct.pack(">qi", -1, partition_bytes)
            if flexible:
                body += b"\x00"
        if flexible:
            body += b"\x00"
    body += count(0, flexible=flexible)  # forgotten topics
    body += b"\x01\x00" if flexible else b"\x00\x00"  # no rack
    connection.send(FETCH, version, [bytes(body)], flexible=flexible)
    return version


def fetched(frame: bytearray, at: int, version: int, names: Mapping[bytes, str]) -> tuple[int, list[Fetched]]:
    """Return the answer's own error code and its partitions; ``names`` maps the 16 bytes of topic ids to
    names.
    """
    _, code, _ = struct.unpack_from(">ihi", frame, at)
    at += 10
    if version >= _FETCH_IDS:
        return int(code), list(_flexible_topics(frame, at, names))
    return int(code), list(plain_topics(frame, at, version))


def _flexible_topics(frame: bytearray, at: int, names: Mapping[bytes, str]) -> Iterator[Fetched]:
    topics, at = take_count(frame, at, flexible=True)
    for _ in range(topics):
        name = names.get(bytes(frame[at : at + 16]), "")
        parts, at = take_count(frame, at + 16, flexible=True)
        for _ in range(parts):
            partition, error, high, stable, log_start = _FETCH_ANSWER.unpack_from(frame, at)
            listed, at = take_count(frame, at + _FETCH_ANSWER.size, flexible=True)
            aborted = []
            for _ in range(listed):
                aborted.append(_ABORTED.unpack_from(frame, at))
                at = skip_tags(frame, at + 16)
            size, start = take_count(frame, at + 4, flexible=True)  # past the preferred replica
            at = start + size
            tp = TopicPartition(name, partition)
            yield Fetched(tp, error, high, stable, log_start, tuple(aborted), frame, start, at)
            at = skip_tags(frame, at)
        at = skip_tags(frame, at)


def plain_topics(frame: bytearray, at: int, version: int) -> Iterator[Fetched]:
    """Yield the partitions of an answer to Fetch, versions 4 to 11; ``at``: where its topics begin."""
    topics, at = take_count(frame, at)
    for _ in range(topics):
        name, at = take_text(frame, at)
        parts, at = take_count(frame, at)
        for _ in range(parts):
            partition, error, high, stable = _OLD_FETCH_ANSWER.unpack_from(frame, at)
            at += _OLD_FETCH_ANSWER.size
            log_start = -1
            if version >= 5:
                (log_start,) = _LONG.unpack_from(frame, at)
                at += 8
            listed, at = take_count(frame, at)
            aborted = tuple(_ABORTED.unpack_from(frame, at + 16 * each) for each in range(listed))
            at += 16 * listed + (4 if version >= 11 else 0)  # the preferred replica
            size, start = take_count(frame, at)
            at = start + size
            tp = TopicPartition(name or "", partition)
            yield Fetched(tp, error, high, stable, log_start, aborted, frame, start, at)


# ---- Produce


class Produced(NamedTuple):
    """Result of producing one batch: the offset of its first record, or Kafka's error code and an optional
    message.
    """

    tp: TopicPartition
    error: int
    base_offset: int
    message: str | None


_PRODUCE_VERSION: Final = 8
_PRODUCE_IMPLICIT: Final = 12
_PRODUCED = struct.Struct(">ihqqq")


def send_produce(
    connection: RequestSender,
    transactional_id: str | None,
    batches: Sequence[tuple[TopicPartition, bytes | bytearray | memoryview]],
    timeout_s: float,
    *,
    implicit: bool = False,
) -> None:
    """Send one batch per partition (brokers accept only one per request), acknowledged by all in-sync
    replicas. ``implicit``: the brokers add the partitions to the transaction (KIP-890, version 12).
    """
    version = produce_version(connection, implicit=implicit)
    by_topic: dict[str, list[tuple[int, memoryview]]] = {}
    for tp, payload in batches:
        by_topic.setdefault(tp.topic, []).append((tp.partition, memoryview(payload)))
    put = partial(text, flexible=implicit)
    head = bytearray(put(transactional_id) + struct.pack(">hi", -1, int(timeout_s * 1000)))
    head += count(len(by_topic), flexible=implicit)
    tags = b"\x00" if implicit else b""
    body: list[bytes | memoryview] = []
    for name, parts in by_topic.items():
        head += put(name) + count(len(parts), flexible=implicit)
        for partition, view in parts:
            head += struct.pack(">i", partition) + count(len(view), flexible=implicit)
            body += [bytes(head), view]
            head = bytearray(tags)
        head += tags
    body.append(bytes(head + tags))
    connection.send(PRODUCE, version, body, flexible=implicit)


def produced(frame: bytearray, at: int, version: int = _PRODUCE_VERSION) -> list[Produced]:
    """Return the results in an answer to Produce."""
    flexible = version >= _PRODUCE_IMPLICIT
    topics, at = take_count(frame, at, flexible=flexible)
    found = []
    for _ in range(topics):
        name, at = take_text(frame, at, flexible=flexible)
        parts, at = take_count(frame, at, flexible=flexible)
        for _ in range(parts):
            partition, error, base, _time, _start = _PRODUCED.unpack_from(frame, at)
            at += _PRODUCED.size
            message: str | None = None
            if version >= 8:
                record_errors, at = take_count(frame, at, flexible=flexible)
                for _ in range(record_errors):
                    reason, at = take_text(frame, at + 4, flexible=flexible)
                    message = message or reason
                    at = skip_tags(frame, at) if flexible else at
                reason, at = take_text(frame, at, flexible=flexible)
                message = message or reason
                at = skip_tags(frame, at) if flexible else at
            found.append(Produced(TopicPartition(name or "", partition), error, base, message))
        at = skip_tags(frame, at) if flexible else at
    return found


def produce_version(connection: RequestSender, *, implicit: bool = False) -> int:
    """Return the version in which ``send_produce`` sends."""
    if implicit:
        return connection.version(PRODUCE, _PRODUCE_IMPLICIT, _PRODUCE_IMPLICIT)
    return connection.version(PRODUCE, _PRODUCE_VERSION, 7)
