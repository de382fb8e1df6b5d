"""Plan: changes, refusals and the node that decided; after an apply, the next plan is empty."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.errors import Conflict, NotFound
from hub.log import MemoryCluster, TopicDescription
from hub.schema_registry.compat.compatibility import check
from hub.schema_registry.formats.avro import schema as avro
from hub.topics.tree.apply_plan import apply
from hub.topics.tree.drift import drift
from hub.topics.tree.plan import Actual, Allowed, TreePlan, plan
from hub.topics.tree.steps import (
    AddPartitions,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    RegisterSchema,
    SetCompatibility,
)
from hub.topics.tree.tree import TopicSpec, TopicTree

DEFAULTS = {
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
}


@dataclass
class MemorySchemas:
    """In-memory registry for plan and apply."""

    by_subject: dict[str, list[str]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)

    def versions(self, subject: str) -> Sequence[str]:
        return self.by_subject.get(subject, [])

    def compatibility(self, subject: str) -> str:
        return self.levels.get(subject, "BACKWARD")

    def incompatibilities(self, subject: str, schema: str, level: str) -> Sequence[str]:
        earlier = [(n, avro.parse(text)) for n, text in enumerate(self.versions(subject), 1)]
        return [str(each) for each in check(avro.parse(schema), earlier, level)]

    def register(self, subject: str, schema: str) -> int:
        if self.incompatibilities(subject, schema, self.compatibility(subject)):
            raise Conflict(f"{subject}: incompatible")
        versions = self.by_subject.setdefault(subject, [])
        if schema not in versions:
            versions.append(schema)
        return len(versions)

    def set_compatibility(self, subject: str, level: str) -> None:
        self.levels[subject] = level


def spec(name: str, **said: object) -> TopicSpec:
    given: dict[str, object] = {
        "owner": "",
        "doc": "",
        "partitions": 1,
        "replication_factor": 1,
        "config": {},
        "compatibility": None,
        "schema": None,
        "tags": (),
        **said,
    }
    config = given["config"]
    assert isinstance(config, dict)
    by = {
        "partitions": "node",
        "replication_factor": "(default)",
        **{f"config.{key}": "node" for key in config},
    }
    return TopicSpec(name=name, set_by=by, **given)  # type: ignore[arg-type]


def described(name: str, partitions: int = 1, **config: str) -> TopicDescription:
    return TopicDescription(
        name, "id", partitions, 1, {key.replace("_", "."): value for key, value in config.items()}
    )


def planned(
    topics: Sequence[TopicSpec],
    actual: Sequence[TopicDescription] = (),
    texts: Mapping[str, str] | None = None,
    schemas: MemorySchemas | None = None,
    allowed: Allowed | None = None,
) -> TreePlan:
    return plan(
        TopicTree(tuple(topics)),
        Actual({each.name: each for each in actual}, DEFAULTS),
        texts or {},
        schemas or MemorySchemas(),
        allowed or Allowed(),
    )


def record(**types: object) -> str:
    fields = [
        {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
        for name, kind in types.items()
    ]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


ONE, TWO, THREE = record(a="long"), record(a="long", b=["null", "string"]), record(a="long", c="string")


def test_what_is_missing_is_created_with_its_schema() -> None:
    topic = spec("a.b", config={"retention.ms": "-1"}, compatibility="FULL")
    made = planned([topic], texts={"a.b": ONE})
    assert made.steps == (
        CreateTopic(topic),
        SetCompatibility(topic, "FULL", "BACKWARD"),
        RegisterSchema(topic, ONE, True),
    )
    assert str(made.steps[0]) == "+ topic a.b  partitions=1, retention.ms=-1"
    assert made.refusals == ()


def test_a_level_holds_for_the_subject_whoever_registers_its_schemas() -> None:
    topic, schemas = spec("t", compatibility="FULL"), MemorySchemas({"t-value": ['{"type": "object"}']})
    made = planned([topic], [described("t")], schemas=schemas)
    assert made.steps == (SetCompatibility(topic, "FULL", "BACKWARD"),)
    assert [(each.setting, each.tree, each.cluster) for each in drift(made)] == [
        ("compatibility", "FULL", "BACKWARD")
    ]
    apply(made, MemoryCluster(), schemas)
    assert planned([topic], [described("t")], schemas=schemas).steps == ()


def test_what_drifted_is_set_back_and_what_nobody_says_returns_to_the_default() -> None:
    topic = spec("t", partitions=3, config={"segment.ms": "5"})
    made = planned([topic], [described("t", 2, segment_ms="9", linger="1")])
    assert made.steps == (
        AddPartitions(topic, 2),
        AlterConfig(topic, {"linger": ("1", None), "segment.ms": ("9", "5")}),
    )
    assert str(made.steps[1]) == "~ topic t  linger 1 -> default, segment.ms 9 -> 5"


def test_what_brokers_say_in_their_own_words_is_no_change() -> None:
    topic = spec("t", config={"cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "0.50"})
    assert (
        planned(
            [topic], [described("t", cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.5")]
        ).steps
        == ()
    )


def test_partitions_do_not_shrink_and_the_refusal_says_who_wants_it() -> None:
    (refusal,) = planned([spec("t", partitions=2)], [described("t", 5)]).refusals
    assert refusal.reason == "partitions cannot shrink from 5 to 2 (set by node)"
    assert "create a new topic" in refusal.hint


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    (refusal,) = planned([spec("t", config={"retention.mss": "1"})]).refusals
    assert refusal.hint == 'did you mean "retention.ms"?'


@pytest.mark.parametrize(
    ("now", "wanted", "lowers"),
    [
        ({}, {"retention.ms": "1000"}, True),
        ({}, {"retention.ms": "-1"}, False),
        ({"retention.ms": "-1"}, {}, True),
        ({"retention.ms": "-1"}, {"retention.ms": "999999999999"}, True),
        ({"retention.ms": "5"}, {"retention.ms": "6"}, False),
        ({"retention.ms": "5"}, {}, False),
        ({}, {"retention.bytes": "1000"}, True),
        ({"retention.bytes": "1000"}, {"retention.bytes": "-1"}, False),
        ({"min.insync.replicas": "2"}, {}, True),
        ({}, {"min.insync.replicas": "2"}, False),
        ({"cleanup.policy": "compact"}, {}, True),
        ({}, {"cleanup.policy": "compact"}, True),
        ({"cleanup.policy": "compact,delete"}, {"cleanup.policy": "compact"}, False),
        ({"segment.ms": "9"}, {"segment.ms": "5"}, False),
    ],
)
def test_to_keep_less_needs_a_flag(now: dict[str, str], wanted: dict[str, str], lowers: bool) -> None:
    topics, actual = [spec("t", config=wanted)], [TopicDescription("t", "id", 1, 1, now)]
    refusals = [each.hint for each in planned(topics, actual).refusals if "lowers" in each.reason]
    assert bool(refusals) == lowers
    assert all("--allow-lower-durability" in hint for hint in refusals)
    allowed = planned(topics, actual, allowed=Allowed(lower_durability=True))
    assert not [each for each in allowed.refusals if "lowers" in each.reason]
    assert allowed.steps


def test_a_schema_that_breaks_the_rule_is_refused_by_field_and_rule() -> None:
    schemas = MemorySchemas({"t-value": [ONE]})
    (refusal,) = planned([spec("t")], [described("t")], {"t": THREE}, schemas).refusals
    assert "breaks BACKWARD" in refusal.reason
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refusal.reason
    assert "field `c`" in refusal.reason


def test_the_level_of_the_tree_judges_not_the_one_it_replaces() -> None:
    """The level is set before the schema is registered. A check at the old level would stop the apply
    halfway.
    """
    schemas = MemorySchemas({"t-value": [TWO]}, {"t-value": "FORWARD"})
    topic = spec("t", compatibility="BACKWARD")
    made = planned([topic], [described("t")], {"t": ONE}, schemas)
    assert made.steps == (SetCompatibility(topic, "BACKWARD", "FORWARD"), RegisterSchema(topic, ONE, False))
    assert made.refusals == ()
    relaxed = MemorySchemas({"t-value": [ONE]})
    forward = planned([spec("t", compatibility="FORWARD")], [described("t")], {"t": THREE}, relaxed)
    assert forward.refusals == ()
    assert planned([spec("t", compatibility="NONE")], [], {"t": '"string"'}, relaxed).refusals == ()


def test_white_space_makes_no_version_and_an_old_version_is_not_the_latest() -> None:
    schemas = MemorySchemas({"t-value": [ONE, TWO]})
    assert (
        planned([spec("t")], [described("t")], {"t": json.dumps(json.loads(TWO), indent=2)}, schemas).steps
        == ()
    )
    back = planned([spec("t")], [described("t")], {"t": ONE}, schemas)
    assert back.steps == ()
    assert "version 1 of 2" in back.refusals[0].reason


def test_what_others_registered_stops_no_plan() -> None:
    """A version of another format, or with references, that the plan cannot parse."""
    refers = record(a="shop.Address")
    earlier = MemorySchemas({"t-value": [refers, ONE]})
    assert planned([spec("t")], [described("t")], {"t": ONE}, earlier).steps == ()
    latest = MemorySchemas({"t-value": [refers], "u-value": [ONE]})
    made = planned([spec("t"), spec("u")], [described("t")], {"t": ONE, "u": ONE}, latest)
    assert [each.topic for each in made.refusals] == ["t"]
    assert "shop.Address" in made.refusals[0].reason


def test_what_the_tree_does_not_name_is_kept_and_destroyed_only_by_its_name() -> None:
    actual = [described(name) for name in ("t", "box.x", "else", "_schemas", "views.v", "t.dlq")]
    made = planned([spec("t")], actual)
    assert (made.steps, made.kept, made.cautions) == ((), ("box.x", "else"), ())
    one = planned([spec("t")], actual, allowed=Allowed(frozenset({"box.x"})))
    assert (one.steps, one.kept) == ((DeleteTopic("box.x"),), ("else",))


@pytest.mark.parametrize(
    ("name", "refused", "cautioned"),
    [
        ("t", "is in the tree", ""),
        ("_schemas", "belongs to Kafka or the hub itself", ""),
        ("views.v", "belongs to Kafka or the hub itself", ""),
        ("__consumer_offsets", "belongs to Kafka or the hub itself", ""),
        ("box.y", "", 'did you mean "box.x"?'),
        ("gone-long-ago", "", "it may be gone already"),
    ],
)
def test_a_name_that_cannot_be_destroyed_is_told(name: str, refused: str, cautioned: str) -> None:
    actual = [described(each) for each in ("t", "box.x", "_schemas", "views.v")]
    made = planned([spec("t")], actual, allowed=Allowed(frozenset({name})))
    assert made.steps == ()
    assert [refused in each.reason for each in made.refusals] == ([True] if refused else [])
    assert [cautioned in each.hint for each in made.cautions] == ([True] if cautioned else [])


def test_adding_partitions_says_that_keys_move_and_the_way_out() -> None:
    (caution,) = planned([spec("t", partitions=4)], [described("t", 2)]).cautions
    assert "moves keys" in caution.reason
    assert "create a new topic with 4 partitions, mirror this one into it" in caution.hint


def test_names_that_metrics_cannot_tell_apart() -> None:
    """Kafka refuses to create the second topic; an existing pair causes only a warning."""
    new = planned([spec("a.b")], [described("a_b")])
    assert [(each.topic, "collides" in each.reason) for each in new.refusals] == [("a.b", True)]
    both = planned([spec("a.b"), spec("a_b")])
    assert [each.topic for each in both.refusals] == ["a.b", "a_b"]
    there = planned([spec("a.b")], [described("a.b"), described("a_b")])
    assert there.refusals == ()
    assert ['"a_b"' in each.reason for each in there.cautions] == [True]


def test_replicas_are_refused_with_the_way_out() -> None:
    topic = spec("t", replication_factor=3)
    asked = replace(topic, set_by={**topic.set_by, "replication_factor": "node"})
    (refusal,) = planned([asked], [described("t")]).refusals
    assert refusal.reason == "replication factor is 1, the tree declares 3 (set by node)"
    assert "kafka-reassign-partitions" in refusal.hint
    # the tree does not set it: the cluster's value is accepted
    assert planned([topic], [described("t")]).refusals == ()


def test_the_steps_are_in_the_order_of_batches() -> None:
    topics = [spec("a"), spec("b", partitions=2), spec("c", config={"segment.ms": "1"}), spec("d")]
    made = planned(topics, [described("b"), described("c")], {"a": ONE, "d": ONE})
    assert [
        (type(step).__name__, step.topic.name) for step in made.steps if not isinstance(step, DeleteTopic)
    ] == [
        ("CreateTopic", "a"),
        ("CreateTopic", "d"),
        ("AddPartitions", "b"),
        ("AlterConfig", "c"),
        ("RegisterSchema", "a"),
        ("RegisterSchema", "d"),
    ]


def test_a_plan_with_a_refusal_is_not_begun() -> None:
    cluster = MemoryCluster()
    cluster.create_topic("t", partitions=5, config={}, replication_factor=1)
    topics = [spec("new"), spec("t", partitions=2)]
    made = plan(TopicTree(tuple(topics)), Actual(cluster.topics()), {}, MemorySchemas())
    with pytest.raises(Conflict, match="cannot shrink"):
        apply(made, cluster, MemorySchemas())
    assert list(cluster.topics()) == ["t"]


def test_an_apply_that_was_cut_off_goes_on_and_one_that_was_overtaken_ends_well() -> None:
    cluster, schemas = MemoryCluster(), MemorySchemas()
    cluster.create_topic("grown", partitions=1, config={}, replication_factor=1)
    cluster.create_topic("box.x", partitions=1, config={}, replication_factor=1)
    topics = (spec("grown", partitions=3), spec("new"))
    allowed = Allowed(frozenset({"box.x"}))
    made = plan(TopicTree(topics), Actual(cluster.topics()), {"new": ONE}, schemas, allowed)
    for _ in range(2):
        apply(made, cluster, schemas)
    assert cluster.topics()["grown"].partitions == 3
    assert schemas.versions("new-value") == [ONE]
    with pytest.raises(NotFound):
        cluster.end_offsets(["box.x"])


# ---- property: after an apply, the plan is empty

names = st.sampled_from(["a", "a.b", "b", "c.d", "box.x"])
configs = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.ms", "cleanup.policy"]),
    st.sampled_from(["1", "2", "compact"]),
    max_size=3,
)
levels = st.sampled_from([None, "NONE", "BACKWARD", "FULL", "FORWARD_TRANSITIVE"])
wanted = st.dictionaries(
    names,
    st.fixed_dictionaries(
        {"partitions": st.integers(1, 4), "config": configs, "compatibility": levels},
        optional={"text": st.sampled_from([ONE, TWO, THREE])},
    ),
)
there = st.dictionaries(names, st.tuples(st.integers(1, 4), configs))


@settings(deadline=None)
@given(wanted, there, st.sampled_from([(), (ONE,), (ONE, TWO)]), st.booleans())
def test_a_plan_carried_out_leaves_nothing_to_do(
    tree: dict[str, dict[str, object]],
    topics: dict[str, tuple[int, dict[str, str]]],
    registered: tuple[str, ...],
    destroy: bool,
) -> None:
    texts = {name: str(said["text"]) for name, said in tree.items() if "text" in said}
    specs = [spec(name, **{k: v for k, v in said.items() if k != "text"}) for name, said in tree.items()]
    wished = TopicTree(tuple(specs))
    cluster = MemoryCluster()
    for name, (partitions, config) in topics.items():
        cluster.create_topic(name, partitions=partitions, config=config, replication_factor=1)
    schemas = MemorySchemas({f"{name}-value": list(registered) for name in texts})
    destroyed = {"box.x"} - set(tree) if destroy else set()
    allowed = Allowed(frozenset(destroyed), lower_durability=True)
    made = plan(wished, Actual(cluster.topics()), texts, schemas, allowed)
    if made.refusals:
        before = (dict(cluster.topics()), dict(schemas.levels))
        with pytest.raises(Conflict):
            apply(made, cluster, schemas)
        assert (dict(cluster.topics()), schemas.levels) == before
        return
    apply(made, cluster, schemas)
    again = plan(wished, Actual(cluster.topics()), texts, schemas, allowed)
    assert (again.steps, again.refusals) == ((), ())
    assert set(tree) <= set(cluster.topics())
    assert set(topics) - set(cluster.topics()) <= destroyed


def test_the_plan_reads_no_file(tmp_path: Path) -> None:
    """The plan is core: schema texts are arguments, and the path in a topic is never opened."""
    made = planned([spec("t", schema=tmp_path / "none.avsc")], texts={"t": ONE})
    assert isinstance(made.steps[-1], RegisterSchema)


# ---- declared keys

NESTED = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "order_id", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "maybe", "type": ["null", "string"], "default": None},
            {"name": "price", "type": "double"},
            {"name": "both", "type": ["int", "string"]},
            {
                "name": "customer",
                "type": {"type": "record", "name": "C", "fields": [{"name": "id", "type": "int"}]},
            },
            {"name": "items", "type": {"type": "array", "items": "C"}},
        ],
    }
)


@pytest.mark.parametrize(
    ("key", "reason", "hint"),
    [
        ("order_id", None, None),
        ("at", None, None),
        ("customer.id", None, None),
        ("order_idd", 'its schema has no field "order_idd"', 'did you mean "order_id"?'),
        ("customer.idd", 'its schema has no field "customer.idd"', 'did you mean "customer.id"?'),
        ("order_id.x", 'the field "order_id" is a string, not a record', "through records"),
        ("items.id", 'the field "items" is an array, not a record', "through records"),
        ("price", 'its key "price" is a double', "a text or an integer"),
        ("customer", 'its key "customer" is a record', "a text or an integer"),
        ("both", 'its key "both" is a union', "a text or an integer"),
    ],
)
def test_a_declared_key_is_a_text_or_an_integer_of_the_schema(
    key: str, reason: str | None, hint: str | None
) -> None:
    topic = spec("a", key=key)
    for texts, schemas in (({"a": NESTED}, None), ({}, MemorySchemas({"a-value": [ONE, NESTED]}))):
        made = planned([topic], texts=texts, schemas=schemas)
        assert made.cautions == ()
        if reason is None or hint is None:
            assert made.refusals == ()
        else:
            (refused,) = made.refusals
            assert reason in refused.reason and hint in refused.hint
            assert (refused.setting, refused.wanted, refused.right) == ("key", key, "cluster")


def test_a_key_that_may_be_null_or_that_nobody_can_check_is_told() -> None:
    (told,) = planned([spec("a", key="maybe")], texts={"a": NESTED}).cautions
    assert "may be null or absent" in told.reason
    json_schema = MemorySchemas({"a-value": ['{"type": "object", "properties": {}}']})
    for schemas in (MemorySchemas(), json_schema):
        made = planned([spec("a", key="id")], schemas=schemas)
        assert made.refusals == () and "is not checked" in made.cautions[0].reason
    (refused,) = planned([spec("a", key="id")], texts={"a": '"string"'}).refusals
    assert "is not a record" in refused.reason
