"""[shell] Repeated requests: answers from memory, and records of earlier tries from the log.

Each topic is searched once for records of earlier processes, and again for each request with an unknown
outcome. Such a request is refused (503) while its records may still arrive. ``idempotency.py`` decides.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.record import Positions, Record
from hub.topics.gateway.idempotency import (
    AnswerMemory,
    FoundRequest,
    SearchedRequests,
    UnknownOutcomes,
    found_in,
    may_lack,
    of_same_request,
)
from hub.topics.gateway.produce_batch import GatewayAnswer
from hub.topics.gateway.produce_request import IDEMPOTENCY_HEADER

_MOST_SEARCHED = 20_000  # records at the end of a topic that are searched for marks
_MOST_SEARCHED_TOPICS = 50
_SEARCH_S = 10.0
_LINE_BYTES = 300


class RepeatedRequests:
    """Requests with an idempotency key, of one process. Thread safe. ``longest_s``: how long a server keeps
    trying to write a request.
    """

    def __init__(self, cluster: KafkaCluster, longest_s: float) -> None:
        self.cluster = cluster
        self.longest_s = longest_s
        self.unknown = UnknownOutcomes()
        self._memory: AnswerMemory[Future[GatewayAnswer]] = AnswerMemory()
        self._searched: dict[str, SearchedRequests] = {}
        self._lock = threading.Lock()
        self._searching = threading.Lock()
        self._made_at_s = time.monotonic()

    def begin(
        self, topic: str, key: str, print_: str, answer: Future[GatewayAnswer]
    ) -> Future[GatewayAnswer] | None:
        """Return the answer of the same request if it is in progress or remembered; otherwise remember
        ``answer`` and return None. Raises Conflict if the key belongs to another request.
        """
        now_s = time.monotonic()
        with self._lock:
            known = self._memory.find(topic, key, print_, now_s)
            if known is None:
                self._memory.keep(topic, key, print_, answer, now_s)
            return known

    def finish(self, topic: str, key: str, lines: int, *, keep: bool, unknown: bool) -> None:
        """Remember the answer with this number of lines, or forget it. ``unknown``: its outcome is unknown,
        so retries search the log.
        """
        with self._lock:
            if keep:
                self._memory.weigh(topic, key, _LINE_BYTES * lines)
            else:
                self._memory.forget(topic, key)
            if unknown:
                self._add_unknown(topic, key, time.monotonic())

    def _add_unknown(self, topic: str, key: str, now_s: float, ends_at_s: float | None = None) -> None:
        dropped = self.unknown.add(topic, key, now_s, ends_at_s)
        if dropped is not None:
            self._searched.pop(dropped, None)

    def in_log(
        self, topic: str, key: str, print_: str, count: int, now_ms: int, retry_ms: int | None = None
    ) -> FoundRequest | None:
        """Find the request's records that are already in the log. ``retry_ms``: time since a first attempt,
        perhaps at another server. Raises Conflict if the key belongs to another request; PeerError, also
        while missing records may still arrive.
        """
        with self._searching:
            now_s = time.monotonic()
            with self._lock:
                if retry_ms is not None and not self.unknown.holds(topic, key, now_s):
                    ends_at_s = now_s + max(0.0, self.longest_s - retry_ms / 1_000)
                    self._add_unknown(topic, key, now_s, ends_at_s)
                searched_requests = self._searched.get(topic)
                unknown = self.unknown.holds(topic, key, now_s)
            if searched_requests is None or unknown or may_lack(searched_requests, self._made_at_s, now_s):
                searched_requests = self._search(topic, searched_requests, now_s)
                with self._lock:
                    if len(self._searched) >= _MOST_SEARCHED_TOPICS:
                        self._searched.clear()
                    self._searched[topic] = searched_requests
            earlier = of_same_request(searched_requests, key, print_, now_ms)
            if unknown and (earlier is None or len(earlier.places) < count):
                if searched_requests.hides:
                    raise _still_open(topic, "a transaction of another producer is open in it")
                with self._lock:
                    settled = self.unknown.settled(topic, key, now_s)
                if not settled:
                    raise _still_open(topic, "its records may still be on their way")
        return earlier

    def _search(
        self, topic: str, searched_requests: SearchedRequests | None, now_s: float
    ) -> SearchedRequests:
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
        if (
            searched_requests is not None
            and end.covers(searched_requests.upto)
            and len(searched_requests.requests) <= _MOST_SEARCHED
        ):
            start, before = start.advanced(searched_requests.upto), dict(searched_requests.requests)
        if start.covers(end):
            return SearchedRequests(before, end, now_s, hides)
        records, position = self._marked_records(topic, start, end)
        return SearchedRequests(found_in(records, IDEMPOTENCY_HEADER, before), position, now_s, hides)

    def _marked_records(self, topic: str, start: Positions, end: Positions) -> tuple[list[Record], Positions]:
        """Return (the records with a mark, the position read to). Raises PeerError."""
        reader = self.cluster.reader(queue_kb=1_024)
        records: list[Record] = []
        deadline = time.monotonic() + _SEARCH_S
        try:
            reader.assign(start)
            while not reader.position().covers(end):
                if time.monotonic() > deadline:
                    raise PeerError(
                        f'topic "{topic}": its last records are not read in {_SEARCH_S:g} s, so '
                        "it is unknown whether "
                        "the request was written; nothing was written now",
                        hint="try again",
                        code="HUB-3043",
                    )
                found = reader.poll(1_000, 0.2)
                records += (_marked(record) for record in found if record.header(IDEMPOTENCY_HEADER))
            return records, reader.position()
        finally:
            reader.close()


def _marked(record: Record) -> Record:
    """Drop key and value to save memory."""
    return Record(
        record.topic, record.partition, record.offset, record.timestamp_ms, None, None, record.headers
    )


def _still_open(topic: str, why: str) -> PeerError:
    return PeerError(
        f'topic "{topic}": the outcome of an earlier try is still open, {why}; nothing was written now',
        hint="send it again with the same Idempotency-Key in a second or two",
        code="HUB-3043",
    )
