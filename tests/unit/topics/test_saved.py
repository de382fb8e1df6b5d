"""Saved plans: read back unchanged; refused if the file or the cluster has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hub.errors import CallerError, Conflict
from hub.log import TopicDescription
from hub.topics.tree.plan import TreePlan
from hub.topics.tree.saved_plan import SavedPlan, as_json, check_unchanged, facts, names_in, read, write
from hub.topics.tree.steps import (
    AddPartitions,
    AlterConfig,
    Caution,
    CreateTopic,
    DeleteTopic,
    RegisterSchema,
    SetCompatibility,
    TreeRefusal,
)
from hub.topics.tree.tree import Slo, TopicSpec

TOPIC = TopicSpec(
    name="shop.orders",
    owner="ünder",
    doc="",
    partitions=3,
    replication_factor=2,
    config={"retention.ms": "-1"},
    compatibility="FULL",
    schema=Path("schemas/orders.avsc"),
    tags=("pii",),
    set_by={"partitions": "shop"},
    slo=Slo(2_000, None),
)
STEPS = (
    CreateTopic(TOPIC),
    AddPartitions(TOPIC, 1),
    AlterConfig(TOPIC, {"segment.ms": ("5", None), "retention.ms": (None, "-1")}),
    SetCompatibility(TOPIC, "FULL", "BACKWARD"),
    RegisterSchema(TOPIC, '"string"', True),
    DeleteTopic("old"),
)
FACTS = {"cluster": "c", 'topic "a"': "1"}


class Subjects:
    def __init__(self, *versions: str) -> None:
        self.found = versions

    def versions(self, subject: str) -> Sequence[str]:
        return self.found

    def compatibility(self, subject: str) -> str:
        return "BACKWARD"

    def incompatibilities(self, subject: str, schema: str, level: str) -> Sequence[str]:
        return []


def test_a_saved_plan_reads_back_as_it_was() -> None:
    saved = SavedPlan(STEPS, FACTS)
    back = read(write(saved), "f")
    assert back == saved
    assert [str(step) for step in back.steps] == [str(step) for step in STEPS]
    assert write(back) == write(saved)


def edited(body: dict[str, object]) -> str:
    return json.dumps({**body, "facts": {}})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[: len(text) // 2], "is not a saved plan"),
        (lambda text: "", "is not a saved plan"),
        (lambda text: "[]", "is not a saved plan"),
        (lambda text: "topics: {}", "is not a saved plan"),
        (lambda text: edited(json.loads(text)), "changed after it was saved"),
        (lambda text: text.replace('"partitions": 3', '"partitions": 4'), "changed after it was saved"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "plan format 2, known is 1"),
    ],
)
def test_what_is_no_plan_any_more_is_refused(spoil: Callable[[str], str], said: str) -> None:
    with pytest.raises(CallerError, match=said) as refusal:
        read(spoil(write(SavedPlan(STEPS, FACTS))), "plan.json")
    assert "plan.json" in refusal.value.message
    assert "hub topic plan --save" in str(refusal.value.hint)


def test_every_change_of_what_a_plan_was_made_from_is_named() -> None:
    topic = TopicDescription("a", "id", 1, 1, {"segment.ms": "1"})

    def now(found: TopicDescription | None, *versions: str, cluster: str = "c") -> dict[str, str]:
        there = {} if found is None else {"a": found}
        return facts(cluster, ["a", "new"], there, ["a-value"], Subjects(*versions))

    then = now(topic, "v1")
    assert names_in(then) == (["a", "new"], ["a-value"])
    check_unchanged(then, now(replace(topic, config=dict(topic.config)), "v1"))
    for other, said in [
        (now(None, "v1"), 'topic "a"'),
        (now(replace(topic, topic_id="made anew"), "v1"), 'topic "a"'),
        (now(replace(topic, partitions=2), "v1"), 'topic "a"'),
        (now(replace(topic, config={}), "v1"), 'topic "a"'),
        (now(topic, "v1", "v2"), 'subject "a-value"'),
        (now(topic, "v1", cluster="d"), "another cluster"),
    ]:
        with pytest.raises(Conflict, match=said):
            check_unchanged(then, other)


def test_the_json_of_a_plan_is_stable() -> None:
    made = TreePlan(
        STEPS[:1],
        (TreeRefusal("t", "cannot", "way out", "partitions"),),
        ("old",),
        (Caution("u", "careful", "look"),),
    )
    assert as_json(made) == {
        "format": 1,
        "steps": [{"step": "CreateTopic", "topic": "shop.orders", "text": str(STEPS[0])}],
        "refusals": [{"topic": "t", "setting": "partitions", "reason": "cannot", "hint": "way out"}],
        "warnings": [{"topic": "u", "reason": "careful", "hint": "look"}],
        "kept": [{"topic": "old", "destroy": "hub topic apply --destroy old"}],
    }
