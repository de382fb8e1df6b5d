"""[edge] OpenTelemetry: spans begun, linked, ended, and sent to a collector over OTLP/HTTP, from a bounded outbox.

The outbox never waits: what there is no room for, and what the collector does not take, is counted and gone. OpenTelemetry's own
variables hold: endpoint, headers, timeout (``OTEL_EXPORTER_OTLP_*``), sampler (``OTEL_TRACES_SAMPLER``), ``OTEL_SERVICE_NAME``,
``OTEL_BSP_SCHEDULE_DELAY``, ``OTEL_BSP_MAX_QUEUE_SIZE``, ``OTEL_SDK_DISABLED``. Nothing is imported before there is an endpoint.
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
    """Ended spans on their way to the collector (OpenTelemetry's SpanProcessor). ``accepted`` says whether an export was."""

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
        """What waits gets two seconds."""
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
            with contextlib.suppress(Exception):  # whatever it is: spans are never worth a failure
                well = self._exporter.export(batch).name == "SUCCESS"
            if well:
                self.exported += len(batch)
            else:
                self.failed += len(batch)
            if well != self._well:
                self._well = well
                said = "takes spans again" if well else "does not take spans: they are counted and dropped"
                log.warning("the collector of traces %s", said)
            if self._stop and time.monotonic() > until_s:
                return


@dataclass(slots=True)
class Span:
    """One span. ``trace`` is what is passed on; ``end`` it once."""

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
        """Attributes; ``__`` stands for a dot."""
        for name, value in attributes.items():
            self._span.set_attribute(name.replace("__", "."), value)

    def name(self, name: str) -> None:
        self._span.update_name(name)

    def link(self, trace: Trace) -> None:
        """At most ``MOST_LINKS``; more are left out."""
        if self.links < MOST_LINKS:
            self.links += 1
            self._span.add_link(_context_of(trace))

    def end(self, error: str = "", at_ns: int | None = None) -> None:
        """``error``: what kind it failed with (``error.type``)."""
        if error:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(at_ns)


class Spans:
    """Begins spans. Thread safe."""

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
        """A span; without ``parent`` the program's current one is it, if there is any."""
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
        """The span that the program is in, where it uses OpenTelemetry itself."""
        from opentelemetry.trace import get_current_span

        found = get_current_span()
        return Span(found).trace if found.get_span_context().is_valid else None

    def counters(self) -> dict[str, int]:
        """Spans by what became of them."""
        outbox = self.outbox
        if outbox is None:
            return {}
        return {"exported": outbox.exported, "failed": outbox.failed, "dropped": outbox.dropped}

    def close(self) -> None:
        """Twice is harmless; two seconds at most."""
        if self._provider is not None:
            self._provider.shutdown()
            self._provider = None


_lock = threading.Lock()
_spans: Spans | None = None


def spans() -> Spans | None:
    """This process's; None: no collector is named, nothing is traced here."""
    return _spans


def begin(service: str, endpoint: str | None = None) -> Spans | None:
    """Trace this process as ``service`` from now on, if a collector is named: by ``endpoint`` (a base URL,
    http://127.0.0.1:4318) or by OpenTelemetry's variables. Closed when the process ends."""
    global _spans
    with _lock:
        if _spans is None and wanted(endpoint):
            _spans = _made(service, endpoint)
            atexit.register(_spans.close)
        return _spans


def wanted(endpoint: str | None = None) -> bool:
    """Whether the settings and variables name a collector and nothing turns it off."""
    off = (
        os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "none"
    )
    return not off and bool(endpoint or any(os.environ.get(name, "").strip() for name in _ENDPOINTS))


def of_client() -> Spans | None:
    """What a program's client traces with: the provider that the program has set, else a collector named by variables."""
    api = sys.modules.get("opentelemetry.trace")
    if api is not None and "opentelemetry.sdk.trace" in sys.modules:
        from opentelemetry.sdk.trace import TracerProvider

        if isinstance(api.get_tracer_provider(), TracerProvider):
            return Spans(api.get_tracer("hub.client"))
    return spans() or begin("hub-client")


def _made(service: str, endpoint: str | None) -> Spans:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    # One line when it begins and one when it ends is ours; each export that fails would be theirs.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None)
    outbox = SpanQueue(
        exporter,
        int(_number("OTEL_BSP_MAX_QUEUE_SIZE", MOST_WAITING)),
        _number("OTEL_BSP_SCHEDULE_DELAY", _PAUSE_S * 1000) / 1000,
    )
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(outbox)  # type: ignore[arg-type]  # it is one by its methods
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
