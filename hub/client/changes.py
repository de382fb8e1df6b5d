"""[core] Changes of a view as a client receives them: typed, in order, resumed after a disconnect.

``Listener`` is the whole protocol without a socket: the next request, the change for the caller, the pause
after a failure. It remembers the last id and the rows after it (at most a page: only a page's last row has an
id), so that rows which the server repeats after a disconnect are delivered once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import orjson

from hub.client.errors import ConnectionBroken, Unreachable, error_of
from hub.client.requests import Reply, Request, Row, Where, conditions_of, header, pause_s
from hub.errors import HubError
from hub.record import Positions

Transport = Literal["sse", "websocket"]

SILENCE_S = 30.0  # the server sends an event every 10 s
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_MOST_BYTES = 64 << 20  # of one event


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A row as it is at the beginning."""

    key: str
    row: Row
    version: int


@dataclass(frozen=True, slots=True)
class Synced:
    """The snapshot is whole; from here on changes come. ``positions`` are of the view's changelog."""

    positions: Positions


@dataclass(frozen=True, slots=True)
class Upsert:
    """A row came or changed: this is all of it."""

    key: str
    row: Row
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """A row is gone, or does not meet the filters any more."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The view was rebuilt: discard every row; a new snapshot follows."""

    reason: str


@dataclass(frozen=True, slots=True)
class Behind:
    """This reader was slow: it took ``slow_ms`` for the rows before. Of ``records`` changes since then
    ``coalesced`` are states that it does not see (at most: commit markers count; None: not known under a
    filter on the key)."""

    slow_ms: int
    records: int
    rows: int
    coalesced: int | None


@dataclass(frozen=True, slots=True)
class Covered:
    """All changes so far include these positions of the source topics. Only with ``covered=True``."""

    positions: Positions


Change = Snapshot | Synced | Upsert | Delete | Reset | Behind | Covered


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event off the wire. ``name`` alive: nothing but a sign of life, and perhaps an id."""

    name: str
    mark: str | None
    data: Any


class Denied(Exception):
    """The server does not open the line. Never leaves the client."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"HTTP {reply.status}")
        self.reply = reply


class SseDecoder:
    """Decoder of server-sent events from byte chunks of any size. An event is complete at its empty line."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of a line that is not whole yet
        self._size = 0
        self._name = "message"
        self._mark: str | None = None
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """Yield the events that a chunk completes. Raises ConnectionBroken for an event that is too large or
        invalid.
        """
        first, *lines = chunk.split(b"\n")
        self._size += len(chunk)
        if self._size > _MOST_BYTES:
            raise ConnectionBroken("an event is too large")
        # Parts are joined once a line is whole: a long one in small parts is not copied for each.
        if not lines:
            self._parts.append(first)
            return
        lines.insert(0, b"".join((*self._parts, first)))
        self._parts = [lines.pop()]
        for line in lines:
            try:
                event = self._line(line.removesuffix(b"\r").decode())
            except UnicodeDecodeError as error:
                raise ConnectionBroken(f"an event is not UTF-8: {error}") from None
            if event is not None:
                self._size = 0
                yield event

    def _line(self, line: str) -> StreamEvent | None:
        if not line:
            name, mark, data = self._name, self._mark, self._data
            self._name, self._mark, self._data = "message", None, []
            if not data:
                return StreamEvent("alive", mark, None)
            try:
                return StreamEvent(name, mark, orjson.loads("\n".join(data)))
            except orjson.JSONDecodeError as error:
                raise ConnectionBroken(f"an event is not JSON: {error}") from None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "id":
            self._mark = value
        elif name == "data":
            self._data.append(value)
        return None


def stream_event_of(text: str | bytes) -> StreamEvent:
    """Parse an event from a WebSocket message. Raises ConnectionBroken."""
    try:
        body = orjson.loads(text)
        return StreamEvent(str(body["event"]), body.get("id"), body.get("data"))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ConnectionBroken(f"a message is not an event: {error}") from None


def change_of(event: StreamEvent) -> Change | None:
    """Return the typed change; None for events that are not for the caller. Raises ConnectionBroken if a
    field is missing.
    """
    make = _MAKE.get(event.name)
    try:
        return None if make is None else make(event.data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConnectionBroken(f"event {event.name} lacks {error}") from None


_MAKE: Mapping[str, Callable[[Any], Change]] = {
    "snapshot": lambda data: Snapshot(data["key"], data["row"], data["version"]),
    "synced": lambda data: Synced(Positions.parse(data["positions"])),
    "upsert": lambda data: Upsert(data["key"], data["row"], data["version"]),
    "delete": lambda data: Delete(data["key"], data["version"]),
    "reset": lambda data: Reset(data["reason"]),
    "behind": lambda data: Behind(data["slow_ms"], data["records"], data["rows"], data["coalesced"]),
    "covered": lambda data: Covered(Positions.parse(data["positions"])),
}


class Listener:
    """State of a subscription. ``last_id``: where to resume, also in another process."""

    def __init__(
        self,
        view: str,
        *,
        key: str | None = None,
        where: Where | None = None,
        snapshot: bool = True,
        covered: bool = False,
        last_id: str | None = None,
        patience_s: float | None = None,
        on_disconnect: Callable[[str], object] | None = None,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.view = view
        self.last_id = last_id
        self._path = f"/views/{quote(view, safe='')}/changes"
        options = (("snapshot", snapshot is False), ("covered", covered is True))
        values = {"snapshot": "false", "covered": "true"}
        only = () if key is None else (("key", key),)
        self._query = (*only, *conditions_of(where), *((name, values[name]) for name, on in options if on))
        self._on_disconnect = on_disconnect
        self._end_s = None if patience_s is None else now() + patience_s
        self._now, self._chance = now, chance
        self._reached = False
        self._quiet = False
        self._failures = 0
        self._unmarked: dict[str, tuple[type, int]] = {}

    def request(self) -> Request:
        """Return the next request to open."""
        headers = () if self.last_id is None else (header("Last-Event-ID", self.last_id),)
        return Request("GET", self._path, self._query, headers, timeout_s=SILENCE_S)

    def receive(self, event: StreamEvent) -> Change | None:
        """Return the change for the caller, or None. Raises ConnectionBroken for an invalid event, or for the
        last event of a connection.
        """
        if event.name == "closing":
            raise ConnectionBroken(str((event.data or {}).get("reason", "the server closes the line")))
        change = change_of(event)
        self._reached, self._quiet, self._failures = True, False, 0
        again = False
        if isinstance(change, Upsert | Delete):
            state = (type(change), change.version)
            again = self._unmarked.get(change.key) == state
            self._unmarked[change.key] = state
        if event.mark is not None:
            self.last_id = event.mark
        if event.mark is not None or isinstance(change, Reset):
            self._unmarked.clear()
        if isinstance(change, Reset):
            self.last_id = None
        return None if again else change

    def broken(self, failure: ConnectionBroken | Denied) -> float:
        """Record a failure and return the seconds until the next try. Raises the server's refusal, and
        Unreachable when the first connection is not made in time; after the first connection, retries are
        unlimited.
        """
        error: HubError
        if isinstance(failure, Denied):
            error = error_of(failure.reply.status, failure.reply.body)
            if not isinstance(error, Unreachable):
                raise error
        else:
            error = Unreachable(
                f"the hub does not answer: {failure}", hint="is it running? hub up starts one"
            )
        pause = pause_s(self._failures, self._chance(), _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        if not self._reached and self._end_s is not None and self._now() + pause >= self._end_s:
            raise error
        self._failures += 1
        if not self._quiet and self._on_disconnect is not None:
            self._on_disconnect(error.message)
        self._quiet = True
        return pause


class Rows:
    """Rows of a view: ``apply`` every change in order. A new snapshot is collected separately, so readers
    never see part of one. ``whole``: a snapshot was complete. ``covered``: the source positions included.
    """

    def __init__(self) -> None:
        self.now: dict[str, Row] = {}
        self.whole = False
        self.covered = Positions()
        self._next: dict[str, Row] | None = {}

    def apply(self, change: Change) -> None:
        rows = self.now if self._next is None else self._next
        match change:
            case Snapshot(key, row, _) | Upsert(key, row, _):
                rows[key] = row
            case Delete(key, _):
                rows.pop(key, None)
            case Reset():
                self._next = {}
            case Synced():
                # The positions covered by the old rows do not apply to the new ones; the next Covered has
                # theirs.
                self.now, self._next, self.whole, self.covered = rows, None, True, Positions()
            case Covered(positions):
                self.covered = positions
            case Behind():
                pass
