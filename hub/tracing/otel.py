"""[edge] OpenTelemetry: spans started, linked, ended, and sent to a collector over OTLP/HTTP from a bounded
queue.

The queue never blocks: spans that find no room, and spans that the collector does not accept, are counted and
dropped. OpenTelemetry's own variables apply: endpoint, headers, timeout (``OTEL_EXPORTER_OTLP_*``), sampler
(``OTEL_TRACES_SAMPLER``), ``OTEL_SERVICE_NAME``, ``OTEL_BSP_SCHEDULE_DELAY``, ``OTEL_BSP_MAX_QUEUE_SIZE``,
``OTEL_SDK_DISABLED``. Nothing is imported without an endpoint.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hub.tracing.context import Trace

if TYPE_CHECKING:
    from opentelemetry import trace as otel

log = logging.getLogger(__name__)

MOST_LINKS = 8
MOST_WAITING = 2_048
_BATCH = 512
_PAUSE_S = 1.0
_CLOSE_S = 2.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

Kind = Literal["server", "producer", "consumer", "internal"]
Attributes = Mapping[str, str | int | float | bool]


class _Exporter(Protocol):
    def export(self, spans: Sequence[Any], /) -> Any: ...

    def shutdown(self) -> None: ...


class SpanQueue:
    """Bounded queue of ended spans to the collector, as OpenTelemetry's SpanProcessor.

    ``exported``, ``failed`` and ``dropped`` count the spans by outcome.
    """

    def __init__(self, exporter: _Exporter, most: int = MOST_WAITING, pause_s: float = _PAUSE_S) -> None:
        self.exported = self.failed = self.dropped = 0
        self._exporter, self._most, self._pause_s = exporter, most, pause_s
        self._waiting: deque[Any] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = False
        self._well = True
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def on_start(self, span: Any, parent_context: Any = None) -> None: ...

    def _on_ending(self, span: Any) -> None: ...

    def on_end(self, span: Any) -> None:
        if not span.context.trace_flags.sampled:
            return
        with self._lock:
            if self._stop or len(self._waiting) >= self._most:
                self.dropped += 1
                return
            self._waiting.append(span)
            full = len(self._waiting) >= _BATCH
        if full:
            self._wake.set()

    def shutdown(self) -> None:
        """Send the waiting spans, for at most two seconds, then stop."""
        self._stop = True
        self._wake.set()
        self._thread.join(_CLOSE_S)
        with contextlib.suppress(Exception):
            self._exporter.shutdown()
        with self._lock:
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self._wake.set()
        return True

    def _run(self) -> None:
        while not self._stop:
            self._wake.wait(self._pause_s)
            self._wake.clear()
            self._send()
        self._send()

    def _send(self) -> None:
        until_s = time.monotonic() + _CLOSE_S
        while True:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            if not batch:
                return
            well = False
            with contextlib.suppress(Exception):  # any failure: tracing must not break the program
                well = self._exporter.export(batch).name == "SUCCESS"
            if well:
                self.exported += len(batch)
            else:
                self.failed += len(batch)
            if well != self._well:
                self._well = well
                change = "takes spans again" if well else "does not take spans: they are counted and dropped"
                log.warning("the collector of traces %s", change)
            if self._stop and time.monotonic() > until_s:
                return


@dataclass(slots=True)
class Span:
    """One span. ``trace``: the context to pass on. Call ``end`` once."""

    _span: otel.Span
    links: int = 0

    @property
    def trace(self) -> Trace:
        context = self._span.get_span_context()
        return Trace(
            f"{context.trace_id:032x}",
            f"{context.span_id:016x}",
            context.trace_flags.sampled,
            context.trace_state.to_header(),
        )

    def put(self, **attributes: str | float | bool) -> None:
        """Set attributes; ``__`` in a name stands for a dot."""
        for name, value in attributes.items():
            self._span.set_attribute(name.replace("__", "."), value)

    def name(self, name: str) -> None:
        self._span.update_name(name)

    def link(self, trace: Trace) -> None:
        """Add a link; links beyond ``MOST_LINKS`` are omitted."""
        if self.links < MOST_LINKS:
            self.links += 1
            self._span.add_link(_context_of(trace))

    def end(self, error: str = "", at_ns: int | None = None) -> None:
        """End the span. ``error``: the kind of a failure (``error.type``)."""
        if error:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(at_ns)


class Spans:
    """Factory of spans. Thread safe."""

    def __init__(self, tracer: otel.Tracer, outbox: SpanQueue | None = None, provider: Any = None) -> None:
        self._tracer, self.outbox, self._provider = tracer, outbox, provider

    def start(
        self,
        name: str,
        kind: Kind,
        *,
        parent: Trace | None = None,
        links: Iterable[Trace] = (),
        attributes: Attributes | None = None,
        at_ns: int | None = None,
    ) -> Span:
        """Start a span; without ``parent`` its parent is the program's current span, if there is one."""
        from opentelemetry.trace import NonRecordingSpan, SpanKind, set_span_in_context

        context = None if parent is None else set_span_in_context(NonRecordingSpan(_context_of(parent)))
        made = Span(
            self._tracer.start_span(
                name,
                context,
                getattr(SpanKind, kind.upper()),
                attributes,
                start_time=at_ns,
            )
        )
        for each in links:
            made.link(each)
        return made

    def current(self) -> Trace | None:
        """Return the current span of a program that uses OpenTelemetry itself, else None."""
        from opentelemetry.trace import get_current_span

        found = get_current_span()
        return Span(found).trace if found.get_span_context().is_valid else None

    def counters(self) -> dict[str, int]:
        """Return the number of spans by outcome."""
        outbox = self.outbox
        if outbox is None:
            return {}
        return {"exported": outbox.exported, "failed": outbox.failed, "dropped": outbox.dropped}

    def close(self) -> None:
        """Idempotent. Blocks for at most 2 s."""
        if self._provider is not None:
            self._provider.shutdown()
            self._provider = None


_lock = threading.Lock()
_spans: Spans | None = None


def spans() -> Spans | None:
    """Return this process's spans; None: no collector is configured and nothing is traced."""
    return _spans


def begin(service: str, endpoint: str | None = None) -> Spans | None:
    """Start tracing this process as ``service`` if a collector is configured.

    ``endpoint``: a base URL (http://127.0.0.1:4318); without it OpenTelemetry's variables apply. Closed when
    the process ends.
    """
    global _spans
    with _lock:
        if _spans is None and wanted(endpoint):
            _spans = open_spans(service, endpoint)
            atexit.register(_spans.close)
        return _spans


def wanted(endpoint: str | None = None) -> bool:
    """Return whether the settings and variables name a collector and nothing disables tracing."""
    off = (
        os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "none"
    )
    return not off and bool(endpoint or any(os.environ.get(name, "").strip() for name in _ENDPOINTS))


def of_client() -> Spans | None:
    """Return the spans of a client library: from the provider that the program has set, else from
    OpenTelemetry's variables."""
    api = sys.modules.get("opentelemetry.trace")
    if api is not None and "opentelemetry.sdk.trace" in sys.modules:
        from opentelemetry.sdk.trace import TracerProvider

        if isinstance(api.get_tracer_provider(), TracerProvider):
            return Spans(api.get_tracer("hub.client"))
    return spans() or begin("hub-client")


def open_spans(service: str, endpoint: str | None) -> Spans:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    # The hub logs when failures begin and end; the SDK would log every failed export.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
    outbox = SpanQueue(
        exporter,
        int(_number("OTEL_BSP_MAX_QUEUE_SIZE", MOST_WAITING)),
        _number("OTEL_BSP_SCHEDULE_DELAY", _PAUSE_S * 1000) / 1000,
    )
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(outbox)  # type: ignore[arg-type]  # it has the methods of a SpanProcessor
    return Spans(provider.get_tracer("hub"), outbox, provider)


def _number(variable: str, default: float) -> float:
    try:
        return max(1.0, float(os.environ.get(variable, "")))
    except ValueError:
        return default


def _context_of(trace: Trace) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    return SpanContext(
        int(trace.trace_id, 16),
        int(trace.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(trace.sampled)),
        trace_state=TraceState.from_header([trace.state]) if trace.state else TraceState(),
    )
