"""[shell] One key as an aggregate: its state by a view, and events appended on the version of this state.

A state includes every event up to its version: the version is asked for first, and the row of the view then
includes it. If the row has later events, the version is not the newest any more, and the append is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, Unpack

from hub.client.errors import VersionConflict
from hub.client.requests import ProduceOptions, ReadOptions, Row
from hub.errors import NotFound
from hub.record import Positions

NO_EVENT = "none"
# Conflicts after which ``decide`` gives up.
ATTEMPTS = 20


class _Hub(Protocol):
    def version(self, topic: str, key: str) -> str: ...
    def get(self, view: str, key: str, **options: Unpack[ReadOptions]) -> Row: ...
    def produce(self, topic: str, value: Any, **options: Unpack[ProduceOptions]) -> Positions: ...


class _AsyncHub(Protocol):
    async def version(self, topic: str, key: str) -> str: ...
    async def get(self, view: str, key: str, **options: Unpack[ReadOptions]) -> Row: ...
    async def produce(self, topic: str, value: Any, **options: Unpack[ProduceOptions]) -> Positions: ...


class Aggregate:
    """State of a key and appends to it. ``state``: the view's row as of ``version``; None without one. Both
    are None until ``read``. For one thread.

    >>> order = hub.aggregate("shop.orders", "o-1", view="orders")
    >>> order.decide(lambda row: {"order_id": "o-1", "status": "paid"} if row["status"] == "placed" else None)
    """

    def __init__(self, hub: _Hub, topic: str, key: str, view: str, timeout_s: float | None) -> None:
        self._hub, self._timeout_s = hub, timeout_s
        self.topic, self.key, self.view = topic, key, view
        self.state: Row | None = None
        self.version: str | None = None

    def read(self) -> Row | None:
        """Read the version and the state that includes it. Raises NotCovered if the view is late."""
        self.version = self._hub.version(self.topic, self.key)
        options = _reading(self.version, self._timeout_s)
        try:
            self.state = self._hub.get(self.view, self.key, **options)
        except NotFound as error:
            _require_view(error)
            self.state = None
        return self.state

    def append(self, event: Any, **options: Unpack[ProduceOptions]) -> Positions:
        """Write an event if the key still has the version; then the version is the event's, and the state is
        that before it until the next ``read``. Raises VersionConflict; then nothing was written.
        """
        if self.version is None:
            self.read()
        written = self._hub.produce(self.topic, event, **_writing(options, self.key, self.version))
        self.version = str(written)
        return written

    def decide(self, decide: Callable[[Row | None], Any]) -> Positions | None:
        """Read the state and append the event that ``decide`` makes of it; None: nothing is to be done. After
        a conflict, read and decide again. Raises VersionConflict after many conflicts.
        """
        for attempt in range(ATTEMPTS):
            event = decide(self.read())
            if event is None:
                return None
            try:
                return self.append(event)
            except VersionConflict:
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")


class AsyncAggregate:
    """See ``Aggregate``; its methods are awaited. ``decide`` may be a coroutine function."""

    def __init__(self, hub: _AsyncHub, topic: str, key: str, view: str, timeout_s: float | None) -> None:
        self._hub, self._timeout_s = hub, timeout_s
        self.topic, self.key, self.view = topic, key, view
        self.state: Row | None = None
        self.version: str | None = None

    async def read(self) -> Row | None:
        """See ``Aggregate.read``."""
        self.version = await self._hub.version(self.topic, self.key)
        options = _reading(self.version, self._timeout_s)
        try:
            self.state = await self._hub.get(self.view, self.key, **options)
        except NotFound as error:
            _require_view(error)
            self.state = None
        return self.state

    async def append(self, event: Any, **options: Unpack[ProduceOptions]) -> Positions:
        """See ``Aggregate.append``."""
        if self.version is None:
            await self.read()
        written = await self._hub.produce(self.topic, event, **_writing(options, self.key, self.version))
        self.version = str(written)
        return written

    async def decide(self, decide: Callable[[Row | None], Any | Awaitable[Any]]) -> Positions | None:
        """See ``Aggregate.decide``."""
        for attempt in range(ATTEMPTS):
            event = decide(await self.read())
            if isinstance(event, Awaitable):
                event = await event
            if event is None:
                return None
            try:
                return await self.append(event)
            except VersionConflict:
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")


def _require_view(error: NotFound) -> None:
    """Raise the error unless it is about a row that does not exist."""
    if error.code != "HUB-1411":
        raise error


def _reading(version: str, timeout_s: float | None) -> ReadOptions:
    return {"after": None if version == NO_EVENT else version, "timeout_s": timeout_s}


def _writing(options: ProduceOptions, key: str, version: str | None) -> ProduceOptions:
    return {"key": key, **options, "expected_version": version}
