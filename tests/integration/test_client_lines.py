"""The client's lines on real sockets: against a server that keeps to a script, and against the hub's own,
both transports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from patience import wait_until
from ports import free_ports
from view_server import PATIENCE_S, Server
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from hub.client import (
    AsyncHub,
    Behind,
    Change,
    Delete,
    Hub,
    NotCovered,
    NotFound,
    Positions,
    Refused,
    Reset,
    Snapshot,
    Synced,
    Unreachable,
    Upsert,
)
from hub.materializers.serving import routes, subscription_transport

TRANSPORTS: tuple[Literal["sse", "websocket"], ...] = ("sse", "websocket")
Told = tuple[str, str | None, Any]


def row(key: str, version: int) -> dict[str, Any]:
    return {"key": key, "row": {"n": version}, "version": version}


# ---- a server that keeps to a script


class Scripted:
    """Each connection gets the next part of the script: a status to refuse with, or events and then the
    line's end.
    ``half``: the last event is cut in the middle."""

    def __init__(self, transport: str, script: list[tuple[int | list[Told], bool]]) -> None:
        self.script, self.last_ids = script, list[str | None]()
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._stop = threading.Event()
        begin = self._sse if transport == "sse" else self._websocket
        self._close = begin()

    def close(self) -> None:
        self._stop.set()
        self._close()

    def _next(self, last_id: str | None) -> tuple[int | list[Told], bool]:
        self.last_ids.append(last_id)
        return self.script.pop(0) if self.script else ([], False)

    def _sse(self) -> Callable[[], None]:
        listening = socket.create_server(("127.0.0.1", self.port))
        listening.settimeout(0.1)

        def run() -> None:
            while not self._stop.is_set():
                with contextlib.suppress(TimeoutError), listening.accept()[0] as line:
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += line.recv(65536)
                    fields = dict(each.split(": ", 1) for each in head.decode().split("\r\n")[1:] if each)
                    part, half = self._next(
                        {name.lower(): v for name, v in fields.items()}.get("last-event-id")
                    )
                    if isinstance(part, int):
                        line.sendall(
                            f"HTTP/1.1 {part} No\r\nConnection: "
                            f"close\r\nContent-Length: 2\r\n\r\n{{}}".encode()
                        )
                        continue
                    line.sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
                    )
                    text = "".join(
                        (f"id: {mark}\n" if mark else "") + f"event: {name}\ndata: {json.dumps(data)}\n\n"
                        for name, mark, data in part
                    )
                    whole = text.encode()[: -9 if half else None]
                    for at in range(0, len(whole), 7):  # as nets may cut it
                        line.sendall(whole[at : at + 7])

        thread = threading.Thread(target=run)
        thread.start()

        def close() -> None:
            thread.join(PATIENCE_S)
            listening.close()

        return close

    def _websocket(self) -> Callable[[], None]:
        pending: list[tuple[list[Told], bool]] = []

        def before(connection: ServerConnection, request: Any) -> Any:
            part, half = self._next(request.headers.get("Last-Event-ID"))
            if isinstance(part, int):
                return connection.respond(HTTPStatus(part), "{}")
            pending.append((part, half))
            return None

        def handle(connection: ServerConnection) -> None:
            part, half = pending.pop(0)
            for name, mark, data in part[: -1 if half else None]:
                message = {"event": name, "data": data, **({"id": mark} if mark else {})}
                connection.send(json.dumps(message))
            if half:  # a frame's head that promises more than comes
                connection.socket.sendall(b"\x81\x7e\xff\xff{")
            connection.socket.shutdown(socket.SHUT_RDWR)

        server = serve(handle, "127.0.0.1", self.port, process_request=before, compression=None)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def close() -> None:
            server.shutdown()
            thread.join(PATIENCE_S)

        return close


SCRIPT: list[tuple[int | list[Told], bool]] = [
    ([("snapshot", "s1", row("a", 1)), ("snapshot", "s2", row("b", 2))], True),
    (503, False),
    ([("snapshot", "s2", row("b", 2)), ("synced", "c0", {"positions": "views.v:0:2"})], False),
    ([("upsert", None, row("a", 3)), ("upsert", None, row("b", 4)), ("upsert", "c1", row("c", 5))], True),
    ([], False),
    ([("upsert", None, row("a", 3)), ("upsert", None, row("b", 6)), ("upsert", "c2", row("c", 5))], False),
    ([("closing", None, {"reason": "slow"})], False),
    ([("reset", None, {"reason": "anew"})], False),
    ([("snapshot", "n1", row("z", 1)), ("synced", "n2", {"positions": ""})], False),
    ([("delete", "n3", {"key": "z", "row": None, "version": 2})], False),
]
WANTED: list[Change] = [
    Snapshot("a", {"n": 1}, 1),
    Snapshot("b", {"n": 2}, 2),
    Synced(Positions.of([("views.v", 0, 2)])),
    Upsert("a", {"n": 3}, 3),
    Upsert("b", {"n": 4}, 4),
    Upsert("b", {"n": 6}, 6),
    Upsert("c", {"n": 5}, 5),
    Reset("anew"),
    Snapshot("z", {"n": 1}, 1),
    Synced(Positions()),
    Delete("z", 2),
]
LAST_IDS = [None, "s1", "s1", "c0", "c0", "c0", "c2", "c2", None, "n2"]


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_drops_halves_refusals_and_resets_are_gone_through_without_a_loss_or_a_repeat(transport: Any) -> None:
    scripted = Scripted(transport, list(SCRIPT))
    pauses: list[float] = []
    broken: list[str] = []
    try:
        with (
            Hub(scripted.url, sleep=pauses.append) as hub,
            hub.subscribe("v", transport=transport, on_disconnect=broken.append) as changes,
        ):
            assert [next(changes) for _ in WANTED] == WANTED
            assert changes.last_id == "n3"
    finally:
        scripted.close()
    assert scripted.last_ids == LAST_IDS
    assert len(pauses) == 9 and broken


def test_the_same_for_tasks(transport: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.client.changes._FIRST_PAUSE_S", 0.01)

    async def run(url: str) -> list[Change]:
        async with AsyncHub(url) as hub, hub.subscribe("v", transport=transport) as changes:
            return [await anext(changes) for _ in WANTED]

    scripted = Scripted(transport, list(SCRIPT))
    try:
        assert in_a_thread(run(scripted.url)) == WANTED
    finally:
        scripted.close()
    assert scripted.last_ids == LAST_IDS


def test_a_server_that_is_not_there_and_one_that_says_nothing(
    transport: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub(f"http://127.0.0.1:{free_ports(1)[0]}", timeout_s=0.3) as hub:
        with pytest.raises(Unreachable, match="does not answer"):
            next(hub.subscribe("v", transport=transport))
        with pytest.raises(Unreachable, match="does not answer"):
            hub.get("v", "k")
    for module in ("changes", "transport"):
        monkeypatch.setattr(f"hub.client.{module}.SILENCE_S", 0.2)
    silent = socket.create_server(
        ("127.0.0.1", 0)
    )  # takes connections into its queue and never looks at them
    with silent, Hub(f"http://127.0.0.1:{silent.getsockname()[1]}", retry=False) as hub:
        monkeypatch.setattr("hub.client.transport._CONNECT_S", 0.2)
        with pytest.raises(Unreachable):
            next(hub.subscribe("v", transport=transport))


def in_a_thread(work: Any) -> Any:
    """The browser tests leave an event loop running in this one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result(60.0)


# ---- the hub's own routes, over a changelog in memory


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    running.fill()
    yield running
    running.close()


def ws_url(server: Server, query: str = "") -> str:
    return f"ws://127.0.0.1:{server.port}/views/v/changes{query}"


def test_both_transports_say_the_same_with_the_same_ids(server: Server) -> None:
    with connect(ws_url(server)) as line:
        messages = [json.loads(line.recv(PATIENCE_S)) for _ in range(6)]
        server.write("k1", 10, {"city": "Rome", "points": 9})
        messages.append(json.loads(line.recv(PATIENCE_S)))
    events: list[dict[str, Any]] = []
    with httpx2.stream("GET", f"{server.url}/views/v/changes", timeout=PATIENCE_S) as stream:
        event: dict[str, Any] = {}
        for text in stream.iter_lines():
            name, _, value = text.partition(": ")
            if name in ("id", "event"):
                event[name] = value
            elif name == "data":
                events.append({**event, "data": json.loads(value)})
                event = {}
            if len(events) == 6:
                break
    assert [each["event"] for each in messages] == [*["snapshot"] * 5, "synced", "upsert"]
    assert [each["event"] for each in events] == [each["event"] for each in messages[:6]]
    assert events[1:5] != messages[1:5]  # k1 is another row by now, and the positions moved on
    resumed = messages[5]["id"]
    with connect(ws_url(server, f"?last_event_id={resumed.replace(';', '%3B')}")) as line:
        assert json.loads(line.recv(PATIENCE_S)) == messages[6]
    headers = {"Last-Event-ID": resumed}
    with httpx2.stream("GET", f"{server.url}/views/v/changes", headers=headers, timeout=PATIENCE_S) as stream:
        lines = stream.iter_lines()
        said = dict(next(lines).split(": ", 1) for _ in range(3))
    assert {**said, "data": json.loads(said["data"])} == messages[6]


def test_a_websocket_that_cannot_be_is_refused_as_a_request_is(server: Server) -> None:
    for query, status, words in (
        ("?cty=Oslo", 400, 'did you mean \\"city\\"?'),
        ("?points=1", 400, "add it to"),
    ):
        with pytest.raises(InvalidStatus) as refused, connect(ws_url(server, query)):
            pass
        assert refused.value.response.status_code == status
        assert words in (refused.value.response.body or b"").decode()
        assert httpx2.get(f"{server.url}/views/v/changes{query}", timeout=60).status_code == status
    for transport in TRANSPORTS:
        with Hub(server.url) as hub:
            with pytest.raises(NotFound, match='view "vv"'):
                next(hub.subscribe("vv", transport=transport))
            with pytest.raises(Refused, match="no index"):
                next(hub.subscribe("v", where={"points": 1}, transport=transport))


def test_a_ping_is_answered(server: Server) -> None:
    with connect(ws_url(server, "?snapshot=false")) as line:
        assert json.loads(line.recv(PATIENCE_S))["event"] == "synced"
        for noise in ("nonsense", "[]", json.dumps({"event": "ping"})):
            line.send(noise)
        assert json.loads(line.recv(PATIENCE_S)) == {"event": "pong"}
        line.ping().wait(PATIENCE_S)


def test_subscribers_of_both_kinds_count_and_leave_their_places(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_MOST_SUBSCRIBERS", 1)
    with Hub(server.url, retry=False) as hub:
        for first, second in (TRANSPORTS, TRANSPORTS[::-1]):
            with hub.subscribe("v", transport=first) as changes:
                assert isinstance(next(changes), Snapshot)
                with pytest.raises(Unreachable, match="1 subscribers"):
                    next(hub.subscribe("v", transport=second))
            wait_until(lambda: not server.watcher.subscribers_by_view(), PATIENCE_S)


def test_rows_that_enter_and_leave_a_filter(server: Server, transport: Any) -> None:
    with (
        Hub(server.url) as hub,
        hub.subscribe("v", where={"city": "Oslo"}, transport=transport) as changes,
    ):
        rows = [next(changes) for _ in range(4)]
        assert [each.key for each in rows if isinstance(each, Snapshot)] == ["k1", "k3", "k5"]
        assert isinstance(rows[3], Synced)
        server.write("k2", 10, {"city": "Rome", "points": 2})  # outside before and after
        server.write("k2", 11, {"city": "Oslo", "points": 2})
        change = next(changes)
        assert isinstance(change, Upsert) and change.key == "k2"
        server.write("k3", 12, {"city": None, "points": 3})
        assert next(changes) == Delete("k3", 12)
        server.stop()
        server.write("k5", 13, {"city": "Kiel", "points": 5})  # while nobody is there
        server.start()
        assert next(changes) == Delete("k5", 13)


@pytest.mark.timeout(240)
def test_a_slow_reader_is_told_and_one_that_does_not_read_is_let_go_and_resumes(
    server: Server, transport: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.materializers.serving.reader_pace._SLOW_S", 0.2)
    monkeypatch.setattr("hub.materializers.serving.subscriptions.PAGE", 50)
    monkeypatch.setattr("hub.materializers.serving.watcher.PAGE", 50)
    wide = (
        "x" * 1_500_000
    )  # a page has 75 MB: more than sockets (tcp_rmem: 33 MB) and libraries hold between them

    def storm(first: int) -> None:
        """Two states of each of 50 keys; the first is never seen."""
        for version in range(first, first + 100):
            city = "narrow" if version < first + 50 else wide
            server.bench.write(f"w{version % 50}", version, {"city": city, "points": version})
        server.bench.drain()

    with Hub(server.url) as hub, hub.subscribe("v", snapshot=False, transport=transport) as changes:
        assert isinstance(next(changes), Synced)
        storm(100)
        copy = {}
        first = next(changes)
        assert isinstance(first, Upsert)
        copy[first.key] = first.version
        time.sleep(1.0)  # nothing is read; the server's buffers are full
        storm(200)
        behind: list[Behind] = []
        while copy.get("w49") != 299 or len(copy) < 50 or min(copy.values()) < 250:
            change = next(changes)
            if isinstance(change, Upsert):
                copy[change.key] = change.version
            elif isinstance(change, Behind):
                behind.append(change)
        assert behind and behind[0].slow_ms >= 200 and behind[0].coalesced
        monkeypatch.setattr(
            subscription_transport, "SEND_S", 3.0
        )  # only now: until here it is to be waited for, however long a storm takes
        storm(300)
        change = next(changes)
        assert isinstance(change, Upsert)
        copy = {change.key: change.version}
        # It does not read for SEND_S, and is gone.
        wait_until(lambda: not server.watcher.subscribers_by_view(), PATIENCE_S)
        while len(copy) < 50 or min(copy.values()) < 350:  # comes back with its last id
            change = next(changes)
            if isinstance(change, Upsert):
                assert change.version > copy.get(change.key, 0)
                copy[change.key] = change.version


def test_the_reason_of_the_end_is_in_the_close_frame(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(ws_url(server, "?snapshot=false")) as line:
        line.recv(PATIENCE_S)
        server.bench.store.drop_view("v")
        with pytest.raises(ConnectionClosed) as closed:
            line.recv(PATIENCE_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013 and "does not exist" in closed.value.rcvd.reason


def test_reads_page_by_page_and_with_tokens(server: Server) -> None:
    with Hub(server.url) as hub:
        assert hub.get("v", "k1", after="in:0:7")["city"] == "Oslo"
        with pytest.raises(NotCovered) as late:
            hub.get("v", "k1", after="in:0:9", timeout_s=0.3)
        assert (str(late.value.position), str(late.value.missing), late.value.lag_records) == (
            "in:0:7",
            "in:0:9",
            2,
        )
        with pytest.raises(NotFound, match="nobody"):
            hub.get("v", "nobody")
        assert [row["key"] for row in hub.rows("v", page_rows=2)] == ["k1", "k2", "k3", "k4", "k5"]
        assert [row["key"] for row in hub.rows("v", where={"city": "Bergen"})] == ["k2", "k4"]

    async def keys() -> list[str]:
        async with AsyncHub(server.url) as hub:
            assert (await hub.get("v", "k1"))["points"] == 1
            return [row["key"] async for row in hub.rows("v", where={"city": "Bergen"}, page_rows=1)]

    assert in_a_thread(keys()) == ["k2", "k4"]


def test_a_copy_is_kept_through_a_server_that_comes_back(server: Server, transport: Any) -> None:
    with Hub(server.url) as hub, hub.follow("v", where={"city": "Oslo"}, transport=transport) as copy:
        assert sorted(copy) == ["k1", "k3", "k5"] and copy["k1"]["points"] == 1 and "k2" not in copy
        copy.wait_until("in:0:7")
        with pytest.raises(NotCovered):
            copy.wait_until("in:0:8", timeout_s=0.3)
        with pytest.raises(Refused, match="not a source of view"):
            copy.wait_until("other:0:8")
        server.write("k1", 10, {"city": "Kiel", "points": 1})
        server.write("k4", 11, {"city": "Oslo", "points": 4})
        server.bench.tell(9)
        server.bench.drain()
        copy.wait_until("in:0:9")
        assert sorted(copy) == ["k3", "k4", "k5"] and str(copy.covered) == "in:0:9"
        server.stop()
        server.write("k3", 12, None)
        server.bench.tell(10)
        server.bench.drain()
        server.start()
        copy.wait_until("in:0:10")
        assert dict(copy) == {key: hub_row for key in ("k4", "k5") if (hub_row := copy[key])}
    assert not copy.connected and len(copy) == 2

    async def tasks() -> list[str]:
        async with AsyncHub(server.url) as hub, await hub.follow("v", transport=transport) as kept:
            await kept.wait_until("in:0:10")
            return sorted(kept)

    assert in_a_thread(tasks()) == ["k1", "k2", "k4", "k5"]
