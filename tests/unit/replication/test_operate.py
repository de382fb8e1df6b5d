"""A change of ownership against staged clusters: reads, writes, and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from hub.errors import Conflict, NotFound
from hub.log import TopicDescription
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, Gap, MapRecord, checkpoint_of
from hub.replication.maps.offset_map import OffsetMap, Run
from hub.replication.operations import catch_up, effects
from hub.replication.operations import operator as operate
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.operations.operator import Operator
from hub.replication.ownership import failover
from hub.replication.ownership.failover import Control
from hub.replication.ownership.group_offsets import GroupSides
from hub.replication.ownership.links import BACK, links
from hub.replication.ownership.operation_steps import Kind, Ownership, OwnershipChange, StepName

CHAT, LOOT = TopicPartition("nyc.chat", 0), TopicPartition("nyc.loot", 0)


def file(**mirrors: dict[str, Any]) -> MirrorsFile:
    owns = {"nyc": ["nyc.**"], "lon": ["lon.**"], "par": []}
    return MirrorsFile.model_validate(
        {
            "clusters": {name: {"bootstrap": "h:1", "owns": said} for name, said in owns.items()},
            "mirrors": {name.replace("_", "-"): said | {"shards": 2} for name, said in mirrors.items()},
        }
    )


FAN = file(
    nyc_lon={"source": "nyc", "target": "lon", "topics": ["nyc.**"]},
    nyc_par={"source": "nyc", "target": "par", "topics": ["nyc.**"]},
)
AWAY = Control(
    {"nyc": Ownership("nyc", "lon", 1)},
    {"nyc": OwnershipChange("1", "failover", "nyc-lon", "nyc", "nyc", "lon", 1, state="done")},
)


@dataclass
class Side:
    """A cluster with topics by name: their ids, and how far they reach.
    ``wrote``: what mirrors wrote there."""

    name: str
    topics_: dict[str, tuple[str, int]]
    wrote: list[NewRecord] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)

    @property
    def kafka(self) -> Side:
        return self

    def topics(self) -> dict[str, TopicDescription]:
        own = {CHECKPOINTS_TOPIC: TopicDescription(CHECKPOINTS_TOPIC, "own", 8, 1)}
        return own | {name: TopicDescription(name, each[0], 1, 1) for name, each in self.topics_.items()}

    def end_offsets(self, topics: Iterable[str], *, committed: bool = True) -> Positions:
        if gone := set(topics) - self.topics_.keys():
            raise NotFound(f'topic "{min(gone)}" does not exist')
        return Positions({TopicPartition(name, 0): self.topics_[name][1] for name in topics})

    def check_open(self) -> None:
        """This cluster is in no closed region."""

    def access_rules(self) -> None:
        """It checks no access."""

    def beginning_offsets(self, topics: Iterable[str]) -> Positions:
        return Positions({TopicPartition(name, 0): 0 for name in topics})

    def writer(self, transactional_id: str | None = None) -> Any:
        self.opened.append(transactional_id or "")
        return SimpleNamespace(append=self.wrote.extend, close=lambda: None)

    def progress(self) -> WrittenState:
        made = WrittenState()
        for offset, each in enumerate(self.wrote):
            made.apply(Record(each.topic, each.partition or 0, offset, 0, each.key, each.value))
        return made


def operator(
    monkeypatch: pytest.MonkeyPatch, said: MirrorsFile, control: Control, *sides: Side, up: bool = True
) -> Operator:
    made = Operator(MirroredClusters(said, cast(Any, {each.name: each for each in sides})))
    monkeypatch.setattr(made.world, "control", lambda: control)
    monkeypatch.setattr(made.world, "is_up", lambda name: up or name != "nyc")
    monkeypatch.setattr(operate, "not_mirrored", lambda *_: {})
    for module in (operate, effects, catch_up):
        monkeypatch.setattr(module, "read_progress", lambda side, **_: side.progress())
    monkeypatch.setattr(effects, "read_control_state", lambda side, **_: ControlState())

    def tables(side: Side, link: str) -> tuple[WrittenState, dict[TopicPartition, OffsetMap]]:
        known = side.progress()
        return known, {tp: cast(OffsetMap, known.table(link, tp)) for tp in known.of(link)}

    monkeypatch.setattr(effects, "complete_tables", tables)
    return made


def mark(link: str, tp: TopicPartition, ids: tuple[str, str], source: int, target: int) -> list[NewRecord]:
    """What a mirror wrote that has carried so many records."""
    made = Checkpoint(link, 0, *tp, ids[0], source, -1, target, target_topic_id=ids[1])
    return [made.record(), MapRecord(link, tp.topic, ids[0], tp.partition, (Run(0, 0, target),)).record()]


@pytest.mark.parametrize("kind", ["switchover", "failover"])
def test_what_was_born_away_is_not_handed_to_a_cluster_that_never_got_it(
    monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """lon acts for nyc; par has what nyc had, at most."""
    sides = [Side(name, {"nyc.chat": (name, 100)}) for name in ("nyc", "lon", "par")]
    made = operator(monkeypatch, FAN, AWAY, *sides)
    with pytest.raises(Conflict, match="no mirror copied the records written there to par") as refused:
        made.begin(kind, "nyc-par", "nyc", "par", id="2")
    assert refused.value.code == "HUB-1965" and "hub mirror failback" in str(refused.value.hint)
    assert made.begin("failback", "nyc-lon", "nyc", "nyc", id="2").old == "lon"


def test_a_report_has_each_group_with_all_that_it_reads_of_several_mirrors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = file(
        chat={"source": "nyc", "target": "lon", "topics": ["nyc.chat"]},
        loot={"source": "nyc", "target": "lon", "topics": ["nyc.loot"]},
    )
    lon = Side("lon", {}, [*mark("chat", CHAT, ("a", "b"), 9, 9), *mark("loot", LOOT, ("c", "d"), 9, 9)])
    made = operator(monkeypatch, two, Control(), Side("nyc", {}), lon, up=False)
    seen = {"chat": GroupSides("g", {CHAT: 8}, {CHAT: 5}), "loot": GroupSides("g", {LOOT: 8}, {LOOT: 7})}
    monkeypatch.setattr(effects, "group_sides", lambda _world, link, *_: [seen[link.name]])
    report = effects.loss_report(made.world, "nyc", "nyc", "lon")
    assert {each.place: each.redelivered for each in report.effects} == {CHAT: 3, LOOT: 1}


def test_a_rehearsed_failback_does_not_count_what_came_from_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failover after 100 of chat; 20 more were born at lon, and a topic that home never had."""
    lon = Side(
        "lon", {"nyc.chat": ("b", 120), "nyc.loot": ("d", 7)}, mark("nyc-lon", CHAT, ("a", "b"), 100, 100)
    )
    made = operator(monkeypatch, FAN, AWAY, Side("nyc", {"nyc.chat": ("a", 130)}), lon)
    monkeypatch.setattr(effects, "group_sides", lambda *_: [])
    losses = effects.loss_report(made.world, "nyc", "lon", "nyc").losses
    assert [(each.place, each.first, each.end) for each in losses] == [(CHAT, 100, 120), (LOOT, 0, 7)]


def test_a_tail_is_discarded_of_what_is_still_the_topic_that_was_mirrored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """nyc.loot was deleted, nyc.made was made anew since."""
    remade = TopicPartition("nyc.made", 0)
    lon = Side("lon", {})
    for tp in (CHAT, LOOT, remade):
        lon.wrote += mark("nyc-lon", tp, ("a", "b"), 100, 100)
    home = Side("nyc", {"nyc.chat": ("a", 130), "nyc.made": ("new", 110)})
    before = len(lon.wrote)
    world = operator(monkeypatch, FAN, AWAY, home, lon).world
    catch_up.discard(world, "lon", catch_up.tails(world, "nyc", "lon", "nyc"))
    said = [checkpoint_of(Record(each.topic, 0, 0, 0, each.key, each.value)) for each in lon.wrote[before:]]
    assert [(gap.topic, gap.first, gap.end) for gap in said if isinstance(gap, Gap)] == [
        ("nyc.chat", 100, 130)
    ]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("step", "at", "link"), [("fence_home", "nyc", "nyc-lon" + BACK), ("start_back", "lon", "nyc-lon")]
)
def test_before_one_direction_begins_the_other_is_fenced(
    monkeypatch: pytest.MonkeyPatch, step: StepName, at: str, link: str
) -> None:
    """A worker that hung with a transaction under way:
    what it commits later is in no map that was read before."""
    sides = {name: Side(name, {"nyc.chat": (name, 9)}) for name in ("nyc", "lon")}
    made = operator(monkeypatch, FAN, AWAY, *sides.values())
    monkeypatch.setattr(made, "tell", lambda *_: None)
    back = failover.begin(AWAY, "failback", id="2", mirror="nyc-lon", home="nyc", new="nyc", now_ms=0)
    made.do(back, next(each for each in back.steps if each.name == step))
    assert sides[at].opened == [f"hub.mirror.{link}.{number}" for number in (-1, 0, 1)]
    assert links(FAN)[link].target == at


def test_a_cluster_that_was_down_is_told_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = failover.begin(Control(), "switchover", id="1", mirror="nyc-lon", home="nyc", new="lon", now_ms=0)
    undone, _ = failover.abort(begun)
    nyc, lon = Side("nyc", {}), Side("lon", {})
    made = operator(monkeypatch, FAN, Control(), nyc, lon)
    boards = {
        name: ControlState(Control({}, {"nyc": each})) for name, each in (("nyc", begun), ("lon", undone))
    }
    monkeypatch.setattr(made.world, "control_states", lambda: boards)
    assert made.remind("nyc")
    assert nyc.wrote == [undone.record()] and lon.wrote == []
    boards["nyc"] = boards["lon"]
    assert not made.remind("nyc")


def test_a_change_without_an_export_is_written_without_the_field() -> None:
    """A release that does not know the field stops at it."""
    change = OwnershipChange("1", "failback", "nyc-lon", "nyc", "lon", "nyc", 2)
    assert "export" not in orjson.loads(change.record().value or b"")
    exported = orjson.loads(replace(change, export="/tmp/lost").record().value or b"")
    assert exported["export"] == "/tmp/lost" and "home" not in exported and "topics" not in exported
