"""[shell] The client for tasks: every call of calls.py awaited, and a copy kept by a task."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from hub.client.aggregates import AsyncAggregate
from hub.client.answers import ArrowResult, Page, Result, TranslatedOffset, translated_of
from hub.client.calls import Calls
from hub.client.changes import Change, Denied, Listener, Rows, Transport
from hub.client.errors import ConnectionBroken, NotCovered, Unreachable
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
from hub.errors import CallerError, HubError
from hub.record import Positions

if TYPE_CHECKING:
    from hub.client.transport import AsyncWire

T = TypeVar("T")


class AsyncHub(AbstractAsyncContextManager["AsyncHub"]):
    """A hub, for asyncio. One event loop; any number of tasks. The methods are those of ``Hub``, awaited.

    >>> async with AsyncHub("http://127.0.0.1:8088") as hub:
    ...     token = await hub.produce("crm.customers", {"customer_id": "C-1", "name": "Ada"})
    ...     row = await hub.get("customer_360", "C-1", after=token)
    ...     async for change in hub.subscribe("customer_360", key="C-1"):
    ...         print(change)
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 10.0,
        retry: bool = True,
        receipts: str | None = None,
    ) -> None:
        from hub.client.transport import AsyncWire
        from hub.tracing import of_client

        url, token = caller_settings(url, token, os.environ)
        self._wire = AsyncWire(url, headers_of(token))
        receipt_queue = None if receipts is None else Receipts(receipts)
        self._calls = Calls(timeout_s, retry, receipts=receipt_queue, spans=of_client())

    async def produce(self, topic: str, value: Any, **options: Unpack[ProduceOptions]) -> Positions:
        """See ``Hub.produce``."""
        return await self._run(self._calls.produce_one(topic, value, options))

    async def produce_many(
        self,
        topic: str,
        events: Iterable[Event | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> Positions:
        """See ``Hub.produce_many``."""
        return await self._run(self._calls.produce(topic, events_of(events), idempotency_key, timeout_s))

    async def get(self, view: str, key: str, **options: Unpack[ReadOptions]) -> Row:
        """See ``Hub.get``."""
        return await self._run(self._calls.get(view, key, options))

    async def history(
        self, view: str, key: str, **options: Unpack[HistoryOptions]
    ) -> AsyncIterator[RowChange]:
        """See ``Hub.history``."""
        cursor: str | None = None
        while True:
            request = history_request(view, key, options, cursor)
            page = await self._run(self._calls.ask(request, history_page, options.get("timeout_s")))
            for change in page.changes:
                yield change
            if (cursor := page.next) is None:
                return

    async def diff(self, view: str, key: str, since: Moment, until: Moment | None = None) -> RowDiff:
        """See ``Hub.diff``."""
        return await self._run(self._calls.ask(diff_request(view, key, since, until), row_diff))

    async def page(self, view: str, **options: Unpack[PageOptions]) -> Page:
        """See ``Hub.page``."""
        return await self._run(self._calls.page(view, options))

    async def rows(
        self,
        view: str,
        *,
        where: Where | None = None,
        order: str | Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        after: Token | None = None,
        page_rows: int = 500,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Row]:
        """See ``Hub.rows``."""
        options = PageOptions(
            where=where, order=order, fields=fields, limit=page_rows, after=after, timeout_s=timeout_s
        )
        cursor: str | None = None
        while True:
            page = await self._run(self._calls.page(view, {**options, "cursor": cursor}))
            for row in page.rows:
                yield row
            if (cursor := page.next) is None:
                return

    async def version(self, topic: str, key: str) -> str:
        """See ``Hub.version``."""
        call = self._calls.ask(version_request(topic, key), lambda body: str(body["version"]))
        return await self._run(call)

    def aggregate(self, topic: str, key: str, *, view: str, timeout_s: float | None = None) -> AsyncAggregate:
        """See ``Hub.aggregate``."""
        return AsyncAggregate(self, topic, key, view, timeout_s)

    async def search(self, view: str, words: str, **options: Unpack[SearchOptions]) -> Page:
        """See ``Hub.search``."""
        return await self._run(self._calls.search(view, words, options))

    async def query_arrow(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        limit: int = 1_000_000,
        timeout_s: float | None = None,
    ) -> ArrowResult:
        """See ``Hub.query_arrow``."""
        return await self._run(self._calls.query_arrow(sql, parameters, limit, timeout_s))

    async def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        limit: int | None = None,
        after: Token | None = None,
        timeout_s: float | None = None,
        cut: bool = False,
    ) -> Result:
        """See ``Hub.query``."""
        return await self._run(self._calls.query(sql, parameters, limit, after, timeout_s, cut))

    async def translate(
        self, mirror: str, topic: str, partition: int, offset: int, *, back: bool = False
    ) -> TranslatedOffset:
        """See ``Hub.translate``."""
        request = translation(mirror, topic, partition, offset, back)
        return await self._run(self._calls.ask(request, translated_of))

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
    ) -> AsyncChanges:
        """See ``Hub.subscribe``; use ``async for change in hub.subscribe(...)``."""
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
        return AsyncChanges(self._wire, listener, transport)

    async def follow(
        self,
        view: str,
        *,
        where: Where | None = None,
        transport: Transport = "sse",
        timeout_s: float | None = 60.0,
    ) -> AsyncCopy:
        """See ``Hub.follow``; a task of this event loop keeps the copy."""
        copy = AsyncCopy(self, view, where, transport)
        try:
            await copy.wait_whole(timeout_s)
        except BaseException:
            await copy.close()
            raise
        return copy

    async def close(self) -> None:
        """Send pending receipts, then close the connections."""
        try:
            if self._calls.receipts is not None:
                await self._run(self._calls.send_receipts())
        finally:
            await self._wire.close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, call: Call[T]) -> T:
        try:
            step = call.send(None)
            while True:
                if isinstance(step, RetryPause):
                    await asyncio.sleep(step.seconds)
                    step = call.send(None)
                    continue
                try:
                    reply = await self._wire.ask(step)
                except ConnectionBroken as failure:
                    step = call.throw(failure)
                else:
                    step = call.send(reply)
        except StopIteration as done:
            result: T = done.value
            return result


class AsyncChanges(AsyncIterator[Change], AbstractAsyncContextManager["AsyncChanges"]):
    """Endless iterator over changes. ``last_id``: where to resume, in this process or another.

    Use ``async with`` or ``aclose`` to release its connection at once.
    """

    def __init__(self, wire: AsyncWire, listener: Listener, transport: Transport) -> None:
        self._wire, self._listener, self._transport = wire, listener, transport
        self._changes = self._for_ever()

    @property
    def last_id(self) -> str | None:
        return self._listener.last_id

    async def __anext__(self) -> Change:
        try:
            return await anext(self._changes)
        except asyncio.CancelledError:
            # The wait was cancelled and its connection closed: the next wait resumes after the last event.
            self._changes = self._for_ever()
            raise

    async def aclose(self) -> None:
        await self._changes.aclose()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _for_ever(self) -> AsyncGenerator[Change, None]:
        while True:
            try:
                async with self._wire.line(self._listener.request(), self._transport) as events:
                    async for event in events:
                        change = self._listener.receive(event)
                        if change is not None:
                            yield change
                raise ConnectionBroken("the line ended")
            except (ConnectionBroken, Denied) as failure:
                pause = self._listener.broken(failure)
            await asyncio.sleep(pause)


class AsyncCopy(Mapping[str, Row], AbstractAsyncContextManager["AsyncCopy"]):
    """A view's rows by key, kept current by a task: reads are local and never wait.

    A rebuilt view replaces the rows once its snapshot is complete. When the server ends the subscription (the
    view was dropped), reads raise that error instead of returning old rows.
    """

    def __init__(self, hub: AsyncHub, view: str, where: Where | None, transport: Transport) -> None:
        self.view = view
        self.connected = False
        self._hub = hub
        self._rows = Rows()
        self._error: HubError | None = None
        self._changed = asyncio.Event()
        self._changes = hub.subscribe(
            view, where=where, covered=True, transport=transport, on_disconnect=self._lost
        )
        self._task = asyncio.create_task(self._keep())

    @property
    def covered(self) -> Positions:
        """The source positions that the copy includes."""
        return self._rows.covered

    def __getitem__(self, key: str) -> Row:
        return self._served()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._served()))

    def __len__(self) -> int:
        return len(self._served())

    async def wait_until(self, token: Token, timeout_s: float = 30.0) -> None:
        """Wait until the copy includes the write. Raises NotCovered; Refused when the view does not read the
        write's topic; CallerError when the copy is closed meanwhile.
        """
        end_s = asyncio.get_running_loop().time() + timeout_s
        calls = self._hub._calls
        wanted = await self._hub._run(calls.covered(self.view, token, timeout_s))
        left_s = max(0.0, end_s - asyncio.get_running_loop().time())
        if not await self._until(lambda: self.covered.covers(wanted), left_s):
            missing = self.covered.behind(wanted)
            raise NotCovered(
                f'the copy of view "{self.view}" does not include the write yet', self.covered, missing
            )

    async def wait_whole(self, timeout_s: float | None = 60.0) -> None:
        """Wait until the first snapshot is complete. Raises Unreachable."""
        if not await self._until(lambda: self._rows.whole, timeout_s):
            raise Unreachable(f'view "{self.view}": no whole snapshot within {timeout_s:g} s')

    async def close(self) -> None:
        """Stop updating the copy; its rows stay readable."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _served(self) -> dict[str, Row]:
        if self._error is not None:
            raise self._error
        return self._rows.now

    def _lost(self, _reason: str) -> None:
        self.connected = False

    async def _keep(self) -> None:
        try:
            async with self._changes as changes:
                async for change in changes:
                    self.connected = True
                    self._rows.apply(change)
                    self._changed.set()
        except HubError as error:
            self._error = error
        finally:
            self.connected = False
            self._changed.set()

    async def _until(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not done():
                    if self._error is not None:
                        raise self._error
                    if self._task.done():
                        raise CallerError(f'the copy of view "{self.view}" is closed')
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True
