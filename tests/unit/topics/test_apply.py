"""Apply: batches of bounded size; the first failure ends the apply; completed steps are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import CallerError, Conflict, HubError, PeerError
from hub.log import ConfigValue, MemoryCluster, NewTopic
from hub.topics.browse.describe import origin
from hub.topics.tree.apply_plan import AlterBatch, CreateBatch, apply, batches
from hub.topics.tree.plan import TreePlan
from hub.topics.tree.steps import AddPartitions, AlterConfig, CreateTopic, DeleteTopic, SetCompatibility, Step
from hub.topics.tree.tree import TopicSpec


def spec(name: str, partitions: int = 1) -> TopicSpec:
    by = {"partitions": "top", "config.segment.ms": "top"}
    return TopicSpec(name, "", "", partitions, 1, {"segment.ms": "5"}, None, None, (), by)


def create(name: str, partitions: int = 1) -> CreateTopic:
    return CreateTopic(spec(name, partitions))


def alter(name: str) -> AlterConfig:
    return AlterConfig(spec(name), {"segment.ms": ("5", "9")})


@dataclass
class Counting(MemoryCluster):
    """Cluster that counts requests, and refuses or drops configured ones."""

    requests: list[int] = field(default_factory=list)
    failing: dict[str, HubError] = field(default_factory=dict)

    def create_topics(self, topics: Sequence[NewTopic]) -> Mapping[str, HubError]:
        self.requests.append(len(topics))
        taken = [each for each in topics if each.name not in self.failing]
        failed = {each.name: self.failing[each.name] for each in topics if each.name in self.failing}
        return {**super().create_topics(taken), **failed}


class NoRegistry:
    def register(self, subject: str, schema: str) -> int:
        raise AssertionError

    def set_compatibility(self, subject: str, level: str) -> None:
        raise AssertionError


def carried(cluster: MemoryCluster, steps: Sequence[Step]) -> list[str]:
    done: list[str] = []
    apply(TreePlan(tuple(steps)), cluster, NoRegistry(), lambda step: done.append(str(step)))
    return done


def test_a_thousand_topics_are_ten_requests() -> None:
    cluster = Counting()
    steps = [create(f"t{n:04}") for n in range(1_000)]
    assert carried(cluster, steps) == [str(step) for step in steps]
    assert cluster.requests == [100] * 10
    assert len(cluster.topics()) == 1_000


def test_a_batch_has_no_more_partitions_than_a_controller_takes() -> None:
    made = list(
        batches([create("a", 600), create("b", 400), create("c", 1), create("d", 5_000), create("e", 1)])
    )
    assert [[step.topic.name for step in each.steps] for each in made if isinstance(each, CreateBatch)] == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e"],
    ]


one_step = st.sampled_from(
    [create("a"), create("b", 900), alter("a"), alter("b"), AddPartitions(spec("a"), 1), DeleteTopic("z")]
) | st.builds(lambda: SetCompatibility(spec("s"), "FULL", "NONE"))


@given(st.lists(one_step, max_size=40))
def test_batches_are_the_steps_in_their_order(steps: list[Step]) -> None:
    flat: list[Step] = []
    for each in batches(steps):
        flat += each.steps if isinstance(each, CreateBatch | AlterBatch) else [each]
    assert flat == steps


@pytest.mark.parametrize("error", [CallerError("no"), PeerError("away")])
def test_the_first_failure_ends_it_and_what_was_done_is_told(error: HubError) -> None:
    cluster = Counting(failing={"b": error})
    cluster.create_topic("old", partitions=1, config={}, replication_factor=1)
    done: list[str] = []
    steps = (create("a"), create("b"), create("c"), DeleteTopic("old"))
    with pytest.raises(type(error), match=error.message):
        apply(TreePlan(steps), cluster, NoRegistry(), lambda step: done.append(str(step)))
    assert done == [str(steps[0]), str(steps[2])]  # the brokers accepted the rest of the batch
    assert sorted(cluster.topics()) == ["a", "c", "old"]
    cluster.failing.clear()
    # a repeated apply completes the rest, and existing topics are not error
    assert len(carried(cluster, steps)) == 4
    assert sorted(cluster.topics()) == ["a", "b", "c"]


def test_settings_of_many_topics_are_one_request_and_a_missing_one_is_told() -> None:
    cluster = MemoryCluster()
    for name in ("a", "b"):
        cluster.create_topic(name, partitions=1, config={"segment.ms": "5"}, replication_factor=1)
    carried(cluster, [alter("a"), alter("b")])
    assert {name: dict(each.config) for name, each in cluster.topics().items()} == {
        "a": {"segment.ms": "9"},
        "b": {"segment.ms": "9"},
    }
    with pytest.raises(HubError, match='topic "gone" does not exist'):
        carried(cluster, [alter("a"), alter("gone")])


def test_the_twin_tells_which_of_many_it_did_not_make() -> None:
    cluster = MemoryCluster()
    cluster.create_topic("a", partitions=1, config={}, replication_factor=1)
    refused = cluster.create_topics([NewTopic("a", 2, 1), NewTopic("b", 2, 1, {"x": "1"})])
    assert list(refused) == ["a"] and isinstance(refused["a"], Conflict)
    assert cluster.topic_config(["a", "b"]) == {"a": {}, "b": {"x": "1"}}


@pytest.mark.parametrize(
    ("found", "managed", "said"),
    [
        (ConfigValue("5", "topic"), True, "tree: top"),
        (ConfigValue("6", "topic"), True, "set manually (tree: top declares 5)"),
        (ConfigValue("6", "topic"), False, "set by hand"),
        (ConfigValue("6", "broker"), True, "broker"),
        (ConfigValue("6", "default"), False, "default"),
    ],
)
def test_where_a_setting_is_from(found: ConfigValue, managed: bool, said: str) -> None:
    assert origin("segment.ms", found, spec("t") if managed else None) == said
