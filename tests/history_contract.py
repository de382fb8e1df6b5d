"""Contract of the history of rows in a store, run on SQLite by the unit tests and on a real Postgres."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

KEEP_MS = 10_000_000
BEGIN_MS = time.time_ns() // 1_000_000
Change = tuple[str, int, dict[str, Any] | None, int]
_offsets: dict[int, int] = {}


def at(step: int) -> int:
    """Return a time within the kept ones, after the history began."""
    return BEGIN_MS + 3_600_000 + step * 1_000


def declare(store: Store, name: str = "v", *, history: int | None = KEEP_MS, topic: str = "topic") -> None:
    fields = [{"name": field, "type": ["null", kind], "default": None} for field, kind in _TYPES.items()]
    noted = ["city"] if history is None else ["city", f"history:{history}"]
    store.ensure_view(name, {"type": "record", "name": "v", "fields": fields}, noted, topic)


_TYPES = {"city": "string", "n": "long"}


def batch(store: Store, name: str, changes: Sequence[Change], below: int = 0) -> None:
    """Apply changes; the event of version n of a key is at offset n of its source."""
    rows = [
        RowVersion(
            *(key, version, 0, version, values),
            {"s": {"topic": "in", "partition": 0, "offset": version}},
            when,
        )
        for key, version, values, when in changes
    ]
    store.apply([ViewBatch(name, rows, Positions.of([(f"views.{name}", 0, 1)]), Positions(), below)])


def any_history(opened: Callable[[], Store], chance: random.Random, steps: int = 40) -> None:
    """Random batches with several versions of a key, replays, stale versions, deletes, restarts and prunes:
    the row as of any kept time is the newest version by then."""
    store = opened()
    declare(store)
    model: dict[str, list[tuple[int, int, dict[str, Any] | None]]] = {}
    past: list[list[Change]] = []
    floor = at(0)
    for step in range(1, steps):
        kind = chance.choice(["batch", "batch", "batch", "replay", "restart", "prune"])
        if kind == "restart":
            store.close()
            store = opened()
        elif kind == "replay" and past:
            batch(store, "v", chance.choice(past))
        elif kind == "prune":
            floor = max(floor, at(step - chance.randrange(1, 30)))
            while store.history.prune(floor + KEEP_MS, chance.choice([1, 3, 1000])):
                pass
        else:
            changes = _changes(chance, model, step)
            past.append(changes)
            batch(store, "v", changes)
        _check(store, model, chance, floor, step)
    store.close()


def _changes(
    chance: random.Random, model: dict[str, list[tuple[int, int, dict[str, Any] | None]]], step: int
) -> list[Change]:
    changes: list[Change] = []
    for _ in range(chance.randrange(1, 8)):
        key = f"k{chance.randrange(6)}"
        known = model.setdefault(key, [])
        newest = known[-1][0] if known else 0
        version = newest + chance.choice([-1, 0, 1, 1, 2])
        values = None if chance.random() < 0.25 else {"city": chance.choice(["Oslo", "Rome"]), "n": version}
        changes.append((key, max(1, version), values, at(step)))
        if max(1, version) > newest:
            known.append((max(1, version), at(step), values))
    return changes


def _check(
    store: Store,
    model: dict[str, list[tuple[int, int, dict[str, Any] | None]]],
    chance: random.Random,
    floor: int,
    step: int,
) -> None:
    for when in (floor, chance.randrange(floor, at(step) + 2)):
        wanted = {}
        for key, versions in model.items():
            then = [values for _, at_ms, values in versions if at_ms <= when]
            if then and then[-1] is not None:
                wanted[key] = then[-1]
        found = store.history.select_at("v", when, at(step) + 5, [], 1_000, None)
        shown = {row.key: {name: (row.values or {})[name] for name in _TYPES} for row in found}
        assert shown == wanted, when
        key = f"k{chance.randrange(6)}"
        row = store.history.row_at("v", key, when, at(step) + 5)
        assert (None if row is None or row.values is None else row.values["n"]) == wanted.get(key, {}).get(
            "n"
        )
