"""Ask the hub and Postgres the same statement, and say what differs."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import psycopg

from differential.grammar import Grammar
from differential.tables import TABLES, fill_postgres, fill_store, random_rows
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.parser import SqlError, parse
from hub.materializers.queries.running import RunningQuery
from hub.materializers.stores.sql_store import Store

_MOST_ROWS = 10_000


@dataclass
class Found:
    """What a run of statements came upon. ``equal`` and ``different`` count answers of stores; ``refused``:
    by the hub, with how often each message was met; ``failed``: by Postgres, such as a number out of its
    range.
    """

    asked: int = 0
    equal: int = 0
    failed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)


class Pair:
    """The same random rows in stores of the hub and in tables of Postgres."""

    def __init__(
        self, stores: Mapping[str, Store], postgres: psycopg.Connection[Any], seed: int, rows: int = 24
    ) -> None:
        chance = Random(seed)
        tables = {name: random_rows(chance, name, rows) for name in TABLES}
        for store in stores.values():
            fill_store(store, tables)
        fill_postgres(postgres, tables)
        self.postgres = postgres
        self.executors = {name: QueryExecutor(store) for name, store in stores.items()}

    def close(self) -> None:
        for executor in self.executors.values():
            executor.close()

    def ask(self, sql: str, found: Found) -> None:
        """Count what becomes of a statement."""
        found.asked += 1
        try:
            expected = [[plain(value) for value in row] for row in self.postgres.execute(sql).fetchall()]  # type: ignore[arg-type]
        except psycopg.Error:
            found.failed += 1
            return
        for name, executor in self.executors.items():
            self._compare(sql, name, executor, expected, found)

    def _compare(
        self, sql: str, name: str, executor: QueryExecutor, expected: list[list[Any]], found: Found
    ) -> None:
        running = RunningQuery(time.monotonic() + 20.0)
        try:
            answer = executor.run(parse(sql), {}, running, limit=_MOST_ROWS, now_ms=0)
        except SqlError as error:
            found.refused[f"{error.code} {error.message}"] += 1
            if error.code == "HUB-1450":  # the hub took it, and wrote what its database does not take
                found.different.append(f"{sql}\n  {name:9}{error.message}")
            return
        kinds = [column.kind for column in answer.columns]
        ours = [[plain(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in answer.rows]
        theirs = expected
        if "ORDER BY" not in sql.rpartition(")")[2]:
            ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
        if equal(ours, theirs):
            found.equal += 1
        else:
            found.different.append(
                f"{sql}\n  {name:9}{_shown(ours, theirs)}\n  expected {_shown(theirs, ours)}"
            )


def run(pair: Pair, seed: int, statements: int, found: Found) -> None:
    for number in range(statements):
        pair.ask(Grammar(f"{seed}:{number}").statement(), found)


def plain(value: Any, kind: str = "") -> Any:
    """A value of either side in one form: times and dates as ISO texts, numbers as floats."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int | float | Decimal) or kind == "decimal":
        number = float(value)
        return 0.0 if number == 0 else float(f"{number:.12g}")
    return value


def equal(ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]]) -> bool:
    if len(ours) != len(theirs):
        return False
    return all(
        len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
        for one, other in zip(ours, theirs, strict=True)
    )


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9)
    return type(a) is type(b) and a == b


def _shown(rows: Sequence[Sequence[Any]], others: Sequence[Sequence[Any]]) -> str:
    """The rows that only one side has."""
    left = Counter(map(repr, rows)) - Counter(map(repr, others))
    return f"{len(rows)} rows; only here: {', '.join(list(left)[:3]) or 'none, another order'}"
