"""Tracing of events from a producer to a subscriber, with W3C trace contexts and OpenTelemetry spans.

::

    client ─ traceparent (HTTP) ─▶ server ─▶ gateway ─ traceparent (record header) ─▶ Kafka
                                                                                       ⋮ link
    subscriber ◀─ push ··· link ··· apply ··· link ··· process: one span per reported batch

An event's own trace spans from its producer to its record. After that, events are processed many at a time:
those spans are of a view's batches, with *links* to the contexts of a few of their events, each span to the
one before it. A mirror copies headers byte for byte.

Off unless a collector is configured (``otlp_endpoint``, or OpenTelemetry's own variables): nothing of
OpenTelemetry is imported then, and ``spans()`` is None. Contexts are passed on either way.

    context.py  [core] traceparent and tracestate in and out of headers
    otel.py     [edge] OpenTelemetry's SDK: spans started, linked and ended; a bounded queue to the collector
    asgi.py     [edge] the server's requests as spans, by route
"""

from hub.tracing.context import ACTIVE, Trace, of_headers, parse, with_trace
from hub.tracing.otel import MOST_LINKS, Span, Spans, begin, of_client, spans

__all__ = [
    "ACTIVE",
    "MOST_LINKS",
    "Span",
    "Spans",
    "Trace",
    "begin",
    "of_client",
    "of_headers",
    "parse",
    "spans",
    "with_trace",
]
