"""A reversed mirror copies home the records written at the target, and no copy outside its map."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hub.errors import HubFault
from hub.log import TopicDescription
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.replication.clusters.status_records import CarriedTopic
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import Mirror
from hub.replication.engine import shard_start
from hub.replication.engine.shard_start import ShardAssignment, ShardStart
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, MapRecord, checkpoint_of
from hub.replication.maps.imported_copy import ImportedCopy, born_from, copied_of
from hub.replication.maps.offset_map import Run
from hub.replication.migration import import_writing
from hub.replication.migration.alignment import Alignment
from hub.replication.migration.import_plan import ImportedPartition, table_of
from hub.replication.migration.import_writing import checkpoint_after, write_shard
from hub.replication.operations import catch_up
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.links import BACK, Link
from hub.replication.ownership.shards import Shard

CHAT = TopicPartition("chat", 0)
MIRROR = Mirror(source="nyc", target="lon", topics=["chat"], on_recreate="continue")
FORTH = Link("nyc-lon", MIRROR, "nyc-lon")
HOME = Link("nyc-lon" + BACK, MIRROR.model_copy(update={"source": "lon", "target": "nyc"}), "nyc-lon")


class Side:
    """A cluster with one topic: its id, its first offset and its end, and what mirrors wrote there."""

    def __init__(self, topic_id: str, begin: int, end: int, *wrote: NewRecord) -> None:
        self.topic_id, self.begin, self.end, self.wrote = topic_id, begin, end, wrote
        self.kafka, self.access, self.name = self, None, topic_id

    def topics(self) -> dict[str, TopicDescription]:
        return {
            "chat": TopicDescription("chat", self.topic_id, 1, 1),
            CHECKPOINTS_TOPIC: TopicDescription(CHECKPOINTS_TOPIC, "own", 8, 1),
        }

    def beginning_offsets(self, topics: Any) -> Positions:
        return Positions({CHAT: self.begin})

    def end_offsets(self, topics: Any, *, committed: bool = True) -> Positions:
        return Positions({CHAT: self.end})

    def records(self) -> list[Record]:
        return [record_of(each, number) for number, each in enumerate(self.wrote)]

    def progress(self) -> WrittenState:
        made = WrittenState()
        for each in self.records():
            made.apply(each)
        return made


def record_of(each: NewRecord, offset: int = 0) -> Record:
    return Record(each.topic, each.partition or 0, offset, 0, each.key, each.value)


def mark(
    link: str, source_id: str, target_id: str, source: tuple[int, int], target: tuple[int, int]
) -> Checkpoint:
    return Checkpoint(
        link, 0, *CHAT, source_id, source[1], -1, target[1], target_id, source_start=source[0],
        target_start=target[0],
        generation=int(source_id in ("new", "again")),
    )  # fmt: skip


def seeded(
    monkeypatch: pytest.MonkeyPatch, link: Link, source: Side, target: Side, opposite: str = ""
) -> Checkpoint:
    monkeypatch.setattr(shard_start, "read_progress", lambda side, **_: side.progress())
    monkeypatch.setattr(
        shard_start,
        "read_to_end",
        lambda side, _, take: [take(each) for each in side.records()],
        raising=False,
    )
    start = ShardStart(Shard(link.name, 0), link, cast(Any, source), cast(Any, target))
    wish = ShardAssignment(
        (CHAT,), {"chat": CarriedTopic(1, source.topic_id, 1)}, {"chat": opposite} if opposite else {}
    )
    _, born = start.foreign(wish, [CHAT])
    known = target.progress().of(link.name)
    made = [record_of(each) for each in start.seeds(wish, [CHAT], known, born)]
    return next(each for one in made if isinstance(each := checkpoint_of(one), Checkpoint))


def test_what_a_topic_had_before_it_was_made_anew_does_not_go_home(monkeypatch: pytest.MonkeyPatch) -> None:
    forth = mark("nyc-lon", "new", "lon", (0, 20), (100, 120))
    runs = MapRecord("nyc-lon", "chat", "new", 0, (Run(0, 100, 20),))
    away, home = Side("lon", 7, 150, forth.record(), runs.record()), Side("new", 0, 20)
    assert seeded(monkeypatch, HOME, away, home, "nyc-lon").source_next == 100


def test_what_came_twice_or_was_not_compared_does_not_go_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of an import: compared from 30 on, "10 to 14" twice, and its end came twice too."""
    forth = mark("nyc-lon", "nyc", "lon", (10, 40), (30, 65))
    runs = MapRecord("nyc-lon", "chat", "nyc", 0, (Run(10, 30, 5), Run(15, 40, 25)))
    noted = ImportedCopy("nyc-lon", *CHAT, "lon", 70)
    away = Side("lon", 0, 90, forth.record(), runs.record(), noted.record())
    assert seeded(monkeypatch, HOME, away, Side("nyc", 0, 40), "nyc-lon").source_next == 70


def test_what_was_born_away_goes_to_a_home_that_was_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy ended at 100, 50 more were born away:
    home's new topic is appended behind, and its map begins before them."""
    forth = mark("nyc-lon", "old", "lon", (0, 100), (0, 100))
    made = seeded(monkeypatch, FORTH, Side("new", 0, 3), Side("lon", 0, 150, forth.record()))
    assert (made.topic_id, made.source_next, made.target_start, made.target_next) == ("new", 0, 100, 100)
    away = Side("lon", 0, 150, made.record())
    assert seeded(monkeypatch, HOME, away, Side("new", 0, 3), "nyc-lon").source_next == 100


@pytest.mark.parametrize(("home_id", "away_id"), [("rebuilt", "lon"), ("nyc", "rebuilt")])
def test_a_side_that_has_another_topic_now_gets_all_that_the_other_has(
    monkeypatch: pytest.MonkeyPatch, home_id: str, away_id: str
) -> None:
    """The map is of a log that is gone: home was lost with its data,
    or away's topic was made anew while it acted."""
    forth = mark("nyc-lon", "nyc", "lon", (0, 100), (0, 100))
    runs = MapRecord("nyc-lon", "chat", "nyc", 0, (Run(0, 0, 100),))
    away, home = Side(away_id, 0, 150, forth.record(), runs.record()), Side(home_id, 0, 3)
    assert seeded(monkeypatch, HOME, away, home, "nyc-lon").source_next == 0
    start = ShardStart(Shard(HOME.name, 0), HOME, cast(Any, away), cast(Any, home))
    wish = ShardAssignment((CHAT,), {"chat": CarriedTopic(1, away_id, 1)}, {"chat": "nyc-lon"})
    assert start.foreign(wish, [CHAT])[0] == {CHAT: []}


def test_maps_of_two_directions_are_joined_where_they_are_of_the_same_topics() -> None:
    forth = mark("nyc-lon", "nyc", "lon", (0, 100), (0, 100))
    home = mark(HOME.name, "lon", "nyc", (0, 150), (0, 150))
    assert forth.goes_back(home) and home.goes_back(forth)
    assert not forth.goes_back(mark(HOME.name, "lon", "rebuilt", (0, 150), (0, 150)))
    assert forth.goes_back(mark(HOME.name, "", "", (0, 150), (0, 150)))  # brokers before 2.8 have no ids


def test_a_note_is_of_one_topic_and_one_that_nobody_wrote_is_named() -> None:
    noted = ImportedCopy("nyc-lon", *CHAT, "lon", 70)
    assert copied_of(record_of(noted.record())) == noted
    assert copied_of(record_of(NewRecord(CHECKPOINTS_TOPIC, noted.key, None))) is None
    assert checkpoint_of(record_of(noted.record())) is None
    assert born_from(mark("nyc-lon", "new", "again", (0, 9), (5, 9)), noted) == 5
    # The way home began behind what home has of its own, and that is not a copy.
    assert born_from(mark("nyc-lon~back", "lon", "nyc", (0, 9), (5, 9)), None) == 0
    with pytest.raises(HubFault, match="not a record of a mirror"):
        copied_of(record_of(NewRecord(CHECKPOINTS_TOPIC, noted.key, b"{}")))


@pytest.mark.parametrize("runs", [(), (Run(0, 0, 40),), (Run(0, 0, 20), Run(20, 25, 20))])
def test_the_map_of_an_import_reaches_its_checkpoint_whatever_the_copy_ends_in(runs: tuple[Run, ...]) -> None:
    place = ImportedPartition(CHAT, "ready", Alignment(40 if runs else 0, runs), target_next=48)
    made = checkpoint_after(FORTH, place, "nyc", "lon", 0)
    wrote = [made.record()]
    if runs:
        wrote.insert(0, MapRecord("nyc-lon", "chat", "nyc", 0, runs).record())
    table = Side("lon", 0, 48, *wrote).progress().table("nyc-lon", CHAT)
    assert table is not None
    assert table.translate(made.source_next) == table_of(place).translate(made.source_next)


def test_an_import_notes_how_far_the_copy_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    wrote: list[NewRecord] = []
    source, target = Side("nyc", 0, 40), Side("lon", 0, 48)
    writer = SimpleNamespace(append=wrote.extend, close=lambda: None)
    target.writer = lambda name: writer  # type: ignore[attr-defined]
    monkeypatch.setattr(import_writing, "read_progress", lambda side, **_: side.progress())
    copied = ImportedPartition(CHAT, "ready", Alignment(40, (Run(0, 0, 40),)), target_next=48)
    write_shard(0, [copied], FORTH, cast(Any, source), cast(Any, target))
    (noted,) = [each for one in wrote if (each := copied_of(record_of(one))) is not None]
    assert noted == ImportedCopy("nyc-lon", *CHAT, "lon", 48)


@pytest.mark.parametrize(("topic_id", "behind"), [("nyc", {}), ("again", {"chat": 30})])
def test_a_drain_judges_a_topic_made_anew_by_its_own_offsets(
    monkeypatch: pytest.MonkeyPatch, topic_id: str, behind: dict[str, int]
) -> None:
    progress = Side("lon", 0, 0, mark("nyc-lon", "nyc", "lon", (0, 100), (0, 100)).record()).progress()
    side = cast(Any, Side(topic_id, 0, 30))
    world = MirroredClusters(cast(Any, None), {"nyc": side})
    monkeypatch.setattr(world, "carried", lambda *_: ["chat"])
    monkeypatch.setattr(world, "ways", lambda *_: [FORTH])
    assert catch_up.behind(world, progress, "nyc", "lon", "nyc")[0] == behind
    assert catch_up.topics_of(side)["chat"].topic_id == topic_id
