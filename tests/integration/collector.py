"""A collector of traces for tests: takes OTLP over HTTP, and gives the spans as they were sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Told:
    """A span. ``links`` are (trace, span); ids are hexadecimal."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    kind: int
    begin_ns: int
    end_ns: int

    @property
    def place(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


@dataclass
class Collector:
    url: str = ""
    spans: list[Told] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        asked = ExportTraceServiceRequest.FromString(body)
        for resource in asked.resource_spans:
            about = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_told(about.get("service.name", ""), span) for span in scope.spans]

    def linked_to(self, spans: list[Told], beginning: str) -> list[Told]:
        """Spans with a name that begins so and a link to one of these."""
        places = {each.place for each in spans}
        return [
            each
            for each in list(self.spans)
            if each.name.startswith(beginning) and places.intersection(each.links)
        ]


def _told(service: str, span: Any) -> Told:
    return Told(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes},
        tuple((each.trace_id.hex(), each.span_id.hex()) for each in span.links),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )


@contextmanager
def collecting() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                found.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5.0)
