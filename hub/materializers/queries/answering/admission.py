"""[edge] Admission control of queries: how many run, how many wait, and each caller's share."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from typing import TypeVar

import anyio
import anyio.to_thread

from hub.errors import PeerError
from hub.quotas.shares import ASKER, Shares

AT_ONCE, WAITING = 4, 32
T = TypeVar("T")


class QueryGate:
    """Admission control: ``at_once`` queries run, ``waiting`` queries wait, more are refused at once.

    A caller that waits for rows (a token, a cut) is admitted but holds no slot, so other queries run
    meanwhile.
    """

    def __init__(self, at_once: int, waiting: int, shares: Shares | None = None) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._threads = anyio.CapacityLimiter(at_once * 2)
        self._most = at_once + waiting
        self._inside = 0
        self._shares = shares
        # Each caller gets at most half of the slots, so that another caller's query never waits for all of
        # them.
        self._own: dict[str, asyncio.Semaphore] = {}
        self._half = max(1, at_once // 2)
        self._asking: Counter[str] = Counter()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        if self._shares is not None:
            self._shares.require()
        if self._inside >= self._most:
            raise self._busy()
        self._inside += 1
        try:
            with nullcontext() if self._shares is None else self._shares.holding():
                yield
        finally:
            self._inside -= 1

    @asynccontextmanager
    async def slot(self, deadline: float) -> AsyncIterator[None]:
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(max(0.001, deadline - time.monotonic())):
                    if self._shares is not None and (asker := ASKER.get()):
                        await held.enter_async_context(self._half_of(asker))
                    await held.enter_async_context(self._free)
            except TimeoutError:
                raise self._busy() from None
            yield

    @asynccontextmanager
    async def _half_of(self, asker: str) -> AsyncIterator[None]:
        """Hold one of the slots that this caller may use at the same time."""
        own = self._own.setdefault(asker, asyncio.Semaphore(self._half))
        self._asking[asker] += 1
        try:
            async with own:
                yield
        finally:
            self._asking[asker] -= 1
            if not self._asking[asker]:
                del self._asking[asker], self._own[asker]

    async def run(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    @staticmethod
    def _busy() -> PeerError:
        return PeerError(
            f"server: {AT_ONCE} queries are running and others wait",
            hint="try again, or ask by key: that is never refused",
            code="HUB-3066",
        )
