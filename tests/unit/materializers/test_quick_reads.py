"""Reads by key before the routes: the same answers as the routes', faster; everything else is passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import prepared_contract
import pytest
from changelog import Bench
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.api.app import on_hub_error
from hub.errors import HubError
from hub.materializers.serving.fast_path import FastPath, FastReads
from hub.materializers.serving.routes import create_router
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.prepared_postgres import PostgresReads


def test_a_prepared_read_says_what_the_store_says(tmp_path: Path) -> None:
    prepared_contract.reads_like_the_store(tmp_path)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.write("a/b", 1, {"points": 1, "city": "Oslo"})
    made.write("gone", 2, {"points": 2})
    made.write("gone", 3, None)
    made.write("changes", 4, {"points": 4})
    made.tell(41)
    made.drain()
    yield made
    made.store.close()


def clients(bench: Bench) -> tuple[TestClient, TestClient, list[str]]:
    """Return (client with quick reads, client without, the paths that reached the routes of the first)."""
    passed: list[str] = []
    made = []
    for quick in (True, False):
        app = FastAPI()
        app.add_exception_handler(HubError, on_hub_error)
        app.include_router(create_router(bench.store, Watcher(bench.store), 50))
        if quick:

            @app.middleware("http")
            async def note(request, call_next):  # type: ignore[no-untyped-def]
                passed.append(request.url.path)
                return await call_next(request)

            reads = FastReads()
            reads.open(bench.store)
            app.add_middleware(FastPath, reads=reads)
        made.append(TestClient(app))
    return made[0], made[1], passed


QUICK = [
    "/views/v/a%2Fb",
    "/views/v/a/b",
    "/views/v/a/b?after=in:0:41",
    "/views/v/a/b?after=in:0:40&timeout_ms=9",
]
PASSED = [
    "/views/v/gone",
    "/views/v/nobody",
    "/views/none/a",
    "/views/v/a/b?after=in:0:42",
    "/views/v/a/b?after=other:0:0",
    "/views/v/a/b?after=nonsense",
    "/views/v/a/b?timeout_ms=x",
    "/views/v?key=a/b",
]


@pytest.mark.parametrize("path", [*QUICK, *PASSED])
def test_answers_are_those_of_the_routes(bench: Bench, path: str) -> None:
    quick, plain, passed = clients(bench)
    found, right = quick.get(path), plain.get(path)
    assert found.status_code == right.status_code
    assert found.json() == right.json()
    for name in ("hub-position", "content-type", "content-length"):
        assert found.headers.get(name) == right.headers.get(name)
    assert bool(passed) == (path in PASSED)


def test_a_token_may_come_as_a_header(bench: Bench) -> None:
    quick, _, passed = clients(bench)
    assert quick.get("/views/v/a/b", headers={"Hub-Position": "in:0:41"}).status_code == 200
    assert not passed
    assert quick.get("/views/v/a/b", headers={"Hub-Position": "in:0:42"}).status_code == 503
    assert passed == ["/views/v/a/b"]


def test_before_the_store_is_open_and_after_it_is_closed_the_routes_answer(bench: Bench) -> None:
    reads = FastReads()
    app = FastAPI()
    app.include_router(create_router(bench.store, Watcher(bench.store), 50))
    app.add_middleware(FastPath, reads=reads)
    client = TestClient(app)
    assert client.get("/views/v/a/b").status_code == 200
    reads.open(bench.store)
    assert client.get("/views/v/a/b").status_code == 200
    asyncio.run(reads.close())
    assert client.get("/views/v/a/b").status_code == 200


class Connection:
    """A store behind a connection, which answers when the test allows it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.may_answer = asyncio.Event()
        self.broken = False

    async def find(self, view: str, keys: list[str]) -> list[tuple[str, str]] | None:
        self.asked.append((view, list(keys)))
        await self.may_answer.wait()
        if self.broken:
            raise RuntimeError("a fault of ours")
        return None if view == "none" else [(view, key) for key in keys]

    async def close(self) -> None: ...


async def started(reads: Any, *asked: tuple[str, str]) -> list[asyncio.Task[Any]]:
    """Start reads, each after the previous one has reached the store if the store may be queried."""
    tasks = []
    for each in asked:
        tasks.append(asyncio.create_task(reads.find(*each)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return tasks


def opened(store: Connection) -> Any:
    reads = FastReads()
    reads.open_together(cast(PostgresReads, store))
    return reads


def test_keys_that_come_while_a_view_is_read_are_asked_for_together() -> None:
    async def run() -> None:
        store = Connection()
        reads = opened(store)
        tasks = await started(reads, ("v", "a"), ("v", "b"), ("none", "x"), ("v", "c"), ("v", "d"))
        assert store.asked == [("v", ["a"]), ("v", ["b"]), ("none", ["x"])]  # two of a view at a time
        tasks[3].cancel()  # who asked is gone
        store.may_answer.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [found[0], found[1], found[2], found[4]] == [("v", "a"), ("v", "b"), None, ("v", "d")]
        assert isinstance(found[3], asyncio.CancelledError)
        assert store.asked[3:] == [("v", ["c", "d"])]
        # Keys that arrive together are queried together, and a query has a limit.
        del store.asked[:]
        assert await asyncio.gather(*(reads.find("v", f"k{n}") for n in range(400))) == [
            ("v", f"k{n}") for n in range(400)
        ]
        assert [len(keys) for _, keys in store.asked] == [128, 128, 128, 16]
        await reads.close()

    asyncio.run(run())


def test_a_fault_reaches_all_who_asked_together_and_nobody_after_them() -> None:
    async def run() -> None:
        store = Connection()
        reads = opened(store)
        store.may_answer.set()
        store.broken = True
        asked = (reads.find("v", key) for key in "abc")
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(each) for each in found] == ["a fault of ours"] * 3
        store.broken = False
        assert await reads.find("v", "a") == ("v", "a")
        await reads.close()

    asyncio.run(run())


def test_closed_while_it_is_asked_who_is_not_asked_for_is_sent_to_the_routes() -> None:
    async def run() -> None:
        store = Connection()
        reads = opened(store)
        first, second, third, other = await started(reads, ("v", "a"), ("v", "b"), ("v", "c"), ("w", "d"))
        assert len(store.asked) == 3
        closing = asyncio.create_task(reads.close())
        assert await third is None
        assert await reads.find("v", "a") is None
        store.may_answer.set()
        await closing
        assert [await each for each in (first, second, other)] == [("v", "a"), ("v", "b"), ("w", "d")]

    asyncio.run(run())


def test_closed_nobody_is_left_waiting_however_many_they_are() -> None:
    async def run() -> None:
        store = Connection()
        reads = opened(store)
        tasks = await started(reads, *(("v", f"k{n}") for n in range(700)))
        closing = asyncio.create_task(reads.close())
        await asyncio.sleep(0)
        store.may_answer.set()
        async with asyncio.timeout(10):
            await closing
            assert (await asyncio.gather(*tasks))[2:] == [None] * 698

    asyncio.run(run())
