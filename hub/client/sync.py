"""[shell] The client for threads: every call of calls.py waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from hub.client.aggregates import Aggregate
from hub.client.answers import ArrowResult, Page, Result, TranslatedOffset, translated_of
from hub.client.calls import Calls
from hub.client.changes import Change, Denied, Listener, Transport
from hub.client.copies import Copy
from hub.client.errors import ConnectionBroken
from hub.client.history import (
    HistoryOptions,
    RowChange,
    RowDiff,
    diff_request,
    history_page,
    history_request,
    row_diff,
)
from hub.client.produce_bodies import events_of
from hub.client.receipts import Receipts
from hub.client.requests import (
    Call,
    Event,
    Moment,
    PageOptions,
    ProduceOptions,
    ReadOptions,
    RetryPause,
    Row,
    SearchOptions,
    Token,
    Where,
    caller_settings,
    headers_of,
    translation,
    version_request,
)
from hub.record import Positions

if TYPE_CHECKING:
    from hub.client.transport import HttpWire

T = TypeVar("T")


class Hub(AbstractContextManager["Hub"]):
    """A hub. Thread safe.

    ``token``: a bearer token, or ``user:password``, sent with everything; else ``user:password@`` of the
    address, else the variable HUB_TOKEN. ``timeout_s``: time limit of a call, including its retries; each
    call has its own ``timeout_s`` too. ``retry`` False: one try, for callers with their own retries.
    ``receipts``: this program's name; its acknowledged events are compared with the log
    (docs/how-to/check-completeness.md).
    Errors: ``NotFound``, ``NotCovered``, ``Refused``, ``Conflict``, ``Unreachable``.

    >>> hub = Hub("http://127.0.0.1:8088")
    >>> hub.get("customer_360", "C-1", after=hub.produce("crm.customers", {"customer_id": "C-1",
    ... "name": "Ada"}))
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 10.0,
        retry: bool = True,
        receipts: str | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        from hub.client.transport import HttpWire
        from hub.tracing import of_client

        self._url, self._token = caller_settings(url, token, os.environ)
        self._wire = HttpWire(self._url, headers_of(self._token))
        receipt_queue = None if receipts is None else Receipts(receipts)
        self._calls = Calls(timeout_s, retry, receipts=receipt_queue, spans=of_client())
        self._sleep = sleep

    def produce(self, topic: str, value: Any, **options: Unpack[ProduceOptions]) -> Positions:
        """Write an event; returns once all in-sync replicas have it, with a token for reading it.

        ``value`` is an object in the topic's schema, None for a tombstone, or bytes to write unchanged.
        Without ``key``, the key is the field that topics.yaml declares for the topic. ``type``: JSON or
        STRING for a topic without a schema. A retry never writes twice: each call has an ``idempotency_key``,
        given or generated. With ``expected_version`` (the token of the key's newest event, or "none") the
        event is written only if the key has this version. Raises Refused (``reasons`` name the field),
        VersionConflict, NotFound, Unreachable.

        >>> hub.produce("shop.orders", {"order_id": "o-1", "status": "placed"}, key="o-1",
        ... headers={"trace": "42"})
        """
        return self._run(self._calls.produce_one(topic, value, options))

    def produce_many(
        self,
        topic: str,
        events: Iterable[Event | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> Positions:
        """Write events in their order; each is an object or an ``Event``. Returns the token of them all.

        Raises Refused when any was: ``reasons`` say which and why, ``written`` is the token of the others,
        which are in the log.

        >>> hub.produce_many("shop.orders", [{"order_id": "o-1"}, Event({"order_id": "o-2"}, key="o-2")])
        """
        return self._run(self._calls.produce(topic, events_of(events), idempotency_key, timeout_s))

    def get(self, view: str, key: str, **options: Unpack[ReadOptions]) -> Row:
        """Return a row. With ``after``, the row includes that write: the server waits for it until the
        timeout. ``as_of``: the row of that time, of a view with ``history``; with the token of a write, as
        the write made it. Raises NotFound (no such row or view), NotCovered (with the view's positions), Gone
        (the time is before what is kept).

        >>> hub.get("customer_360", "C-1", after=token, timeout_s=5)
        """
        return self._run(self._calls.get(view, key, options))

    def history(self, view: str, key: str, **options: Unpack[HistoryOptions]) -> Iterator[RowChange]:
        """Yield the changes of a row, the newest first, with their events; one page at a time. ``timeout_s``
        applies to each page.

        >>> for change in hub.history("customer_360", "C-1"):
        ...     print(change.at_ms, change.changes)
        """
        cursor: str | None = None
        while True:
            request = history_request(view, key, options, cursor)
            page = self._run(self._calls.ask(request, history_page, options.get("timeout_s")))
            yield from page.changes
            if (cursor := page.next) is None:
                return

    def diff(self, view: str, key: str, since: Moment, until: Moment | None = None) -> RowDiff:
        """Return the fields of a row that differ between two times; ``until`` None: now."""
        return self._run(self._calls.ask(diff_request(view, key, since, until), row_diff))

    def page(self, view: str, **options: Unpack[PageOptions]) -> Page:
        """Return a page of rows; ``cursor`` is ``next`` of the previous page."""
        return self._run(self._calls.page(view, options))

    def rows(
        self,
        view: str,
        *,
        where: Where | None = None,
        order: str | Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        after: Token | None = None,
        page_rows: int = 500,
        timeout_s: float | None = None,
    ) -> Iterator[Row]:
        """Yield every row that meets the conditions, one page at a time; in key order unless ``order`` is
        given. ``where`` and ``order`` name declared indexes. ``timeout_s`` applies to each page. A row has
        its state of the time when its page is read.

        >>> for row in hub.rows("customer_360", where={"city": "Oslo", "points.gte": 100}, order="-points"):
        ...     print(row["key"], row["points"])
        """
        options = PageOptions(
            where=where, order=order, fields=fields, limit=page_rows, after=after, timeout_s=timeout_s
        )
        cursor: str | None = None
        while True:
            page = self._run(self._calls.page(view, {**options, "cursor": cursor}))
            yield from page.rows
            if (cursor := page.next) is None:
                return

    def version(self, topic: str, key: str) -> str:
        """Return the version of a key for ``expected_version``: the token of its newest event, or "none"."""
        call = self._calls.ask(version_request(topic, key), lambda body: str(body["version"]))
        return self._run(call)

    def aggregate(self, topic: str, key: str, *, view: str, timeout_s: float | None = None) -> Aggregate:
        """Return a key of a topic as an aggregate: its state by a view that reads the topic by this key, and
        appends on the version of that state. ``timeout_s``: longest wait for the view.
        """
        return Aggregate(self, topic, key, view, timeout_s)

    def search(self, view: str, words: str, **options: Unpack[SearchOptions]) -> Page:
        """Return a page of the rows that have the words, the best first, each with ``_score`` and
        ``_highlights``. Words, "a phrase", -without, prefix*, one OR another.

        >>> hub.search("articles", 'kafka "exactly once" -beta', where={"section": "docs"}, limit=10)
        """
        return self._run(self._calls.search(view, words, options))

    def query_arrow(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        limit: int = 1_000_000,
        timeout_s: float | None = None,
    ) -> ArrowResult:
        """Return a query's rows as an Arrow stream, up to 5,000,000: ``.to_arrow()``, ``.to_pandas()``."""
        return self._run(self._calls.query_arrow(sql, parameters, limit, timeout_s))

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        limit: int | None = None,
        after: Token | None = None,
        timeout_s: float | None = None,
        cut: bool = False,
    ) -> Result:
        """Run a read-only SQL query over views; ``:name`` in it is a parameter. ``cut``: require all views to
        be at the same place of the log (``Result.cut``), or raise an error with the reason at the timeout.

        >>> hub.query("SELECT city, points FROM customer_360 WHERE points > :p", {"p": 9}).dicts()
        """
        return self._run(self._calls.query(sql, parameters, limit, after, timeout_s, cut))

    def translate(
        self, mirror: str, topic: str, partition: int, offset: int, *, back: bool = False
    ) -> TranslatedOffset:
        """Return a position of a mirror's source at its target; with ``back``, the reverse. A position is the
        next offset to read. The first call of a mirror takes longer: the server reads its map.

        >>> hub.translate("nyc-lon", "nyc.orders", 0, 4711)
        """
        return self._run(self._calls.ask(translation(mirror, topic, partition, offset, back), translated_of))

    def subscribe(
        self,
        view: str,
        *,
        key: str | None = None,
        where: Where | None = None,
        snapshot: bool = True,
        covered: bool = False,
        last_id: str | None = None,
        transport: Transport = "sse",
        on_disconnect: Callable[[str], object] | None = None,
        timeout_s: float | None = None,
    ) -> Changes:
        """Iterate over the view's rows, then over every change, without end: Snapshot, Synced, then Upsert
        and Delete. Reset: the view was rebuilt. Behind: this reader was slow. A row that no longer meets
        ``where`` is a Delete.

        A broken connection is reopened after the last event, with growing pauses and without limit; no change
        is lost or repeated. ``last_id`` resumes another subscription. ``snapshot`` False: only changes from
        now on. ``covered``: also yield Covered, the source positions that the changes so far include.
        ``timeout_s``: longest wait for the FIRST connection. ``on_disconnect`` is called with the reason once
        per disconnect.

        >>> for change in hub.subscribe("customer_360", where={"city": "Oslo"}):
        ...     match change:
        ...         case Upsert(key, row, _): print(key, row["points"])
        ...         case Delete(key, _): print(key, "is gone")
        """
        wait_s = self._calls.timeout_s if timeout_s is None else timeout_s
        listener = Listener(
            view,
            key=key,
            where=where,
            snapshot=snapshot,
            covered=covered,
            last_id=last_id,
            patience_s=wait_s if self._calls.retry else 0.0,
            on_disconnect=on_disconnect,
        )
        return Changes(self._wire, listener, transport, self._sleep)

    def follow(
        self,
        view: str,
        *,
        where: Where | None = None,
        transport: Transport = "sse",
        timeout_s: float | None = 60.0,
    ) -> Copy:
        """A copy of the view in this process, kept up to date by a thread: a read-only dict of rows by key.
        Returns when its first snapshot is whole.

        >>> with hub.follow("customer_360", where={"segment": "private"}) as customers:
        ...     customers.wait_until(hub.produce("crm.customers", {"customer_id": "C-1", "name": "Ada"}))
        ...     print(customers["C-1"], len(customers))
        """
        copy = Copy(self._url, self._token, view, where, transport)
        try:
            copy.wait_whole(timeout_s)
        except BaseException:
            copy.close()
            raise
        return copy

    def close(self) -> None:
        """Send pending receipts, then close the connections."""
        try:
            if self._calls.receipts is not None:
                self._run(self._calls.send_receipts())
        finally:
            self._wire.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, call: Call[T]) -> T:
        try:
            step = call.send(None)
            while True:
                if isinstance(step, RetryPause):
                    self._sleep(step.seconds)
                    step = call.send(None)
                    continue
                try:
                    reply = self._wire.ask(step)
                except ConnectionBroken as failure:
                    step = call.throw(failure)
                else:
                    step = call.send(reply)
        except StopIteration as done:
            result: T = done.value
            return result


class Changes(Iterator[Change], AbstractContextManager["Changes"]):
    """Endless iterator over changes, for one thread. ``last_id``: where to resume, in this process or
    another.

    Use ``with`` or ``close`` to release its connection at once.
    """

    def __init__(
        self, wire: HttpWire, listener: Listener, transport: Transport, sleep: Callable[[float], object]
    ) -> None:
        self._wire, self._listener, self._transport, self._sleep = wire, listener, transport, sleep
        self._changes = self._for_ever()

    @property
    def last_id(self) -> str | None:
        return self._listener.last_id

    def __next__(self) -> Change:
        return next(self._changes)

    def close(self) -> None:
        self._changes.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _for_ever(self) -> Generator[Change, None, None]:
        while True:
            try:
                with self._wire.line(self._listener.request(), self._transport) as events:
                    for event in events:
                        change = self._listener.receive(event)
                        if change is not None:
                            yield change
                raise ConnectionBroken("the line ended")
            except (ConnectionBroken, Denied) as failure:
                pause = self._listener.broken(failure)
            self._sleep(pause)
