"""Files of golden tests: their syntax, their events, and differences."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hub.errors import ConfigError
from hub.materializers.definition.load import load_views
from hub.materializers.golden.cases import (
    Case,
    CaseOutcome,
    differences,
    events_of,
    golden_files,
    load_golden,
    same,
)

VIEW = "view: shop\nsources:\n  orders: {topic: shop.orders, key: id}\nfields:\n  n: count(orders.id)\n"
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "views" / "tests").mkdir(parents=True)
    (tmp_path / "views" / "shop.yaml").write_text(VIEW)
    return tmp_path


def loaded(project: Path, text: str) -> Any:
    file = project / "views" / "tests" / "shop.yaml"
    file.write_text(text)
    return load_golden(file, {view.name: view for view in load_views(project)})


def test_a_file_of_tests_is_no_view(project: Path) -> None:
    loaded(project, "view: shop\ntests: {t: {events: [{source: orders, value: {id: 1}}], rows: {}}}")
    assert [view.name for view in load_views(project)] == ["shop"]
    assert [path.name for path in golden_files(project)] == ["shop.yaml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("view: shp\ntests: {t: {events: [{source: orders, value: null}], rows: {}}}", 'did you mean "shop"'),
        (
            "view: shop\ntests: {t: {events: [{source: order, value: null}], rows: {}}}",
            'did you mean "orders"',
        ),
        (
            "view: shop\ntests: {t: {events: [{source: orders}], rows: {}}}",
            "an event has a value",
        ),
        (
            "view: shop\ntests: {t: {events: [{source: orders, value: {}, text: x}], rows: {}}}",
            "an event has a value",
        ),
        ("view: shop\ntests: {t: {events: [], rows: {}}}", "events"),
        ("view: shop\ntests: {t: {events: [{source: orders, value: null}]}}", '"tests.t.rows" is missing'),
        (
            "view: shop\ntests: {t: {events: [{source: orders, value: null}], rows: {}, lat: 1}}",
            'unknown key "lat"',
        ),
    ],
)
def test_what_is_wrong_is_said_at_its_place(project: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        loaded(project, text)
    assert said in f"{refusal.value} {refusal.value.hint}" and "shop.yaml:" in str(refusal.value)


def case(**more: Any) -> Case:
    return Case.model_validate({"events": [{"source": "orders", "value": None}], "rows": {}, **more})


def test_events_have_offsets_times_and_batches() -> None:
    events = events_of(
        case(
            events=[
                {"source": "a", "value": {"n": 1}, "key": 7},
                {"source": "a", "value": None, "partition": 1},
                "next batch",
                {"source": "a", "value": None, "at": "2024-05-01T10:00:00+02:00"},
                {"source": "b", "text": "x", "topic": "other"},
            ]
        ),
        {"a": "topic.a"},
    )
    assert [(e.topic, e.partition, e.offset, e.batch, e.number) for e in events] == [
        ("topic.a", 0, 0, 0, 1),
        ("topic.a", 1, 0, 0, 2),
        ("topic.a", 0, 1, 1, 3),
        ("other", 0, 0, 1, 4),
    ]
    assert [e.at for e in events] == [
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC),
        datetime(2024, 5, 1, 8, tzinfo=UTC),
        datetime(2024, 5, 1, 8, 0, 1, tzinfo=UTC),
    ]
    assert [e.key for e in events] == [b"7", None, None, None]
    with pytest.raises(ConfigError, match="event 1"):
        events_of(case(), {})


def test_every_difference_is_named() -> None:
    wanted = case(
        rows={"a": {"n": 1, "m": 2}, "b": {}, "c": {"nn": 1}},
        dead=[{"event": 1, "reason": "bytes"}, {"event": 2}, {"event": 3, "reason": "null"}],
        late=2,
    )
    found = CaseOutcome(
        ("n", "m"),
        {"a": {"n": 1, "m": 3}, "c": {"n": 1}, "d": {"n": 9}},
        [(1, "its bytes do not fit"), (3, "no key"), (4, "unknown")],
        1,
    )
    assert differences(wanted, found) == [
        'row "b": missing (rows there: a, c, d)',
        'row "d": must not be there: {"n": 9}',
        'row "a": m is 3, must be 2',
        'row "c": no column nn (did you mean n?)',
        "event 2: taken, must be refused",
        'event 3: refused as "no key", must be as "null"',
        "event 4: refused: unknown",
        "late: 1 events, must be 2",
    ]
    assert differences(case(rows={"a": {"n": 1}}), CaseOutcome(("n",), {"a": {"n": 1}})) == []


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1, 2, False),
        (True, 1, False),
        (False, None, False),
        ("2024-01-01T00:00:00Z", "2024-01-01T01:00:00.000+01:00", True),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z", False),
        ("2024", "2024 ", False),
        ([1, {"a": None}], [1.0, {"a": None}], True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1], [1, 2], False),
        (None, None, True),
    ],
)
def test_values_are_compared_by_what_they_say(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) is same(other, one) is equal


def test_the_examples_files_are_right() -> None:
    for project in sorted(EXAMPLES.iterdir()):
        views = {view.name: view for view in load_views(project)}
        for path in golden_files(project):
            load_golden(path, views)
