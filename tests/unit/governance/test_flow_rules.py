"""Rules of flows.yaml: which fields with tags may go where, from facts, from files, and over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from hub.access.masking.facts import ColumnOrigin
from hub.api.masking.flow_gate import judged_files
from hub.cli import app
from hub.cli.governing.flow_gate import refuse_flows
from hub.config import Settings
from hub.errors import ConfigError
from hub.governance.flow_rules import FlowJudgement, is_place, judged
from hub.governance.flows_file import FlowsFile
from hub.governance.model import Flow, GovernanceFacts, GovernedTopic, ViewNode, Way

PII = frozenset(["PII"])
ORDERS = GovernedTopic(
    "shop.orders",
    fields={("id",): frozenset[str](), ("email",): PII},
    ways=(
        Way("mirror", "nyc-lon", "lon"),
        Way("sink", "crm", fields=frozenset({"id"})),
        Way("lake", "Iceberg"),
    ),
)
ADS = ViewNode(
    "ads_targets", columns={"mail": (ColumnOrigin("shop.orders", ("email",)),)}, sources=("shop.orders",)
)
FACTS = GovernanceFacts({"shop.orders": ORDERS}, {"ads_targets": ADS})


def rules(**each: object) -> FlowsFile:
    return FlowsFile.model_validate({"zones": {"eu": ["region:fra", "lake"]}, "rules": {"r": each}})


def places(judgement: FlowJudgement) -> list[str]:
    return [each.flow.place for each in judgement.violations]


def test_a_field_may_leave_to_the_named_places_only() -> None:
    assert places(judged(FACTS, rules(tags=["PII"], only=["eu"]))) == ["mirror nyc-lon (region lon)"]
    assert places(judged(FACTS, rules(tags=["PII"], only=["eu", "region:lon"]))) == []
    assert places(judged(FACTS, rules(tags=["PII"], only=[]))) == [
        "mirror nyc-lon (region lon)",
        "lake Iceberg",
    ]  # the sink does not send the field, and a view stays in the hub
    assert places(judged(FACTS, rules(tags=["SECRET"], only=[]))) == []
    assert places(judged(FACTS, rules(tags=["PII"], topics=["hr.**"], only=[]))) == []


def test_a_field_may_not_reach_a_refused_place() -> None:
    judgement = judged(FACTS, rules(tags=["PII"], never=["view:ads_*"], reason="no consent"))
    assert places(judgement) == ["view ads_targets column mail"]
    assert not judgement.is_kept
    assert f"{judgement.violations[0]}" == (
        "r: topic shop.orders field email → view ads_targets column mail (no consent)"
    )


def test_a_masked_field_does_not_leave() -> None:
    masked = replace(ORDERS, ways=(Way("mirror", "nyc-lon", "lon", masked=frozenset({"email"})),))
    judgement = judged(GovernanceFacts({"shop.orders": masked}, {}), rules(tags=["PII"], only=[]))
    assert judgement.is_kept and not judgement.violations


def test_a_copy_in_another_topic_is_followed_and_does_not_leave_by_itself() -> None:
    copied = replace(ORDERS, ways=(Way("sink", "copy", to_topic="ads.orders"),))
    target = GovernedTopic("ads.orders", fields={}, ways=(Way("mirror", "ads", "tokyo"),))
    facts = GovernanceFacts({"shop.orders": copied, "ads.orders": target}, {})
    assert places(judged(facts, rules(tags=["PII"], only=[]))) == ["mirror ads (region tokyo)"]
    assert places(judged(facts, rules(tags=["PII"], never=["topic:ads.**"]))) == ["topic ads.orders"]


@pytest.mark.parametrize(("unknown", "is_kept"), [("refuse", False), ("warn", True)])
def test_what_is_not_known_is_refused_unless_the_rule_warns(unknown: str, is_kept: bool) -> None:
    raw = replace(ORDERS, name="shop.raw", fields=None)
    star = ViewNode("ads_all", columns={"*": None}, sources=("shop.raw",))
    facts = GovernanceFacts({"shop.raw": raw}, {"ads_all": star})
    judgement = judged(facts, rules(tags=["PII"], never=["view:ads_*", "region:lon"], unknown=unknown))
    assert places(judgement) == ["mirror nyc-lon (region lon)", "view ads_all column *"]
    assert judgement.is_kept is is_kept
    assert all(not each.flow.is_traced for each in judgement.violations)
    assert "without a schema" in f"{judgement.violations[0]}"


def test_a_file_that_cannot_be_read_proves_nothing() -> None:
    facts = replace(FACTS, unread=("sinks.yaml",))
    assert not judged(facts, rules(tags=["SECRET"], only=[])).is_kept
    assert judged(facts, FlowsFile()).is_kept  # no rule, nothing to prove


@given(
    st.sampled_from(["mirror", "region", "sink", "lake", "backup", "view", "topic"]),
    st.sampled_from(["mirror", "sink", "lake", "backup", "view", "topic"]),
    st.sampled_from(["nyc", "crm"]),
)
def test_a_place_is_of_one_kind(pattern_kind: str, kind: str, name: str) -> None:
    flow = Flow("f", (), "", (), True, kind, name, "nyc" if kind == "mirror" else "")  # type: ignore[arg-type]
    expected = kind == pattern_kind or (pattern_kind == "region" and kind == "mirror")
    assert is_place(f"{pattern_kind}:*", flow) is expected


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"rules": {"r": {"tags": ["PII"]}}}, "either only or never"),
        ({"rules": {"r": {"tags": ["PII"], "only": [], "never": ["lake"]}}}, "either only or never"),
        ({"zones": {"eu": []}, "rules": {"r": {"tags": ["PII"], "only": ["eu2"]}}}, 'did you mean "eu"'),
        ({"zones": {"eu": ["lake"], "all": ["eu"]}}, "neither a place nor a zone"),
        ({"rules": {"r": {"tags": ["PII"], "only": ["cluster:lon"]}}}, "pattern"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(content: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        FlowsFile.model_validate(content)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a mirror that carries a field with a tag out of the zone."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "orders.avsc").write_text(
        '{"type": "record", "name": "O", "fields": [{"name": "id", "type": "string"},'
        ' {"name": "email", "type": "string", "confluent:tags": ["PII"]}]}'
    )
    (tmp_path / "topics.yaml").write_text("topics: {shop: {topics: {orders: {schema: schemas/orders.avsc}}}}")
    (tmp_path / "mirrors.yaml").write_text(
        "clusters: {nyc: {bootstrap: 'nyc:9092'}, lon: {bootstrap: 'lon:9092'}}\n"
        "mirrors: {nyc-lon: {source: nyc, target: lon, topics: ['shop.**']}}"
    )
    (tmp_path / "flows.yaml").write_text(
        "zones: {us: ['region:nyc']}\nrules: {pii-stays: {tags: [PII], only: [us], reason: contract 7}}"
    )
    return tmp_path


def test_the_files_of_a_project_are_judged_without_any_server(project: Path) -> None:
    judgement = judged_files(Settings(project=project))
    assert judgement is not None
    assert places(judgement) == ["mirror nyc-lon (region lon)"]
    with pytest.raises(ConfigError, match="a rule refuses: 1"):
        refuse_flows(Settings(project=project), "mirror")
    refuse_flows(Settings(project=project), "sink")  # no flow through a sink is refused
    mirrors = project / "mirrors.yaml"
    masked = "['shop.**'], mask: [{topics: ['**'], fields: [email], with: redact}]"
    mirrors.write_text(mirrors.read_text().replace("['shop.**']", masked))
    refuse_flows(Settings(project=project))


def test_the_command_shows_flow_reason_and_way_out(project: Path) -> None:
    answer = CliRunner().invoke(app, ["--project", str(project), "governance", "check", "-o", "json"])
    assert answer.exit_code == 1
    assert "contract 7" in answer.stdout and "mask the field in mirrors.yaml" in answer.stdout
    (project / "flows.yaml").unlink()
    answer = CliRunner().invoke(app, ["--project", str(project), "governance", "check"])
    assert answer.exit_code == 0
