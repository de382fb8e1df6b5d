"""[core] The hub's own headers of a record: producer, trace, and the mark of its request."""

from __future__ import annotations

from dataclasses import replace

from hub.record import NewRecord
from hub.topics.gateway.produce_request import IDEMPOTENCY_HEADER, PRODUCER_HEADER
from hub.tracing import Trace, with_trace


def with_own_headers(
    new: NewRecord, producer: str | None, trace: Trace | None, mark: bytes | None
) -> NewRecord:
    """Return the record with these headers; None: without. A record's own producer stays, a mark of its own
    does not.
    """
    if producer is not None and all(name != PRODUCER_HEADER for name, _ in new.headers):
        new = replace(new, headers=(*new.headers, (PRODUCER_HEADER, producer.encode())))
    new = replace(new, headers=with_trace(new.headers, trace))
    if mark is None:
        return new
    kept = tuple(each for each in new.headers if each[0] != IDEMPOTENCY_HEADER)
    return replace(new, headers=(*kept, (IDEMPOTENCY_HEADER, mark)))
