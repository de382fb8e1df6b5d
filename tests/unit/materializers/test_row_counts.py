"""Rows are counted again when there are new ones, and seldom in large tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from hub.materializers.serving.row_counts import LONGEST_S, SHARE, RowCounts
from hub.materializers.stores.sql_store import Store
from hub.record import Positions


@dataclass
class Table:
    """A store of one view, and a clock that counting advances."""

    takes_s: float
    rows: int = 10
    now_s: float = 0.0
    at: str = "views.v:0:1"
    asked: int = 0
    tables: dict[str, str] = field(default_factory=lambda: {"v": "v"})

    def names(self) -> list[str]:
        return list(self.tables)

    def served(self, view: str) -> str:
        return self.tables[view]

    def positions(self, table: str, kind: str) -> Positions:
        return Positions.parse(self.at)

    def count(self, view: str) -> int:
        self.asked += 1
        self.now_s += self.takes_s
        return self.rows

    def counts(self) -> RowCounts:
        return RowCounts(cast(Store, cast(Any, self)), lambda: self.now_s)


def test_a_small_view_is_counted_whenever_it_has_new_rows() -> None:
    table = Table(takes_s=0.001)
    counts = table.counts()
    assert (counts.of("v"), counts.of("v"), table.asked) == (10, 10, 1)
    table.rows, table.at = 11, "views.v:0:2"
    assert (counts.of("v"), table.asked) == (11, 2)


def test_a_large_one_that_changes_is_counted_for_a_share_of_the_time() -> None:
    table = Table(takes_s=0.5)
    counts = table.counts()
    counts.of("v")
    for number in range(100):
        table.rows, table.at, table.now_s = 11 + number, f"views.v:0:{number + 2}", table.now_s + 1.0
        counts.of("v")
    assert table.asked == 1 + 100 // int(0.5 / SHARE)
    table.now_s += 0.5 / SHARE
    assert counts.of("v") == 110


def test_what_was_changed_by_hand_and_another_version_are_seen() -> None:
    table = Table(takes_s=0.001)
    counts = table.counts()
    counts.of("v")
    table.rows = 9
    assert counts.of("v") == 10, "the log moved nothing"
    table.now_s += LONGEST_S
    assert counts.of("v") == 9
    table.rows, table.tables["v"] = 20, "v__2"
    assert counts.all() == {"v": 20}
