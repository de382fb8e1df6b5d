"""Reads by key that are answered before the routes: the routes' own answers, sooner; everything else is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import prepared_contract
import pytest
from changelog import Bench
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.api.app import on_hub_error
from hub.errors import HubError
from hub.materializers.push import Watcher
from hub.materializers.quick_reads import Quick, QuickReads
from hub.materializers.routes import create_router
from hub.materializers.stores.prepared import PreparedReads


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
    """(with quick reads, without, the paths that came to the routes of the first)."""
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

            reads = QuickReads()
            reads.open(PreparedReads(bench.store))
            app.add_middleware(Quick, reads=reads)
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
    reads = QuickReads()
    app = FastAPI()
    app.include_router(create_router(bench.store, Watcher(bench.store), 50))
    app.add_middleware(Quick, reads=reads)
    client = TestClient(app)
    assert client.get("/views/v/a/b").status_code == 200
    reads.open(PreparedReads(bench.store))
    assert client.get("/views/v/a/b").status_code == 200
    reads.close()
    assert client.get("/views/v/a/b").status_code == 200
