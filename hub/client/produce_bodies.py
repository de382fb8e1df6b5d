"""[core] Bodies of produce requests: events, split into requests of some megabytes."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hub.client.requests import DECLARED, JSON_BODY, Event, Request, json_of
from hub.errors import CallerError
from hub.record import Positions

if TYPE_CHECKING:
    from hub.tracing import Span

_MOST_RECORDS, _MOST_BYTES = 10_000, 12 << 20  # a request; the gateway takes 16 MiB
_LINES = (("Content-Type", "application/x-ndjson"),)


def events_of(given: Iterable[Event | Mapping[str, Any]]) -> Iterable[Event]:
    """Convert mappings to events; their key is the field that the topic declares."""
    return (each if isinstance(each, Event) else Event(each) for each in given)


def requests_of(topic: str, events: Iterable[Event]) -> Iterable[tuple[Request, int]]:
    """Split events into requests and yield (request, number of its events). Raises CallerError for an event
    that cannot be encoded.

    Events without a key of their own use the shorter route, where the server takes the topic's declared key
    from the value.
    """
    given = list(events)
    short = [each.key is DECLARED for each in given]
    if any(short) and not all(short):
        raise CallerError(
            "produce: some events have a key and some have none", hint="say key=None for no key"
        )
    make, kind = (_event_line, "events") if all(short) else (_record_line, "records")
    name = quote(topic, safe="")
    path = f"/topics/{name}/events" if kind == "events" else f"/v3/clusters/-/topics/{name}/records"
    lines = [make(each) for each in given]
    start = size = 0
    for index, line in enumerate(lines):
        if index > start and (index - start == _MOST_RECORDS or size + len(line) > _MOST_BYTES):
            yield _request(path, lines[start:index]), index - start
            start, size = index, 0
        size += len(line) + 1
    if lines:
        yield _request(path, lines[start:]), len(lines) - start


def _request(path: str, lines: list[bytes]) -> Request:
    headers = JSON_BODY if len(lines) == 1 else _LINES
    return Request("POST", path, headers=headers, body=b"\n".join(lines))


def _event_line(event: Event) -> bytes:
    more = event.headers or event.partition is not None or event.timestamp is not None or event.type
    if more or not isinstance(event.value, Mapping):
        raise CallerError(
            "produce: headers, partition, timestamp, type and values that are not objects need a key",
            hint="say key=…, or key=None for no key",
        )
    return json_of(event.value, "produce: the event")


def _record_line(event: Event) -> bytes:
    record: dict[str, Any] = {"value": _data(event.value, event.type)}
    if event.key is not None:
        record["key"] = _data(event.key, None)
    if event.headers:
        record["headers"] = [
            {"name": name, "value": _base64(value.encode() if isinstance(value, str) else value)}
            for name, value in event.headers.items()
        ]
    if event.partition is not None:
        record["partition_id"] = event.partition
    if event.timestamp is not None:
        at = event.timestamp
        record["timestamp"] = at.isoformat() if isinstance(at, datetime) else at
    return json_of(record, "produce: the event")


def _data(value: Any, kind: str | None) -> dict[str, Any]:
    if isinstance(value, bytes):
        return {"type": "BINARY", "data": _base64(value)}
    return {"data": value} if kind is None else {"type": kind, "data": value}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def put_place(span: Span, token: Positions) -> None:
    """Set the partition and the last offset on the span of a write to one partition."""
    places = list(token)
    if len(places) == 1:
        ((place, after),) = places
        span.put(messaging__destination__partition__id=str(place.partition))
        span.put(messaging__kafka__offset=after - 1)
