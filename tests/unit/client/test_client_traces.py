"""The client's spans: a write is one, its context goes with each of its requests,
a program's own span is the parent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hub.client import Event, NotFound
from hub.client.calls import Calls
from hub.client.errors import ConnectionBroken
from hub.client.requests import Reply, Request
from hub.record import Positions
from hub.tracing import parse
from hub.tracing.otel import Spans

WRITTEN = b'{"error_code": 200, "partition_id": 0, "offset": 41}'


@pytest.fixture
def made() -> Iterator[tuple[Spans, InMemorySpanExporter, TracerProvider]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Spans(provider.get_tracer("test")), exporter, provider
    provider.shutdown()


def trace_ids(request: Request) -> list[str]:
    found = [parse(value) for name, value in request.headers if name == "traceparent"]
    return [each.trace_id for each in found if each is not None]


def test_a_write_is_one_span_whose_context_goes_with_every_try(
    made: tuple[Spans, InMemorySpanExporter, TracerProvider],
) -> None:
    spans, exporter, provider = made
    calls = Calls(retry=True, spans=spans)
    with provider.get_tracer("app").start_as_current_span("checkout") as checkout:
        call = calls.produce("shop.orders", [Event({"id": 1}, key="1")], None, None)
        first = call.send(None)
        assert isinstance(first, Request)
        call.throw(ConnectionBroken("the line broke"))
        again = call.send(None)
        assert isinstance(again, Request)
        with pytest.raises(StopIteration) as done:
            call.send(Reply(200, {"hub-position": "shop.orders:0:42"}, WRITTEN))
        assert done.value.value == Positions.parse("shop.orders:0:42")
        read = calls.get("orders", "1", {"after": done.value.value}).send(None)
        assert isinstance(read, Request)
    told = {each.name: each for each in exporter.get_finished_spans()}
    sent = told["send shop.orders"]
    assert sent.parent is not None and sent.parent.span_id == checkout.get_span_context().span_id
    trace_id = f"{sent.context.trace_id:032x}"
    assert trace_ids(first) == trace_ids(again) == trace_ids(read) == [trace_id]
    about = dict(sent.attributes or {})
    assert (about["messaging.destination.name"], about["messaging.kafka.offset"]) == ("shop.orders", 41)
    assert "error.type" not in about


def test_a_refused_write_ends_its_span_with_the_error(
    made: tuple[Spans, InMemorySpanExporter, TracerProvider],
) -> None:
    spans, exporter, _ = made
    call = Calls(spans=spans).produce("none", [{"id": 1}], None, None)  # type: ignore[list-item]
    with pytest.raises(AttributeError):
        call.send(None)
    call = Calls(spans=spans).produce("none", [Event({"id": 1})], None, None)
    call.send(None)
    with pytest.raises(NotFound):
        call.send(Reply(404, {}, b'{"error_code": 404, "message": "topic \\"none\\" does not exist"}'))
    first = exporter.get_finished_spans()[0]
    assert dict(first.attributes or {})["error.type"] == "_OTHER"
    assert all("error.type" in dict(each.attributes or {}) for each in exporter.get_finished_spans())


def test_untraced_requests_say_nothing() -> None:
    asked = Calls().produce("t", [Event({"id": 1})], None, None).send(None)
    assert isinstance(asked, Request) and trace_ids(asked) == []
