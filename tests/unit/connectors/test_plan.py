"""Settings for Connect, and the plan: pure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hub.connectors.connectors_file import Connectors, ConnectorSpec, load_connectors
from hub.connectors.plan import (
    ActualConnector,
    ChangeConnector,
    CreateConnector,
    Declared,
    DeleteConnector,
    SetState,
    drift,
    plan,
    redacted,
)
from hub.connectors.rendering import RenderContext, covers, render, topics_regex
from hub.connectors.validation import missing_plugins, refusals_of, unknown_settings
from hub.record import Record
from hub.topics.dead_letters.record_format import dead_letter_of
from hub.topics.tree.tree import inherited, load

TREE = """\
defaults: {replication_factor: 3}
topics:
  crm:
    partitions: 4
    retention: 7d
    topics:
      public: {topics: {customers: {partitions: 6}}}
"""
FILE = """\
connectors:
  crm:
    kind: postgres-cdc
    topics: [crm.**]
    tasks: 1
    config:
      database.hostname: db
      database.password: ${CRM_PASSWORD}
      databse.user: hub
  out:
    class: io.acme.JdbcSinkConnector
    topics: [crm.public.customers, shop.*.orders]
    converter: avro
    secrets: {OUT_PASSWORD: "file:/run/secrets/out.properties:pw"}
    config: {connection.password: "${OUT_PASSWORD}"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Connectors:
    (tmp_path / "topics.yaml").write_text(TREE)
    (tmp_path / "connectors.yaml").write_text(FILE)
    return load_connectors(tmp_path)


@pytest.fixture
def context(file: Connectors) -> RenderContext:
    path = file.path.with_name("topics.yaml")
    above = {each: inherited(path, each) for spec in file.by_name.values() for each in spec.topics}
    return RenderContext(load(path).topics, "http://hub:8088", 1, above)


def test_a_source_makes_its_topics_as_the_tree_says(file: Connectors, context: RenderContext) -> None:
    found = render("crm", file.by_name["crm"], context)
    assert found["topic.creation.groups"] == "t0"
    assert re.fullmatch(found["topic.creation.t0.include"], "crm.public.customers")
    assert not re.fullmatch(found["topic.creation.t0.include"], "crmXpublicXcustomers")
    assert found["topic.creation.t0.partitions"] == "6" and found["topic.creation.default.partitions"] == "4"
    assert found["topic.creation.default.retention.ms"] == str(7 * 86_400_000)
    assert found["topic.creation.default.replication.factor"] == "3"
    assert found["database.password"] == "${env:CRM_PASSWORD}" and found["slot.name"] == "hub_crm"
    assert found["skipped.operations"] == "none"  # a truncation is seen


def test_a_sink_reads_patterns_without_queues_and_has_one_of_its_own(
    file: Connectors, context: RenderContext
) -> None:
    found = render("out", file.by_name["out"], context)
    regex = found["topics.regex"]
    assert [
        bool(re.fullmatch(regex, each))
        for each in ("crm.public.customers", "shop.eu.orders", "shop.eu.orders.dlq", "shop.a.b.orders")
    ] == [True, True, False, False]
    assert found["errors.deadletterqueue.topic.name"] == "connect.out.dlq"
    assert found["connection.password"] == "${file:/run/secrets/out.properties:pw}"
    assert found["value.converter.schema.registry.url"] == "http://hub:8088"
    one = ConnectorSpec.model_validate({"kind": "file", "topics": ["a.b"], "on_error": "stop"})
    assert render("x", one, context)["errors.tolerance"] == "none"
    one = ConnectorSpec.model_validate({"kind": "file", "topics": ["a.b"]})
    assert render("x", one, context)["errors.deadletterqueue.topic.name"] == "a.b.dlq"


@pytest.mark.parametrize("pattern", ["a.**", "**.a", "a.**.b", "*.a", "**", "a.b-c"])
@pytest.mark.parametrize("topic", ["a", "b", "a.b", "b.a", "a.c.b", "a.b-c", "c.d.a"])
def test_the_expression_of_a_pattern_is_the_pattern(pattern: str, topic: str) -> None:
    assert bool(re.fullmatch(topics_regex([pattern]), topic)) == covers([pattern], topic)


@pytest.mark.parametrize("queue", ["shop.orders.dlq", "shop.orders.quarantine", "shop.dlq"])
def test_a_sink_of_a_pattern_reads_no_dead_letters(queue: str) -> None:
    assert re.fullmatch(topics_regex(["shop.**"]), "shop.orders")
    assert not re.fullmatch(topics_regex(["shop.**"]), queue)


def actual(name: str, config: dict[str, str], state: str = "RUNNING") -> ActualConnector:
    return ActualConnector(name, config, state)


def test_the_plan_creates_changes_sets_states_and_keeps_what_others_made() -> None:
    made = plan(
        {
            "a": Declared({"connector.class": "A"}),
            "b": Declared({"k": "1", "password": "${env:P}"}, "paused"),
        },
        {"b": actual("b", {"k": "2", "password": "s3cret", "old": "x", "name": "b"}), "c": actual("c", {})},
    )
    create, change, state = made.steps
    assert isinstance(create, CreateConnector) and create.state == "running"
    assert isinstance(change, ChangeConnector)
    assert [(each.key, each.before, each.after) for each in change.changes] == [
        ("k", '"2"', '"1"'),
        ("old", '"x"', None),
        ("password", "(hidden)", '"${env:P}"'),
    ]
    assert state == SetState("b", "running", "paused") and made.kept == ("c",)
    assert "s3cret" not in repr(made)
    assert {(each.connector, each.setting) for each in drift(made)} == {
        ("a", "(connector)"),
        ("b", "k"),
        ("b", "old"),
        ("b", "password"),
        ("b", "(state)"),
        ("c", "(connector)"),
    }


def test_a_pause_of_operators_and_a_failure_are_no_difference() -> None:
    config = {"k": "1"}
    for state in ("PAUSED", "FAILED", "RUNNING", "UNASSIGNED"):
        assert plan({"a": Declared(config)}, {"a": actual("a", config, state)}).steps == ()
    failed = {"a": actual("a", config, "FAILED")}
    assert plan({"a": Declared(config, "running")}, failed).steps == ()


def test_only_what_is_named_and_not_declared_is_deleted() -> None:
    made = plan({"a": Declared({})}, {"a": actual("a", {}), "b": actual("b", {})}, destroy=["a", "b", "c"])
    assert made.steps == (DeleteConnector("b"),)
    assert [each.connector for each in made.refusals] == ["a", "c"]


def finding(name: str, *errors: str) -> dict[str, object]:
    return {"definition": {"name": name}, "value": {"name": name, "errors": list(errors)}}


def test_errors_of_connect_stand_at_their_line(file: Connectors) -> None:
    answer = [
        finding("database.hostname", "refused for s3cret", "refused for s3cret"),
        finding("database.user", "is missing"),
        finding("database.password"),
        finding("tasks.max", "one task at most"),
        finding("topics.regex", "no"),
    ]
    found = list(refusals_of(file, "crm", answer, ["s3cret"]))
    assert [(each.key, int(each.where.split(":")[1])) for each in found] == [
        ("database.hostname", 7),
        ("database.user", 2),
        ("tasks.max", 5),
        ("topics.regex", 4),
    ]
    assert found[0].message == "database.hostname: refused for (hidden)"
    (misspelled,) = unknown_settings(file, "crm", answer)
    assert 'did you mean "database.user"?' in misspelled.message and ":9:" in misspelled.where


def test_a_plugin_that_is_missing_is_named_with_the_way(file: Connectors) -> None:
    converters = {"org.apache.kafka.connect.json.JsonConverter"}
    (missing,) = missing_plugins(file, "crm", converters)
    assert "PostgresConnector is not installed" in missing.message and ":3:" in missing.where
    own, avro = missing_plugins(file, "out", converters)
    assert "add-plugin GROUP:ARTIFACT:VERSION" in own.hint and "converter: json" in avro.hint


def test_short_secrets_do_not_blank_the_message() -> None:
    assert redacted("a: no", ["a", "", "a: n"]) == "(hidden)o"


def test_a_letter_of_connect_is_read_and_cannot_name_another_topic() -> None:
    headers = tuple(
        (f"__connect.errors.{name}", value)
        for name, value in (
            ("topic", b"shop.orders"),
            ("partition", b"1"),
            ("offset", b"7"),
            ("connector.name", b"out"),
            ("exception.message", b"Converting failed"),
        )
    )

    def letter(topic: str) -> Record:
        return Record(topic, 0, 3, 5, b"k", b"v", (*headers, ("own", b"x")))

    found = dead_letter_of(letter("shop.orders.dlq"))
    assert found.of is not None and (found.of.partition, found.of.offset) == (1, 7)
    assert (found.by, found.detail, found.headers) == ("out", "Converting failed", (("own", b"x"),))
    assert dead_letter_of(letter("connect.out.dlq")).of is None
