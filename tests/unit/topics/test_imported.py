"""Import: the generated tree describes the cluster exactly, and states each setting once."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.log import MemoryCluster, TopicDescription
from hub.topics.tree.apply_plan import apply, read_topics
from hub.topics.tree.import_tree import ImportedTree, imported
from hub.topics.tree.plan import Actual, plan
from hub.topics.tree.tree import TopicTree, load
from hub.yaml import written


def topic(name: str, partitions: int = 1, replicas: int = 1, **config: str) -> TopicDescription:
    return TopicDescription(
        name, "id", partitions, replicas, {key.replace("_", "."): value for key, value in config.items()}
    )


def body(*topics: TopicDescription) -> Mapping[str, Any]:
    return imported(topics).body


def test_what_siblings_have_in_common_moves_to_the_parent() -> None:
    made = body(
        topic("shop.orders", 6, retention_ms="604800000", segment_ms="5"),
        topic("shop.payments", 6, retention_ms="604800000"),
        topic("shop.returns", 12, retention_ms="-1"),
        topic("crm.customers", 2, cleanup_policy="compact"),
    )
    assert made == {
        "defaults": {"replication_factor": 1},
        "topics": {
            "crm": {"partitions": 2, "config": {"cleanup.policy": "compact"}, "topics": {"customers": {}}},
            "shop": {
                "partitions": 6,
                "retention": "7d",
                "topics": {
                    "orders": {"config": {"segment.ms": 5}},
                    "payments": {},
                    "returns": {"partitions": 12, "retention": "forever"},
                },
            },
        },
    }


def test_a_flat_cluster_has_its_common_settings_in_the_defaults() -> None:
    assert body(topic("a", 3), topic("b", 3), topic("c", 1)) == {
        "defaults": {"partitions": 3, "replication_factor": 1},
        "topics": {"a": {}, "b": {}, "c": {"partitions": 1}},
    }


def test_what_a_topic_has_and_those_below_it_have_not_is_given_back() -> None:
    made = body(
        topic("a", 1, 1, segment_ms="5", retention_ms="1"), topic("a.b.c"), topic("a.b.d", 1, 1, x="1")
    )
    assert made["topics"]["a"] == {
        "retention": "1ms",
        "config": {"segment.ms": 5},
        "topic": True,
        "topics": {
            "b": {
                "retention": "default",
                "config": {"segment.ms": None},
                "topics": {"c": {}, "d": {"config": {"x": 1}}},
            }
        },
    }


def test_an_empty_cluster_is_an_empty_tree() -> None:
    assert body() == {"topics": {}}


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (topic("__consumer_offsets"), "own"),
        (topic("_schemas"), "own"),
        (topic("views.customer_360"), "own"),
        (topic("shop.orders.dlq"), "own"),
        (topic("a..b"), "empty label"),
        (topic(".a"), "empty label"),
        (topic(".".join("a" * 30)), "more than 20 labels"),
        (topic("a", 20_000), "more than 10000 partitions"),
    ],
)
def test_what_is_no_topic_of_a_tree_is_left_out_and_said(left: TopicDescription, why: str) -> None:
    made = imported([left, topic("b")])
    assert made.topics == ("b",)
    assert list(made.left_out) == [left.name]
    assert why in made.left_out[left.name]


# ---- property: random tree, applied, planned, imported

labels = st.sampled_from(["a", "b", "on", "1", "x-y"])
values = st.sampled_from(["1", "-1", "true", "0.5", "a,b", "604800000", "x: y", "", "null", "007"])
numbers = st.sampled_from(["-1", "0", "1", "60000", "86400000", "1024", "-7"])


@st.composite
def nodes(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if draw(st.booleans()):
        said["partitions"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        said["retention"] = draw(st.sampled_from(["1d", "7d", "forever", "default", "90s"]))
    if draw(st.booleans()):
        said["config"] = draw(
            st.dictionaries(
                st.sampled_from(["segment.ms", "cleanup.policy", "other"]),
                st.sampled_from([None, "5", True, 7, "a: b", ""]),
            ).map(lambda each: {k: 5 if k == "segment.ms" and v is not None else v for k, v in each.items()})
        )
    if depth and (below := draw(st.dictionaries(labels, nodes(depth - 1), max_size=3))):
        said["topics"] = below
        said["topic"] = draw(st.booleans())
    return said


def effective(tree: TopicTree) -> dict[str, object]:
    return {each.name: (each.partitions, each.replication_factor, dict(each.config)) for each in tree.topics}


def loaded(value: Mapping[str, Any]) -> TopicTree:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "topics.yaml"
        file.write_text(written(value), encoding="utf-8")
        return load(file)


@settings(max_examples=fast_or(15, 50), deadline=None)
@given(
    st.dictionaries(labels, nodes(), max_size=3),
    st.fixed_dictionaries({}, optional={"partitions": st.just(2)}),
)
def test_a_tree_applied_has_nothing_to_plan_and_imported_says_the_same(
    topics: dict[str, Any], defaults: dict[str, Any]
) -> None:
    tree = loaded({"defaults": defaults, "topics": topics})
    cluster = MemoryCluster()
    made = plan(tree, Actual(cluster.topics()), {}, None)
    apply(made, cluster, None)  # type: ignore[arg-type]  # no schemas, no registry
    again = plan(tree, Actual(read_topics(cluster)), {}, None)
    assert (again.steps, again.refusals, again.kept) == ((), (), ())
    back = loaded(imported(read_topics(cluster).values()).body)
    assert effective(back) == effective(tree)
    after = plan(back, Actual(read_topics(cluster)), {}, None)
    assert (after.steps, after.refusals, after.kept) == ((), (), ())


@settings(deadline=None)
@given(
    st.dictionaries(
        st.lists(labels, min_size=1, max_size=3).map(".".join),
        st.tuples(
            st.integers(1, 3),
            st.integers(1, 2),
            st.dictionaries(st.sampled_from(["retention.ms", "retention.bytes", "segment.ms"]), numbers),
            st.dictionaries(st.sampled_from(["cleanup.policy", "other"]), values),
        ),
        max_size=8,
    )
)
def test_any_cluster_is_read_back_from_its_import(
    topics: dict[str, tuple[int, int, dict[str, str], dict[str, str]]],
) -> None:
    there = [
        TopicDescription(name, "id", partitions, replicas, {**amounts, **others})
        for name, (partitions, replicas, amounts, others) in topics.items()
    ]
    made: ImportedTree = imported(there)
    assert effective(loaded(made.body)) == {
        each.name: (each.partitions, each.replication_factor, dict(each.config)) for each in there
    }
