"""The governance report: flows of tagged fields, readers in clear, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from hub.access.access_yaml import AccessFile
from hub.access.live_config import AccessRules
from hub.access.masking.facts import ColumnOrigin, MaskSources, TopicFields, ViewColumns
from hub.api.masking.view_origins import declared_facts
from hub.caller import Kind, Resource
from hub.errors import PeerError
from hub.governance.facts import governance_facts, retention_of, selected_fields
from hub.governance.flows import flows_of, tags_of_column
from hub.governance.flows_file import FlowsFile
from hub.governance.model import UNKNOWN, Flow, GovernanceFacts, GovernedTopic, ViewNode, Way
from hub.governance.report import alike_principals, readers_of, report_of
from hub.governance.routes import create_router
from hub.sinks.sinks_file import SinkEntry

PII = frozenset(["PII"])
NONE = frozenset[str]()
ORDERS = GovernedTopic(
    "shop.orders",
    "shop-team",
    "fulfilment",
    ("shop",),
    {("id",): NONE, ("email",): PII, ("address", "street"): PII},
    "7 d",
    ways=(
        Way("sink", "crm", "", frozenset({"id", "email"})),
        Way("mirror", "nyc-lon", "lon", masked=frozenset({"email"})),
        Way("lake", "Iceberg"),
        Way("backup", "/b"),
    ),
)
CUSTOMERS = ViewNode(
    "customers",
    "crm",
    {
        "id": (ColumnOrigin("shop.orders", ("id",)),),
        "mail": (ColumnOrigin("shop.orders", ("email",)),),
        "odd": None,
    },
    ("shop.orders",),
)
TOP = ViewNode(
    "top",
    "",
    {"mail": (ColumnOrigin("views.customers", ("mail",)),), "n": ()},
    ("views.customers",),
    ways=(Way("sink", "hook"),),
)
FACTS = GovernanceFacts(
    {"shop.orders": ORDERS, "shop.raw": GovernedTopic("shop.raw")}, {"customers": CUSTOMERS, "top": TOP}
)


def places(flows: list[Flow], field: str) -> dict[str, bool]:
    return {each.place: each.is_traced for each in flows if each.field == field}


def test_a_field_is_followed_through_views_and_out_of_the_hub() -> None:
    flows = flows_of(FACTS, ORDERS)
    assert places(flows, "email") == {
        "sink crm": True,
        "lake Iceberg": True,
        "backup /b": False,  # a run chooses its topics
        "view customers column mail": True,
        "view customers column odd": False,
        "view top column mail": True,
        "sink hook": True,
    }
    assert places(flows, "address.street") == {
        "mirror nyc-lon (region lon)": True,
        "lake Iceberg": True,
        "backup /b": False,
        "view customers column odd": False,
    }
    hook = next(each for each in flows if (each.field, each.place) == ("email", "sink hook"))
    assert hook.steps == (
        "topic shop.orders field email",
        "view customers column mail",
        "view top column mail",
        "sink hook",
    )
    assert not places(flows, "id")


def test_a_sink_into_a_topic_leads_on() -> None:
    copy = GovernedTopic("eu.orders", ways=(Way("mirror", "eu-us", "us"),))
    for fields, is_traced in ((None, True), (frozenset({"email"}), False)):
        out = replace(ORDERS, ways=(Way("sink", "copy", "", fields, to_topic="eu.orders"),))
        facts = GovernanceFacts({"shop.orders": out, "eu.orders": copy}, {})
        assert places(flows_of(facts, out), "email") == {
            "sink copy": True,
            "topic eu.orders": is_traced,
            "mirror eu-us (region us)": is_traced,
        }


@given(st.integers(1, 12), st.integers(0, 11))
def test_a_chain_of_views_carries_a_tag_to_its_end_and_circles_end(length: int, untraced: int) -> None:
    views: dict[str, ViewNode] = {}
    for n in range(length):
        source = "shop.orders" if n == 0 else f"views.v{n - 1}"
        origin = ColumnOrigin(source, ("email",) if n == 0 else ("c",))
        more = ("views.v0",) if n == length - 1 else ()  # the last one feeds on the first one, too
        columns = {"c": None if n == untraced else (origin,)}
        views[f"v{n}"] = ViewNode(f"v{n}", "", columns, (source, *more))
    facts = GovernanceFacts({"shop.orders": replace(ORDERS, ways=())}, views)
    flows = flows_of(facts, facts.topics["shop.orders"])
    last = next(e for e in flows if (e.field, e.place) == ("email", f"view v{length - 1} column c"))
    assert last.is_traced == (untraced >= length)
    tags, is_traced = tags_of_column(facts, views[f"v{length - 1}"], "c")
    assert tags == PII and is_traced == (untraced >= length)


class Facts:
    """Facts of masks in memory; ``gone``: nothing is known."""

    gone = False

    def topic(self, name: str) -> TopicFields:
        if self.gone:
            raise PeerError("not known yet")
        return TopicFields(ORDERS.fields or {})

    def view(self, name: str) -> ViewColumns:
        raise PeerError("not known yet")


def rules_of(masks: list[dict[str, Any]]) -> AccessRules:
    file = AccessFile.model_validate(
        {
            "groups": {"g": [{"role": "read", "topics": ["shop.**"]}], "h": []},
            "users": {
                "ana": {"groups": ["g"]},
                "ben": {"groups": ["g", "h"]},
                "eve": {},
                "old": {
                    "grants": [{"role": "read", "topics": ["**"], "until": "2020-01-01T00:00:00Z"}],
                },
            },
            "masks": masks,
        }
    )
    return AccessRules.of(file, MaskSources(Facts(), b"k" * 32))


def test_readers_are_those_whom_grants_allow_and_masks_show() -> None:
    rules = rules_of([{"tags": ["PII"], "topics": ["shop.**"], "groups": {"h": "shown"}, "as": "hashed"}])
    tagged = [("email",), ("address", "street")]
    found, more = readers_of(rules, alike_principals(rules.file), Resource(Kind.topic, "shop.orders"), tagged)
    clear = {each.name: each.clear for each in found}
    assert clear == {"ben": ("address.street", "email"), "ana": (), "g": ()} and more == 0
    assert "group g has read" in next(each.reason for each in found if each.name == "ana")
    open_, _ = readers_of(None, {}, Resource(Kind.topic, "x"), tagged)
    assert [(each.name, each.clear) for each in open_] == [("everybody", ("address.street", "email"))]


def test_readers_are_unknown_while_masks_cannot_be_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Facts, "gone", True)
    rules = rules_of([{"tags": ["PII"], "topics": ["shop.**"], "as": "hashed"}])
    report = report_of(FACTS, rules, "shop.orders")
    (row,) = [each for each in report.rows if each.kind == "topic"]
    ana = next(each for each in row.readers if each.name == "ana")
    assert ana.clear == ("address.street", "email") and not ana.is_known
    assert any(each.startswith("readers:") for each in row.unknown)


def test_a_report_says_what_is_not_known() -> None:
    rows = {f"{each.kind} {each.name}": each for each in report_of(FACTS, None).rows}
    raw = rows["topic shop.raw"]
    assert (raw.owner, raw.purpose, raw.retention) == (UNKNOWN, UNKNOWN, UNKNOWN)
    assert any("no schema" in each for each in raw.unknown)
    orders = rows["topic shop.orders"]
    assert orders.fields == {"email": ("PII",), "address.street": ("PII",)}
    assert any("not traced" in each for each in orders.unknown)
    view = rows["view customers"]
    assert view.fields == {"mail": ("PII",), "odd": ("PII",)} and view.purpose == "fulfilment"
    assert any(each.startswith("origin of odd") for each in view.unknown)
    assert ("sink hook", "mail") in {(each.place, each.field) for each in view.flows}
    top = rows["view top"]
    assert top.fields == {"mail": ("PII",)} and [each.place for each in top.flows] == ["sink hook"]


def test_a_report_is_narrowed_by_node_view_and_tag() -> None:
    def names(tree: str = "", tag: str = "") -> set[str]:
        return {each.name for each in report_of(FACTS, None, tree, tag).rows}

    assert names("shop.raw") == {"shop.raw"}
    assert names("shop") == {"shop.orders", "shop.raw", "customers", "top"}
    assert names("view:top") == names("top") == {"top"}
    assert names("sho") == set()
    assert names(tag="PII") == {"shop.orders", "customers", "top"} and names(tag="X") == set()


def test_the_page_escapes_and_shows_flows() -> None:
    odd = replace(ORDERS, purpose="<i>x</i>")
    facts = replace(FACTS, topics={"shop.orders": odd}, unread=("mirrors.yaml",))
    app = FastAPI()
    live: Any = type("Live", (), {"rules": None})()
    rule = {"tags": ["PII"], "never": ["view:top"], "reason": "<b>no</b>"}
    rules = FlowsFile.model_validate({"rules": {"top-has-none": rule}})
    app.include_router(create_router(lambda: facts, live, lambda: rules))
    client = TestClient(app)
    text = client.get("/governance").text
    assert "&lt;i&gt;x&lt;/i&gt;" in text and "view customers column mail → view top column mail" in text
    assert "mirrors.yaml cannot be read" in text and "UNKNOWN" in text
    body = client.get("/api/governance?tree=shop&tag=PII").json()
    assert body["rows"][0]["name"] == "shop.orders" and body["unread"] == ["mirrors.yaml"]
    assert "Flows that a rule refuses" in text and "&lt;b&gt;no&lt;/b&gt;" in text
    judgement = client.get("/api/governance/flows").json()
    assert not judgement["is_kept"] and judgement["violations"][0]["flow"]["name"] == "top"


def test_facts_come_from_the_files_of_a_project(tmp_path: Any) -> None:
    from hub.config import Settings

    (tmp_path / "topics.yaml").write_text(
        "topics:\n  shop:\n    purpose: fulfilment\n    owner: shop-team\n    topics:\n"
        "      orders: {lake: true, retention: 7d, legal_hold: case 7}\n"
        "      pay: {purpose: billing}\n"
    )
    (tmp_path / "mirrors.yaml").write_text(
        "clusters:\n  nyc: {bootstrap: 'a:9092'}\n  lon: {bootstrap: 'b:9092'}\n"
        "mirrors:\n  nyc-lon:\n    source: nyc\n    target: lon\n    topics: ['shop.**']\n"
        "    mask: [{topics: [shop.orders], fields: [email], with: null}]\n"
    )
    (tmp_path / "sinks.yaml").write_text("sinks: [")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "mails.yaml").write_text(
        "view: mails\nowner: crm\nsources: {o: {topic: shop.*}}\n"
        "sql: SELECT email AS mail, upper(id) AS id FROM o\nkey: [id]\n"
    )
    settings = Settings(project=tmp_path, home=tmp_path / "home")
    facts = governance_facts(settings, Facts(), declared_facts)
    view = facts.views["mails"]
    assert (view.owner, view.retention) == ("crm", "rows until they are deleted")
    assert places(flows_of(facts, facts.topics["shop.orders"]), "email")["view mails column mail"] is True
    orders, pay = facts.topics["shop.orders"], facts.topics["shop.pay"]
    assert (orders.purpose, orders.owner, orders.legal_hold) == ("fulfilment", "shop-team", "case 7")
    assert pay.purpose == "billing" and facts.unread == ("sinks.yaml",)
    assert set(map(str, orders.ways)) == {"mirror nyc-lon (region lon)", "lake Iceberg"}
    assert "mirror nyc-lon (region lon)" not in places(flows_of(facts, orders), "email")
    assert "mirror nyc-lon (region lon)" in places(flows_of(facts, pay), "email")
    assert retention_of({"retention.ms": "604800000"}) == orders.retention


def test_a_selection_of_a_sink_is_read_by_its_names() -> None:
    def entry(*fields: str) -> SinkEntry:
        return SinkEntry.model_validate({"from": "a", "fields": list(fields), "topic": {"name": "b"}})

    assert selected_fields(entry()) is None
    assert selected_fields(entry("id", "upper(country) AS land")) == {"id", "upper", "country", "AS", "land"}
