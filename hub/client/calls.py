"""[core] Calls of the client as generators that yield requests and receive the replies.

::

    call = calls.get("customer_360", "C-1")  # yields Request and Pause, is sent a Reply (or Broken is thrown)

Threads and tasks run the same calls. Temporary failures (no connection, 429, 502, 503, 504) are retried, with
growing pauses, in the call's time: reads change nothing, and a produce request carries an idempotency key.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hub.client.answers import (
    ArrowResult,
    Page,
    Result,
    arrow_of,
    error_without_lines,
    page_of,
    position_of,
    read_reply,
    result_of,
)
from hub.client.errors import (
    MAY_HAVE_WRITTEN,
    ConnectionBroken,
    NotCovered,
    Reason,
    Refused,
    Unreachable,
    error_body,
    error_of,
    reason_of,
)
from hub.client.produce_bodies import put_place, requests_of
from hub.client.receipts import EVERY_S, Receipts
from hub.client.requests import (
    EXPECTED_VERSION,
    IDEMPOTENCY_KEY,
    JSON_BODY,
    POSITION,
    TEMPORARY,
    Budget,
    Call,
    Event,
    PageOptions,
    ProduceOptions,
    ReadOptions,
    Reply,
    Request,
    RetryPause,
    Row,
    SearchOptions,
    T,
    Token,
    Where,
    conditions_of,
    event_of,
    header,
    json_of,
    named_times,
    no_such_row,
    page_query,
    pause_s,
    plain,
    retry_of,
    row_path,
    view_path,
)
from hub.errors import HubError
from hub.record import Positions
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.tracing import Span, Spans, Trace

_LONGEST_WAIT_S = 60.0  # the server's own bound for waiting on a token
_GRACE_S = 2.0
_RECEIPTS_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


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

    def get(self, view: str, key: str, options: ReadOptions) -> Call[Row]:
        """Return a row, as of a time if one is given. Raises NotFound, NotCovered, Gone."""
        budget, after = self.budget(options.get("timeout_s")), options.get("after")
        past = named_times(as_of=options.get("as_of"))
        if (path := row_path(view, key)) is None:
            page = yield from self._page(view, {"key": key}, (("limit", "1"), *past), after, budget)
            if not page.rows:
                raise no_such_row(view, key)
            return page.rows[0]
        reply = yield from self._read(Request("GET", path, past), after, budget)
        return read_reply(reply, lambda body: {**body})

    def page(self, view: str, options: PageOptions) -> Call[Page]:
        """Return a page of rows."""
        budget, parameters = self.budget(options.get("timeout_s")), page_query(options, options.get("order"))
        return (yield from self._page(view, options.get("where"), parameters, options.get("after"), budget))

    def search(self, view: str, words: str, options: SearchOptions) -> Call[Page]:
        """Return a page of the rows that a text search finds."""
        budget = self.budget(options.get("timeout_s"))
        parameters = (("q", words), *page_query(options))
        return (yield from self._page(view, options.get("where"), parameters, options.get("after"), budget))

    def covered(self, view: str, token: Token, timeout_s: float | None) -> Call[Positions]:
        """Return the positions that the view covers once it covers the token. Raises NotCovered."""
        page = yield from self._page(view, None, (("limit", "1"),), token, self.budget(timeout_s))
        return page.positions

    def _page(
        self,
        view: str,
        where: Where | None,
        parameters: tuple[tuple[str, str], ...],
        after: Token | None,
        budget: Budget,
    ) -> Call[Page]:
        request = Request("GET", view_path(view), query=(*conditions_of(where), *parameters))
        reply = yield from self._read(request, after, budget)
        return page_of(reply)

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
        headers = (*request.headers, header(POSITION, token))
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
        request = _query_request(sql, parameters, limit, after, budget, cut)
        return read_reply((yield from self._ask(request, budget)), result_of)

    def query_arrow(
        self, sql: str, parameters: Mapping[str, Any] | None, limit: int, timeout_s: float | None
    ) -> Call[ArrowResult]:
        """SQL over views, as an Arrow stream."""
        budget = self.budget(timeout_s)
        request = _query_request(sql, parameters, limit, None, budget, False, "arrow")
        return arrow_of((yield from self._ask(request, budget)))

    def ask(self, request: Request, read: Callable[[Any], T], timeout_s: float | None = None) -> Call[T]:
        """Return the body of a reply as ``read`` returns it."""
        return read_reply((yield from self._ask(request, self.budget(timeout_s))), read)

    # ---- writes

    def produce_one(self, topic: str, value: Any, options: ProduceOptions) -> Call[Positions]:
        """Write one event and return its token. Raises as ``produce``; VersionConflict."""
        key, version = options.get("idempotency_key"), options.get("expected_version")
        return self.produce(topic, [event_of(value, options)], key, options.get("timeout_s"), version)

    def produce(
        self,
        topic: str,
        events: Iterable[Event],
        idempotency_key: str | None,
        timeout_s: float | None,
        version: Token | None = None,
    ) -> Call[Positions]:
        """Write events and return the token of the writes. Raises Refused with a reason per refused record,
        after all others are written. Events are sent in requests of some megabytes; each request has an
        idempotency key derived from the call's.
        """
        span = self._send_span(topic)
        trace = self._trace() if span is None else span.trace
        error = "_OTHER"  # a cancelled call is closed while it waits
        try:
            token = yield from self._written(topic, events, idempotency_key, timeout_s, trace, version)
            error = ""
            if span is not None:
                put_place(span, token)
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
        version: Token | None,
    ) -> Call[Positions]:
        budget, key = self.budget(timeout_s), idempotency_key or uuid.uuid4().hex
        context = () if version is None else (header(EXPECTED_VERSION, str(version)),)
        context = (*context, *(() if trace is None else trace.headers()))
        given = list(events) if self.receipts is None else self.receipts.named(events, topic, key)
        requests = list(requests_of(topic, given))
        written, reasons, total = Positions(), [], 0
        for number, (request, count) in enumerate(requests):
            named = key if number == 0 else f"{key}.{number}"
            keyed = replace(request, headers=(*request.headers, header(IDEMPOTENCY_KEY, named), *context))
            of = given[total : total + count]
            position, refused = yield from self._produce(topic, of, keyed, total, written, budget)
            written, total = written.advanced(position), total + count
            reasons.extend(refused)
        if self.receipts is not None and self.now() >= self.receipts.next_s:
            yield from self.send_receipts()
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
        began_s = self.now()
        while True:
            earlier_s = began_s if attempt else None
            reply = yield from self._ask(request, budget, raises=False, first_sent_s=earlier_s)
            lines = [error_body(line) for line in reply.body.splitlines() if line.strip()]
            # The HTTP status of a single event is the event's own; a reply of a proxy is not a result of any
            # event.
            whole = len(lines) == count and all(isinstance(line.get("error_code"), int) for line in lines)
            if not whole or (reply.status != 200 and (count > 1 or reply.status in (404, 409))):
                raise error_without_lines(reply, written)
            failed = [(first + index, line) for index, line in enumerate(lines) if line["error_code"] != 200]
            unknown = [line for _, line in failed if line["error_code"] in TEMPORARY]
            if not unknown:
                if self.receipts is not None:
                    self.receipts.took(topic, events, lines)
                return position_of(reply), [reason_of(index, line) for index, line in failed]
            # Repeat with the same key: events that are in the log are recognized, the others are written.
            yield from self._pause(attempt, budget, Unreachable(str(unknown[0].get("message"))), None)
            attempt += 1

    def send_receipts(self) -> Call[None]:
        """Send pending receipts to the server, with one try; receipts that it does not accept count as
        dropped.
        """
        assert self.receipts is not None
        self.receipts.next_s = self.now() + EVERY_S
        while (body := self.receipts.due(epoch_ms())) is not None:
            request = Request(
                "POST", "/api/audit/receipts", headers=JSON_BODY, body=body, timeout_s=_RECEIPTS_S
            )
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

    def _ask(
        self, request: Request, budget: Budget, *, raises: bool = True, first_sent_s: float | None = None
    ) -> Call[Reply]:
        """Return the reply; temporary failures are retried. ``raises`` False: refusals (400 to 499) are
        replies too. ``first_sent_s``: time of an earlier attempt that may have written.
        """
        attempt = 0
        while True:
            sent_s = self.now()
            sent = request if first_sent_s is None else retry_of(request, first_sent_s, sent_s)
            failure: HubError
            hint: str | None = None
            try:
                reply: Reply = yield replace(sent, timeout_s=max(0.05, budget.left_s) + _GRACE_S)
            except ConnectionBroken as error:
                doubtful = error.sent
                failure = Unreachable(
                    f"the hub does not answer: {error}", hint="is it running? hub up starts one"
                )
            else:
                if reply.status < 300 or (
                    not raises and reply.status not in TEMPORARY and reply.status < 500
                ):
                    return reply
                failure = error_of(reply.status, reply.body)
                if reply.status not in TEMPORARY or isinstance(failure, NotCovered):
                    raise failure
                hint, doubtful = reply.headers.get("retry-after"), failure.code in MAY_HAVE_WRITTEN
            if doubtful and first_sent_s is None:
                first_sent_s = sent_s
            yield from self._pause(attempt, budget, failure, hint)
            attempt += 1

    def _pause(self, attempt: int, budget: Budget, failure: HubError, retry_after: str | None) -> Call[None]:
        """Pause before the next attempt. Raises the failure if no time is left for one."""
        seconds = pause_s(attempt, self.chance(), _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        if retry_after is not None and retry_after.isdecimal():
            seconds = max(seconds, min(float(retry_after), _LONGEST_PAUSE_S) * (0.5 + self.chance() / 2))
        if not budget.retry or seconds >= budget.left_s:
            raise failure
        yield RetryPause(seconds)


def _query_request(
    sql: str,
    parameters: Mapping[str, Any] | None,
    limit: int | None,
    after: Token | None,
    budget: Budget,
    cut: bool,
    form: str | None = None,
) -> Request:
    """Return the request of a query, whose time limit is the rest of the budget."""
    body: dict[str, Any] = {
        "sql": sql,
        "parameters": {name: plain(value) for name, value in (parameters or {}).items()},
        "timeout_ms": max(1, round(min(budget.left_s, _LONGEST_WAIT_S) * 1000)),
    }
    if limit is not None:
        body["limit"] = limit
    if after:
        body["after"] = str(after)
    if cut:
        body["cut"] = "required"
    if form is not None:
        body["format"] = form
    return Request("POST", "/query", headers=JSON_BODY, body=json_of(body, "query: a parameter"))
