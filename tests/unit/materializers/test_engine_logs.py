"""The logs that a view's engine reads and writes: recreated, grown, joined by others, silent. No Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from hub.config import Settings
from hub.errors import HubError, PeerError
from hub.kafka import KafkaCluster
from hub.log import MemoryCluster, MemoryReader
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import view_files
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.plans.checkpoint_note import CheckpointFolder
from hub.materializers.engine.plans.compile import CompiledView
from hub.materializers.engine.plans.definitions import DefinitionChoice
from hub.materializers.engine.plans.generations import GenerationChoice
from hub.materializers.engine.plans.planner import have_changed
from hub.materializers.engine.plans.slot_demand import foreseen_slots
from hub.materializers.engine.standby import starting
from hub.materializers.isolation.processes import SharedProcess
from hub.materializers.progress.progress_queue import ProgressQueue
from hub.materializers.progress.published import published_progress
from hub.materializers.progress.records import PROGRESS_TOPIC, Progress, ViewState
from hub.materializers.spark import session as spark
from hub.materializers.spark.formats.decode import Input, SchemaAnswers
from hub.materializers.spark.slots import Slots
from hub.materializers.versions.version_log import VersionLog
from hub.record import Positions, TopicPartition

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}]}
FILE = "view: v\nsources: {s: {topic: crm.*.orders, key: k}}\nfields: {k: s.k}\n"


class Stage:
    """A view of a pattern of topics, in a project folder."""

    def __init__(self, folder: Path) -> None:
        self.cluster = MemoryCluster()
        for name in ("crm.a.orders", PROGRESS_TOPIC):
            self.topic(name)
        self.settings = Settings(project=folder, home=folder / "home")
        (folder / "views").mkdir()
        (folder / "views" / "v.yaml").write_text(FILE)
        self.board = ProgressQueue(cast(Any, self.cluster), self.cluster.writer())
        self.view = View.model_validate(
            {"view": "v", "sources": {"s": {"topic": "crm.*.orders", "key": "k"}}, "fields": {"k": "s.k"}}
        )
        self.name = VersionName(folder / "views" / "v.yaml")
        cluster, none = cast(Any, self.cluster), cast(Any, None)
        versions, isolation = VersionLog(cluster, self.cluster.writer()), SharedProcess(self.settings)
        self.parts = EngineParts(
            self.settings, none, Slots(4, 4, 8), cluster, none, self.board, versions, isolation
        )
        self.planned_topics: dict[str, tuple[str, int]] = {}

    @property
    def folder(self) -> CheckpointFolder:
        return CheckpointFolder(self.settings.checkpoints, "v", "v", self.settings.damaged_rebuilds)

    def stale(self, plan: spark.ViewPlan) -> bool:
        return have_changed(self.planned_topics, plan.inputs, self.cluster.topics())

    def topic(self, name: str, partitions: int = 1) -> None:
        """Create or recreate the topic."""
        self.cluster.logs.pop(name, None)
        self.cluster.create_topic(name, partitions=partitions, config={}, replication_factor=1)

    def remove(self, name: str) -> None:
        del self.cluster.logs[name], self.cluster.descriptions[name]

    def planned(self, *static: str) -> spark.ViewPlan:
        """Plan like the planner, for topics; ``static``: topics of a static table."""
        compiled = shape(self.view, {"s": SCHEMA})
        mine = tuple(sorted(name for name in self.cluster.topics() if name.startswith("crm.")))
        inputs = [Input(compiled.sources[0], mine, (), SCHEMA)]
        inputs += [Input(replace(compiled.sources[0], topic=name), (name,), (), SCHEMA) for name in static]
        known = self.cluster.topics()
        read = [*mine, *static]
        self.planned_topics = {name: (known[name].topic_id, known[name].partitions) for name in read}
        return spark.ViewPlan(
            compiled, tuple(inputs), SchemaAnswers(), SCHEMA, 1, 1, self.settings.checkpoints, 2
        )

    def generation(self, rules: int = 1) -> int:
        """Report of a start of the hub."""
        mine = {n: each.topic_id for n, each in self.cluster.topics().items() if n.startswith("crm.")}
        made = CompiledView(self.view, (), SCHEMA, "one", rules)
        return GenerationChoice(self.parts, self.name, self.folder).choose(made, mine, 2).number

    def rules(self) -> int:
        return DefinitionChoice(self.parts, self.name, cast(Any, None), self.folder).rules()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_plan_with_a_static_table_beside_is_not_stale_by_itself(stage: Stage) -> None:
    stage.topic("cities", 2)
    plan = stage.planned("cities")
    assert not stage.stale(plan)
    stage.cluster.add_partitions("cities", 3)
    assert stage.stale(plan)


@pytest.mark.parametrize("topic", ["crm.a.orders", "cities"])
def test_a_plan_is_stale_when_a_topic_of_it_is_another_one_by_now(stage: Stage, topic: str) -> None:
    stage.topic("cities")
    plan = stage.planned("cities")
    stage.topic(topic)
    assert stage.stale(plan)


def test_a_topic_that_joined_a_pattern_later_is_missed_when_it_is_made_anew_or_gone(stage: Stage) -> None:
    assert [stage.generation(), stage.generation()] == [1, 1]
    stage.topic("crm.b.orders")
    assert stage.generation() == 1  # from its start, with the state that is there
    stage.topic("crm.b.orders")
    assert stage.generation() == 2
    stage.topic("crm.c.orders")
    assert stage.generation() == 2
    stage.remove("crm.c.orders")
    assert stage.generation() == 3
    note = orjson.loads((stage.settings.checkpoints / "v" / "plan.json").read_bytes())
    assert sorted(note["topics"]) == ["crm.a.orders", "crm.b.orders"] and note["fingerprint"] == "one"


def test_a_state_that_was_made_before_rules_had_numbers_goes_on_with_its_own(stage: Stage) -> None:
    """Versions with columns that have neither defaults nor aliases."""
    assert stage.generation() == 1 and stage.rules() == 1
    path = stage.settings.checkpoints / "v" / "plan.json"
    note = orjson.loads(path.read_bytes())
    of = {
        "type": "record",
        "name": "E",
        "fields": [{"name": "cur", "type": "string", "default": "EUR", "aliases": ["c"]}],
    }
    before = {
        **{key: each for key, each in note.items() if key not in ("rules", "resolves")},
        "latest": {"s": of},
    }
    path.write_bytes(orjson.dumps(before))
    assert stage.rules() == 0
    assert stage.generation(rules=0) == 1
    note = orjson.loads(path.read_bytes())
    assert (note["rules"], note["resolves"]) == (0, True)
    assert note["latest"]["s"]["fields"] == [{"name": "cur", "type": "string", "default": None}]


def test_a_changelog_that_does_not_answer_holds_up_its_own_view_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, board = stage.cluster, stage.board
    shown: list[str] = []

    def publish(positions: Mapping[str, Positions]) -> Mapping[str, PeerError]:
        shown.extend(positions)
        return refused

    refused: dict[str, PeerError] = {}
    monkeypatch.setattr(cluster, "publish_groups", publish, raising=False)
    for name in ("views.a", "views.b"):
        stage.topic(name, 2)
    silent = {TopicPartition("views.a", 1)}
    known_ends = cluster.known_ends
    monkeypatch.setattr(cluster, "known_ends", lambda wanted: known_ends(set(wanted) - silent))

    def told() -> list[str]:
        keys = [str((each.key or b"").decode()) for each in cluster.logs[PROGRESS_TOPIC][0]]
        del cluster.logs[PROGRESS_TOPIC][0][:]
        return sorted(keys)

    def report(batch: int) -> None:
        for view in "ab":
            progress = Progress(view, 1, batch, "live", Positions(), Positions(), 1, 1, 1)
            board.report(progress, f"views.{view}")
        board.report_state(ViewState("a", "live", 1, None, "", "", {}))
        board.post()

    report(1)
    assert told() == ["progress:b", "state:a"] and shown == ["hub.view.b"]
    report(2)
    assert told() == ["progress:b", "state:a"] and list(board.progress) == ["a"]
    silent.clear()
    board.post()
    assert told() == []  # each question may take as long as a request: it is not asked again at once
    board.ask_at.clear()
    board.post()
    assert told() == ["progress:a"] and board.progress == {} and shown[-1] == "hub.view.a"

    def away(*_: object) -> Any:
        raise PeerError("away", code="HUB-3010")

    refused["hub.view.a"] = PeerError("it has members", code="HUB-3012")
    refused["hub.view.b"] = PeerError("no coordinator", code="HUB-3010")
    report(3)
    assert told() == ["progress:a", "progress:b", "state:a"]
    assert sorted(board.progress) == ["b"]  # what Kafka refuses is not tried again
    monkeypatch.setattr(cluster, "publish_groups", away)
    report(3)
    assert told() == ["progress:a", "progress:b", "state:a"]
    assert sorted(board.progress) == ["a", "b"]  # reported and shown once more
    monkeypatch.setattr(cluster, "known_ends", away)
    board.report_state(ViewState("b", "live", 1, None, "", "", {}))
    board.post()
    assert (sorted(board.progress), list(board.states), told()) == (["a", "b"], ["b"], [])


def test_half_of_the_progress_is_not_taken_for_all(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress("v", 5, 1, "live", Positions(), Positions(), 1, 1, 1)
    stage.cluster.writer().append([progress.record()])
    assert published_progress(stage.cluster, "v", "views.v", 10.0) == progress
    assert stage.generation() == 6
    monkeypatch.setattr(MemoryReader, "poll", lambda *_: [])
    with pytest.raises(HubError, match="cannot be read to its end"):
        published_progress(stage.cluster, "v", "views.v", 0.05)


def test_a_file_that_cannot_be_opened_is_its_own_views_trouble(stage: Stage) -> None:
    views = stage.settings.project / "views"
    (views / "folder.yaml").mkdir()
    assert foreseen_slots(stage.settings, cast(Any, stage.cluster)).most is not None
    (views / ".#v.yaml").symlink_to("who@where.1234")  # Emacs, of a file that is not saved
    (views / "gone.yaml").symlink_to(views / "nothing.yaml")
    assert [path.name for path in view_files(stage.settings.project)] == ["folder.yaml", "v.yaml"]


class _Away(MemoryCluster):
    """A Kafka that answers, then is away for the first ``fails`` questions about ends."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.fails = fails

    def wait_ready(self, timeout_s: float) -> None:
        assert timeout_s > 0

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        self.fails -= 1
        if self.fails >= 0:
            raise PeerError("list offsets: Broker transport failure")
        return super().end_offsets(topics, committed=committed)


def test_a_materializer_whose_kafka_is_away_just_after_it_answered_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starting, "_AGAIN_S", 0.0)
    away = _Away(fails=2)
    starting.make_progress_topic(cast(KafkaCluster, away), Settings())
    versions = starting.open_versions(cast(KafkaCluster, away), Settings())
    assert away.fails < 0
    assert versions.all() == {}
    versions.close()


def test_a_materializer_gives_up_after_its_start_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_AGAIN_S", 0.0)
    away = cast(KafkaCluster, _Away(fails=10**9))
    starting.make_progress_topic(away, Settings())
    with pytest.raises(PeerError, match="Broker transport failure"):
        starting.open_versions(away, Settings(start_timeout_s=0.05))
