"""Drift: differences line by line, and which side is right; always consistent with the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from hub.log import TopicDescription
from hub.topics.tree.drift import SettingDrift, drift
from hub.topics.tree.plan import Actual, Allowed, TreePlan, plan
from hub.topics.tree.tree import TopicSpec, TopicTree

DEFAULTS = {"retention.ms": "604800000", "segment.ms": "604800000", "min.insync.replicas": "1"}


def spec(
    name: str, partitions: int = 1, config: Mapping[str, str] | None = None, replicas: int = 1
) -> TopicSpec:
    said = config or {}
    by = {"partitions": "top", "replication_factor": "top", **{f"config.{key}": "top" for key in said}}
    return TopicSpec(name, "", "", partitions, replicas, said, None, None, (), by)


def there(name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> TopicDescription:
    return TopicDescription(name, "id", partitions, 1, config or {})


def planned(topics: Sequence[TopicSpec], actual: Sequence[TopicDescription], **allowed: bool) -> TreePlan:
    found = Actual({each.name: each for each in actual}, DEFAULTS)
    return plan(TopicTree(tuple(topics)), found, {}, None, Allowed(**allowed))  # type: ignore[arg-type]


def lines(topics: Sequence[TopicSpec], actual: Sequence[TopicDescription]) -> list[tuple[object, ...]]:
    return [
        (each.topic, each.setting, each.tree, each.cluster, each.set_by, each.right)
        for each in drift(planned(topics, actual))
    ]


def test_the_tree_is_right_where_apply_can_make_it_so() -> None:
    actual = [there("grown", 1), there("set", 1, {"segment.ms": "5", "linger": "1"})]
    assert lines([spec("new"), spec("grown", 3), spec("set", 1, {"segment.ms": "9"})], actual) == [
        ("grown", "partitions", "3", "1", "top", "tree"),
        ("new", "topic", "exists", None, "new", "tree"),
        ("set", "linger", None, "1", "set by hand", "tree"),
        ("set", "segment.ms", "9", "5", "top", "tree"),
    ]


def test_the_cluster_is_right_where_kafka_cannot_do_it() -> None:
    (line,) = drift(planned([spec("t", 2)], [there("t", 5)]))
    assert (line.setting, line.tree, line.cluster, line.right) == ("partitions", "2", "5", "cluster")
    assert "write 5 in the tree" in line.way


def test_a_person_decides_where_events_or_copies_are_at_stake() -> None:
    actual = [there("kept"), there("less", 1, {"retention.ms": "-1"}), there("copies")]
    wished = [spec("less", 1, {"retention.ms": "5"}), spec("copies", 1, None, 3)]
    assert lines(wished, actual) == [
        ("copies", "replication_factor", "3", "1", "", "decide"),
        ("kept", "topic", None, "exists", "not in the tree", "decide"),
        ("less", "retention.ms", "5", "-1", "top", "decide"),
    ]
    ways = {each.topic: each.way for each in drift(planned(wished, actual))}
    assert "--destroy kept" in ways["kept"]
    assert "--allow-lower-durability" in ways["less"]


names = st.sampled_from(["a", "a.b", "c"])
configs = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.ms", "wrong"]), st.sampled_from(["1", "2"])
)


@given(
    st.dictionaries(names, st.tuples(st.integers(1, 3), configs)),
    st.dictionaries(names, st.tuples(st.integers(1, 3), configs)),
)
def test_there_is_drift_exactly_when_the_plan_is_not_empty(
    tree: dict[str, tuple[int, dict[str, str]]], cluster: dict[str, tuple[int, dict[str, str]]]
) -> None:
    made = planned(
        [spec(name, *said) for name, said in tree.items()],
        [there(name, *said) for name, said in cluster.items()],
    )
    found: tuple[SettingDrift, ...] = drift(made)
    assert bool(found) == bool(made.steps or made.refusals or made.kept)
    assert len({(each.topic, each.setting) for each in found}) == len(found)
    assert all(each.tree != each.cluster and each.way for each in found if each.tree != "wrong")
