"""Trace contexts in and out of headers, requests as spans by route,
and an outbox that never waits for a dead collector."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hub.schema_registry.http.routes import create_router as registry_routes
from hub.tracing import ACTIVE, MOST_LINKS, Trace, of_headers, parse, with_trace
from hub.tracing.asgi import Traced
from hub.tracing.otel import SpanQueue, wanted

TRACE = Trace("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True, "vendor=1")
OTHER = Trace("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", False)
digits = st.text("0123456789abcdef", min_size=32, max_size=32)


@given(digits.filter(lambda each: int(each, 16)), st.booleans())
def test_what_is_written_is_read(digits: str, sampled: bool) -> None:
    trace = Trace(digits, "00f067aa0ba902b7", sampled, "a=b,c=d")
    assert of_headers(with_trace((), trace)) == trace
    assert parse(trace.traceparent.encode(), b"a=b,c=d") == trace


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        b"\xff\xfe",
    ],
)
def test_what_is_no_context_is_none(text: str | bytes | None) -> None:
    assert parse(text) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    found = parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes")
    assert found == Trace(TRACE.trace_id, TRACE.span_id)
    assert parse(TRACE.traceparent, "x" * 600) == Trace(TRACE.trace_id, TRACE.span_id)


def test_headers_of_an_application_stay_and_a_context_is_never_there_twice() -> None:
    mine = (("traceparent", OTHER.traceparent.encode()), ("tracestate", b"mine=1"), ("a", b"1"))
    assert with_trace(mine, TRACE) == mine
    assert with_trace((("a", b"1"),), None) == (("a", b"1"),)
    made = with_trace((("a", b"1"), ("tracestate", b"of=nothing")), TRACE)
    assert [name for name, _ in made] == ["a", "traceparent", "tracestate"]
    assert with_trace(made, OTHER) == made


def app() -> FastAPI:
    made = FastAPI()
    made.add_middleware(Traced)

    @made.get("/views/{view}/{key}")
    def row(view: str, key: str) -> dict[str, str | None]:
        active = ACTIVE.get()
        return {"trace": None if active is None else active.trace_id}

    @made.get("/stream")
    async def stream() -> StreamingResponse:
        async def events() -> Any:
            yield b"data: 1\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    @made.get("/fails")
    def fails() -> None:
        raise HTTPException(500)

    @made.get("/health")
    def health() -> dict[str, str]:
        return {}

    return made


def test_a_request_continues_its_callers_trace_under_its_routes_name(recorded: InMemorySpanExporter) -> None:
    with TestClient(app()) as client:
        answer = client.get("/views/people/P-1", headers=dict(TRACE.headers()))
        assert answer.json() == {"trace": TRACE.trace_id}
        client.get("/views/people/P-2", headers={"traceparent": "nonsense"})
        client.get("/stream")
        client.get("/fails")
        client.get("/health")
        client.get("/no/such/address/P-3")
    first, second, stream, failed, lost = recorded.get_finished_spans()
    assert (first.name, first.parent and first.parent.span_id) == (
        "GET /views/{view}/{key}",
        int(TRACE.span_id, 16),
    )
    assert dict(first.attributes or {})["http.response.status_code"] == 200
    assert second.parent is None and second.name == first.name
    assert stream.name == "GET /stream" and lost.name == "GET"
    assert dict(failed.attributes or {})["error.type"] == "500"
    assert ACTIVE.get() is None


def test_routes_that_fastapi_does_not_know_have_the_name_they_give_themselves(
    recorded: InMemorySpanExporter,
) -> None:
    made = app()

    class Away:
        ready = False

    made.include_router(registry_routes(Away()))  # type: ignore[arg-type]
    with TestClient(made, raise_server_exceptions=False) as client:
        client.get("/subjects/C-1/of/nobody")
        client.post("/config/C-1/of/nobody", json={})
    assert {span.name for span in recorded.get_finished_spans()} == {"GET /subjects/…", "POST /config/…"}


def test_a_caller_that_does_not_sample_is_followed(recorded: InMemorySpanExporter) -> None:
    with TestClient(app()) as client:
        answer = client.get("/views/people/P-1", headers=dict(OTHER.headers()))
    assert answer.json() == {"trace": OTHER.trace_id} and recorded.get_finished_spans() == ()


@pytest.mark.processes
def test_without_a_collector_nothing_is_traced_and_nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with TestClient(app()) as client:
        assert client.get("/views/people/P-1", headers=dict(TRACE.headers())).json() == {"trace": None}
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert not wanted() and wanted("http://c:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    assert wanted()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not wanted("http://c:4318")
    script = (
        "import sys, hub.cli, hub.client, hub.tracing; print([m for m in sys.modules if "
        "'opentelemetry' in m])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_links_are_bounded(recorded: InMemorySpanExporter) -> None:
    from hub.tracing import spans

    known = spans()
    assert known is not None
    known.start("many", "consumer", links=[TRACE] * 50).end()
    (span,) = recorded.get_finished_spans()
    assert len(span.links) == MOST_LINKS


class Dead:
    """A collector that answers nothing, or refuses, until ``gate`` is set."""

    def __init__(self, result: str = "FAILURE") -> None:
        self.result, self.gate, self.took = result, threading.Event(), 0

    def export(self, spans: Any) -> Any:
        self.gate.wait(10.0)
        self.took += len(spans)
        if self.result == "RAISE":
            raise OSError("nobody there")
        return SimpleNamespace(name=self.result)

    def shutdown(self) -> None:
        self.gate.set()


def span(sampled: bool = True) -> Any:
    return SimpleNamespace(context=SimpleNamespace(trace_flags=SimpleNamespace(sampled=sampled)))


@pytest.mark.parametrize("result", ["FAILURE", "RAISE", "SUCCESS"])
def test_every_span_is_exported_failed_or_dropped(result: str) -> None:
    collector = Dead(result)
    outbox = SpanQueue(collector, most=10, pause_s=0.01)
    outbox.on_end(span(sampled=False))
    for _ in range(40):
        outbox.on_end(span())  # never waits, though the collector does not answer
    assert outbox.dropped >= 20 and outbox.exported == outbox.failed == 0
    collector.gate.set()
    outbox.shutdown()
    taken = outbox.exported if result == "SUCCESS" else outbox.failed
    assert taken == collector.took and taken + outbox.dropped == 40
    outbox.on_end(span())
    assert outbox.dropped == 41 - taken
