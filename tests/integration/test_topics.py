"""The tree against a real cluster and a real registry;
events in by Python, by HTTP and by the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from confluent_kafka import Producer
from pipeline import records_of
from processes import call_hub, run_hub

from hub.cli.context import environment_of
from hub.config import Settings
from hub.errors import CallerError, Conflict, NotFound, PeerError
from hub.kafka import KafkaCluster
from hub.log import NewTopic
from hub.record import NewRecord, Positions, Record
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import decode, parsed
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.topics.browse.bounded_read import MessageQuery
from hub.topics.browse.browse import Browser
from hub.topics.browse.describe import describe
from hub.topics.gateway.producer import Publisher
from hub.topics.tree.apply_plan import apply, make_plan
from hub.topics.tree.plan import Allowed, TreePlan
from hub.topics.tree.saved_plan import read as read_plan
from hub.topics.tree.saved_plan import write as write_plan
from hub.topics.tree.steps import RegisterSchema
from hub.topics.tree.tree import load

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@dataclass
class Project:
    """A folder with a tree, of topics that no other test names."""

    folder: Path
    root: str
    cluster: KafkaCluster
    registry: RegistryClient

    @property
    def topic(self) -> str:
        return f"{self.root}.orders"

    def write(self, schema: Any = ORDER, **node: object) -> None:
        (self.folder / "orders.avsc").write_text(json.dumps(schema))
        topics = {"topic": False, "topics": {"orders": {"schema": "orders.avsc", **node}}}
        (self.folder / "topics.yaml").write_text(json.dumps({"topics": {self.root: topics}}))  # JSON is YAML

    def plan(self, allowed: Allowed | None = None) -> TreePlan:
        return make_plan(load(self.folder / "topics.yaml"), self.cluster, self.registry, allowed or Allowed())

    def apply(self, allowed: Allowed | None = None) -> list[str]:
        done: list[str] = []
        apply(self.plan(allowed), self.cluster, self.registry, lambda step: done.append(type(step).__name__))
        return done

    def records(self) -> list[Record]:
        return records_of(self.cluster, self.topic)


@pytest.fixture
def project(kafka: str, hub_server: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    root = request.node.name[5:60].replace("[", "-").replace("]", "")
    made = Project(tmp_path, root, KafkaCluster(kafka, 15.0), RegistryClient(hub_server))
    made.write()
    yield made
    made.registry.close()


def reasons(made: TreePlan) -> str:
    return "\n".join(refusal.reason for refusal in made.refusals)


def test_a_tree_is_applied_and_then_there_is_nothing_to_do(project: Project) -> None:
    project.write(partitions=2, retention="7d", compatibility="FULL", config={"segment.ms": "1h"})
    assert project.apply() == ["CreateTopic", "SetCompatibility", "RegisterSchema"]
    assert project.plan().steps == ()
    assert project.apply() == []
    assert project.cluster.topics()[project.topic].partitions == 2
    assert project.cluster.topic_config([project.topic])[project.topic] == {
        "retention.ms": "604800000",
        "segment.ms": "3600000",
    }
    assert project.registry.compatibility(f"{project.topic}-value") == "FULL"
    assert project.registry.latest(f"{project.topic}-value").version == 1


def test_drift_is_shown_and_set_back(project: Project) -> None:
    project.write(config={"segment.ms": "1h"})
    project.apply()
    project.cluster.alter_config(project.topic, {"segment.ms": "70000", "max.message.bytes": "2000000"})
    (step,) = project.plan().steps
    assert str(step) == (
        f"~ topic {project.topic}  max.message.bytes 2000000 -> default, segment.ms 70000 -> 3600000"
    )
    assert project.apply() == ["AlterConfig"]
    assert project.plan().steps == ()


def test_partitions_grow_and_do_not_shrink(project: Project) -> None:
    project.apply()
    project.write(partitions=3)
    assert project.apply() == ["AddPartitions"]
    project.write(partitions=2)
    assert f"cannot shrink from 3 to 2 (set by {project.topic})" in reasons(project.plan())
    with pytest.raises(Conflict):
        project.apply()
    assert project.cluster.topics()[project.topic].partitions == 3


def test_a_schema_that_breaks_the_rule_is_refused_before_anything_is_changed(project: Project) -> None:
    project.apply()
    fields = [*ORDER["fields"], {"name": "currency", "type": "string"}]
    project.write({**ORDER, "fields": fields}, partitions=4)
    said = reasons(project.plan())
    assert "breaks BACKWARD" in said and "READER_FIELD_MISSING_DEFAULT_VALUE" in said and "currency" in said
    with pytest.raises(Conflict, match="currency"):
        project.apply()
    assert project.cluster.topics()[project.topic].partitions == 1
    project.write({**ORDER, "fields": fields}, compatibility="FORWARD")  # at this level it may
    assert project.apply() == ["SetCompatibility", "RegisterSchema"]
    assert project.plan().steps == ()


def test_going_back_to_an_old_schema_is_refused_as_producers_would_not(project: Project) -> None:
    project.apply()
    fields = [*ORDER["fields"], {"name": "currency", "type": ["null", "string"], "default": None}]
    project.write({**ORDER, "fields": fields})
    assert project.apply() == ["RegisterSchema"]
    project.write(ORDER)
    assert "version 1 of 2" in reasons(project.plan())


def test_what_the_brokers_would_refuse_is_refused_by_the_plan(project: Project) -> None:
    project.write(config={"retention.mss": 5})
    (refusal,) = project.plan().refusals
    assert refusal.hint == 'did you mean "retention.ms"?'
    project.write(config={"compression.type": "tar"})
    assert "compression.type" in reasons(project.plan())
    project.write(replication_factor=3)
    assert "replication factor" in reasons(project.plan())
    assert project.topic not in project.cluster.topics()


def test_to_keep_less_needs_the_flag(project: Project) -> None:
    project.write(retention="7d")
    project.apply()
    project.write(retention="1d")
    assert "retention.ms 604800000 -> 86400000 lowers" in reasons(project.plan())
    assert project.apply(Allowed(lower_durability=True)) == ["AlterConfig"]


def test_what_the_tree_does_not_name_is_kept_until_its_name_is_typed(project: Project) -> None:
    project.apply()
    old = f"{project.root}.old"
    project.cluster.create_topic(old, partitions=1, config={}, replication_factor=1)
    made = project.plan()
    assert made.steps == () and old in made.kept
    assert project.apply() == []
    assert "is in the tree" in reasons(project.plan(Allowed(frozenset({project.topic}))))
    assert project.apply(Allowed(frozenset({old}))) == ["DeleteTopic"]
    assert old not in project.cluster.topics()
    again = project.plan(Allowed(frozenset({old})))
    assert again.steps == () and "nothing to destroy" in again.cautions[0].reason


def test_topics_grow_change_and_return_to_the_default(project: Project) -> None:
    project.write(retention="7d", config={"segment.ms": "1h"})
    assert project.apply() == ["CreateTopic", "RegisterSchema"]
    assert project.cluster.topic_config([project.topic])[project.topic] == {
        "retention.ms": "604800000",
        "segment.ms": "3600000",
    }
    policy = "delete, compact"  # the brokers say it without the space
    project.write(retention="default", config={"segment.ms": "2h", "cleanup.policy": policy}, partitions=3)
    made = project.plan(Allowed(lower_durability=True))
    assert "moves keys" in made.cautions[0].reason
    assert project.apply(Allowed(lower_durability=True)) == ["AddPartitions", "AlterConfig"]
    assert project.cluster.topic_config([project.topic])[project.topic] == {
        "cleanup.policy": "delete,compact",
        "segment.ms": "7200000",
    }
    assert project.cluster.topics()[project.topic].partitions == 3
    assert project.apply() == []


def test_kafka_refuses_a_name_that_its_metrics_cannot_tell_apart_and_the_plan_says_so(
    project: Project,
) -> None:
    project.apply()
    twin = project.topic.replace(".", "_")
    with pytest.raises(CallerError, match="collides"):
        project.cluster.create_topic(twin, partitions=1, config={}, replication_factor=1)
    (project.folder / "topics.yaml").write_text(json.dumps({"topics": {twin: {}}}))
    assert f'collides with "{project.topic}"' in reasons(project.plan())


def test_many_topics_are_made_and_changed_in_batches(project: Project) -> None:
    def write(segment: str) -> None:
        topics = {f"t{n:03}": {} for n in range(150)}
        tree = {"topics": {project.root: {"config": {"segment.ms": segment}, "topics": topics}}}
        (project.folder / "topics.yaml").write_text(json.dumps(tree))

    write("1h")
    assert project.apply() == ["CreateTopic"] * 150
    assert project.plan().steps == ()
    write("2h")
    assert project.apply() == ["AlterConfig"] * 150
    assert project.plan().steps == ()
    names = frozenset(f"{project.root}.t{n:03}" for n in range(150))
    (project.folder / "topics.yaml").write_text("topics: {}")
    assert project.apply(Allowed(names)) == ["DeleteTopic"] * 150


def test_a_batch_that_the_brokers_take_in_part_says_which(project: Project) -> None:
    good, bad = f"{project.root}.good", f"{project.root}.bad"
    new = [NewTopic(good, 1, 1), NewTopic(bad, 1, 1, {"segment.ms": "-9"})]
    for rehearse, there in ((True, False), (False, True)):
        refused = project.cluster.create_topics(new, rehearse=rehearse)
        assert list(refused) == [bad] and "segment.ms" in refused[bad].message
        assert (good in project.cluster.topics()) == there
    assert list(project.cluster.alter_configs({good: {"segment.ms": "5"}, bad: {"segment.ms": "5"}})) == [bad]
    assert project.cluster.topic_config([good]) == {good: {"segment.ms": "5"}}


# ---- events in


def test_a_published_event_is_in_the_log_as_its_token_says(project: Project) -> None:
    project.apply()
    publisher = Publisher(project.cluster, project.registry)
    event = {"order_id": "o1", "cents": 5}
    token = publisher.publish(project.topic, "key", event, 1_234, (("h", b"x"),))
    assert token == Positions.of([(project.topic, 0, 1)])
    gone = publisher.publish(project.topic, "key", None)
    first, tombstone = project.records()
    schema_id, value = decode(first.value or b"", lambda n: parsed(json.loads(project.registry.schema(n))))
    assert schema_id == project.registry.latest(f"{project.topic}-value").id
    assert value == {**event, "note": None}
    assert (first.key, first.timestamp_ms, first.headers) == (b"key", 1_234, (("h", b"x"),))
    assert tombstone.value is None and gone == project.cluster.end_offsets([project.topic])


def test_many_events_are_sent_in_order_and_flushed(project: Project) -> None:
    project.apply()
    publisher = Publisher(project.cluster, project.registry, linger_ms=5)
    for n in range(5_000):
        publisher.send(project.topic, "key", {"order_id": str(n), "cents": n})
    publisher.close()
    assert [record.offset for record in project.records()] == list(range(5_000))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"order_id": "o1"}, 'field "cents" is missing and has no default'),
        ({"order_id": "o1", "cents": "5"}, "field \"cents\": '5' is not a valid long"),
        ({"order_id": "o1", "cents": 5, "nota": "x"}, 'no field "nota"\nHint: did you mean "note"?'),
    ],
)
def test_an_event_that_does_not_fit_is_refused_by_topic_and_field(
    project: Project, event: dict[str, Any], said: str
) -> None:
    project.apply()
    publisher = Publisher(project.cluster, project.registry)
    for put in (publisher.publish, publisher.send):
        with pytest.raises(CallerError) as refusal:
            put(project.topic, "key", event)
        assert f'topic "{project.topic}"' in str(refusal.value)
        assert said in str(refusal.value)
    assert project.records() == []


def test_an_event_for_no_topic_or_no_schema_or_no_time_is_refused(project: Project) -> None:
    project.apply()
    publisher = Publisher(project.cluster, project.registry)
    with pytest.raises(NotFound, match="has no schema"):
        publisher.publish("nowhere.at-all", "key", {"a": 1})
    with pytest.raises(NotFound, match='topic "nowhere.at-all" does not exist'):
        publisher.publish("nowhere.at-all", "key", None)
    with pytest.raises(CallerError, match="the key is empty"):
        publisher.publish(project.topic, "", None)
    with pytest.raises(CallerError, match="timestamp_ms -5"):
        publisher.publish(project.topic, "key", None, -5)
    assert publisher.publish(project.topic, "key", None)  # none of it spoils the next one


def test_one_schema_stays_in_use_while_the_registry_is_away(project: Project) -> None:
    project.apply()
    publisher = Publisher(project.cluster, project.registry, schema_age_s=0.0)
    publisher.publish(project.topic, "key", {"order_id": "o1", "cents": 5})
    publisher.encoder.registry = away = RegistryClient("http://127.0.0.1:1", 0.5)
    publisher.publish(project.topic, "key", {"order_id": "o2", "cents": 5})
    assert len(project.records()) == 2
    with pytest.raises(PeerError, match=r"schema registry at .*127\.0\.0\.1:1"):
        Publisher(project.cluster, away).publish(project.topic, "key", {"order_id": "o3"})
    away.close()


# ---- by HTTP


def test_topics_and_events_by_http(project: Project, hub_server: str) -> None:
    project.apply()
    with httpx2.Client(base_url=hub_server, timeout=30) as http:
        url = f"/topics/{project.topic}"
        event = {"key": "k", "value": {"order_id": "o1", "cents": 5}, "timestamp_ms": 1_234}
        answer = http.post(f"{url}/records", json=event)
        assert answer.json() == {"position": f"{project.topic}:0:1", "partition": 0, "offset": 0}
        assert answer.headers["Hub-Position"] == f"{project.topic}:0:1"
        assert http.get(url).json()["partitions"] == [{"partition": 0, "begin": 0, "end": 1}]
        listed = http.get("/topics").json()
        (mine,) = [each for each in listed["topics"] if each["topic"] == project.topic]
        assert (mine["partitions"], mine["end_offsets"]) == (1, 1)
        assert listed["tree"][project.root]["topics"]["orders"] == {"topic": project.topic}
        missing = http.get(f"{url}s")
        assert missing.status_code == 404
        assert missing.json()["hint"] == f'did you mean "{project.topic}"?'
        wrong: list[tuple[dict[str, object], str]] = [
            ({"key": "k", "value": {"order_id": "o1"}}, '"cents"'),
            ({"key": "", "value": None}, "key"),
            ({"value": None}, "key"),
            ({"key": "k", "value": 5}, "value"),
            ({"key": "k", "value": None, "timestamp": 5}, "timestamp"),
        ]
        for body, said in wrong:
            refused = http.post(f"{url}/records", json=body)
            assert refused.status_code == 400, refused.text
            assert said in refused.json()["message"]
    assert len(project.records()) == 1


# ---- by the command line

Hub = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hub(settings: Settings) -> Hub:
    return partial(call_hub, {**environment_of(settings), "COLUMNS": "200"}, "topic")


def test_the_command_line_from_plan_to_event(project: Project, hub: Hub) -> None:
    project.write(partitions=2, retention="7d", owner="the-team", slo={"latency": "2s"})
    file = ("-f", str(project.folder / "topics.yaml"))
    drawn = hub("tree", *file)
    assert drawn.returncode == 0
    assert "owner = the-team" in drawn.stdout and "retention.ms = 604800000" in drawn.stdout
    assert "slo.latency = 2 s" in drawn.stdout
    first = hub("plan", *file)
    assert first.returncode == 2, first.stderr
    assert f"+ topic {project.topic}  partitions=2, retention.ms=604800000" in first.stdout
    applied = hub("apply", *file)
    assert applied.returncode == 0, applied.stderr
    assert "[2/2]" in applied.stderr
    assert hub("plan", *file).returncode == 0
    assert "Nothing to change." in hub("apply", *file).stderr
    project.write(retention="1d", owner="the-team")
    refused = hub("plan", *file, "-o", "json", "--save", str(project.folder / "refused.json"))
    assert refused.returncode == 1
    assert not (project.folder / "refused.json").exists()
    told = json.loads(refused.stdout)["refusals"]
    assert {(each["topic"], each["setting"]) for each in told} == {
        (project.topic, "partitions"),
        (project.topic, "retention.ms"),
    }
    event = json.dumps({"order_id": "o1", "cents": 5})
    sent = hub("publish", project.topic, "-k", "key", "-j", event, "-o", "json")
    assert sent.returncode == 0, sent.stderr
    token = json.loads(sent.stdout)["position"]
    assert Positions.parse(token) == Positions.of(
        (each.topic, each.partition, each.offset + 1) for each in project.records()
    )
    assert f"?after={token}" in sent.stderr
    wrong = hub("publish", project.topic, "-k", "key", "-j", '{"order_id": "o1"}')
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert 'needs field "cents"' in wrong.stderr
    assert project.topic in hub("ls").stdout


def test_a_saved_plan_is_carried_out_as_it_was_shown_or_not_at_all(project: Project, hub: Hub) -> None:
    file = ("-f", str(project.folder / "topics.yaml"))
    saved = str(project.folder / "plan.json")
    old = f"{project.root}.old"
    project.cluster.create_topic(old, partitions=1, config={}, replication_factor=1)
    made = hub("plan", *file, "--destroy", old, "--save", saved)
    assert made.returncode == 2, made.stderr
    assert f"- topic {old}  with all its events" in made.stdout
    project.write(partitions=9)  # the file is another one by now: the plan is not
    project.cluster.add_partitions(old, 2)
    stale = hub("apply", saved)
    assert (stale.returncode, project.topic in project.cluster.topics()) == (1, False)
    assert f'changed meanwhile: topic "{old}"' in stale.stderr and "plan --save" in stale.stderr
    project.write()
    assert hub("plan", *file, "--destroy", old, "--save", saved).returncode == 2
    mixed = hub("apply", saved, *file)
    assert mixed.returncode == 1 and "carried out as it is" in mixed.stderr
    project.write(partitions=9)
    applied = hub("apply", saved, "-o", "json")
    assert applied.returncode == 0, applied.stderr
    assert [line.split()[0] for line in json.loads(applied.stdout)["done"]] == ["+", "+", "-"]
    assert project.cluster.topics()[project.topic].partitions == 1
    assert old not in project.cluster.topics()
    assert hub("apply", saved).returncode == 1  # it was made from a state that no longer exists
    assert "is not a saved plan" in hub("apply", str(project.folder / "topics.yaml")).stderr


def test_an_apply_that_fails_says_what_is_done_and_what_is_left(project: Project, hub: Hub) -> None:
    """A schema that the registry does not take: the topic before it is made and stands."""
    saved = str(project.folder / "plan.json")
    assert hub("plan", "-f", str(project.folder / "topics.yaml"), "--save", saved).returncode == 2
    steps = read_plan(Path(saved).read_text(), saved)
    create, register = steps.steps
    assert isinstance(register, RegisterSchema)
    wrong = replace(register, schema='{"type": "nonsense"}')
    Path(saved).write_text(write_plan(replace(steps, steps=(create, wrong))))
    stopped = hub("apply", saved, "-o", "json")
    assert stopped.returncode == 1
    told = json.loads(stopped.stdout)
    assert [len(told["done"]), len(told["left"])] == [1, 1]
    assert "Done: 1 (these steps stay). Left: 1" in stopped.stderr
    assert project.topic in project.cluster.topics()
    assert project.apply() == ["RegisterSchema"]


def test_drift_says_who_is_right(project: Project, hub: Hub) -> None:
    project.write(retention="7d", partitions=2)
    project.apply()
    file = ("-f", str(project.folder / "topics.yaml"))
    project.cluster.alter_config(project.topic, {"retention.ms": "5000", "segment.ms": "60000"})
    project.write(retention="7d", partitions=1)
    found = hub("drift", *file, "-o", "json")
    assert found.returncode == 2, found.stderr
    mine = [each for each in json.loads(found.stdout) if each["topic"] == project.topic]
    assert [(each["setting"], each["tree"], each["cluster"], each["right"]) for each in mine] == [
        ("partitions", "1", "2", "cluster"),
        ("retention.ms", "604800000", "5000", "tree"),
        ("segment.ms", None, "60000", "tree"),
    ]
    assert "set by hand" in hub("drift", *file).stdout
    alone = hub("drift", *file, "--under", project.topic, "-o", "json")
    assert (alone.returncode, json.loads(alone.stdout)) == (2, mine)
    elsewhere = hub("drift", *file, "--under", "nobody.**", "-o", "json")
    assert (elsewhere.returncode, json.loads(elsewhere.stdout)) == (0, [])
    assert "--under: " in hub("drift", *file, "--under", "a..b").stderr
    project.write(retention="7d", partitions=2)
    assert project.apply() == ["AlterConfig"]
    left = json.loads(hub("drift", *file, "-o", "json").stdout)
    assert [each for each in left if each["topic"] == project.topic] == []


def test_drift_is_watched_until_it_is_interrupted(project: Project, settings: Settings) -> None:
    command = [sys.executable, "-m", "hub.cli", "topic", "drift", "--watch", "-i", "0.5"]
    with subprocess.Popen(
        [*command, "-f", str(project.folder / "topics.yaml")],
        env={**os.environ, **environment_of(settings), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        try:
            assert watching.stderr is not None
            told = [watching.stderr.readline() for _ in range(2)]
            assert all("differences." in line for line in told)
            watching.send_signal(signal.SIGINT)
            assert watching.wait(30) == 130
        finally:
            watching.kill()


def test_an_import_is_a_tree_that_changes_nothing(project: Project, hub: Hub, tmp_path: Path) -> None:
    project.write(retention="7d", partitions=2, config={"segment.ms": "1h"})
    project.apply()
    project.cluster.create_topic(
        f"{project.root}.more", partitions=2, config={"retention.ms": "604800000"}, replication_factor=1
    )
    file = tmp_path / "imported.yaml"
    made = hub("import", "-f", str(file))
    assert made.returncode == 0, made.stderr
    assert "Left out: _schemas" in made.stderr
    again = hub("plan", "-f", str(file), "-o", "json")
    told = json.loads(again.stdout)
    assert (told["refusals"], [each for each in told["steps"] if project.root in each["topic"]]) == ([], [])
    mine = load(file).find(project.topic)
    assert mine is not None
    assert (
        mine.set_by["config.retention.ms"] != project.topic
    )  # its sibling has the same: it is written at their parent
    assert mine.set_by["config.segment.ms"] == project.topic
    before = file.read_text()
    refused = hub("import", "-f", str(file))
    assert refused.returncode == 1 and "--force" in refused.stderr
    assert file.read_text() == before
    assert hub("import", "-f", str(file), "--force").returncode == 0
    assert f"  {project.root}:" in hub("import", "-f", "-").stdout
    assert sorted(each.name for each in tmp_path.iterdir() if "imported" in each.name) == ["imported.yaml"]


def test_describe_tells_everything_of_a_topic(project: Project, hub: Hub) -> None:
    project.write(retention="7d", partitions=2, owner="the-team", slo={"latency": "2s", "freshness": "1m"})
    project.apply()
    project.cluster.alter_config(project.topic, {"segment.ms": "60000"})
    publisher = Publisher(project.cluster, project.registry)
    for n in range(3):
        position = publisher.publish(project.topic, "key", {"order_id": str(n), "cents": n})
    ((read, end),) = list(position)
    group = f"group-of-{project.root}"
    project.cluster.publish_group(group, Positions.of([(project.topic, read.partition, end - 2)]))
    file = ("-f", str(project.folder / "topics.yaml"))
    told = json.loads(hub("describe", project.topic, *file, "--wait", "20", "-o", "json").stdout)
    assert (told["owner"], told["managed"]) == ("the-team", True)
    promised = {"latency_ms": 2_000, "freshness_ms": 60_000, "lag_ms": None, "completeness": None}
    assert told["slo"] == promised
    assert [each["partition"] for each in told["partitions"]] == [0, 1]
    (full,) = [each for each in told["partitions"] if each["partition"] == read.partition]
    assert (full["begin"], full["end"], full["replicas"]) == (0, 3, full["in_sync"])
    assert full["leader"] in full["replicas"]
    assert full["bytes"][str(full["leader"])] > 0
    origins = {each["key"]: each["origin"] for each in told["config"]}
    assert origins["retention.ms"] == f"tree: {project.topic}"
    assert origins["segment.ms"] == "set by hand"
    assert origins["segment.jitter.ms"] == "default"
    assert [each["subject"] for each in told["schemas"]] == [f"{project.topic}-value"]
    assert {"group": group, "partitions": 1, "lag_records": 2} in told["groups"]
    assert told["missing"] == []
    drawn = hub("describe", project.topic, *file, "--wait", "20")
    assert "the-team" in drawn.stdout and "latency 2 s, freshness 60 s" in drawn.stdout
    assert group in drawn.stdout
    missing = hub("describe", project.topic + "s")
    assert missing.returncode == 1 and f'did you mean "{project.topic}"?' in missing.stderr


def test_describe_without_a_registry_tells_the_rest(project: Project, settings: Settings) -> None:
    project.apply()
    away = RegistryClient("http://127.0.0.1:1", 0.5)
    told = describe(project.topic, None, KafkaCluster(settings.bootstrap, 10.0), away, 10.0)
    away.close()
    (missing,) = told.missing
    assert missing.startswith("schemas: ") and "does not answer" in missing
    assert told.settings and told.partitions[0].end == 0 and told.partitions[0].bytes_by_broker


def test_one_browses_past_a_batch_that_cannot_be_unpacked(project: Project) -> None:
    """A few KB of zstd that inflate beyond what librdkafka takes, three messages long."""
    name = f"{project.root}.bomb"
    project.cluster.create_topic(name, partitions=2, config={}, replication_factor=1)
    for values in ((b"before", b"beside"), (b"after", b"later")):
        project.cluster.writer().append(
            [NewRecord(name, None, value, (), None, partition) for partition, value in enumerate(values)]
        )
        if values[0] == b"before":
            large = dict.fromkeys(("message_max_bytes", "batch_size"), 200_000_000)
            bomb = Producer(
                project.cluster.settings("test", compression_type="zstd", linger_ms=2_000, **large)
            )
            for _ in range(3):
                bomb.produce(name, bytes(40_000_000), partition=0)
            assert bomb.flush(60) == 0
    browser = Browser(project.cluster, NoSchemas())
    newest = browser.find(MessageQuery(name))
    bombs = [each for each in newest.messages if each.value.problem]
    assert {each.value.text for each in newest.messages if each not in bombs} == {
        "later",
        "after",
        "beside",
        "before",
    }
    assert len(bombs) == 1 and "it is not read: the batch of 3 records" in str(bombs[0].value.problem)
    assert newest.complete
    oldest = browser.find(MessageQuery(name, start={0: 0, 1: 0}))
    assert len(oldest.messages) == 5 and oldest.complete


class NoSchemas:
    def source(self, schema_id: int) -> SchemaSource:
        raise NotFound("none")

    def sees(self, schema_id: int) -> bool:
        return True

    def registered(self, schema_id: int, topic: str) -> tuple[str, int] | None:
        return None


def test_a_mistake_in_the_tree_is_one_message_with_its_place(
    tmp_path: Path, settings: Settings, hub: Hub
) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("topics:\n  a:\n    partitons: 3\n")
    told = run_hub(settings, "topic", "tree", "-f", str(file))
    assert (told.returncode, told.stdout) == (1, "")
    assert "Traceback" not in told.stderr
    assert f'{file}:3:5: unknown key "partitons"' in told.stderr
    assert 'did you mean "partitions"?' in told.stderr
    file.write_text("topics:\n  a: {schema: none.avsc}\n")
    told = hub("plan", "-f", str(file))
    assert f'{file}:2:15: topic "a": its schema file' in told.stderr


HOLDER = """
import sys, time
from hub.kafka import KafkaCluster
from hub.topics.tree.apply_lock import one_apply
with one_apply(KafkaCluster(sys.argv[1], 15.0), "hub topic apply", replication_factor=1):
    print("held", flush=True)
    time.sleep(600)
"""


def test_two_applies_at_once_and_one_that_is_killed(kafka: str, hub_server: str, project: Project) -> None:
    told = {"HUB_BOOTSTRAP": kafka, "HUB_REGISTRY_URL": hub_server, "HUB_PROJECT": str(project.folder)}
    schemas = project.folder / "schemas"
    schemas.mkdir()
    (schemas / f"{project.root}-value.avsc").write_text(json.dumps(ORDER))
    with subprocess.Popen([sys.executable, "-c", HOLDER, kafka], stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout is not None and first.stdout.readline() == "held\n"
            for command in (("topic", "apply"), ("schema", "apply", str(schemas))):
                refused = call_hub(told, *command)
                assert refused.returncode == 1, refused.stderr
                assert re.search(
                    rf"`hub topic apply` of .+\(pid {first.pid}\) is under way since", refused.stderr
                )
                assert "wait until it has ended" in refused.stderr
            assert project.topic not in project.cluster.topics()
        finally:
            first.kill()
    done = call_hub(told, "topic", "apply")
    assert done.returncode == 0 and project.topic in project.cluster.topics(), done.stderr
    assert f"(pid {first.pid}) did not end its apply" in done.stderr
    done = call_hub(told, "schema", "apply", str(schemas))  # it was freed, not only left
    assert done.returncode == 0 and "did not end" not in done.stderr, done.stderr
