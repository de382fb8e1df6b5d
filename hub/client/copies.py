"""[shell] A copy of a view in this process, kept by a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from typing import Any

from hub.client.aio import AsyncCopy, AsyncHub
from hub.client.changes import Transport
from hub.client.requests import Row, Token, Where
from hub.errors import CallerError
from hub.record import Positions


class Copy(Mapping[str, Row], AbstractContextManager["Copy"]):
    """A view's rows by key, kept up to date by a thread: reads cost nothing and never wait. For any number of
    threads.

    As ``AsyncCopy``, which it has in an event loop of its own."""

    def __init__(
        self, url: str, token: str | None, view: str, where: Where | None, transport: Transport
    ) -> None:
        begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, AsyncCopy]] = Future()

        async def keep() -> None:
            try:
                async with AsyncHub(url, token=token) as hub, AsyncCopy(hub, view, where, transport) as copy:
                    stop = asyncio.Event()
                    begun.set_result((asyncio.get_running_loop(), stop, copy))
                    await stop.wait()
            except BaseException as error:
                if not begun.done():
                    begun.set_exception(error)
                raise

        self._thread = threading.Thread(target=asyncio.run, args=(keep(),), name=f"copy-{view}", daemon=True)
        self._thread.start()
        self._loop, self._stop, self._copy = begun.result()

    @property
    def connected(self) -> bool:
        """False while the line is broken: the copy is as old as that."""
        return self._copy.connected

    @property
    def covered(self) -> Positions:
        """The source positions that the copy includes."""
        return self._copy.covered

    def __getitem__(self, key: str) -> Row:
        return self._copy[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._copy)

    def __len__(self) -> int:
        return len(self._copy)

    def wait_until(self, token: Token, timeout_s: float = 30.0) -> None:
        """Wait until the copy includes the write. Raises NotCovered; Refused when the view does not read the
        write's topic.
        """
        self._wait(self._copy.wait_until(token, timeout_s))

    def wait_whole(self, timeout_s: float | None = 60.0) -> None:
        """Wait until the first snapshot is complete. Raises Unreachable."""
        self._wait(self._copy.wait_whole(timeout_s))

    def close(self) -> None:
        """Stop updating the copy; its rows stay readable."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10.0)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, waiting: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(waiting, self._loop).result()
        except (RuntimeError, CancelledError):  # its loop is closed, or ended meanwhile
            waiting.close()
            raise CallerError(f'the copy of view "{self._copy.view}" is closed') from None
