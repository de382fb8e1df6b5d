"""The client for tasks over a wire that is none:
calls that are given up, copies that are closed, many lines at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hub.client import AsyncChanges, AsyncCopy, AsyncHub, CallerError, Hub, Unreachable, Upsert
from hub.client.changes import Listener, StreamEvent
from hub.client.requests import Request


class Lines:
    """Each connection sends the given events, and records the resume position."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[StreamEvent] = asyncio.Queue()
        self.last_ids: list[str | None] = []
        self.open = 0

    @asynccontextmanager
    async def line(self, request: Request, _transport: str) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        self.last_ids.append(dict(request.headers).get("Last-Event-ID"))
        self.open += 1

        async def events() -> AsyncIterator[StreamEvent]:
            while True:
                yield await self.told.get()

        try:
            yield events()
        finally:
            self.open -= 1


def upsert(version: int) -> StreamEvent:
    return StreamEvent("upsert", str(version), {"key": "C-1", "row": {"n": version}, "version": version})


def test_a_wait_that_was_given_up_is_not_the_end_of_the_changes() -> None:
    async def hear() -> None:
        lines = Lines()
        changes = AsyncChanges(lines, Listener("v"), "sse")  # type: ignore[arg-type]
        await lines.told.put(upsert(1))
        assert await anext(changes) == Upsert("C-1", {"n": 1}, 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(changes), 0.01)
        assert lines.open == 0
        await lines.told.put(upsert(2))
        assert await anext(changes) == Upsert("C-1", {"n": 2}, 2)
        assert lines.last_ids == [None, "1"]  # after the last event
        await changes.aclose()
        assert lines.open == 0
        with pytest.raises(StopAsyncIteration):
            await anext(changes)

    asyncio.run(hear())


def test_who_waits_for_a_copy_that_is_closed_is_told() -> None:
    async def wait() -> None:
        hub = AsyncHub("http://127.0.0.1:1")
        copy = AsyncCopy(hub, "v", None, "sse")
        waiting = asyncio.create_task(copy.wait_whole(60.0))
        await asyncio.sleep(0)
        await copy.close()
        for each in (waiting, copy.wait_whole(60.0)):
            with pytest.raises(CallerError, match='the copy of view "v" is closed'):
                await asyncio.wait_for(each, 5.0)
        await hub.close()

    asyncio.run(wait())


def test_closing_a_copy_does_not_swallow_that_who_closes_it_is_cancelled() -> None:
    async def close() -> None:
        copy = AsyncCopy(AsyncHub("http://127.0.0.1:1"), "v", None, "sse")
        closing = asyncio.create_task(copy.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    asyncio.run(close())


def test_a_copy_of_a_thread_is_closed_once_and_says_so_ever_after(serve: Callable[[bytes], str]) -> None:
    url = serve(b'event: synced\nid: 1\ndata: {"positions": ""}\n\n')
    with Hub(url) as hub:
        copy = hub.follow("v", timeout_s=10.0)
        threads = threading.active_count()
        copy.close()
        copy.close()
        assert threading.active_count() == threads - 1 and len(copy) == 0
        with pytest.raises(CallerError, match="closed"):
            copy.wait_whole(1.0)


def test_lines_that_stay_open_leave_room_for_calls(serve: Callable[[bytes], str]) -> None:
    url = serve(b'event: synced\nid: 1\ndata: {"positions": ""}\n\n')

    async def many() -> None:
        async with AsyncHub(url, timeout_s=2.0, retry=False) as hub:
            lines = [hub.subscribe("v") for _ in range(120)]
            await asyncio.gather(*map(anext, lines))
            assert await hub.get("v", "C-1") == {"n": 1}
            for each in lines:
                await each.aclose()

    asyncio.run(many())


def test_a_page_is_no_line_of_changes(serve: Callable[..., str]) -> None:
    url = serve(b"<html>\n\nsign in\n\n", "text/html")
    with Hub(url, timeout_s=0.5) as hub, pytest.raises(Unreachable, match="not a hub"):
        next(hub.subscribe("v"))

    async def hear() -> None:
        async with AsyncHub(url, timeout_s=0.5) as hub:
            with pytest.raises(Unreachable, match="not a hub"):
                await asyncio.wait_for(anext(hub.subscribe("v")), 10.0)

    asyncio.run(hear())


@pytest.fixture
def serve() -> Any:
    """A server whose connections send an event and stay open, and that has one row."""
    stops: list[Callable[[], None]] = []

    def started(told: bytes, kind: str = "text/event-stream") -> str:
        begun: list[Any] = []
        ready = threading.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/changes" in head.split(b"\r\n")[0]:
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode() + told)
                if kind == "text/html":
                    writer.write_eof()
                await reader.read()  # until the client goes
            else:
                writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n{"n":1}')
            writer.close()

        async def run() -> None:
            server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=200)
            stop = asyncio.Event()
            begun.extend((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()
            server.close()

        thread = threading.Thread(target=asyncio.run, args=(run(),))
        thread.start()
        ready.wait(10.0)
        port, loop, stop = begun

        def end() -> None:
            loop.call_soon_threadsafe(stop.set)
            thread.join(10.0)

        stops.append(end)
        return f"http://127.0.0.1:{port}"

    yield started
    for each in stops:
        each()
