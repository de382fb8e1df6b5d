"""[shell] The span of a produce request."""

from __future__ import annotations

from hub.topics.gateway.produce_batch import ProduceBatch, ProduceRequest
from hub.tracing import Span, spans


def begin_span(request: ProduceRequest, count: int) -> Span | None:
    """Start the span of a request; None if this process does not trace itself."""
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


def end_span(span: Span, batch: ProduceBatch) -> None:
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
