"""Rules on the tree: patterns and their order, what is inherited, what is refused, every rule's words,
and the laws."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from hub.cli.schema.explain import explain as explain_command
from hub.cli.terminal.output import Output
from hub.errors import ConfigError
from hub.schema_registry.describe import describe
from hub.schema_registry.model.levels import LEVELS
from hub.schema_registry.model.subjects import split
from hub.schema_registry.policy.label_patterns import (
    Labels,
    ancestors_first,
    checked,
    depth,
    fits,
    is_ancestor,
    labels_of,
    specificity,
    trail,
)
from hub.schema_registry.policy.policy import Policies, explain, load_policies
from hub.schema_registry.policy.policy_checks import CheckContext, PolicyViolation, respelled
from hub.schema_registry.policy.policy_rules import RULES, as_strict, joined, matcher, text_of

ROOT = Path(__file__).parents[3]


def values(policies: Policies, subject: str) -> dict[str, str]:
    """Return the effective values in readable form, without severities."""
    return {
        key: text_of(key, each.value)
        for key, each in policies.effective(subject).settings.items()
        if not key.startswith("severity.")
    }


# ---- patterns


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("**", "", 0),
        ("**", "retail.orders", 0),
        ("retail", "retail", 1),
        ("retail", "retail.orders.eu", 1),
        ("retail", "retailer", None),
        ("retail", "", None),
        ("nyc.*", "nyc", None),
        ("nyc.*", "nyc.jfk.departures", 2),
        ("**.chat", "chat", 1),
        ("**.chat", "shop.web.chat", 3),
        ("**.chat", "shop.chat.web.chat", 2),
        ("nyc.**.chat", "nyc.chat", 2),
        ("nyc.**.chat", "nyc.a.b.chat.c", 4),
        ("nyc.**", "nyc", 1),
        ("*.*", "nyc", None),
    ],
)
def test_a_node_begins_to_hold_at_the_fewest_labels_that_fit(
    pattern: str, topic: str, expected: int | None
) -> None:
    assert depth(labels_of(pattern), labels_of(topic)) == expected


@pytest.mark.parametrize(
    ("topic", "in_order"),
    [
        # 1 depth, before everything else
        (
            "nyc.jfk.chat",
            ["**", "*", "nyc", "*.*", "nyc.*", "nyc.jfk", "**.chat", "nyc.*.chat", "nyc.jfk.chat"],
        ),
        # 2 labels written out; 3 ** before none
        ("a.b.chat", ["**.chat", "*.*.chat", "a.**.chat", "a.*.chat", "a.b.chat"]),
        # 4 fewer *
        ("a.b.chat", ["**.chat", "**.*.chat", "**.*.*.chat", "*.*.chat"]),
        # 5 label by label
        ("a.b", ["*.b", "a.*", "a.b"]),
        # 6 the text
        ("a.b.c", ["**.a.b.c", "a.b.c"]),
    ],
)
def test_the_order_on_a_trail_is_by_depth_then_by_specificity(topic: str, in_order: list[str]) -> None:
    found = trail([labels_of(each) for each in reversed(in_order)], labels_of(topic))
    assert [".".join(each) for each in found] == in_order


SMALL_TOPICS = [labels for size in range(5) for labels in product("abc", repeat=size)]
SMALL_PATTERNS = [
    labels
    for size in (1, 2, 3)
    for labels in product(("a", "b", "*", "**"), repeat=size)
    if labels.count("**") <= 1
]


def test_an_ancestor_is_what_holds_and_comes_first_wherever_the_other_holds() -> None:
    """Exhaustive: topics of four labels distinguish patterns of three."""
    places: dict[Labels, dict[Labels, tuple[Any, ...]]] = {
        each: {
            topic: (n, specificity(each)) for topic in SMALL_TOPICS if (n := depth(each, topic)) is not None
        }
        for each in SMALL_PATTERNS
    }
    for above, below in product(SMALL_PATTERNS, repeat=2):
        first = all(
            topic in places[above] and places[above][topic] < place for topic, place in places[below].items()
        )
        assert is_ancestor(above, below) == first, (above, below)
    order = ancestors_first(SMALL_PATTERNS)
    assert not any(is_ancestor(later, each) for at, each in enumerate(order) for later in order[at:])


def test_of_two_nodes_of_one_depth_the_narrower_decides() -> None:
    topics_of = {
        each: frozenset(topic for topic in SMALL_TOPICS if fits(each, topic)) for each in SMALL_PATTERNS
    }
    pairs = [(one, other) for one, other in product(topics_of, repeat=2) if topics_of[one] < topics_of[other]]
    assert len(pairs) > 500
    for narrow, wide in pairs:
        for topic in topics_of[narrow]:
            if depth(narrow, topic) == depth(wide, topic):
                assert trail([narrow, wide], topic) == [wide, narrow]


@pytest.mark.parametrize("wrong", ["", "a..b", "a.b c", "a.***", "**.a.**", "a*", "x" * 250])
def test_what_is_no_pattern_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        checked(wrong)


# ---- subjects


@pytest.mark.parametrize(
    ("subject", "topic", "is_key"),
    [
        ("retail.orders-value", "retail.orders", False),
        ("retail.orders-key", "retail.orders", True),
        ("retail.orders", "retail.orders", False),
        (":.eu:retail.orders-value", "retail.orders", False),
        (":.eu:", "", False),
        ("retail.orders-com.acme.OrderPlaced", "retail.orders", False),
        ("retail.orders-eu-com.acme.OrderPlaced", "retail.orders-eu", False),
        ("payments-com.acme.Paid", "payments", False),  # no known topic, but a node of the tree
        ("nyc.jfk-com.acme.Departure", "nyc.jfk", False),  # also one with wildcards
        ("com.acme.OrderPlaced", "com.acme.OrderPlaced", False),
        ("odd-value", "odd-value", False),  # a known topic has its own name
        ("crm-team", "crm-team", False),  # a node's own name, though "crm" is a node as well
        ("my subject", "", False),
        ("a..b", "", False),
        ("", "", False),
    ],
)
def test_subjects_belong_to_topics(subject: str, topic: str, is_key: bool) -> None:
    policies = Policies.of(
        {"payments": {}, "nyc.*": {}, "crm": {}, "crm-team": {}, "**": {}},
        topics=["retail.orders", "retail.orders-eu", "odd-value"],
    )
    found = policies.effective(subject)
    assert (found.topic, found.is_key) == (topic, is_key)


def test_a_subject_of_any_length_has_rules_at_once() -> None:
    policies = Policies.of({"**": {"freeze": True}, "a": {"doc": "record"}, "**.b.*": {"max_fields": 1}})
    for subject in ("a." * 100_000 + "a", "a" + "-b" * 100_000, "a" + "-" * 200_000 + "."):
        assert "freeze" in policies.effective(subject).settings
    assert "doc" in policies.effective("a." * 100_000 + "a").settings


def test_a_context_is_told_apart() -> None:
    assert split(":.eu:a-value").context == "eu" and split("a-value").context == ""


# ---- inheritance


TREE: dict[str, Any] = {
    "**": {"compatibility": "BACKWARD", "owner": "required"},
    "retail": {
        "compatibility": "FULL",
        "formats": ["AVRO", "JSON"],
        "fields": {"event_id": ["string", "uuid"]},
        "naming": {"fields": "snake_case"},
    },
    "retail.orders": {
        "compatibility": "FULL_TRANSITIVE",
        "formats": "AVRO",
        "fields": {"event_id": "uuid", "order_id": "string"},
        "naming": {"records": "PascalCase"},
    },
    "**.chat": {"max_fields": 30, "compatibility": "FORWARD"},
}
_NAMED = {"fields.event_id": "string or uuid", "naming.fields": "snake_case"}


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("anything at all", {"compatibility": "BACKWARD", "owner": "required"}),
        ("web.clicks-value", {"compatibility": "BACKWARD", "owner": "required"}),
        ("retail", {"compatibility": "FULL", "owner": "required", "formats": "AVRO or JSON", **_NAMED}),
        (
            "retail.orders.eu-value",
            {
                "compatibility": "FULL_TRANSITIVE",
                "owner": "required",
                "formats": "AVRO",
                "fields.event_id": "uuid",
                "fields.order_id": "string",
                "naming.fields": "snake_case",
                "naming.records": "PascalCase",
            },
        ),
    ],
)
def test_rules_are_inherited_label_by_label_and_maps_key_by_key(
    subject: str, expected: dict[str, str]
) -> None:
    tree = {name: node for name, node in TREE.items() if name != "**.chat"}
    assert values(Policies.of(tree), subject) == expected


def test_nodes_that_only_meet_are_joined_and_both_are_named() -> None:
    policies = Policies.of({"nyc.*": {"compatibility": "BACKWARD"}, "**.chat": {"compatibility": "FORWARD"}})
    setting = policies.effective("nyc.chat").settings["compatibility"]
    assert (setting.value, setting.set_by) == (
        "FULL",
        "nyc.* + **.chat",
    ) or setting.set_by == "**.chat + nyc.*"
    assert "with" in setting.trail
    assert policies.effective("chat").settings["compatibility"].value == "FORWARD"


def test_the_stricter_of_two_that_meet_is_named_alone() -> None:
    policies = Policies.of({"nyc": {"formats": "AVRO"}, "**.chat": {"formats": ["AVRO", "JSON"]}})
    setting = policies.effective("nyc.chat").settings["formats"]
    assert (setting.value, setting.set_by) == (frozenset({"AVRO"}), "nyc")
    assert setting.trail == "nyc AVRO > **.chat AVRO or JSON (with nyc: AVRO)"


def test_formats_that_meet_in_none_say_so() -> None:
    policies = Policies.of({"nyc": {"formats": "AVRO"}, "**.chat": {"formats": "JSON"}})
    assert values(policies, "nyc.chat") == {"formats": "no format fits all"}


# ---- override

LOOSER = {
    "compatibility": ("FULL", "BACKWARD"),
    "formats": (["AVRO"], ["AVRO", "JSON"]),
    "fields": ({"id": "string"}, {"id": "optional"}),
    "naming": ({"fields": "snake_case"}, {"fields": "camelCase"}),
    "owner": ("required", "optional"),
    "doc": ("every_field", "record"),
    "pii": ({"mail": ["PII", "GDPR"]}, {"mail": "PII"}),
    "freeze": (True, False),
    "registrars": (["team:a"], ["team:a", "team:b"]),
    "max_fields": (10, 11),
}
STRICTER = {
    "compatibility": ("BACKWARD", "BACKWARD_TRANSITIVE"),
    "formats": (["AVRO", "JSON"], ["AVRO"]),
    "fields": ({"id": ["string", "uuid"]}, {"id": "uuid"}),
    "naming": ({"fields": "snake_case"}, {"fields": ["snake_case", ".{1,30}"]}),
    "owner": ("optional", "required"),
    "doc": ("record", "every_field"),
    "pii": ({"mail": "PII"}, {"mail": ["PII", "GDPR"]}),
    "freeze": (False, True),
    "registrars": (["team:a", "team:b"], ["team:b"]),
    "max_fields": (10, 9),
}


def test_every_rule_is_in_the_tables() -> None:
    assert {*LOOSER} == {*STRICTER} == {*RULES} - {"severity"}


def family(rule: str, above: Any, below: Any, **more: Any) -> dict[str, Any]:
    return {"a": {rule: above, **more}, "a.b": {rule: below}}


@pytest.mark.parametrize("rule", LOOSER)
def test_a_child_that_loosens_is_refused_by_default_with_both_names(rule: str) -> None:
    for override in ({}, {"override": "stricter"}, {"override": {rule: "stricter"}}):
        with pytest.raises(ConfigError, match=rf'"a.b" declares {rule}.* not as strict as .* of "a"'):
            Policies.of(family(rule, *LOOSER[rule], **override))
    with pytest.raises(ConfigError, match=r'"a.\*.c".*"a"'):
        Policies.of({"a": {rule: LOOSER[rule][0]}, "a.*.c": {rule: LOOSER[rule][1]}})


@pytest.mark.parametrize("rule", STRICTER)
def test_a_child_may_be_stricter_or_the_same(rule: str) -> None:
    above, below = STRICTER[rule]
    policies = Policies.of(family(rule, above, below))
    key = next(each for each in policies.nodes[0].declared if each.startswith(rule))
    assert policies.effective("a.b.c").settings[key].set_by == "a.b"
    assert policies.effective("a.x").settings[key].set_by == "a"
    assert as_strict(
        key, policies.effective("a.b").settings[key].value, policies.effective("a").settings[key].value
    )
    Policies.of(family(rule, above, above))


@pytest.mark.parametrize("rule", LOOSER)
def test_any_lets_a_child_loosen_and_none_lets_it_say_nothing(rule: str) -> None:
    policies = Policies.of(family(rule, *LOOSER[rule], override={rule: "any"}))
    key = next(each for each in policies.nodes[1].declared if each.startswith(rule))
    assert policies.effective("a.b").settings[key].value == policies.nodes[1].declared[key]
    with pytest.raises(ConfigError, match=f'"a" allows no declaration of {rule} below it'):
        Policies.of(family(rule, *STRICTER[rule], override={rule: "none"}))
    Policies.of(family(rule, *STRICTER[rule][:1] * 2, override={rule: "none"}))  # the same is allowed


def test_none_closes_a_whole_rule_also_for_other_keys() -> None:
    tree = {
        "a": {"fields": {"id": "string"}, "override": {"fields": "none"}},
        "a.b": {"fields": {"at": "date"}},
    }
    with pytest.raises(ConfigError, match='"a.b" declares fields.at'):
        Policies.of(tree)


def test_a_node_that_only_meets_a_closed_rule_is_not_heard() -> None:
    policies = Policies.of(
        {"nyc": {"max_fields": 10, "override": "none"}, "**.chat": {"max_fields": 5, "doc": "record"}}
    )
    setting = policies.effective("nyc.chat").settings["max_fields"]
    assert (setting.value, setting.set_by) == (10, "nyc")
    assert setting.trail == 'nyc 10 > **.chat 5 (ignored: "nyc" declares none)'
    assert policies.effective("chat").settings["max_fields"].value == 5
    assert policies.effective("nyc.chat").settings["doc"].set_by == "**.chat"


def test_any_opens_a_nodes_own_say_and_not_that_of_those_above_it() -> None:
    tree: dict[str, Any] = {
        "a": {"compatibility": "BACKWARD"},
        "a.b": {"compatibility": "FULL_TRANSITIVE", "override": {"compatibility": "any"}},
        "a.b.c": {"compatibility": "BACKWARD_TRANSITIVE"},
    }
    assert values(Policies.of(tree), "a.b.c") == {"compatibility": "BACKWARD_TRANSITIVE"}
    with pytest.raises(ConfigError, match='"a.b.c" declares compatibility: NONE.*BACKWARD of "a"'):
        Policies.of({**tree, "a.b.c": {"compatibility": "NONE"}})


def test_a_childs_say_binds_its_own_children_although_its_parent_lets_any() -> None:
    tree = {
        "a": {"compatibility": "BACKWARD", "override": "any"},
        "a.b": {"compatibility": "FULL"},
        "a.b.c": {"compatibility": "NONE"},
    }
    with pytest.raises(ConfigError, match='"a.b.c".*FULL of "a.b"'):
        Policies.of(tree)


def test_an_override_without_a_say_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not declare formats itself"):
        Policies.of({"a": {"override": {"formats": "any"}}})


# ---- severity


def test_a_rule_blocks_unless_it_or_a_node_above_says_warn() -> None:
    policies = Policies.of(
        {
            "a": {"doc": "record", "severity": {"doc": "warn", "naming": "warn"}},
            "a.b": {"naming": {"fields": "snake_case"}},
            "a.b.c": {"severity": {"doc": "block"}},
            "x": {"doc": "record"},
        }
    )
    severity = {topic: values_of(policies, topic) for topic in ("a", "a.b", "a.b.c", "x")}
    assert severity == {
        "a": {"doc": "warn", "naming": "warn"},
        "a.b": {"doc": "warn", "naming": "warn"},
        "a.b.c": {"doc": "block", "naming": "warn"},
        "x": {"doc": "block"},
    }


def values_of(policies: Policies, topic: str) -> dict[str, Any]:
    return {
        key.removeprefix("severity."): each.value
        for key, each in policies.effective(topic).settings.items()
        if key.startswith("severity.")
    }


def test_turning_a_block_into_a_warning_is_loosening() -> None:
    with pytest.raises(ConfigError, match="severity.doc: warn, which is not as strict as block"):
        Policies.of({"a": {"doc": "record"}, "a.b": {"severity": {"doc": "warn"}}})
    Policies.of({"a": {"doc": "record", "override": {"doc": "any"}}, "a.b": {"severity": {"doc": "warn"}}})


# ---- the level


@pytest.mark.parametrize(
    ("minimum", "own", "expected"),
    [
        (None, None, ("BACKWARD", "(default)")),
        (None, "NONE", ("NONE", "(subject)")),
        ("FULL", None, ("FULL", "a")),
        ("NONE", None, ("NONE", "a")),  # a policy's level also applies where no level is set
        ("FULL", "FULL_TRANSITIVE", ("FULL_TRANSITIVE", "(subject)")),
        ("FULL", "NONE", ("FULL", "a")),
        ("BACKWARD", "FORWARD", ("FULL", "a + (subject)")),
        ("BACKWARD_TRANSITIVE", "FULL", ("FULL_TRANSITIVE", "a + (subject)")),
    ],
)
def test_the_level_is_the_subjects_own_when_it_is_strict_enough(
    minimum: str | None, own: str | None, expected: tuple[str, str]
) -> None:
    effective = Policies.of({"a": {"compatibility": minimum} if minimum else {}}).effective("a-value")
    assert effective.level(own) == expected
    if own is not None:
        refused = effective.level_violation(own)
        assert (refused is None) == (expected == (own, "(subject)"))
        assert refused is None or f"set {expected[0]}" in refused.fix


STRICTNESS = {
    "NONE": set[str](),
    "BACKWARD": {"b"},
    "FORWARD": {"f"},
    "BACKWARD_TRANSITIVE": {"b", "bt"},
    "FORWARD_TRANSITIVE": {"f", "ft"},
    "FULL": {"b", "f"},
    "FULL_TRANSITIVE": {"b", "bt", "f", "ft"},
}


@pytest.mark.parametrize(("one", "other"), [*product(LEVELS, LEVELS)])
def test_levels_are_ordered_by_what_they_guarantee(one: str, other: str) -> None:
    assert as_strict("compatibility", one, other) == (STRICTNESS[one] >= STRICTNESS[other])
    both = STRICTNESS[str(joined("compatibility", one, other))]
    assert both == min(
        (each for each in STRICTNESS.values() if each >= STRICTNESS[one] | STRICTNESS[other]), key=len
    )


# ---- laws


TYPE_WORDS = st.sampled_from(["string", "uuid", "long", "any", "optional"])
nodes = st.fixed_dictionaries(
    {},
    optional={
        "compatibility": st.sampled_from(LEVELS),
        "formats": st.lists(st.sampled_from(["AVRO", "JSON", "PROTOBUF"]), min_size=1),
        "fields": st.dictionaries(
            st.sampled_from(["id", "at"]), st.lists(TYPE_WORDS, min_size=1, max_size=3)
        ),
        "naming": st.fixed_dictionaries(
            {}, optional={"fields": st.lists(st.sampled_from(["snake_case", "camelCase", ".{1,9}"]))}
        ),
        "owner": st.sampled_from(["required", "optional"]),
        "doc": st.sampled_from(["optional", "record", "every_field"]),
        "pii": st.dictionaries(st.just("mail"), st.lists(st.sampled_from(["PII", "GDPR"]))),
        "freeze": st.booleans(),
        "registrars": st.lists(st.sampled_from(["team:a", "team:b", "anyone"]), min_size=1).map(
            lambda names: ["anyone"] if "anyone" in names else names
        ),
        "max_fields": st.sampled_from([1, 5, "unlimited"]),
        "severity": st.fixed_dictionaries(
            {}, optional={rule: st.sampled_from(["warn", "block"]) for rule in ("doc", "fields", "naming")}
        ),
    },
)
names = st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=3).map(
    lambda labels: ".".join(dict.fromkeys(labels) if labels.count("**") > 1 else labels)
)


@given(st.dictionaries(names, nodes, max_size=5))
def test_law_a_child_is_never_looser_than_its_parent_in_any_rule(tree: dict[str, Any]) -> None:
    try:
        policies = Policies.of(tree)
    except ConfigError:
        return  # refused when it is loaded
    for topic in SMALL_TOPICS[1:]:
        child = policies.effective(".".join(topic)).settings
        for key, setting in policies.effective(".".join(topic[:-1])).settings.items():
            assert as_strict(key, child[key].value, setting.value), (topic, key)


@given(st.dictionaries(names.filter(lambda name: "*" not in name), nodes, max_size=5))
def test_law_without_wildcards_what_a_node_says_is_what_holds(tree: dict[str, Any]) -> None:
    try:
        policies = Policies.of(tree)
    except ConfigError:
        return
    for node in policies.nodes:
        for key, value in node.declared.items():
            setting = policies.effective(node.name).settings[key]
            assert (setting.value, setting.set_by) == (value, node.name)


@given(nodes, nodes, nodes)
def test_law_the_values_of_each_rule_form_a_lattice(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    one, two, three = (Policies.of({"a": tree}).nodes[0].declared for tree in (first, second, third))
    for key in {*one} & {*two} & {*three}:
        x, y, z = one[key], two[key], three[key]
        assert joined(key, x, x) == x
        assert joined(key, x, y) == joined(key, y, x)
        assert joined(key, joined(key, x, y), z) == joined(key, x, joined(key, y, z))
        assert as_strict(key, x, RULES[key.partition(".")[0]].loosest)


# ---- every rule's words

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "orderPlaced",
    "namespace": "acme",
    "fields": [
        {"name": "orderId", "type": ["null", "string"]},
        {"name": "occurred_at", "type": "long"},
        {"name": "contactEmail", "type": "string", "doc": "Where to write."},
        {"name": "state", "type": {"type": "enum", "name": "state_kind", "symbols": ["open", "CLOSED"]}},
    ],
}


def broken(
    rules: dict[str, Any], schema: Any = ORDER, subject: str = "a-value", **context: Any
) -> list[PolicyViolation]:
    view = describe("AVRO", schema)
    return Policies.of({"a": rules}).effective(subject).check("AVRO", view, CheckContext(**context))


@pytest.mark.parametrize(
    ("rules", "context", "expected"),
    [
        (
            {"formats": ["JSON", "PROTOBUF"]},
            {},
            [
                (
                    "formats",
                    "",
                    "a schema of type AVRO is not allowed, only JSON or PROTOBUF",
                    "register it as JSON",
                )
            ],
        ),
        (
            {"fields": {"event_id": "uuid"}},
            {},
            [
                (
                    "fields.event_id",
                    "event_id",
                    'record "acme.orderPlaced" has no field "event_id" (uuid)',
                    'add {"name": "event_id", "type": {"type": "string", "logicalType": "uuid"}}',
                )
            ],
        ),
        (
            {"fields": {"occurred_at": "timestamp"}},
            {},
            [
                (
                    "fields.occurred_at",
                    "occurred_at",
                    'field "occurred_at" of "acme.orderPlaced" is long, and must be timestamp',
                    "make it timestamp",
                )
            ],
        ),
        (
            {"fields": {"orderId": "string"}},
            {},
            [
                (
                    "fields.orderId",
                    "orderId",
                    'field "orderId" of "acme.orderPlaced" may be missing or null',
                    '"null"',
                )
            ],
        ),
        ({"fields": {"orderId": "optional", "occurred_at": "any", "state": "enum"}}, {}, []),
        (
            {"naming": {"records": "PascalCase"}},
            {},
            [
                (
                    "naming.records",
                    "acme.orderPlaced",
                    'record "orderPlaced" is not PascalCase',
                    '"OrderPlaced"',
                )
            ],
        ),
        (
            {"naming": {"fields": "snake_case"}},
            {},
            [
                ("naming.fields", "orderId", 'field "orderId" is not snake_case', 'call it "order_id"'),
                (
                    "naming.fields",
                    "contactEmail",
                    'field "contactEmail" is not snake_case',
                    '"contact_email"',
                ),
            ],
        ),
        (
            {"naming": {"fields": "[a-z_A-Z]{1,10}"}},
            {},
            [
                (
                    "naming.fields",
                    "occurred_at",
                    "so that the regex [a-z_A-Z]{1,10} matches",
                    "choose a name that fits",
                )
            ]
            * 1
            + [
                (
                    "naming.fields",
                    "contactEmail",
                    "so that the regex [a-z_A-Z]{1,10} matches",
                    "choose a name that fits",
                )
            ],
        ),
        (
            {"naming": {"enums": "PascalCase", "symbols": "UPPER_CASE"}},
            {},
            [
                ("naming.enums", "acme.state_kind", 'enum "state_kind" is not PascalCase', '"StateKind"'),
                ("naming.symbols", "acme.state_kind", 'symbol "open" is not UPPER_CASE', 'call it "OPEN"'),
            ],
        ),
        ({"owner": "required"}, {}, [("owner", "", 'subject "a-value" has no owner', "topics.yaml")]),
        ({"owner": "required"}, {"owner": "shop"}, []),
        (
            {"doc": "record"},
            {},
            [("doc", "acme.orderPlaced", 'record "acme.orderPlaced" has no doc', 'add a "doc"')],
        ),
        (
            {"doc": "every_field"},
            {},
            [
                ("doc", "acme.orderPlaced", "has no doc", 'add a "doc"'),
                ("doc", "orderId", 'field "orderId" has no doc', 'add a "doc"'),
                ("doc", "occurred_at", "has no doc", 'add a "doc"'),
                ("doc", "state", "has no doc", 'add a "doc"'),
            ],
        ),
        (
            {"pii": {"e_?mail|phone": "PII"}},
            {},
            [
                (
                    "pii.e_?mail|phone",
                    "contactEmail",
                    'field "contactEmail" looks like personal data and lacks the tag "PII"',
                    'add "confluent:tags": ["PII"], or tag "acme.orderPlaced.contactEmail" in the metadata',
                )
            ],
        ),
        ({"pii": {"mail": "PII"}}, {"tags": {"acme.orderPlaced.contactEmail": ["PII"]}}, []),
        ({"pii": {"mail": "PII"}}, {"tags": {"**.contactEmail": ["PII"]}}, []),
        (
            {"pii": {"mail": "PII"}},
            {"tags": {"**.orderId": ["PII"]}},
            [("pii.mail", "contactEmail", "PII", "add")],
        ),
        (
            {"freeze": True},
            {},
            [
                (
                    "freeze",
                    "",
                    'subject "a-value" is frozen: no new versions',
                    "continue with the latest version",
                )
            ],
        ),
        ({"freeze": True}, {"is_new": False}, []),
        (
            {"registrars": ["team:shop", "User:bot"]},
            {"principal": "User:eve"},
            [
                (
                    "registrars",
                    "",
                    '"User:eve" may not register under "a-value", only User:bot or team:shop',
                    "ask",
                )
            ],
        ),
        ({"registrars": "team:shop"}, {}, [("registrars", "", "a caller without a name", "ask team:shop")]),
        ({"registrars": ["User:bot"]}, {"principal": "User:bot"}, []),
        ({"registrars": ["team:shop"]}, {"principal": "User:x", "teams": frozenset({"shop"})}, []),
        ({"registrars": "anyone"}, {}, []),
        ({"max_fields": 3}, {}, [("max_fields", "", "the schema has 4 fields, 3 are allowed", "split it")]),
        ({"max_fields": 4}, {}, []),
        (
            {"max_fields": "unlimited", "doc": "optional", "freeze": False, "naming": {"fields": "any"}},
            {},
            [],
        ),
    ],
)
def test_every_violation_says_where_what_and_how_to_mend_it(
    rules: dict[str, Any], context: dict[str, Any], expected: list[tuple[str, str, str, str]]
) -> None:
    found = broken(rules, **context)
    assert [(each.rule, each.path) for each in found] == [(rule, path) for rule, path, *_ in expected]
    for each, (_, _, what, fix) in zip(found, expected, strict=True):
        assert what in each.what and fix in each.fix
        assert (each.set_by, each.severity) == ("a", "block")


def test_a_violation_has_its_rules_severity_and_reads_as_one_line() -> None:
    (found,) = broken({"freeze": True, "severity": {"freeze": "warn"}})
    assert found.severity == "warn"
    assert str(found) == (
        'freeze: subject "a-value" is frozen: no new versions (set by a); '
        "fix: continue with the latest version, or remove the freeze"
    )


def test_required_fields_are_not_asked_of_keys_nor_found_in_a_plain_value() -> None:
    rules = {"fields": {"event_id": "string"}}
    assert broken(rules, "string", "a-key") == []
    (found,) = broken(rules, "string")
    assert "is not a record" in found.what


def test_required_fields_are_asked_of_every_record_of_a_union_and_found_in_nested_records() -> None:
    meta = {"type": "record", "name": "Meta", "fields": [{"name": "event_id", "type": "string"}]}
    union = [
        {"type": "record", "name": "A", "fields": [{"name": "meta", "type": meta}]},
        {
            "type": "record",
            "name": "B",
            "fields": [{"name": "other", "type": "Meta"}, {"name": "meta", "type": "Meta"}],
        },
        {"type": "record", "name": "C", "fields": []},
    ]
    found = broken({"fields": {"meta.event_id": "string"}}, union)
    assert [each.what for each in found] == ['record "C" has no field "meta.event_id" (string)']


@pytest.mark.parametrize(
    ("wanted", "json_fix", "protobuf_fix"),
    [
        (
            "timestamp",
            'add "f": {"type": "string", "format": "date-time"} to "properties", and "f" to "required"',
            "add `google.protobuf.Timestamp f = …;` with a number that is free",
        ),
        ("long", 'add "f": {"type": "integer"} to "properties", and "f" to "required"', "add `int64 f = …;`"),
        ("record", 'add "f" as record', 'add "f" as record'),
    ],
)
def test_a_missing_field_is_mended_in_the_formats_own_words(
    wanted: str, json_fix: str, protobuf_fix: str
) -> None:
    file = FileDescriptorProto(package="acme")
    file.message_type.add(name="Order")
    effective = Policies.of({"a": {"fields": {"f": wanted}}}).effective("a")
    (in_json,) = effective.check("JSON", describe("JSON", {"title": "Order", "properties": {}}))
    (in_protobuf,) = effective.check("PROTOBUF", describe("PROTOBUF", file))
    assert in_json.fix == json_fix and in_protobuf.fix.startswith(protobuf_fix)
    maybe = describe("JSON", {"properties": {"f": {"type": ["string", "null"]}}, "required": ["f"]})
    (absent,) = Policies.of({"a": {"fields": {"f": "string"}}}).effective("a").check("JSON", maybe)
    assert "may be missing or null" in absent.what and '"required"' in absent.fix


def test_a_protobuf_field_is_tagged_in_its_own_words() -> None:
    file = FileDescriptorProto(package="acme")
    file.message_type.add(name="Order").field.add(name="email", number=1, type=9, label=1)
    (found,) = (
        Policies.of({"a": {"pii": {"mail": "PII"}}})
        .effective("a")
        .check("PROTOBUF", describe("PROTOBUF", file))
    )
    assert found.fix.startswith('add [(confluent.field_meta).tags = "PII"]')


def test_a_tag_in_the_schema_is_enough() -> None:
    field = {"name": "email", "type": "string", "confluent:tags": ["PII"]}
    assert broken({"pii": {"mail": "PII"}}, {"type": "record", "name": "R", "fields": [field]}) == []


def test_what_needs_no_schema_is_checked_without_one() -> None:
    effective = Policies.of({"a": {"freeze": True, "doc": "record"}}).effective("a")
    assert [each.rule for each in effective.check("AVRO", None)] == ["freeze"]


@pytest.mark.parametrize(
    ("name", "preset", "expected"),
    [
        ("orderId", "snake_case", "order_id"),
        ("customerID", "snake_case", "customer_id"),
        ("HTTPServer", "camelCase", "httpServer"),
        ("order_id", "PascalCase", "OrderId"),
        ("in-transit", "UPPER_CASE", "IN_TRANSIT"),
        ("---", "snake_case", None),
        ("orderId", "[a-z]+", None),
    ],
)
def test_names_are_respelled(name: str, preset: str, expected: str | None) -> None:
    assert respelled(name, preset) == expected


def test_a_regex_answers_at_once_also_for_a_hostile_name() -> None:
    assert not matcher("(a+)+")("a" * 50_000 + "!")
    assert matcher("mail", anywhere=True)("contactEMAIL") and not matcher("mail")("contactmail")


# ---- the file


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "policies.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("policies: {a: {compatability: FULL}}", ":1:16", 'did you mean "compatibility"?'),
        ("policies:\n  a:\n    override: {formts: any}", ":3:16", 'did you mean "formats"?'),
        ("policies:\n  a:\n    severity: {compatibility: warn}", ":3:16", "unknown key"),
        ("policies:\n  a:\n    naming: {field: snake_case}", ":3:14", 'did you mean "fields"?'),
        ("policies:\n  a:\n    compatibility: STRICT", ":3:20", "FULL_TRANSITIVE"),
        ("policies:\n  a:\n    formats: [AVRO, XML]", ":3:21", "PROTOBUF"),
        ("policies:\n  a:\n    fields: {id: text}", ":3:18", "'string'"),
        ("policies:\n  a:\n    fields: {id: null}", ":3:18", "list"),
        ("policies:\n  a..b: {}", ":2:3", "label"),
        ('policies:\n  a:\n    naming: {fields: "(?=a)"}', ":3:22", "look-ahead"),
        ('policies:\n  a:\n    naming: {fields: "a)(b"}', ":3:22", "not a regex"),
        ('policies:\n  a:\n    pii: {"[": PII}', ":3:11", "not a regex"),
        ("policies:\n  a:\n    naming: {fields: " + "x" * 201 + "}", ":3:22", "200 are allowed"),
        ("policies:\n  a:\n    naming: {fields: 'a{900}{900}{90}'}", ":3:22", "size limit"),
        ("policies:\n  a:\n    max_fields: 0", ":3:17", "greater than or equal to 1"),
        ("policies:\n  a:\n    override: anny", ":3:15", "stricter, any, none"),
        ("policies:\n  a:\n    override: {doc: any}", ":3:16", "does not declare doc itself"),
        ("policies:\n  a: {}\n  a: {}", ":3:3", "twice"),
    ],
)
def test_what_is_wrong_in_a_file_has_its_place(tmp_path: Path, text: str, place: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_policies(written(tmp_path, text))
    assert refused.value.where is not None and refused.value.where.endswith(f"policies.yaml{place}"), str(
        refused.value
    )
    assert said in str(refused.value)


def test_a_loosening_names_both_places_and_the_way_out(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "policies:\n  retail:\n    fields: {id: uuid}\n  retail.orders:\n    fields:\n     "
        " id: [uuid, string]\n",
    )
    with pytest.raises(ConfigError) as refused:
        load_policies(file)
    assert str(refused.value) == (
        f'{file}:6:7: "retail.orders" declares fields.id: string or uuid, which is not as strict as uuid of '
        f'"retail" ({file}:3:14)\nHint: say uuid, or stricter; or let "retail" say override: {{fields: any}}'
    )


def test_the_example_loads_and_explains_itself() -> None:
    policies = load_policies(ROOT / "examples/policies/policies.yaml", ["retail.orders"])
    rows = {row.rule: row for row in explain(policies, "retail.orders-value", "BACKWARD")}
    assert next(iter(rows)) == "compatibility"
    level = rows["compatibility"]
    assert (level.value, level.set_by) == ("FULL_TRANSITIVE", "retail.orders")
    assert level.trail == "** BACKWARD > retail FULL > retail.orders FULL_TRANSITIVE > (subject) BACKWARD"
    assert level.place is not None and level.place.endswith("policies.yaml:20:5")
    assert (rows["doc"].value, rows["doc"].severity) == ("every_field", "warn")
    assert (rows["fields.event_id"].value, rows["fields.event_id"].set_by) == ("uuid", "retail.orders")
    assert rows["fields.event_id"].trail == "retail string or uuid > retail.orders uuid"
    assert rows["owner"].set_by == "**"


# ---- the command


def test_the_command_reads_the_projects_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUB_PROJECT", str(tmp_path))
    written(tmp_path, "policies:\n  shop: {compatibility: FULL, doc: record}\n")
    (tmp_path / "topics.yaml").write_text(
        "topics:\n  shop: {topics: {orders: {compatibility: FULL_TRANSITIVE}, web: {}}}\n"
    )
    explain_command("shop.orders-acme.Order", output=Output.json)
    said = capsys.readouterr()
    rows = json.loads(said.out)
    assert [(row["rule"], row["value"], row["set_by"]) for row in rows] == [
        ("compatibility", "FULL_TRANSITIVE", "(subject)"),
        ("doc", "record", "shop"),
    ]
    assert rows[1]["place"].endswith("policies.yaml:2:31")
    assert 'topic "shop.orders". Nodes that hold: shop' in said.err
    explain_command("shop.web-value")
    assert "FULL" in capsys.readouterr().out
    with pytest.raises(ConfigError, match='"FUL" is not a compatibility level'):
        explain_command("shop.web-value", level="FUL")


def test_without_a_file_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUB_PROJECT", str(tmp_path))
    explain_command("a-value", output=Output.json)
    said = capsys.readouterr()
    assert [row["set_by"] for row in json.loads(said.out)] == ["(default)"]
    assert "does not exist: no rules" in said.err
    with pytest.raises(ConfigError, match="does not exist"):
        explain_command("a-value", file=tmp_path / "other.yaml")


def test_the_examples_in_the_docs_load(tmp_path: Path) -> None:
    blocks = (ROOT / "docs/reference/policies.md").read_text().split("```yaml\n")[1:]
    assert len(blocks) == 2
    for block in blocks:
        assert load_policies(written(tmp_path, block.partition("```")[0])).nodes
