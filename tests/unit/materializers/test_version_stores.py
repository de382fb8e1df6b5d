"""Versions of a view in the store: the table that readers get, a swap's events for subscribers, the version
log.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from changelog import Bench

from hub.errors import NotFound
from hub.materializers.applying.applier import Applier
from hub.materializers.applying.store_thread import followed_versions, keep_versions, known_versions
from hub.materializers.definition.declared import changelog_of, table_of_changelog
from hub.materializers.definition.entity_plan import SourcePlan
from hub.materializers.definition.load import body_of, view_of
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.engine.plans.fingerprints import sql_fingerprint
from hub.materializers.planning.classify import classify
from hub.materializers.progress.records import PROGRESS_TOPIC, Progress, ViewState
from hub.materializers.serving.subscription_events import SubscriptionRequest
from hub.materializers.serving.subscriptions import subscribe
from hub.materializers.serving.watcher import Watcher
from hub.materializers.spark.formats.decode import Input
from hub.materializers.stores.sql.scans import compared_table
from hub.materializers.stores.sql_store import Store
from hub.materializers.versions.comparison import compare
from hub.materializers.versions.routes import shown_versions
from hub.materializers.versions.version_log import VersionLog
from hub.materializers.versions.version_records import compared_record, wanted_record
from hub.materializers.versions.versions import (
    CommandReceived,
    DefinitionChanged,
    TimePassed,
    VersionCaughtUp,
    VersionCompared,
    VersionDefinition,
    VersionLost,
    VersionOpened,
)
from hub.record import NewRecord, Positions
from hub.schema_registry.codecs.wire_format import encode, parsed


class World:
    """A view's log, its version log and a store; no engine."""

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder)
        self.store = self.bench.store
        self.cluster = self.bench.cluster
        self.cluster.create_topic("views.v.v2", partitions=1, config={}, replication_factor=1)
        self.ledger = self.opened()

    def opened(self) -> VersionLog:
        ledger = VersionLog(self.cluster, self.cluster.writer())
        ledger.open()
        ledger.own = frozenset({"v"})
        return ledger

    def definition(self, text: str) -> VersionDefinition:
        return VersionDefinition(text, body_of(self.bench.view), text)

    def write(self, changelog: str, key: str, points: int, version: int) -> None:
        row = {"city": None, "points": points, "_version": version, "_sources": None}
        value = encode(1, parsed(json.loads(self.bench.schemas.schema(1))), row)
        headers = (("hub.version", str(version).encode()),)
        self.cluster.writer().append([NewRecord(changelog, key.encode(), value, headers)])

    def told(self, table: str, offset: int, mode: Any = "live") -> None:
        end = self.cluster.end_offsets([changelog_of(table)])
        progress = Progress(table, 0, offset, mode, Positions.of([("in", 0, offset)]), end, 1, 1, 1)
        self.cluster.writer().append([progress.record()])

    def apply(self) -> None:
        """Do a store thread's work until nothing is left."""
        for _ in range(3):
            told = known_versions(self.store.progress())
            self.bench.applier.follow(followed_versions([self.bench.view], told, every=True))
            keep_versions(self.store, self.bench.applier, told)
            self.bench.drain()

    def swapped(self) -> None:
        """Swap version 1 with a and b for version 2 with a alone."""
        self.write("views.v", "a", 1, 1)
        self.write("views.v", "b", 1, 1)
        self.ledger.submit("v", VersionOpened(1, self.definition("one")))
        self.told("v", 5)
        self.apply()
        self.ledger.submit("v", DefinitionChanged(self.definition("two"), "changed"))
        self.write("views.v.v2", "a", 2, 1)
        self.told("v@2", 5)
        self.ledger.step()
        self.apply()
        assert self.rows() == {"a": 1, "b": 1}
        coming = self.ledger.state["v"].coming
        assert coming is not None and coming.at is not None
        with self.store.reading() as connection:
            one, other = (compared_table(connection, self.store.catalog, name) for name in ("v", "v@2"))
            report = compare(one, other).body()
        self.cluster.writer().append([compared_record("v", 2, coming.at, report)])
        self.ledger.step()
        self.apply()

    def rows(self) -> dict[str, Any]:
        return self.bench.rows()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("records", [1, 2, 3, 1_000])
def test_what_was_said_of_versions_that_are_past_is_not_taken_for_the_present(
    world: World, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress topic is read from its start at a restart and for a new view; a poll may end at any
    record.
    """
    world.swapped()
    dropped: list[str] = []
    monkeypatch.setattr(world.store, "rhythm", replace(world.store.rhythm, records=records))
    monkeypatch.setattr(world.store, "drop_view", dropped.append)
    applier = Applier(world.cluster, world.bench.schemas, world.store)
    applier.stirred = True
    served, heard = set(), 0
    for _ in range(60):
        if applier.stirred:
            applier.stirred = False
            told = known_versions(world.store.progress())
            applier.follow(followed_versions([world.bench.view], told, every=True))
            keep_versions(world.store, applier, told)
        heard = applier.step(0.0)
        served.add(world.store.served("v"))
    assert (served, dropped, heard) == ({"v@2"}, [], 0)
    assert world.rows() == {"a": 2}
    applier.close()


def test_names_of_versions() -> None:
    assert changelog_of("v@2") == "views.v.v2" and changelog_of("v") == "views.v"
    assert table_of_changelog("views.v.v2") == "v@2" and table_of_changelog("views.v") == "v"


def test_a_version_beside_one_of_a_topic_made_anew_is_ready_at_the_topics_end(world: World) -> None:
    """The lost version's offsets are of the former topic: they may be far ahead and never be reached."""
    world.cluster.create_topic("in", partitions=1, config={}, replication_factor=1)
    world.cluster.writer().append([NewRecord("in", b"a", b"1"), NewRecord("in", b"a", b"2")])
    world.write("views.v", "a", 1, 1)
    world.ledger.submit("v", VersionOpened(1, world.definition("one")))
    world.told("v", 12)
    world.apply()
    world.ledger.submit("v", VersionLost(1, "a topic that it reads was recreated"))
    world.write("views.v.v2", "a", 2, 1)
    states = []
    for reached in (1, 2):
        world.told("v@2", reached)
        world.ledger.step()
        coming = world.ledger.state["v"].coming
        states.append(None if coming is None else coming.state)
    assert states == ["building", "ready"]


def test_a_version_beside_one_in_real_time_is_ready_when_it_has_what_that_one_shows(world: World) -> None:
    """Its rows are newer than its checkpoints' reports, but not newer than the log."""
    world.cluster.create_topic("in", partitions=1, config={}, replication_factor=1)

    def events(count: int) -> None:
        world.cluster.writer().append([NewRecord("in", b"a", b"1", partition=0)] * count)

    events(8)
    world.write("views.v", "a", 1, 1)
    world.ledger.submit("v", VersionOpened(1, world.definition("one")))
    world.told("v", 5, "realtime")
    world.apply()
    world.ledger.submit("v", DefinitionChanged(world.definition("two"), "changed"))
    world.write("views.v.v2", "a", 2, 1)
    states = []
    for reached in (4, 5, 7, 8):
        world.told("v@2", reached)
        world.ledger.step()
        events(1)  # it need not wait for these: it follows by now
        coming = world.ledger.state["v"].coming
        states.append(None if coming is None else coming.state)
    assert states == ["building", "building", "building", "building"]
    world.told("v@2", 9)  # the log's end when it had read the reported positions
    world.ledger.step()
    coming = world.ledger.state["v"].coming
    assert coming is not None and coming.state == "ready"


def test_a_definition_comes_back_from_the_log_as_it_was(world: World) -> None:
    view = world.bench.view
    assert view_of(body_of(view)) == view
    assert view.of_version(2) != view and view.of_version(2).changelog == "views.v.v2"
    assert view.of_version(2, "v").table == "v"


def test_readers_get_the_next_version_whole_and_the_former_one_back(world: World) -> None:
    world.swapped()
    assert world.rows() == {"a": 2}
    assert world.store.names() == ["v"] and world.store.views() == ["v", "v@2"]
    report = world.ledger.state["v"].served.comparison
    assert report is not None and (report["rows_before"], report["rows_after"], report["differing"]) == (
        2,
        1,
        1,
    )
    world.ledger.submit("v", CommandReceived("x", "rollback"))
    world.apply()
    assert world.rows() == {"a": 1, "b": 1}


def test_a_version_is_not_ready_before_it_has_read_what_the_served_one_has(world: World) -> None:
    world.ledger.submit("v", VersionOpened(1, world.definition("one")))
    world.told("v", 5)
    world.ledger.submit("v", DefinitionChanged(world.definition("two"), "changed"))
    world.told("v@2", 4)
    world.ledger.step()
    assert world.ledger.state["v"].versions[1].state == "building"
    world.told("v@2", 6, "bulk")
    world.ledger.step()
    assert world.ledger.state["v"].versions[1].state == "building"
    world.told("v@2", 6)
    world.ledger.step()
    assert world.ledger.state["v"].versions[1].state == "ready"


def test_a_store_that_is_behind_keeps_its_readers_where_the_rows_are(world: World) -> None:
    world.swapped()
    behind = Store(f"sqlite:///{world.bench.store.url.removeprefix('sqlite:///')}.behind")
    world.store = behind
    world.bench.applier = type(world.bench.applier)(world.cluster, world.bench.schemas, behind)
    told = known_versions(Store(world.bench.store.url).progress())
    schema = json.loads(world.bench.schemas.schema(1))
    # It has all of version 1, but only the table of version 2.
    behind.ensure_view("v", schema, [], "id")
    behind.ensure_view("v@2", schema, [], world.cluster.topics()["views.v.v2"].topic_id)
    world.bench.applier.follow(followed_versions([world.bench.view], told, every=True))
    assert keep_versions(behind, world.bench.applier, told) == {"v": "v"}
    world.bench.drain()
    assert keep_versions(behind, world.bench.applier, told) == {"v": "v@2"}


def test_a_dropped_version_leaves_the_store(world: World) -> None:
    world.swapped()
    state = world.ledger.state["v"].former
    assert state is not None
    world.ledger.submit("v", CommandReceived("x", "drop", 1))
    world.apply()
    assert world.store.views() == ["v@2"] and world.rows() == {"a": 2}
    assert world.store.view("v").name == "v"
    assert world.ledger.state["v"].dropping == (None,)
    world.ledger.removed("v", None)
    assert world.ledger.state["v"].dropping == ()
    with pytest.raises(NotFound, match='view "w"'):
        world.store.view("w")


def test_a_store_that_begins_anew_shows_the_served_version_as_it_fills(world: World, tmp_path: Path) -> None:
    world.swapped()
    world.ledger.submit("v", CommandReceived("x", "drop", 1))
    told = known_versions(Store(world.bench.store.url).progress())
    told["v"] = world.ledger.state["v"]
    fresh = Store(f"sqlite:///{tmp_path / 'fresh.db'}")
    applier = type(world.bench.applier)(world.cluster, world.bench.schemas, fresh)
    applier.follow(followed_versions([world.bench.view], told, every=True))
    assert fresh.views() == ["v@2"] and fresh.names() == []
    assert keep_versions(fresh, applier, told) == {"v": "v@2"}
    assert fresh.names() == ["v"]


def test_progress_is_told_under_the_name_that_is_read(world: World) -> None:
    world.swapped()
    state = ViewState("v@2", "live", 1, None, "", "", {})
    world.cluster.writer().append([state.record()])
    world.apply()
    told = world.store.progress()
    assert told["progress:v"]["view"] == "v@2" and told["version.progress:v"]["view"] == "v"
    assert told["state:v"]["view"] == "v@2" and "state:v@2" not in told
    shown = shown_versions(told, "v")
    assert [(each["number"], each["state"], each["behind"]) for each in shown] == [
        (1, "former", 0),
        (2, "served", 0),
    ]
    assert shown[1]["engine"] == "live"


def test_subscribers_hear_reset_and_the_rows_of_the_next_version(world: World) -> None:
    async def heard() -> list[tuple[str, Any]]:
        watcher = Watcher(world.store)
        watching = asyncio.create_task(watcher.run())
        found: list[tuple[str, Any]] = []
        async with aclosing(subscribe(world.store, watcher, SubscriptionRequest("v"))) as events:
            async for event in events:
                found.append((event.name, event.body.get("key")))
                if event.name == "synced":
                    if ("reset", None) in found:
                        break
                    world.ledger.submit("v", CommandReceived("x", "rollback"))
                    world.apply()
        watching.cancel()
        return found

    world.swapped()
    names = asyncio.run(asyncio.wait_for(heard(), 20.0))
    assert names == [
        ("snapshot", "a"),
        ("synced", None),
        ("reset", None),
        ("snapshot", "a"),
        ("snapshot", "b"),
        ("synced", None),
    ]


def test_a_ledger_that_begins_again_knows_what_was_decided_and_what_was_not(world: World) -> None:
    world.swapped()
    assert world.opened().state == world.ledger.state
    world.cluster.writer().append([wanted_record("v", CommandReceived("id", "rollback"))])
    again = world.opened()  # the first one died before it looked
    again.step()
    assert again.state["v"].served.number == 1 and again.state["v"].answered == "id"
    third = world.opened()
    before = len(world.cluster.logs[PROGRESS_TOPIC][0])
    third.step()
    assert third.state == again.state and len(world.cluster.logs[PROGRESS_TOPIC][0]) == before


def test_a_ledger_leaves_other_projects_views_alone_and_follows_them(world: World) -> None:
    world.swapped()
    other = world.opened()
    other.own = frozenset({"w"})
    world.cluster.writer().append([wanted_record("v", CommandReceived("id", "rollback"))])
    other.step()
    assert other.served("v") == "v@2" and other.state["v"].answered is None
    world.ledger.step()
    other.step()
    assert other.served("v") == "v"
    assert (other.public("v"), other.public("v@2")) == ("v", None)


def test_what_cannot_be_written_has_not_happened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.swapped()

    class Broken:
        def append(self, _: object) -> Positions:
            raise NotFound("away")

        def close(self) -> None: ...

    before = world.ledger.state["v"]
    monkeypatch.setattr(world.ledger, "writer", Broken())
    with pytest.raises(NotFound):
        world.ledger.submit("v", CommandReceived("y", "rollback"))
    assert world.ledger.state["v"] == before
    assert world.ledger.submit("v", TimePassed()) == before
    assert world.ledger.submit("v", VersionCompared(2, {})) == before
    assert world.ledger.submit("v", VersionCaughtUp(2, Positions())) == before


def test_a_sql_view_means_something_else_over_another_version_of_a_view() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "site", "type": "string"}]}

    def fingerprint(topic: str) -> str:
        view = SqlView.model_validate(
            {
                "view": "a",
                "sources": {"v": {"view": "b"}},
                "sql": "SELECT site, count(*) AS n FROM v GROUP BY site",
            }
        )
        source = view.sources["v"].model_copy(update={"topic": topic})
        read = view.model_copy(update={"sources": {"v": source}})
        inputs = (
            Input(SourcePlan("v", topic, ("site",), "", None, False, None, None), (topic,), (), schema),
        )
        return sql_fingerprint(classify(checked(read, {"v": schema})), inputs, None, 1)

    assert fingerprint("views.b") == fingerprint("views.b") != fingerprint("views.b.v2")
