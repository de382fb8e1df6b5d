"""The rules of the tree where schemas come in: levels, refusals that name the node, and files that change."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hub.errors import ConfigError
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.policy.policy import Policies
from hub.schema_registry.registry.rulebook import PolicyCaller, Rulebook
from hub.schema_registry.registry.state_machine import (
    RegisterSchema,
    Registry,
    RequestRefused,
    SetLevel,
    SetMode,
)
from hub.topics.tree import live_rules
from hub.topics.tree.live_rules import LiveRules

RULES: dict[str, Any] = {
    "retail": {"compatibility": "FULL", "formats": ["AVRO", "PROTOBUF"], "fields": {"event_id": "string"}},
    "retail.orders": {"owner": "required", "registrars": ["team:orders"]},
    "scratch": {"compatibility": "NONE"},
}


def registry() -> Registry:
    return Registry(rulebook=Rulebook(Policies.of(RULES), {"retail.orders": "orders"}))


def text(*fields: str, default: bool = False) -> str:
    listed = [{"name": each, "type": "string", **({"default": ""} if default else {})} for each in fields]
    return json.dumps({"type": "record", "name": "r", "fields": listed})


def put(into: Registry, command: RegisterSchema | SetLevel | SetMode) -> Any:
    decision = into.decide(command)
    for fact in decision.facts:
        into.apply(fact)
    return decision.answer


TEAM = PolicyCaller("User:ann", frozenset({"orders"}))


def test_the_tree_s_level_holds_and_a_subject_may_only_be_stricter() -> None:
    into = registry()
    assert into.level_of("retail.returns-value") == "FULL"
    assert into.level_of("scratch.x-value") == "NONE"
    assert into.level_of("other-value") == "BACKWARD"
    put(into, SetLevel(None, {"compatibility": "FORWARD"}))  # the global level, where no policy sets one
    assert (into.level_of("other-value"), into.level_of("scratch.x-value")) == ("FORWARD", "NONE")
    put(into, SetLevel("retail.returns-value", {"compatibility": "FULL_TRANSITIVE"}))
    assert into.level_of("retail.returns-value") == "FULL_TRANSITIVE"
    with pytest.raises(RequestRefused, match="set by retail") as caught:
        put(into, SetLevel("retail.returns-value", {"compatibility": "BACKWARD"}))
    assert (caught.value.status, caught.value.error_code) == (422, 42203)
    assert into.settings("retail.sales-value")["compatibilityLevel"] == "FULL"


def test_the_level_is_the_one_that_schemas_are_held_to() -> None:
    into = registry()
    put(into, RegisterSchema("retail.returns-value", text("event_id", "a")))
    with pytest.raises(RequestRefused, match="compatibility: FULL"):  # BACKWARD would let it in
        put(into, RegisterSchema("retail.returns-value", text("event_id")))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (RegisterSchema("retail.returns-value", text("a")), ["event_id", "set by retail"]),
        (RegisterSchema("retail.returns-value", '{"type": "object"}', "JSON"), ["formats", "JSON"]),
        (RegisterSchema("retail.orders-value", text("event_id")), ["registrars", "set by retail.orders"]),
    ],
)
def test_what_breaks_a_rule_is_refused_by_the_node_that_set_it(
    command: RegisterSchema, words: list[str]
) -> None:
    into = registry()
    with pytest.raises(RequestRefused) as caught:
        put(into, command)
    assert (caught.value.status, caught.value.error_code) == (422, 42201)
    for word in words:
        assert word in caught.value.message
    assert not into.subjects


def test_owner_is_the_topic_s_or_the_metadata_s() -> None:
    into = registry()
    assert put(into, RegisterSchema("retail.orders-value", text("event_id"), caller=TEAM)).version == 1
    into.rulebook = Rulebook(Policies.of(RULES))
    with pytest.raises(RequestRefused, match="owner"):
        put(into, RegisterSchema("retail.orders-key", text("event_id", "b"), caller=TEAM))
    named = {"properties": {"owner": "orders"}}
    put(into, RegisterSchema("retail.orders-key", text("event_id", "b"), metadata=named, caller=TEAM))


def test_all_three_formats_with_their_references_are_looked_into() -> None:
    into = registry()
    proto = 'syntax = "proto3"; message M { string event_id = 1; }'
    assert put(into, RegisterSchema("retail.p-value", proto, "PROTOBUF")).schema_id == 1
    with pytest.raises(RequestRefused, match="event_id"):
        put(into, RegisterSchema("retail.q-value", proto.replace("event_id", "id"), "PROTOBUF"))
    put(into, RegisterSchema("money", '{"type": "record", "name": "Money", "fields": []}'))
    with_money = json.dumps(
        {
            "type": "record",
            "name": "Sale",
            "fields": [{"name": "event_id", "type": "string"}, {"name": "total", "type": "Money"}],
        }
    )
    referring = RegisterSchema("retail.sale-value", with_money, references=(Reference("Money", "money", 1),))
    assert put(into, referring).version == 1


def test_what_is_there_already_and_what_is_imported_is_not_judged() -> None:
    into = registry()
    into.rulebook = Rulebook()
    put(into, RegisterSchema("retail.old-value", text("a")))
    into.rulebook = registry().rulebook
    assert put(into, RegisterSchema("retail.old-value", text("a"))).schema_id == 1
    put(into, SetMode("retail.moved-value", "IMPORT", force=False, recursive=False))
    assert put(into, RegisterSchema("retail.moved-value", text("b"), schema_id=7)).schema_id == 7


def test_files_are_read_again_and_a_broken_one_leaves_what_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_rules, "_LOOK_EVERY_S", 0.0)
    rules = LiveRules(tmp_path)
    assert rules().level("retail.x-value", None, "BACKWARD") == "BACKWARD"
    file = tmp_path / "policies.yaml"
    file.write_text("policies:\n  retail:\n    compatibility: FULL\n")
    assert rules().level("retail.x-value", None, "BACKWARD") == "FULL"
    time.sleep(0.01)
    file.write_text("policies:\n  retail:\n    compatibilty: NONE\n")
    assert rules().level("retail.x-value", None, "BACKWARD") == "FULL"
    assert rules.error is not None and "compatibility" in str(rules.error)
    file.unlink()
    assert rules().level("retail.x-value", None, "BACKWARD") == "BACKWARD" and rules.error is None


def test_owners_stay_known_while_topics_yaml_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All producers were refused for want of an owner while somebody edited the file."""
    monkeypatch.setattr(live_rules, "_LOOK_EVERY_S", 0.0)
    (tmp_path / "policies.yaml").write_text("policies: {shop: {owner: required}}")
    topics = tmp_path / "topics.yaml"
    topics.write_text("topics: {shop: {owner: ann, topics: {orders: {}}}}")
    rules = LiveRules(tmp_path)
    assert rules().owners["shop.orders"] == "ann"
    for broken in ("topics: {shop: {owner", ""):
        topics.write_text(broken)
        assert rules().owners["shop.orders"] == "ann"
    topics.write_text("topics: {shop: {owner: bob, topics: {orders: {}}}}")
    assert rules().owners["shop.orders"] == "bob"


def test_a_server_does_not_start_without_the_rules_that_were_meant(tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text("policies: [")
    with pytest.raises(ConfigError, match=r"policies\.yaml:1"):
        LiveRules(tmp_path)


def test_rules_in_a_file_by_the_other_name_of_yaml_are_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "policies.yml").write_text("policies: {retail: {compatibility: FULL}}")
    with pytest.raises(ConfigError) as refused:
        LiveRules(tmp_path)
    assert "rename policies.yml to policies.yaml" in (refused.value.hint or "")


def test_what_is_frozen_gets_no_version_of_a_schema_that_it_had_either() -> None:
    frozen = Registry()
    versions = [
        put(frozen, RegisterSchema("a-value", each)) for each in (text("x"), text("x", "y", default=True))
    ]
    assert [each.version for each in versions] == [1, 2]
    frozen.rulebook = Rulebook(Policies.of({"a": {"freeze": True}}))
    with pytest.raises(RequestRefused, match="frozen"):
        put(frozen, RegisterSchema("a-value", text("x"), version=-1))  # would be the latest once more
    assert put(frozen, RegisterSchema("a-value", text("x"))).version == 1
    assert list(frozen.numbers("a-value")) == [1, 2]
