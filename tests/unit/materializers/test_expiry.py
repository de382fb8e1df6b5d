"""Row TTL: the view's file, the addition to its fold, due rows in each store, and the records written."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import store_contract
from hypothesis import given
from hypothesis import strategies as some

from hub.config import Settings
from hub.errors import ConfigError, PeerError
from hub.log import MemoryCluster
from hub.materializers.applying.store_thread import StoreThread
from hub.materializers.applying.ttl import AGAIN_S, ExpiredRow, PendingDeletes, among, expired_records, record
from hub.materializers.applying.ttl_thread import Expirer, StoredView
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.declared import LAST_EVENT_AT
from hub.materializers.definition.entity_plan import EntityPlan
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import body_of, load_view, view_of
from hub.materializers.engine.plans.fingerprints import entity_fingerprint
from hub.materializers.golden.cases import load_golden
from hub.materializers.spark.formats.decode import Input
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch, ViewStore
from hub.observability.export.metrics import exposition
from hub.observability.lag.judge import LagRules
from hub.observability.overview.overview import KafkaHealth, Overview, view_line
from hub.observability.overview.reports import reports_of
from hub.record import Positions

TIME = {"type": "long", "logicalType": "timestamp-micros"}
SCHEMAS = {
    "crm": {
        "type": "record",
        "name": "C",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "n", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    },
    "web": {
        "type": "record",
        "name": "W",
        "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}],
    },
}
DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000


def view(ttl: str | None = "30d", **changes: Any) -> View:
    body = {
        "view": "v",
        "ttl": ttl,
        "sources": {
            "crm": {"topic": "crm", "key": "id", "order": "at"},
            "web": {"topic": "web", "key": "id", "order": "n"},
        },
        "fields": {"n": "crm.n"},
    }
    return View.model_validate({**body, **changes})


# ---- the file


def said(tmp_path: Path, text: str, name: str = "v") -> str:
    (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(ConfigError) as wrong:
        load_view(tmp_path / f"{name}.yaml")
    return str(wrong.value) + f" {wrong.value.where} {wrong.value.hint}"


FILE = "view: v\nsources: {crm: {topic: crm, key: id}}\nfields: {n: crm.n}\n"


@pytest.mark.parametrize(
    ("ttl", "words"),
    [
        ("30 days", "write 30d"),
        ("12 Hours", "write 12h"),
        ("30", "such as 12h or 30d"),
        ("forever", "such as 12h or 30d"),
        ("-1d", "such as 12h or 30d"),
        ("500ms", "at least 1s"),
        ("0d", "at least 1s"),
    ],
)
def test_a_ttl_that_is_none_is_refused_at_its_place(tmp_path: Path, ttl: str, words: str) -> None:
    told = said(tmp_path, FILE + f"ttl: {ttl}\n")
    assert words in told and "v.yaml:4:6" in told


def test_a_misspelled_key_and_a_column_that_the_hub_needs_are_told_at_their_places(tmp_path: Path) -> None:
    told = said(tmp_path, FILE + "tll: 30d\n")
    assert 'did you mean "ttl"?' in told and "v.yaml:4:1" in told
    told = said(
        tmp_path,
        f"view: v\nttl: 1d\nsources: {{crm: {{topic: c, key: id}}}}\nfields: {{{LAST_EVENT_AT}: crm.n}}",
    )
    assert "call this one otherwise" in told and "v.yaml:4:" in told
    (tmp_path / "v.yaml").write_text(FILE.replace("n:", f"{LAST_EVENT_AT}:"))
    assert load_view(tmp_path / "v.yaml").ttl_ms is None, "without a ttl the name is free"


def test_a_sql_view_takes_no_ttl_and_is_told_what_does(tmp_path: Path) -> None:
    told = said(tmp_path, "view: v\nttl: 30d\nsources: {e: {topic: t}}\nsql: SELECT id FROM e\nkey: id\n")
    assert "v.yaml:2:6" in told and "{view: NAME}" in told and "WHERE" in told


def test_a_ttl_is_kept_in_the_log_s_definition_and_adds_a_column_and_its_index() -> None:
    kept = view_of(body_of(view("12h", indexes=["n"])))
    assert kept.ttl_ms == DAY_MS // 2
    assert kept.expiry_topic == "_hub.expiry.v"
    assert kept.of_version(2).expiry_topic == "_hub.expiry.v", "every version folds the same expiries"
    assert kept.kept_indexes == ["n", LAST_EVENT_AT]
    assert isinstance(kept, View) and kept.columns == ("n", LAST_EVENT_AT)
    plain = view(None)
    assert (plain.kept_indexes, plain.columns, list(plain.all_sources)) == ([], ("n",), ["crm", "web"])
    assert "ttl" not in body_of(plain)


# ---- the fold


def inputs(made: EntityPlan, of: View) -> tuple[Input, ...]:
    expiry = () if made.expiry is None else (made.expiry,)
    latest = {**SCHEMAS, "_expiry": of.all_sources["_expiry"].declared} if made.expiry else SCHEMAS
    return tuple(Input(each, (each.topic,), (), latest[each.name]) for each in (*made.sources, *expiry))


def test_without_a_ttl_nothing_is_added_to_the_fold() -> None:
    plain, lasting = shape(view(None), SCHEMAS), shape(view(), SCHEMAS)
    assert (plain.expiry, plain.expired) == (None, None)
    assert lasting.sources == plain.sources
    assert [each for each in lasting.aggregates if each not in plain.aggregates] == [
        (
            "_last_at",
            (
                "TIMESTAMP_MILLIS(UNIX_MILLIS(GREATEST(MAX(LEAST(n_crm._order, n_crm._timestamp)), "
                "MAX(n_web._timestamp))))"
            ),
        ),
        ("_cutoff", "MAX(s__expiry.cutoff)"),
    ], "an order that is a time counts, but not past the record's own; one that is none does not"
    assert lasting.outputs == (*plain.outputs, (LAST_EVENT_AT, "_last_at"))
    one = shape(view(sources={"web": {"topic": "web", "key": "id"}}, fields={"n": "web.n"}), SCHEMAS)
    assert "GREATEST" not in dict(one.aggregates)["_last_at"]


def test_another_ttl_goes_on_with_the_same_state_and_the_first_one_does_not() -> None:
    def fingerprint(of: View) -> str:
        made = shape(of, SCHEMAS)
        return entity_fingerprint(made, inputs(made, of))

    assert fingerprint(view("30d")) == fingerprint(view("7d")) != fingerprint(view(None))


def test_expiries_are_events_of_golden_tests_of_views_with_a_ttl(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    event = "{source: _expiry, key: C-1, value: {cutoff: 2024-03-01T00:00:00Z}}"
    path.write_text(f"view: v\ntests:\n  t:\n    events:\n      - {event}\n    rows: {{}}\n")
    assert load_golden(path, {"v": view()}).view == "v"
    with pytest.raises(ConfigError, match="has no ttl"):
        load_golden(path, {"v": view(None)})


# ---- due rows


def stored(
    kind: str, folder: Path, of: View, rows: dict[str, int | None], deleted: tuple[str, ...] = ()
) -> ViewStore:
    """Return a store with rows by key: their last event (epoch ms; None: no row has one)."""
    store = store_contract.opened_in(kind, folder)
    fields = [{"name": LAST_EVENT_AT, "type": ["null", TIME], "default": None}]
    schema = {"type": "record", "name": "v", "fields": [*fields, {"name": "_version", "type": "long"}]}
    store.ensure_view("v", schema, of.kept_indexes, "id")
    applied(store, rows, deleted, 1)
    return store


def applied(store: ViewStore, rows: dict[str, int | None], deleted: tuple[str, ...], version: int) -> None:
    changes = [
        RowVersion(
            key,
            version,
            0,
            at,
            None if key in deleted else {LAST_EVENT_AT: None if ms is None else ms * 1000},
        )
        for at, (key, ms) in enumerate(rows.items())
    ]
    store.apply([ViewBatch("v", changes, Positions.of([("views.v", 0, len(rows))]))])


def due(store: ViewStore, until_ms: int, limit: int) -> list[ExpiredRow]:
    if isinstance(store, Store):
        return [ExpiredRow(*each) for each in store.due("v", LAST_EVENT_AT, until_ms, limit)]
    with store.cut("v") as cut:
        return among(cut, until_ms, limit)


@pytest.mark.parametrize("kind", store_contract.URLS)
def test_due_are_the_live_rows_whose_last_event_is_not_later(kind: str, tmp_path: Path) -> None:
    chance = random.Random(4)
    rows: dict[str, int | None] = {f"k{n}": chance.randrange(-5, 100) for n in range(60)}
    rows |= {"none": None, "far": 2**60 // 1000, "at": 50, "after": 51}
    gone = tuple(f"k{n}" for n in range(0, 60, 7))
    store = stored(kind, tmp_path, view(), rows, gone)
    wanted = {
        ExpiredRow(key, ms) for key, ms in rows.items() if key not in gone and ms is not None and ms <= 50
    }
    assert set(due(store, 50, 1_000)) == wanted and ExpiredRow("at", 50) in wanted
    page = due(store, 50, 5)
    assert len(page) == 5 and set(page) <= wanted
    if kind == "sqlite":
        assert [each.last_ms for each in page] == sorted(each.last_ms for each in wanted)[:5], (
            "the oldest first"
        )
    store.close()


def test_a_table_without_the_column_has_nobody_who_is_due(tmp_path: Path) -> None:
    for kind in store_contract.URLS:
        store = store_contract.opened_in(kind, tmp_path / kind)
        store.ensure_view(
            "v", {"type": "record", "name": "v", "fields": [{"name": "n", "type": "long"}]}, [], "id"
        )
        assert due(store, NOW_MS, 5) == []
        store.close()


def test_the_rows_that_are_due_are_found_by_an_index(tmp_path: Path) -> None:
    store = stored("sqlite", tmp_path, view(), {"a": 1})
    assert isinstance(store, Store)
    with store.engine.connect() as connection:
        plan = connection.exec_driver_sql(
            f"EXPLAIN QUERY PLAN SELECT key, {LAST_EVENT_AT} FROM view_v WHERE _deleted IS 0 AND "
            f"{LAST_EVENT_AT} <= 5 ORDER BY {LAST_EVENT_AT}, key LIMIT 9"
        ).fetchall()
    assert "USING INDEX ix_view_v.last_event_at" in str(plan), plan
    store.close()


# ---- records


@given(some.integers(min_value=-(10**17), max_value=10**17 // 400))
def test_an_expiry_names_the_very_millisecond(last_ms: int) -> None:
    from datetime import datetime

    import orjson

    made = record("_hub.expiry.v", ExpiredRow("ø\n", last_ms))
    assert (made.topic, made.key) == ("_hub.expiry.v", "ø\n".encode())
    at = datetime.fromisoformat(orjson.loads(made.value or b"")["cutoff"])
    told_ms = round(at.timestamp() * 1000)
    assert told_ms == last_ms if last_ms >= -62_135_596_800_000 else told_ms >= last_ms


def test_what_was_said_is_said_again_only_after_a_while_or_of_a_newer_event() -> None:
    known = PendingDeletes()
    page = [ExpiredRow("a", 1), ExpiredRow("b", 2)]
    assert known.unwritten(page, 0.0) == page
    known.note_written(page, 0.0)
    assert known.unwritten(page, 1.0) == []
    assert known.unwritten([*page, ExpiredRow("c", 3)], 2.0) == [ExpiredRow("c", 3)]
    assert known.unwritten([ExpiredRow("a", 5), ExpiredRow("b", 2)], 3.0) == [ExpiredRow("a", 5)], (
        "it came back, and is over once more"
    )
    assert known.unwritten([ExpiredRow("b", 2)], AGAIN_S) == [ExpiredRow("b", 2)]
    known.note_written([ExpiredRow("b", 2)], AGAIN_S)
    assert known.unwritten([], AGAIN_S + 1) == []
    assert known.unwritten([ExpiredRow("b", 2)], AGAIN_S + 2) == [ExpiredRow("b", 2)], "it was gone meanwhile"


class World:
    """A log, a store and an expirer; no engine."""

    def __init__(self, folder: Path, rows: dict[str, int | None], ttl: str = "30d") -> None:
        self.cluster = MemoryCluster()
        self.view = view(ttl)
        self.store = stored("sqlite", folder, self.view, rows)
        self.expirer = self.started()

    def started(self, page: int = 100) -> Expirer:
        return Expirer(self.cluster, [self], 0.0, page)

    def active_views(self) -> list[StoredView]:
        return [StoredView(self.view, "v", self.store)]

    def topic(self) -> None:
        self.cluster.create_topic("_hub.expiry.v", partitions=1, config={}, replication_factor=1)

    def look(self, now_ms: int = NOW_MS) -> int:
        self.expirer.look_at_s.clear()
        return self.expirer.step(now_ms)

    @property
    def written(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(each.key, each.value) for part in self.cluster.logs["_hub.expiry.v"] for each in part]


def test_rows_that_are_over_are_said_so_once_and_again_the_same_by_one_who_was_killed(tmp_path: Path) -> None:
    old, young = NOW_MS - 31 * DAY_MS, NOW_MS - 29 * DAY_MS
    world = World(tmp_path, {"old": old, "young": young})
    assert world.look() == 0, "nobody folds what is said before the topic is there"
    world.topic()
    assert (world.look(), world.look()) == (1, 0)
    world.expirer = world.started()
    assert world.look() == 1
    assert world.written == [(b"old", record("", ExpiredRow("old", old)).value)] * 2
    applied(world.store, {"old": old}, ("old",), 2)
    assert (world.look(), world.look(NOW_MS + 2 * DAY_MS)) == (0, 1)
    assert world.written[-1] == (b"young", record("", ExpiredRow("young", young)).value)


def test_a_page_at_a_time_the_oldest_first_and_no_view_without_a_ttl(tmp_path: Path) -> None:
    world = World(tmp_path, {f"k{n}": n for n in range(10)})
    world.topic()
    world.expirer = world.started(page=4)
    assert [world.look() for _ in range(2)] == [4, 0], "the store has not followed yet"
    applied(world.store, {f"k{n}": n for n in range(4)}, ("k0", "k1", "k2", "k3"), 2)
    assert world.look() == 4
    assert [key for key, _ in world.written] == [f"k{n}".encode() for n in range(8)]
    world.view = view(None)
    world.expirer = world.started()
    assert world.look() == 0


def test_of_a_view_s_versions_the_one_that_readers_get_is_looked_at(tmp_path: Path) -> None:
    served, beside, other = view("1d"), view("2d").of_version(2), view("3d", view="w")
    thread = StoreThread("serving", "", Settings(home=tmp_path, project=tmp_path), cast(Any, None))
    assert thread.active_views() == [], "the store is away"
    thread.store = stored("sqlite", tmp_path, served, {})
    stopped = {"v": None, "v@2": None, "w": "its table cannot be made"}
    followed = {
        each.table: SimpleNamespace(view=each, stopped=stopped[each.table])
        for each in (served, beside, other)
    }
    thread.applier = cast(Any, SimpleNamespace(followed=followed))
    assert [(each.table, each.view.ttl) for each in thread.active_views()] == [("v", "1d")]
    thread.served = {"v": "v@2"}
    assert [(each.table, each.view.ttl) for each in thread.active_views()] == [("v@2", "2d")]
    thread.store.close()


def test_a_log_that_does_not_take_it_is_asked_again(tmp_path: Path) -> None:
    world = World(tmp_path, {"old": 1})
    world.topic()

    class Refusing:
        def append(self, records: object) -> Positions:
            raise PeerError("away")

        def close(self) -> None: ...

    world.expirer.writer = Refusing()
    with pytest.raises(PeerError):
        world.look()
    world.expirer.writer = world.cluster.writer()
    assert world.look() == 1


# ---- reports


def test_a_view_with_a_ttl_has_a_counter_and_no_other_has() -> None:
    progress = {"sources": {"crm": {"0": 9}, "_hub.expiry.v": {"0": 7}}, "mode": "live"}
    told = {
        "state:v": {"state": "live", "ttl": "30d"},
        "progress:v": progress,
        "state:w": {"state": "live"},
        "progress:w": {"sources": {"crm": {"0": 9}}, "mode": "live"},
    }
    lines = tuple(
        view_line(each, {}, lambda *_: None, LagRules(), NOW_MS, rows=1, subscribers=0)
        for each in reports_of(told)
    )
    assert [(each.name, each.ttl, each.expired) for each in lines] == [("v", "30d", 7), ("w", None, None)]
    text = exposition(Overview(NOW_MS, KafkaHealth("", NOW_MS, None), None, (), lines)).decode()
    assert 'hub_view_expired_rows_total{view="v"} 7.0' in text
    assert 'hub_view_expired_rows_total{view="w"}' not in text
    assert expired_records(progress["sources"], "_hub.expiry.v") == 7
