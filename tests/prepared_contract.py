"""Contract of a prepared read: it answers as the store does, whatever happens to the view meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from changelog import Bench, schema

from hub.errors import NotFound
from hub.materializers.stores.prepared import Found, ReadsAtOnce
from hub.materializers.stores.prepared_postgres import PostgresReads
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions


class Reads:
    """A store's prepared reads, whichever kind, for tests that wait for them."""

    def __init__(self, store: Store) -> None:
        self._runner = asyncio.Runner()
        sqlite = store.engine.dialect.name == "sqlite"
        self._at_once = ReadsAtOnce(store) if sqlite else None
        self._together = None if sqlite else PostgresReads(store)

    def find(self, view: str, keys: Sequence[str]) -> list[Found] | None:
        if self._together is not None:
            return self._runner.run(self._together.find(view, keys))
        assert self._at_once is not None
        found = [self._at_once.find(view, key) for key in keys]
        return [each for each in found if each is not None] or None

    def close(self) -> None:
        if self._together is not None:
            self._runner.run(self._together.close())
        if self._at_once is not None:
            self._at_once.close()
        self._runner.close()


KEYS = [*(f"k{n}" for n in range(41)), "n\0l", ""]


def same(bench: Bench, reads: Reads, view: str = "v") -> None:
    """Every key's row and what is covered, as ``Store.read`` has them."""
    for keys in ([each] for each in KEYS):
        _same(bench, reads, view, keys)
    _same(bench, reads, view, [*KEYS, KEYS[1]])  # asked together, one of them twice


def _same(bench: Bench, reads: Reads, view: str, keys: list[str]) -> None:
    answers = reads.find(view, keys)
    assert answers is not None, keys
    for key, (found, reached) in zip(keys, answers, strict=True):
        row, covered = bench.store.read(view, key)
        assert found == row
        assert (reached.positions, reached.text) == (covered, str(covered))


def reads_like_the_store(where: Path | str) -> None:
    bench = Bench(where)
    reads = Reads(bench.store)
    same(bench, reads)
    bench.write_history()
    bench.tell(41)
    bench.drain()
    same(bench, reads)
    assert bench.store.read("v", "k1")[1]  # the covered positions
    # A column more, an index less, and another version that is served: each is another statement.
    bench.store.ensure_view("v", schema(("seen", ["null", "boolean"])), [], "topic-2")
    same(bench, reads)
    kinds = [
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("words", {"type": "array", "items": "string"}),
        ("new", "boolean"),
    ]
    bench.store.ensure_view(
        "v@2", schema(*((name, ["null", kind]) for name, kind in kinds)), ["city"], "topic-3"
    )
    row = {"city": "Oslo", "points": 7, "at": 1_767_225_600_001, "words": ["ü", "b"], "new": True}
    origin = {"s": {"topic": "in", "partition": 0, "offset": 4}}
    changes = [
        RowVersion("k1", 9, 0, 0, row, origin),
        RowVersion("k2", 8, 0, 1, None, origin),
    ]
    bench.store.apply(
        [ViewBatch("v@2", changes, Positions.of([("views.v.v2", 0, 2)]), Positions.of([("in", 0, 5)]))]
    )
    bench.store.serve("v", 2)
    same(bench, reads)
    found = reads.find("v", ["k1"])
    assert found is not None and found[0][0] is not None and found[0][0].values is not None
    assert found[0][0].values["new"] is True and found[0][0].values["words"] == ["ü", "b"]
    bench.store.serve("v", None)
    same(bench, reads)
    # A dropped view gives no answer; a restored one gives its rows.
    bench.store.drop_view("v")
    assert reads.find("v", ["k1"]) is None
    try:
        bench.store.read("v", "k1")
    except NotFound:
        pass
    else:
        raise AssertionError("the view is gone")
    bench.store.ensure_view("v", schema(), ["city"], "topic-4")
    same(bench, reads)
    reads.close()
    bench.store.close()
