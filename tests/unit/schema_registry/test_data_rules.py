"""Data rules: selection, actions after each result, and refusal of expressions that exceed limits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hub.schema_registry.codecs.misfit import Unfit
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.rules import (
    EXECUTABLE,
    MOST_EXPRESSION,
    Mode,
    RulePlan,
    RuleRefused,
    executable_part,
    judged_by,
    must_be_executable,
    plan_of,
    run,
)
from hub.schema_registry.contracts.runner import RuleRunner

NAME = json.dumps(
    {
        "type": "record",
        "name": "Person",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int", "default": 40}],
    }
)


def rule(
    name: str, kind: str = "CONDITION", mode: str = "WRITE", kind_of: str = "CEL", **more: Any
) -> dict[str, Any]:
    return {"name": name, "kind": kind, "mode": mode, "type": kind_of, "expr": name, **more}


def plan(*rules: dict[str, Any], mode: Mode = Mode.WRITE, **more: Any) -> RulePlan:
    part = "migrationRules" if mode in (Mode.UPGRADE, Mode.DOWNGRADE) else "domainRules"
    return plan_of({part: list(rules), **more}, mode)


def names(made: RulePlan) -> list[str]:
    return [each.name for each in made.rules]


def test_rules_of_a_mode_in_its_order() -> None:
    rules = [
        rule("a"),
        rule("b", mode="READ"),
        rule("c", mode="WRITEREAD"),
        rule("d", disabled=True),
        rule("e", mode="UPDOWN"),
    ]
    assert names(plan(*rules)) == ["a", "c"]
    assert names(plan(*rules, mode=Mode.READ)) == ["c", "b"]
    migrations = [rule("up", mode="UPGRADE"), rule("down", mode="DOWNGRADE"), rule("both", mode="UPDOWN")]
    assert names(plan(*migrations, mode=Mode.UPGRADE)) == ["up", "both"]
    assert names(plan(*migrations, mode=Mode.DOWNGRADE)) == ["both", "down"]
    assert not plan(*rules, enableAt="SERVER") and plan(*rules, enableAt="CLIENT")
    assert not plan_of(None, Mode.WRITE) and not plan_of({}, Mode.READ)


@pytest.mark.parametrize(
    "wrong", [3, {"domainRules": "x"}, {"domainRules": [3]}, {"domainRules": [{"name": "r", "expr": 3}]}]
)
def test_a_rule_set_that_means_nothing_is_refused_and_not_ignored(wrong: Any) -> None:
    """Other registries may have written it."""
    with pytest.raises(RuleRefused):
        plan_of(wrong, Mode.WRITE)


def after(made: RulePlan, results: dict[str, Any], value: Any = 0) -> Any:
    """Apply rules with these results to a value; a result that is an exception is raised."""

    def execute(index: int, now: Any) -> Any:
        result = results[made.every[index].name]
        if isinstance(result, Exception):
            raise result
        return result(now) if callable(result) else result

    return run(made, value, execute)


def test_each_result_leads_to_its_action() -> None:
    transform = {"kind": "TRANSFORM"}
    assert after(plan(rule("ok")), {"ok": True}) == 0
    assert (
        after(
            plan(rule("add", **transform), rule("again", **transform)),
            {"add": lambda n: n + 1, "again": lambda n: n * 5},
        )
        == 5
    )
    for failure in (False, ValueError("no")):
        with pytest.raises(RuleRefused) as refused:
            after(plan(rule("no")), {"no": failure})
        assert (refused.value.rule, refused.value.code, refused.value.dlq_topic) == ("no", "HUB-1214", None)
        assert after(plan(rule("no", onFailure="NONE")), {"no": failure}) == 0
    with pytest.raises(RuleRefused):
        after(plan(rule("nothing", **transform)), {"nothing": None})
    with pytest.raises(RuleRefused):
        after(plan(rule("ok", onSuccess="ERROR")), {"ok": True})
    with pytest.raises(RuleRefused) as copied:
        after(plan(rule("no", onFailure="DLQ", params={"dlq.topic": "dead"})), {"no": False})
    assert copied.value.dlq_topic == "dead"
    pair = {"mode": "WRITEREAD", "onFailure": "NONE,ERROR"}
    assert after(plan(rule("no", **pair)), {"no": False}) == 0
    with pytest.raises(RuleRefused):
        after(plan(rule("no", **pair), mode=Mode.READ), {"no": False})
    for error in (RecursionError(), MemoryError()):  # the rule's result is unknown
        with pytest.raises(RuleRefused) as over:
            after(plan(rule("deep", onFailure="NONE")), {"deep": error})
        assert over.value.code == "HUB-1216"


def test_what_cannot_be_executed_is_refused_whatever_it_says() -> None:
    for kind in ("ENCRYPT", "ENCRYPT_PAYLOAD", "other", ""):
        with pytest.raises(RuleRefused) as refused:
            must_be_executable(plan(rule("a"), rule("secret", kind_of=kind, onFailure="NONE")))
        assert (refused.value.rule, refused.value.code) == ("secret", "HUB-1215")
    must_be_executable(plan(*(rule(each, kind_of=each.lower()) for each in EXECUTABLE)))
    must_be_executable(plan(rule("secret", kind_of="ENCRYPT", disabled=True)))
    with pytest.raises(RuleRefused):
        must_be_executable(plan(rule("long", expr="1" * (MOST_EXPRESSION + 1))))


def test_what_can_be_asked_of_a_stored_value() -> None:
    secret = rule("secret", "TRANSFORM", "WRITEREAD", "ENCRYPT")
    made = plan(rule("before"), secret, rule("after"), rule("passes", onFailure="NONE"))
    assert [made.every[each].name for each in judged_by(made)] == ["after"]
    reading = plan(rule("first", mode="READ"), secret, rule("last", mode="READ"), mode=Mode.READ)
    assert names(executable_part(reading)) == ["last"]


@pytest.fixture(scope="module")
def runner() -> Iterator[RuleRunner]:
    made = RuleRunner(cpu_s=0.5, memory_mb=300, most=1)
    yield made
    made.close()


def encoder(runner: RuleRunner, **said: Any) -> Any:
    rules = {
        "domainRules": [
            {"kind": "TRANSFORM", "mode": "WRITE", "type": "JSONATA", "onFailure": "NONE", **said}
        ]
    }
    return runner.encoder_of(replace(SchemaSource.of("AVRO", NAME), rule_set=rules))


HOSTILE = {
    "recursion": "($f := function($x){$f($x + 1)}; $f(0))",
    "backtracking": "$match(name, /(a+)+$/)",
    "memory": "$pad(name, 100000000000)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_rule_that_takes_too_much_is_refused_and_harms_no_other_schema(
    name: str, runner: RuleRunner
) -> None:
    hostile = encoder(runner, name=name, expr=HOSTILE[name])
    kind = encoder(
        runner, name="kind", type="CEL", kind="CONDITION", expr="message.age >= 18", onFailure="ERROR"
    )
    with pytest.raises(RuleRefused) as refused:
        hostile.body({"name": "a" * 40 + "b", "age": 30})
    assert (refused.value.rule, refused.value.code) == (name, "HUB-1216"), refused.value
    assert kind.body({"name": "x"}) == b"\x02x\x50"  # the default age
    with pytest.raises(RuleRefused, match='"kind"'):
        kind.body({"name": "x", "age": 3})


def test_nested_macros_of_cel_are_ended_and_then_not_tried_for_a_while(runner: RuleRunner) -> None:
    digits = "[1,2,3,4,5,6,7,8,9,10]"
    expr = "size(message.name) > 0"
    for variable in "abcdefgh":
        expr = f"{digits}.all({variable}, {expr})"
    slow = encoder(runner, name="nested", type="CEL", kind="CONDITION", expr=expr)
    for _ in range(2):
        with pytest.raises(RuleRefused, match="processor time"):
            slow.body({"name": "x"})
    began = time.process_time()
    with pytest.raises(RuleRefused, match="not tried"):
        slow.body({"name": "x"})
    assert time.process_time() - began < 1.0


def test_a_child_that_died_while_it_was_idle_is_replaced(runner: RuleRunner) -> None:
    kind = encoder(
        runner, name="kind", type="CEL", kind="CONDITION", expr="message.age >= 18", onFailure="ERROR"
    )
    assert kind.body({"name": "x"}) == b"\x02x\x50"
    for child in runner._idle:
        child._process.kill()
        child._process.wait()
    assert kind.body({"name": "x"}) == b"\x02x\x50"


def test_a_value_that_does_not_fit_is_refused_as_without_rules(runner: RuleRunner) -> None:
    kind = encoder(runner, name="kind", type="CEL", kind="CONDITION", expr="true")
    with pytest.raises(Unfit, match="value.age: is the text"):
        kind.body({"name": "x", "age": "old"})
    odd = encoder(runner, name="odd", expr="{'name': 3}")
    with pytest.raises(Unfit, match="what its rules made of it"):
        odd.body({"name": "x", "age": 3})
