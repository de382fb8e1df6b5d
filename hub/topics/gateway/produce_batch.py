"""[core] A produce request in progress: the request, the settled lines, and the response.

``ProduceBatch`` is the only object of a request that several threads change: workers refuse records, and the
acknowledgement thread settles those that were sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from hub.errors import HubError, PeerError
from hub.record import NewRecord, Positions, TopicPartition
from hub.times import iso
from hub.topics.gateway.idempotency import FoundRequest, fingerprint
from hub.topics.gateway.produce_request import refused_line, status_of
from hub.tracing import Trace

OUTCOME_UNKNOWN = "HUB-3013"


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """A request body for a topic. ``form`` is "record" for API v3 or "event" for the short form, whose key is
    the value of ``key_field``. ``trace`` is the trace context of the request. ``expected_version``: of the
    event's key; then the request has an idempotency key, too. ``retry_ms``: time since its first attempt, if
    that may have written.
    """

    topic: str
    body: bytes
    form: Literal["record", "event"] = "record"
    lines: bool = False
    key_field: str | None = None
    producer: str | None = None
    idempotency_key: str | None = None
    trace: Trace | None = None
    expected_version: str | None = None
    retry_ms: int | None = None

    def fingerprint(self) -> str:
        about: tuple[object, ...] = (self.form, self.key_field, self.producer, self.lines)
        if self.expected_version is not None:
            about = (*about, self.expected_version)
        return fingerprint(repr(about).encode(), self.body)


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    """Answer to a produce request. ``lines`` are in the order of the request's records. If ``single``, there
    was one record and ``status`` is its status. ``retry_after``: seconds, for statuses 429 and 503.
    """

    status: int
    lines: tuple[dict[str, Any], ...]
    position: Positions = field(default_factory=Positions)
    single: bool = True
    repeated: bool = False
    retry_after: str = "1"


class ProduceBatch:
    """Records of one request in progress. ``settled`` is called once, when every record has its line.

    ``unknown``: the outcome of a sent record is unknown. ``passing``: a record was refused for a reason that
    may not apply to a retry.
    """

    def __init__(self, count: int, settled: Callable[[ProduceBatch], None], give_up_at_s: float) -> None:
        self.lines: list[dict[str, Any] | None] = [None] * count
        self.after: dict[TopicPartition, int] = {}
        self.unknown = False
        self.passing = False
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
            if error.code == OUTCOME_UNKNOWN:
                self.unknown = True
        self.settle(index, refused_line(error))

    def refuse_rest(self, error: HubError) -> None:
        for index, line in enumerate(self.lines):
            if line is None:
                self.refuse(index, error)

    @property
    def is_kept(self) -> bool:
        """True if a repeated request gets this answer again: something was written, and a retry would not
        write more.
        """
        return not self.passing and any(line is not None and line["error_code"] == 200 for line in self.lines)

    def answer(self, found_request: FoundRequest | None) -> GatewayAnswer:
        """Build the answer. ``found_request`` holds the request's records that an earlier try had written."""
        lines = tuple(line for line in self.lines if line is not None)
        single = len(lines) == 1
        status = int(lines[0]["error_code"]) if single else 200
        repeated = found_request is not None and len(found_request.places) >= len(lines)
        return GatewayAnswer(status, lines, Positions(self.after), single, repeated)


def refusal(error: HubError) -> GatewayAnswer:
    """Build the answer to a request that was refused as a whole."""
    again = error.details.get("retry_after", "1")
    return GatewayAnswer(status_of(error), (refused_line(error),), retry_after=again)


def outcome_unknown(error: HubError) -> PeerError:
    return PeerError(
        f"{error.message}; the outcome is unknown",
        hint="send it again with the same Idempotency-Key, or with the event's own id",
        code=OUTCOME_UNKNOWN,
    )


def written_line(
    cluster_id: str,
    place: TopicPartition,
    offset: int,
    timestamp_ms: int,
    new: NewRecord,
    schema_id: int | None,
) -> dict[str, Any]:
    """Build the answer line of a record that is in the log."""
    line: dict[str, Any] = {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": place.topic,
        "partition_id": place.partition,
        "offset": offset,
        "timestamp": iso(timestamp_ms),
    }
    if new.key is not None:
        line["key"] = {"size": len(new.key)}
    if new.value is not None:
        of_schema = {} if schema_id is None else {"schema_id": schema_id}
        line["value"] = {"size": len(new.value), **of_schema}
    return line
