"""[core] Calls of the client as generators that yield requests and receive the replies.

::

    call = calls.get("customer_360", "C-1")     yields Request and Pause, is sent a Reply (or has Broken thrown in),
                                                returns the result: the same for a thread that waits and a task that awaits

Each request may be repeated: reads change nothing, and a produce request carries an idempotency key. So
temporary failures (no connection, 429, 502, 503, 504) are retried, with growing pauses, until the call's
timeout.
"""

from __future__ import annotations

import base64
import random
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import orjson

from hub.client.errors import (
    ConnectionBroken,
    NotCovered,
    Reason,
    Refused,
    Unreachable,
    error_body,
    error_of,
    reason_of,
)
from hub.client.event import DECLARED, Event
from hub.client.receipts import EVERY_S, Receipts
from hub.errors import CallerError, HubError, NotFound
from hub.record import Positions

if TYPE_CHECKING:
    from hub.tracing import Span, Spans, Trace

T = TypeVar("T")
Row = dict[str, Any]
Where = Mapping[str, Any] | Sequence[tuple[str, Any]]
Token = Positions | str

_POSITION = "Hub-Position"
_PASSING = (429, 502, 503, 504)
_LONGEST_WAIT_S = 60.0  # the server's own bound for waiting on a token
_GRACE_S = 2.0
_MOST_RECORDS, _MOST_BYTES = 10_000, 12 << 20  # a request; the gateway takes 16 MiB
_TELL_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
# Keys that a path cannot say: the subscription's own, and what URLs treat as folders.
_NO_PATH = ("changes", "", ".", "..")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server. ``path`` is already quoted."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of ``seconds`` before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Call = Generator[Request | Pause, Any, T]


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of a view; ``next`` begins the next page, None: there is none. ``positions``: source events included."""

    rows: list[Row]
    next: str | None
    positions: Positions


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer; ``type`` is SQL's name."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a SQL query. ``truncated``: there were more rows than the limit. ``cut``: the snapshot group
    of the views (``cut`` in their files) that were read, all exactly at ``positions``; None: their positions
    may differ.
    """

    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    truncated: bool
    positions: Positions
    cut: str | None = None

    def dicts(self) -> list[Row]:
        """Return each row as a mapping by column name."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Budget:
    """The time that a call has."""

    end_s: float
    retry: bool
    now: Callable[[], float]

    @property
    def left_s(self) -> float:
        return max(0.0, self.end_s - self.now())


@dataclass(frozen=True)
class Calls:
    """The calls that a hub answers. ``retry`` False: one try each."""

    timeout_s: float = 10.0
    retry: bool = True
    now: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    receipts: Receipts | None = None
    spans: Spans | None = None

    def budget(self, timeout_s: float | None) -> Budget:
        return Budget(self.now() + (self.timeout_s if timeout_s is None else timeout_s), self.retry, self.now)

    # ---- reads

    def get(self, view: str, key: str, after: Token | None, timeout_s: float | None) -> Call[Row]:
        """Return a row. Raises NotFound, NotCovered."""
        budget = self.budget(timeout_s)
        if key in _NO_PATH:
            page = yield from self._page(view, {"key": key}, (("limit", "1"),), after, budget)
            if not page.rows:
                raise NotFound(f'view "{view}": key "{key}" does not exist', code="HUB-1411")
            return page.rows[0]
        path = f"{_view(view)}/{quote(key, safe='')}"
        reply = yield from self._read(Request("GET", path), after, budget)
        return _read_reply(reply, lambda body: {**body})

    def page(
        self,
        view: str,
        where: Where | None,
        order: str | Sequence[str] | None,
        fields: Sequence[str] | None,
        limit: int,
        cursor: str | None,
        after: Token | None,
        timeout_s: float | None,
    ) -> Call[Page]:
        """Return a page of rows."""
        asked = [("limit", str(limit))]
        if cursor is not None:
            asked.append(("after", cursor))
        if order:
            asked.append(("order", order if isinstance(order, str) else ",".join(order)))
        if fields is not None:
            asked.append(("fields", ",".join(fields)))
        return (yield from self._page(view, where, tuple(asked), after, self.budget(timeout_s)))

    def covered(self, view: str, token: Token, timeout_s: float | None) -> Call[Positions]:
        """Return the positions that the view covers once it covers the token. Raises NotCovered."""
        page = yield from self._page(view, None, (("limit", "1"),), token, self.budget(timeout_s))
        return page.positions

    def _page(
        self,
        view: str,
        where: Where | None,
        asked: tuple[tuple[str, str], ...],
        after: Token | None,
        budget: Budget,
    ) -> Call[Page]:
        request = Request("GET", _view(view), query=(*conditions_of(where), *asked))
        reply = yield from self._read(request, after, budget)
        return _read_reply(reply, lambda body: Page([*body["rows"]], body["next"], _position(reply)))

    def _read(self, request: Request, after: Token | None, budget: Budget) -> Call[Reply]:
        """Send a read. The server waits for the token, at most a minute per request; then the request is
        repeated.
        """
        trace = self._trace()
        if trace is not None:
            request = replace(request, headers=(*request.headers, *trace.headers()))
        token = str(after or "")
        if not token:
            return (yield from self._ask(request, budget))
        headers = (*request.headers, header(_POSITION, token))
        while True:
            wait_s = min(budget.left_s, _LONGEST_WAIT_S)
            query = (*request.query, ("timeout_ms", str(round(wait_s * 1000))))
            try:
                return (yield from self._ask(replace(request, query=query, headers=headers), budget))
            except NotCovered:
                if not budget.retry or budget.left_s <= 0:
                    raise

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None,
        limit: int | None,
        after: Token | None,
        timeout_s: float | None,
        cut: bool = False,
    ) -> Call[Result]:
        """SQL over views. The server's time limit is the call's."""
        budget = self.budget(timeout_s)
        asked: dict[str, Any] = {
            "sql": sql,
            "parameters": {name: _plain(value) for name, value in (parameters or {}).items()},
            "timeout_ms": max(1, round(min(budget.left_s, _LONGEST_WAIT_S) * 1000)),
        }
        if limit is not None:
            asked["limit"] = limit
        if after:
            asked["after"] = str(after)
        if cut:
            asked["cut"] = "required"
        request = Request("POST", "/query", headers=_JSON, body=_dumped(asked, "query: a parameter"))
        return _read_reply((yield from self._ask(request, budget)), _result)

    # ---- writes

    def produce(
        self, topic: str, events: Iterable[Event], idempotency_key: str | None, timeout_s: float | None
    ) -> Call[Positions]:
        """Write events and return the token of the writes. Raises Refused with a reason per refused record,
        after all others are written. Events are sent in requests of some megabytes; each request has an
        idempotency key derived from the call's.
        """
        span = self._send_span(topic)
        trace = self._trace() if span is None else span.trace
        error = "_OTHER"  # a cancelled call is closed while it waits
        try:
            token = yield from self._written(topic, events, idempotency_key, timeout_s, trace)
            error = ""
            if span is not None:
                _place(span, token)
            return token
        except HubError as failed:
            error = failed.code or type(failed).__name__
            raise
        finally:
            if span is not None:
                span.end(error)

    def _send_span(self, topic: str) -> Span | None:
        if self.spans is None:
            return None
        return self.spans.start(
            f"send {topic}",
            "producer",
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "send",
                "messaging.operation.name": "send",
                "messaging.destination.name": topic,
            },
        )

    def _trace(self) -> Trace | None:
        """Return the current trace of the program, if it traces itself."""
        return None if self.spans is None else self.spans.current()

    def _written(
        self,
        topic: str,
        events: Iterable[Event],
        idempotency_key: str | None,
        timeout_s: float | None,
        trace: Trace | None,
    ) -> Call[Positions]:
        budget = self.budget(timeout_s)
        key = idempotency_key or uuid.uuid4().hex
        context = () if trace is None else trace.headers()
        given = list(events) if self.receipts is None else self.receipts.named(events, topic, key)
        requests = list(requests_of(topic, given))
        written, reasons, total = Positions(), [], 0
        for number, (request, count) in enumerate(requests):
            named = key if number == 0 else f"{key}.{number}"
            keyed = replace(request, headers=(*request.headers, header("Idempotency-Key", named), *context))
            of = given[total : total + count]
            position, refused = yield from self._produce(topic, of, keyed, total, written, budget)
            written, total = written.advanced(position), total + count
            reasons.extend(refused)
        if self.receipts is not None and self.now() >= self.receipts.next_s:
            yield from self.tell()
        if reasons:
            first = reasons[0]
            others = f" (record {first.record}; {len(reasons)} of {total} were refused)" if total > 1 else ""
            raise Refused(
                f"{first.message}{others}", hint=first.hint, code=first.code, reasons=reasons, written=written
            )
        return written

    def _produce(
        self,
        topic: str,
        events: Sequence[Event],
        request: Request,
        first: int,
        written: Positions,
        budget: Budget,
    ) -> Call[tuple[Positions, list[Reason]]]:
        """Repeat one request until each of its records is written or refused."""
        attempt, count = 0, len(events)
        while True:
            reply = yield from self._ask(request, budget, raises=False)
            lines = [error_body(line) for line in reply.body.splitlines() if line.strip()]
            # The HTTP status of a single event is the event's own; a reply of a proxy is not a result of any
            # event.
            whole = len(lines) == count and all(isinstance(line.get("error_code"), int) for line in lines)
            if not whole or (reply.status != 200 and (count > 1 or reply.status in (404, 409))):
                raise _no_lines(reply, written)
            failed = [(first + index, line) for index, line in enumerate(lines) if line["error_code"] != 200]
            unknown = [line for _, line in failed if line["error_code"] in _PASSING]
            if not unknown:
                if self.receipts is not None:
                    self.receipts.took(topic, events, lines)
                return _position(reply), [reason_of(index, line) for index, line in failed]
            # Repeat with the same key: events that are in the log are recognized, the others are written.
            yield from self._pause(attempt, budget, Unreachable(str(unknown[0].get("message"))), None)
            attempt += 1

    def tell(self) -> Call[None]:
        """Send pending receipts to the server, with one try; receipts that it does not accept count as
        dropped.
        """
        assert self.receipts is not None
        self.receipts.next_s = self.now() + EVERY_S
        while (body := self.receipts.due(time.time_ns() // 1_000_000)) is not None:
            request = Request("POST", "/api/audit/receipts", headers=_JSON, body=body, timeout_s=_TELL_S)
            try:
                reply: Reply = yield request
            except ConnectionBroken:
                self.receipts.back(body)
                return
            except BaseException:  # the caller was cancelled
                self.receipts.back(body)
                raise
            if reply.status >= 300:
                self.receipts.back(body)
                return

    # ---- one request

    def _ask(self, request: Request, budget: Budget, *, raises: bool = True) -> Call[Reply]:
        """Return the reply; temporary failures are retried. ``raises`` False: refusals (400 to 499) are
        replies too.
        """
        attempt = 0
        while True:
            failure: HubError
            hint: str | None = None
            try:
                reply: Reply = yield replace(request, timeout_s=max(0.05, budget.left_s) + _GRACE_S)
            except ConnectionBroken as error:
                failure = Unreachable(
                    f"the hub does not answer: {error}", hint="is it running? hub up starts one"
                )
            else:
                if reply.status < 300 or (not raises and reply.status not in _PASSING and reply.status < 500):
                    return reply
                failure = error_of(reply.status, reply.body)
                if reply.status not in _PASSING or isinstance(failure, NotCovered):
                    raise failure
                hint = reply.headers.get("retry-after")
            yield from self._pause(attempt, budget, failure, hint)
            attempt += 1

    def _pause(self, attempt: int, budget: Budget, failure: HubError, retry_after: str | None) -> Call[None]:
        """Pause before the next try. Raises the failure when there is no time for one."""
        seconds = pause_s(attempt, self.chance(), _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        if retry_after is not None and retry_after.isdecimal():
            seconds = max(seconds, min(float(retry_after), _LONGEST_PAUSE_S) * (0.5 + self.chance() / 2))
        if not budget.retry or seconds >= budget.left_s:
            raise failure
        yield Pause(seconds)


def _no_lines(reply: Reply, written: Positions) -> HubError:
    """Return the error for a reply that lacks a result for each event."""
    if reply.status < 300:
        return Unreachable(
            "the answer does not say what became of each event",
            hint="is a proxy in between? the same idempotency_key again writes nothing twice",
        )
    error = error_of(reply.status, reply.body)
    if error.hint is None and reply.status < 400:
        error.hint = f"to {reply.headers.get('location', 'another address')}: give the client the hub's own"
    if isinstance(error, Refused):
        error.written = written
    return error


def pause_s(attempt: int, chance: float, first_s: float, longest_s: float) -> float:
    """Return a pause that grows with ``attempt``, with jitter so that waiting clients do not retry together.
    ``chance`` is from 0 to 1.
    """
    return float(min(longest_s, first_s * 2 ** min(attempt, 20)) * (0.5 + chance / 2))


def _place(span: Span, token: Positions) -> None:
    """Set the partition and the last offset on the span of a write to one partition."""
    places = list(token)
    if len(places) == 1:
        ((place, after),) = places
        span.put(messaging__destination__partition__id=str(place.partition))
        span.put(messaging__kafka__offset=after - 1)


_JSON = (("Content-Type", "application/json"),)
_LINES = (("Content-Type", "application/x-ndjson"),)


def _view(view: str) -> str:
    return f"/views/{quote(view, safe='')}"


def header(name: str, value: str) -> tuple[str, str]:
    """Return a request header. Raises CallerError for a text that HTTP cannot carry; sending it would look
    like a connection failure.
    """
    if not (value.isascii() and value.isprintable()):
        raise CallerError(
            f"{name} {value[:80]!r} cannot be said in a header", hint="letters, digits and signs of ASCII"
        )
    return name, value


def _read_reply(reply: Reply, read: Callable[[Any], T]) -> T:
    """Parse the body of a reply with ``read``. Raises Unreachable for a body that is not the hub's."""
    try:
        return read(orjson.loads(reply.body))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unreachable("what answers is no hub", hint="is a proxy in between?") from None


def _result(body: Any) -> Result:
    columns = tuple(Column(each["name"], each["type"]) for each in body["columns"])
    rows = [tuple(row[column.name] for column in columns) for row in body["rows"]]
    group = (body.get("cut") or {}).get("name")
    return Result(columns, rows, bool(body["more"]), Positions.parse(body["positions"]), group)


def _position(reply: Reply) -> Positions:
    return Positions.parse(reply.headers.get(_POSITION.lower(), ""))


def conditions_of(where: Where | None) -> tuple[tuple[str, str], ...]:
    """Convert ``{"city": "Oslo", "points.gte": 100}``, or pairs, to parameters of a query string."""
    pairs = where.items() if isinstance(where, Mapping) else where or ()
    return tuple((_operated(name), _text(value)) for name, value in pairs)


def _operated(name: str) -> str:
    """Return a field's parameter with its operator, because a field may have the name of a parameter of the
    route.
    """
    return name if "." in name or name == "key" else f"{name}.eq"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return _text(value)


def headers_of(token: str | None) -> dict[str, str]:
    """Return the headers of every request. ``token``: a bearer token, or ``user:password``."""
    agent = {"User-Agent": "hub.client"}
    if not token:
        return agent
    if ":" in token:
        return {**agent, "Authorization": f"Basic {base64.b64encode(token.encode()).decode()}"}
    return {**agent, "Authorization": f"Bearer {token}"}


def caller_settings(url: str, token: str | None, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Return (URL without credentials, credentials): from ``token``, else ``user:password@`` in the URL, else
    the variable HUB_TOKEN.

    >>> caller_settings("http://ana:a%20b@hub:8088", None, {})
    ('http://hub:8088', 'ana:a b')
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if at:
        url = urlunsplit(parts._replace(netloc=host))
        token = token or unquote(user)
    return url, token or environment.get("HUB_TOKEN") or None


def events_of(given: Iterable[Event | Mapping[str, Any]]) -> Iterable[Event]:
    """Convert mappings to events; their key is the field that the topic declares."""
    return (each if isinstance(each, Event) else Event(each) for each in given)


# ---- the bodies of produce requests


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
    headers = _JSON if len(lines) == 1 else _LINES
    return Request("POST", path, headers=headers, body=b"\n".join(lines))


def _event_line(event: Event) -> bytes:
    more = event.headers or event.partition is not None or event.timestamp is not None or event.type
    if more or not isinstance(event.value, Mapping):
        raise CallerError(
            "produce: headers, partition, timestamp, type and values that are no object want a key",
            hint="say key=…, or key=None for no key",
        )
    return _dumped(event.value, "produce: the event")


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
    return _dumped(record, "produce: the event")


def _data(value: Any, kind: str | None) -> dict[str, Any]:
    if isinstance(value, bytes):
        return {"type": "BINARY", "data": _base64(value)}
    return {"data": value} if kind is None else {"type": kind, "data": value}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _dumped(value: Any, what: str) -> bytes:
    try:
        return orjson.dumps(value, default=_unusual)
    except TypeError as error:
        raise CallerError(f"{what} cannot be said in JSON: {error}") from None


def _unusual(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON")
