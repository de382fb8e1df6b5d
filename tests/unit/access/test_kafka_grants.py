"""Grants as Kafka's access rules: for each action and topic the answer is the server's."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from hub.access.access_yaml import AccessFile
from hub.access.decide import Principal, decide
from hub.access.kafka_grants import OPERATIONS, desired_rules, plan_rules
from hub.caller import Kind, Resource
from hub.kafka.acls import AccessRule

TOPICS = (
    "shop",
    "shop.orders",
    "shop.orders.dlq",
    "shop.orders.quarantine",
    "shop.orders.eu",
    "shops",
    "nyc.jfk.delays",
    "nyc.jfk.gates",
    "nyc.a.b.delays",
    "views.customers",
    "views.customers.v2",
    "views.customers.dlq",
    "views.secret",
    "_hub.audit",
    "public.news",
)
FILE = AccessFile.model_validate(
    {
        "groups": {"readers": [{"role": "read", "topics": ["shop.**", "nyc.*.delays"]}]},
        "users": {
            "ana": {"groups": ["readers"]},
            "bob": {"grants": [{"role": "admin", "topics": ["**"], "views": ["**"], "hub": True}]},
            "cleo": {
                "grants": [
                    {"role": "read", "views": ["customers"]},
                    {"role": "operate", "topics": ["shop.orders"]},
                ]
            },
            "dan": {"grants": [{"role": "write", "topics": ["**"]}]},
            "eva": {"grants": [{"role": "write", "topics": ["views.**", "views.customers"]}]},
            "fay": {"grants": [{"role": "admin", "hub": True}, {"role": "read", "topics": ["_hub.**"]}]},
            "gil": {"grants": [{"role": "write", "topics": ["shop.orders", "**.delays"]}]},
        },
        "anonymous": [{"role": "read", "topics": ["public.**"]}],
    }
)
PEOPLE = [Principal(name, "user", frozenset(node.groups)) for name, node in FILE.users.items()]
DESIRED = desired_rules(FILE.policy(0), PEOPLE, TOPICS)


def kafka_allows(rules: Collection[AccessRule], user: str, operation: str, topic: str) -> bool:
    """As Kafka's StandardAuthorizer decides, without rules that deny."""
    return any(
        rule.resource == "TOPIC"
        and rule.principal in (f"User:{user}", "User:*")
        and rule.operation == operation
        and (rule.name == topic if rule.pattern == "LITERAL" else topic.startswith(rule.name))
        for rule in rules
    )


@pytest.mark.parametrize("user", FILE.users)
def test_kafka_answers_as_the_server_for_each_action_and_topic(user: str) -> None:
    (who,) = (each for each in PEOPLE if each.name == user)
    for action, operations in OPERATIONS.items():
        for topic in TOPICS:
            here = decide(FILE.policy(0), who, action, Resource(Kind.topic, topic)).allowed
            for operation in operations:
                assert kafka_allows(DESIRED, user, operation, topic) == here, (operation, topic)


@pytest.mark.parametrize(
    "topic", ["shop.new", "shop.a.b", "nyc.lga.delays", "views.new", "_hub.new", "hr.pay"]
)
def test_a_topic_made_later_is_never_open_to_more_than_over_http(topic: str) -> None:
    for who in PEOPLE:
        for action, operations in OPERATIONS.items():
            here = decide(FILE.policy(0), who, action, Resource(Kind.topic, topic)).allowed
            for operation in operations:
                assert here or not kafka_allows(DESIRED, who.name, operation, topic), (who, operation)
    assert kafka_allows(DESIRED, "ana", "READ", "shop.new")


def test_subtrees_are_prefixes_and_readers_have_groups_of_their_name() -> None:
    of_ana = {
        (each.resource, each.pattern, each.name, each.operation)
        for each in DESIRED
        if each.principal == "User:ana"
    }
    assert ("TOPIC", "PREFIXED", "shop.", "READ") in of_ana
    assert ("GROUP", "PREFIXED", "ana.", "READ") in of_ana and ("GROUP", "LITERAL", "ana", "READ") in of_ana
    assert not any(each[0] == "TRANSACTIONAL_ID" for each in of_ana)


def rule(principal: str, name: str = "shop.orders", **changed: str) -> AccessRule:
    return AccessRule(
        **{
            "name": name,
            "pattern": "LITERAL",
            "principal": principal,
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
            **changed,
        }
    )  # type: ignore[arg-type]


def test_the_plan_removes_what_is_not_granted_and_leaves_others_alone() -> None:
    extra, other, hub = rule("User:ana", "hr.pay"), rule("User:robot"), rule("User:hub")
    by_hand = {
        rule("User:ana", permission="DENY"),
        rule("User:ana", host="10.0.0.1"),
        rule("User:ana", resource="CLUSTER"),
    }
    existing = {*DESIRED, extra, other, hub, *by_hand}
    made = plan_rules(DESIRED, existing, PEOPLE, own="hub")
    assert (made.add, made.remove, made.foreign) == ((), (extra,), (other,))
    pruned = plan_rules(DESIRED, existing, PEOPLE, own="hub", prune=["User:robot"])
    assert set(pruned.remove) == {extra, other} and pruned.foreign == ()
    assert set(plan_rules(DESIRED, (), PEOPLE).add) == DESIRED
    # a user of the file by whose name the hub itself signs in: its rights are not taken away
    assert not any(each.principal == "User:ana" for each in plan_rules((), DESIRED, PEOPLE, own="ana").remove)
