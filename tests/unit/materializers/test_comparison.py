"""Two versions compared: in one store, at one moment, by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from hub.materializers.stores.sql.scans import ComparedTable
from hub.materializers.stores.store import KeptRow
from hub.materializers.versions.comparison import compare
from hub.record import Positions

AT = Positions.of([("in", 0, 10)])


def side(rows: dict[str, dict[str, Any]], at: Positions = AT, **types: str) -> ComparedTable:
    def kept() -> Iterator[KeptRow]:
        for key in sorted(rows):
            values = [rows[key].get(name) for name in types]
            yield key, 1, [*values, rows[key].get("_sources")]

    return ComparedTable(types, at, kept)


def origin(offset: int) -> str:
    return orjson.dumps({"s": {"topic": "in", "partition": 0, "offset": offset}, "t": None}).decode()


def test_what_differs_is_counted_by_column_and_shown() -> None:
    before = side({"a": {"x": 1, "y": "p"}, "b": {"x": 2, "y": "q"}, "c": {"x": 3}}, x="long", y="string")
    after = side({"a": {"x": 1, "z": 9}, "b": {"x": 5}, "d": {"x": 3}}, z="long", x="long")
    found = compare(before, after).body()
    assert (found["rows_before"], found["rows_after"]) == (3, 3)
    assert (found["only_before"], found["only_after"], found["differing"]) == (1, 1, 1)
    assert (found["columns"], found["added"], found["removed"]) == (["x"], ["z"], ["y"])
    assert found["differing_by_column"] == {"x": 1}
    assert {"key": "b", "why": "differs", "columns": {"x": {"before": 2, "after": 5}}} in found["samples"]
    assert found["hash_before"] != found["hash_after"]


def test_a_row_that_one_side_alone_has_read_is_news_and_no_difference() -> None:
    before = side({"a": {"x": 1, "_sources": origin(3)}, "b": {"x": 2, "_sources": origin(9)}}, x="long")
    behind = Positions.of([("in", 0, 9)])
    after = side(
        {"a": {"x": 1, "_sources": origin(3)}, "b": {"x": 1, "_sources": origin(8)}}, behind, x="long"
    )
    found = compare(before, after).body()
    assert (found["differing"], found["moving"], found["same_positions"]) == (0, 1, False)
    assert found["hash_before"] == found["hash_after"]


def test_a_topic_that_one_side_never_reads_makes_no_row_news() -> None:
    """A version that lacks a source, or reads a topic of another name: the comparison shows its effect."""
    before = side({"a": {"x": 1, "_sources": origin(3)}}, x="long")
    renamed = orjson.dumps({"s": {"topic": "new", "partition": 0, "offset": 3}}).decode()
    after = side({"a": {"x": 2, "_sources": renamed}}, Positions.of([("new", 0, 10)]), x="long")
    for one, other in ((before, after), (after, before)):
        found = compare(one, other).body()
        assert (found["differing"], found["moving"], found["same_positions"]) == (1, 0, True)
    # A topic that both read may have a new partition: the other side has no position for it yet.
    grown = orjson.dumps({"s": {"topic": "in", "partition": 1, "offset": 0}}).decode()
    after = side({"a": {"x": 2, "_sources": grown}}, Positions.of([("in", 0, 10), ("in", 1, 1)]), x="long")
    found = compare(before, after).body()
    assert (found["differing"], found["moving"], found["same_positions"]) == (0, 1, False)


def test_a_column_that_changed_its_type_is_not_compared() -> None:
    found = compare(side({"a": {"x": 1}}, x="long"), side({"a": {"x": "1"}}, x="string")).body()
    assert (found["columns"], found["added"], found["removed"]) == ([], ["x"], ["x"])
    assert found["differing"] == 0


def test_samples_are_few_and_short() -> None:
    before = {f"{number:03}": {"x": "a" * 1_000} for number in range(50)}
    after = {f"{number:03}": {"x": "b" * 1_000} for number in range(50)}
    found = compare(side(before, x="string"), side(after, x="string")).body()
    assert found["differing"] == 50 and len(found["samples"]) == 20
    assert len(found["samples"][0]["columns"]["x"]["before"]) == 201


ROWS = st.dictionaries(st.text(max_size=3), st.none() | st.integers(-3, 3), max_size=8)


@given(ROWS, ROWS)
def test_it_is_what_dictionaries_say(before: dict[str, int | None], after: dict[str, int | None]) -> None:
    found = compare(
        side({key: {"x": value} for key, value in before.items()}, x="long"),
        side({key: {"x": value} for key, value in after.items()}, x="long"),
    )
    both = before.keys() & after.keys()
    assert found.only_before == len(before.keys() - after.keys())
    assert found.only_after == len(after.keys() - before.keys())
    assert found.differing == sum(before[key] != after[key] for key in both)
    assert (found.hash_before == found.hash_after) == (before == after)
