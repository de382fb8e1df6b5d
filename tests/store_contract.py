"""Contract of every kind of store, run by the unit tests and by the tests on a real Postgres."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from hub.config import Settings
from hub.errors import CallerError, HubError, NotFound
from hub.materializers.stores.open_store import open_store
from hub.materializers.stores.store import RowVersion, ViewBatch, ViewStore
from hub.materializers.stores.stored_row import Digester, RowShaper, sources_text
from hub.record import Positions

TOPIC = "views.v"
WORDS = {"type": "array", "items": "string"}
FIRST: dict[str, Any] = {
    "city": "string",
    "points": "long",
    "share": "double",
    "big": "boolean",
    "seen": {"type": "long", "logicalType": "timestamp-millis"},
    "born": {"type": "int", "logicalType": "date"},
    "raw": "bytes",
    "words": WORDS,
}
GROWN = {**FIRST, "tier": "string"}
Open = Callable[[], ViewStore]


def count_rows(store: ViewStore, view: str) -> int:
    """Return the number of live rows."""
    with store.cut(view) as cut:
        return sum(1 for _ in cut.rows())


URLS: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 'store.db'}",
    "duckdb": lambda folder: f"duckdb:///{folder / 'store.duckdb'}",
    "iceberg": lambda folder: "iceberg:///lake",
}


def settings_in(folder: Path) -> Settings:
    """Settings of a store in a folder, with the catalog of its Iceberg tables."""
    return Settings(home=folder / "home", project=folder, lake_commit_s=1.0)


def opened_in(kind: str, folder: Path, *, read_only: bool = False) -> ViewStore:
    """Open the store of a kind whose state is in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return open_store(URLS[kind](folder), settings_in(folder), read_only=read_only)


def schema(types: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in types.items()]
    return {"type": "record", "name": "v", "fields": [*fields, {"name": "_version", "type": "long"}]}


def row(chance: random.Random, types: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "city": chance.choice(["Oslo", "", "Ærø\n\t\\N", 'a"b,c', "nul\0l", "\\u0000"]),
        "points": chance.choice([0, -1, 2**62, chance.randrange(1000)]),
        "share": chance.choice([0.1, -0.0, 1e300, float("nan"), 3.0]),
        "big": chance.random() < 0.5,
        "seen": chance.choice([0, 1_700_000_000_123, -1, 2**60]),
        "born": chance.choice([0, -719_000, 20_000, 10**6]),
        "raw": chance.choice([b"", b"\x00\xff\\", b"abc"]),
        "words": chance.choice([[], ["a", "ü\0"], ["\\"]]),
        "tier": chance.choice(["gold", "base"]),
    }
    found = {name: None if chance.random() < 0.2 else values[name] for name in types}
    return {**found, "_sources": {"s": {"topic": "in", "partition": 0, "offset": chance.randrange(99)}}}


class Model:
    """Expected content of a table after the applied changes."""

    def __init__(self, store: ViewStore) -> None:
        self.store = store
        self.types = FIRST
        self.rows: dict[str, tuple[int, dict[str, Any] | None]] = {}
        self.offset = 0

    def apply(self, changes: list[tuple[str, int, dict[str, Any] | None]], below: int = 0) -> None:
        self.offset += len(changes) + 1
        self.store.apply(
            [
                ViewBatch(
                    "v",
                    [
                        RowVersion(key, version, 0, self.offset, values, (values or {}).get("_sources"))
                        for key, version, values in changes
                    ],
                    Positions.of([(TOPIC, 0, self.offset)]),
                    Positions.of([("in", 0, self.offset * 2)]),
                    below,
                )
            ]
        )
        self.note(changes, below)

    def note(self, changes: list[tuple[str, int, dict[str, Any] | None]], below: int = 0) -> None:
        """Expect the rows of applied changes."""
        for key, version, values in changes:
            if version > self.rows.get(key, (0, None))[0]:
                self.rows[key] = (version, values)
        for key, (version, _) in self.rows.items():
            if version < below:
                self.rows[key] = (version, None)

    def check(self) -> None:
        """Rows (by the digest that ``hub view verify`` uses), positions, count and the newest version."""
        shaper = RowShaper({name: ["null", kind] for name, kind in self.types.items()})
        live = {key: each for key, each in self.rows.items() if each[1] is not None}
        with self.store.cut("v") as cut:
            digester = Digester(cut.types)
            assert list(cut.types) == list(self.types)
            wanted = {
                digester.row(
                    key, version, [*shaper.values(values or {}), sources_text((values or {}).get("_sources"))]
                )
                for key, (version, values) in live.items()
            }
            assert cut.positions == Positions.of([(TOPIC, 0, self.offset)] if self.offset else [])
            found = [digester.row(*each) for each in cut.rows()]
            assert len(found) == len(live)
            assert set(found) == wanted
            assert {key for key, _, _ in cut.rows()} == {key.replace("\0", "\ufffd") for key in live} or {
                key for key, _, _ in cut.rows()
            } == set(live)
        assert self.store.newest_version("v") == max((v for v, _ in self.rows.values()), default=0)
        assert self.store.positions("v", "source") == Positions.of(
            [("in", 0, self.offset * 2)] if self.offset else []
        )


def any_history(open_: Open, seed: int, steps: int = 10) -> None:
    """Random batches with replays, stale versions, deletes, sweeps, new columns and restarts."""
    chance = random.Random(seed)
    model = Model(open_())
    assert model.store.ensure_view("v", schema(FIRST), ["city"], "topic-1")
    keys = [f"k{n}" for n in range(chance.choice([3, 600]))]
    version = 0
    past: list[list[tuple[str, int, dict[str, Any] | None]]] = []
    for _ in range(steps):
        match chance.choice(["batch", "batch", "batch", "replay", "empty", "sweep", "grow", "restart"]):
            case "batch":
                chosen = chance.sample(keys, chance.randint(1, len(keys)))
                changes = []
                for key in chosen:
                    version += 1
                    at = chance.choice([version, max(1, version - 5)]) if key not in model.rows else version
                    changes.append((key, at, None if chance.random() < 0.2 else row(chance, model.types)))
                past.append(changes)
                model.apply(changes)
            case "replay" if past:
                model.apply(chance.choice(past))
            case "sweep":
                model.apply([], version // 2)
            case "grow":
                assert not model.store.ensure_view("v", schema(GROWN), ["city", "tier"], "topic-1")
                model.types = GROWN
            case "restart":
                model.store.close()
                model.store = open_()
            case _:
                model.apply([])
        model.check()
    model.store.close()


def stale_records(open_: Open) -> None:
    """Records that are older than a delete, or than a sweep of their row, bring nothing back."""
    store = open_()
    model = Model(store)
    chance = random.Random(3)
    store.ensure_view("v", schema(FIRST), [], "topic-1")
    model.apply([("deleted", 10, row(chance, FIRST)), ("swept", 11, row(chance, FIRST))])
    model.apply([("deleted", 14, None), ("stays", 30, row(chance, FIRST))])
    model.apply([("deleted", 12, row(chance, FIRST))])
    model.check()
    model.apply([], 20)
    model.check()
    model.apply([("swept", 11, row(chance, FIRST)), ("deleted", 13, row(chance, FIRST))])
    model.check()
    model.apply([("swept", 12, row(chance, FIRST)), ("deleted", 40, row(chance, FIRST))])
    model.check()
    assert count_rows(store, "v") == 3
    store.close()


def the_rest(open_: Open) -> None:
    """Check what needs no random changes: two views in one call, refusals, recreated tables, progress,
    dropped columns and views.
    """
    store = open_()
    model = Model(store)
    assert store.ensure_view("v", schema(FIRST), [], "topic-1")
    assert not store.ensure_view("v", schema(FIRST), [], "topic-1")
    assert store.ensure_view("w", schema({"n": "long"}), [], "topic-2")
    chance = random.Random(1)
    model.apply([("a", 3, row(chance, FIRST)), ("a", 7, row(chance, FIRST)), ("a", 5, None)])
    model.check()
    with pytest.raises(CallerError, match='called "key"'):
        store.ensure_view("u", schema({"key": "string"}), [], "topic-3")
    bad = ViewBatch("w", [RowVersion("x", 1, 0, 0, {"n": object()})], Positions.of([("views.w", 0, 9)]))
    good = ViewBatch("v", [RowVersion("b", 1, 0, 0, None)], Positions.of([(TOPIC, 0, 99)]))
    with pytest.raises((HubError, TypeError)):
        store.apply([good, bad])
    model.check()
    assert count_rows(store, "w") == 0 and not store.positions("w", "changelog")
    told = {"state:v": {"state": "live"}, "state:w": {"state": "ü"}}
    store.apply([], told)
    store.apply([], {"state:v": None})
    assert store.progress() == {"state:w": told["state:w"]}
    assert store.views() == ["v", "w"]
    # Without a column; then a column of that name and another type: it begins empty.
    fewer = {name: kind for name, kind in FIRST.items() if name != "points"}
    assert not store.ensure_view("v", schema(fewer), [], "topic-1")
    assert not store.ensure_view("v", schema({**fewer, "points": "string"}), [], "topic-1")
    with store.cut("v") as cut:
        assert [values[-2] for _, _, values in cut.rows()] == [None]
        (provenance,) = [values[-1] for _, _, values in cut.rows()]
        assert orjson.loads(provenance)["s"]["topic"] == "in"
    # Another type: the table is recreated
    assert store.ensure_view("v", schema({**fewer, "points": "long"}), [], "topic-1")
    assert (
        count_rows(store, "v") == 0 and store.newest_version("v") == 0 and not store.positions("v", "source")
    )
    assert store.ensure_view("v", schema(FIRST), [], "topic-9")
    store.drop_view("w")
    assert store.views() == ["v"]
    assert "state:w" not in store.progress()
    with pytest.raises(NotFound):
        count_rows(store, "w")
    store.close()
