"""Responses of the pages: one HTML document each, the same facts as JSON, errors as pages, hostile bytes
escaped, API routes unaffected."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from browser.staged_estate import HOSTILE, ORDERS, StagedEstate, StagedViewFacts, estate, lag_row, spec
from browser.staged_hub import VIEW
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from hub.alerts.alerts_json import matchers_from
from hub.alerts.model.matching import fits, labels_of
from hub.errors import HubFault
from hub.observability.cluster.health import Health
from hub.observability.web.http_status import status_of
from hub.observability.web.pages.monitor.alerts import narrow
from hub.observability.web.pages.monitor.mirror_checks import checks
from hub.observability.web.pages.monitor.mirrors import MOST_LOST, MirrorFacts, mirror
from hub.observability.web.routes.all_pages import create_router
from hub.observability.web.routes.messages import TAILS_AT_ONCE, sse
from hub.observability.web.routes.page_router import ForBrowsers
from hub.schema_registry.model.facts import Reference, SchemaStored
from hub.schema_registry.policy.policy import load_policies
from hub.schema_registry.registry.rulebook import Rulebook
from hub.schema_registry.server.node import RegistryNode
from hub.times import epoch_ms

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
PAGES = [
    "/topics",
    "/topics?under=shop&q=order&owner=shop&tag=money&order=rate",
    "/topics?kind=internal",
    f"/topics/{ORDERS}",
    f"/topics/{ORDERS}/settings",
    "/schemas",
    "/schemas?q=customer_id&type=AVRO",
    f"/schemas/{ORDERS}-value",
    f"/schemas/{ORDERS}-value?version=1",
    "/views",
    f"/views/{VIEW}",
    f"/views/{VIEW}?key=C-1001",
    "/lag",
    "/lag?state=STALLED&state=OK&kind=group",
    "/lineage",
    f"/lineage?of=view:{VIEW}&steps=2",
    f"/lineage?of={ORDERS}",
    "/completeness",
    f"/completeness?topics=shop.*&state=SHORT&range=24h&order=tree&topic={ORDERS}",
    "/alerts",
    "/alerts?severity=page&owner=web&name=lag&silence=topic%3Dshop.**",
    "/alerts/runbooks/lag",
    "/latency",
    f"/latency?view={VIEW}&stage=readable&origin=live",
    "/cluster",
    "/mirrors",
    "/regions",
    "/connect",
    "/connect?q=orders&state=FAILED",
    "/connect?q=nothing",
    "/connect/orders-search",
    "/connect/orders-search?do=restart-failed",
    "/query?sql=SELECT+1",
    "/search",
    "/search?q=order",
]


@pytest.fixture(scope="module")
def hub() -> Iterator[StagedEstate]:
    staged = estate()
    staged.tree["to.be.made"] = spec("to.be.made", "nobody")
    yield staged
    assert staged.node is not None
    staged.node.stop()


@pytest.fixture(scope="module")
def client(hub: StagedEstate) -> Iterator[TestClient]:
    with TestClient(hub.app()) as made:
        yield made


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_one_document_with_its_twin_at_its_foot(client: TestClient, path: str) -> None:
    answer = client.get(path, headers=HTML)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    text = answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "accept" in answer.headers["vary"].lower()
    assert len(re.findall(r"<h1\b", text)) == 1 and text.count("<main") == 1
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert not re.search(r"<script(?! src=)|\bstyle=|\son\w+=|javascript:", text)
    assert not re.findall(r'(?:src|href)="(?!/|#)[^"]*"', text)
    foot = text.partition("<footer")[2]
    twin = next(each for each in re.findall(r'href="(/api/[^"]+)"', foot))
    told = client.get(twin.replace("&amp;", "&"))
    assert told.status_code == 200 and told.json() is not None
    section = path.split("/")[1].partition("?")[0]
    current = re.findall(r'href="/(\w*)" aria-current="page"', text)
    assert current == {"search": [], "regions": ["mirrors"]}.get(section, [section])


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/topics/shop.order", 404, "did you mean &#34;shop.orders&#34;?"),
        ("/topics/<script>", 404, "&lt;script&gt;"),
        ("/topics/to.be.made", 404, "hub topic apply makes it"),
        ("/schemas/shop.order-value", 404, "shop.orders-value"),
        (f"/schemas/{ORDERS}-value?version=99", 404, "has no version 99"),
        ("/views/customer_36", 404, "customer_360"),
        ("/nowhere/at/all", 404, "there is nothing at"),
        ("/lag?state=SLEEPY", 400, "STALLED"),
        ("/topics?page=many", 400, "page"),
        ("/connect?state=SLEEPY", 400, "RUNNING"),
        ("/connect/none", 404, "does not exist"),
        ("/connect/crm?do=delete", 404, "restart-failed"),
        ("/latency?stage=thought", 400, "readable"),
    ],
)
def test_an_error_of_a_page_is_a_page_and_of_its_twin_json(
    client: TestClient, path: str, status: int, words: str
) -> None:
    answer = client.get(path, headers=HTML)
    assert answer.status_code == status and words in answer.text
    assert 'data-testid="error"' in answer.text and "<nav" in answer.text
    if not path.startswith(("/lag", "/latency", "/nowhere")) and "page=" not in path:
        told = client.get(f"/api{path}")
        assert told.status_code == status and told.json()["message"]


def test_errors_have_the_status_of_whose_fault_they_are() -> None:
    assert status_of(HubFault("a promise is broken")) == 500


def test_programs_reach_what_is_behind_a_page() -> None:
    app, router = FastAPI(), APIRouter(route_class=ForBrowsers)

    @router.get("/things")
    def page() -> str:
        return "page"

    @router.get("/schemas/{subject:path}")
    def subject(subject: str) -> str:
        return "page"

    app.include_router(router)

    @app.get("/things")
    def things() -> str:
        return "things"

    @app.get("/schemas/ids/{number}")
    def schema(number: int) -> str:
        return "schema"

    with TestClient(app) as client:
        assert client.get("/things", headers=HTML).json() == "page"
        assert client.get("/things").json() == "things"
        assert client.get("/things", headers={"accept": "application/json"}).json() == "things"
        java = {"accept": "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"}
        assert client.get("/things", headers=java).json() == "things"
        assert client.get("/schemas/ids/4", headers=HTML).json() == "schema"
        assert client.get("/schemas/a/b-value", headers=HTML).json() == "page"


def test_messages_are_text_whatever_is_in_them(client: TestClient) -> None:
    text = client.get(f"/ui/topics/{ORDERS}/messages", headers=HTML).text
    assert "<script" not in text and "<img" not in text
    assert "&lt;script&gt;document.title" in text
    assert "it names schema 99, which the registry does not have" in text
    assert "its schema cannot read it" in text
    assert 'data-testid="cut"' in text and "characters are not shown" in text
    assert "a tombstone" in text
    assert f'href="/schemas/{ORDERS}-value?version=1"' in text


def test_the_twin_of_messages_says_the_same(client: TestClient) -> None:
    told = client.get(f"/api/topics/{ORDERS}/messages", params={"q": "owned", "limit": 10}).json()
    assert told["complete"] and len(told["messages"]) == 2
    assert told["messages"][1]["key"]["text"] == HOSTILE
    assert [(each["partition"], each["first"], each["next"]) for each in told["scanned"]] == [
        (0, 0, 35),
        (1, 0, 0),
    ]
    first = client.get(
        f"/api/topics/{ORDERS}/messages", params={"partition": "0", "from": "0", "limit": 1}
    ).json()
    assert first["messages"][0]["value"]["schema"] == {
        "id": 1,
        "type": "AVRO",
        "subject": f"{ORDERS}-value",
        "version": 1,
        "encrypted": [],
    }
    more = client.get(f"/api/topics/{ORDERS}/messages", params={"after": first["newer"], "limit": 2}).json()
    assert [each["offset"] for each in more["messages"]] == [1, 2] and more["older"] == "0:1,1:0"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"from": "12"}, "choose a partition"),
        ({"from": "yesterday"}, "15m"),
        ({"partition": "x"}, "numbers from 0"),
        ({"partition": "9"}, "has no partition 9"),
        ({"before": "x"}, "partition:offset"),
        ({"limit": "9999"}, "limit 9999"),
    ],
)
def test_a_part_says_what_is_wrong_in_its_place(
    client: TestClient, asked: dict[str, str], words: str
) -> None:
    part = client.get(f"/ui/topics/{ORDERS}/messages", params=asked, headers=HTML)
    assert part.status_code == 200 and 'role="alert"' in part.text and words in part.text
    assert client.get(f"/api/topics/{ORDERS}/messages", params=asked).status_code in (400, 404)


def test_kafka_away_is_said_where_kafka_is_asked(hub: StagedEstate, client: TestClient) -> None:
    hub.cluster.cut = True
    try:
        assert client.get(f"/topics/{ORDERS}", headers=HTML).status_code == 200
        assert "does not answer" in client.get("/topics", headers=HTML).text
        assert "does not answer" in client.get(f"/ui/topics/{ORDERS}/messages", headers=HTML).text
        assert "does not answer" in client.get(f"/ui/topics/{ORDERS}/settings", headers=HTML).text
        assert client.get(f"/api/topics/{ORDERS}/messages").status_code == 503
    finally:
        hub.cluster.cut = False


def test_a_topic_tells_its_owner_schema_readers_and_views(client: TestClient) -> None:
    told = client.get(f"/api/topics/{ORDERS}").json()
    assert (told["owner"], told["tags"], told["latency_ms"]) == ("shop", ["money"], 2_000)
    assert [each["subject"] for each in told["subjects"]] == [f"{ORDERS}-value"]
    assert [each["name"] for each in told["groups"]] == ["billing", "search-indexer"]
    assert [each["view"] for each in told["views"]] == [VIEW]
    assert told["dead_letters"] == f"{ORDERS}.dlq"
    changelog = client.get(f"/api/topics/views.{VIEW}").json()
    assert (changelog["made_by"], changelog["owner"]) == (VIEW, "customer-data")


def test_a_subject_tells_what_changed_and_where_its_level_is_from(client: TestClient) -> None:
    told = client.get(f"/api/schemas/{ORDERS}-value").json()
    assert (told["version"], told["level"], told["level_by"]) == (2, "BACKWARD", "the registry's own setting")
    assert [kind for kind, _ in told["comparison"]["changes"]] == ["field added"]
    assert told["comparison"]["new_reads_old"] == [] == told["comparison"]["old_reads_new"]
    assert client.get(f"/api/schemas/{ORDERS}-value?version=1").json()["comparison"] is None
    back = client.get(f"/api/schemas/{ORDERS}-value?version=1&against=2").json()["comparison"]
    assert [kind for kind, _ in back["changes"]] == ["field removed"]
    payment = client.get("/api/schemas/shop.payments-value").json()
    assert payment["references"] == [["shared.Money", "shared.Money", 1]]
    assert client.get("/api/schemas/shared.Money").json()["referenced_by"] == [["shop.payments-value", 1]]


def test_a_level_of_the_tree_is_named_with_its_node(
    hub: StagedEstate, client: TestClient, tmp_path: Path
) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(
        "policies:\n  shop: {compatibility: FULL}\n  shop.orders: {compatibility: FULL_TRANSITIVE}\n"
    )
    book = Rulebook(load_policies(file))
    assert hub.node is not None
    hub.node.rules = lambda: book
    try:
        told = client.get(f"/api/schemas/{ORDERS}-value").json()
        assert (told["level"], told["level_by"]) == ("FULL_TRANSITIVE", "the rules of shop.orders")
        (rule,) = told["rules"]
        assert rule["trail"] == "shop FULL > shop.orders FULL_TRANSITIVE"
        rows = client.get("/api/schemas?q=payments").json()["rows"]
        assert [row["level"] for row in rows] == ["FULL"]
    finally:
        hub.node.rules = Rulebook
        client.get("/api/schemas")


def test_versions_with_references_are_compared(hub: StagedEstate, client: TestClient) -> None:
    money = {
        "type": "record",
        "name": "Refund",
        "fields": [
            {"name": "amount", "type": "shared.Money"},
            {"name": "why", "type": "string", "default": ""},
        ],
    }
    reference = Reference("shared.Money", "shared.Money", 1)
    hub.register("shop.refunds-value", {**money, "fields": money["fields"][:1]}, [reference])
    hub.register("shop.refunds-value", money, [reference])
    found = client.get("/api/schemas/shop.refunds-value").json()["comparison"]
    assert found["trouble"] == "" and found["changes"][0][0] == "field added"


def test_texts_that_are_no_unicode_break_no_page(hub: StagedEstate, client: TestClient) -> None:
    text = '{"type": "record", "name": "Half", "doc": "\\ud800 half", "fields": []}'
    assert hub.node is not None
    hub.node.registry.apply(SchemaStored("odd.half-value", 1, 9_000, text))  # as another registry wrote it
    hub.register("odd.other-value", {"type": "record", "name": "Other", "fields": []})
    hub.topic("odd.half", 1)
    hub.write("odd.half", b'{"a": "\\ud800"}', "line\u2028separator".encode(), key=b"\xed\xa0\x80")
    for path in ("/schemas/odd.half-value", "/search?q=half", "/schemas?q=half", "/topics/odd.half"):
        assert client.get(path, headers=HTML).status_code == 200, path
        assert client.get(f"/api{path}").status_code == 200, path
    assert "ud800" in client.get("/ui/topics/odd.half/messages", headers=HTML).text
    assert client.get("/api/topics/odd.half/messages").json()["messages"][1]["value"]["form"] == "json"
    assert sse("said", "a\u2028b\r\nc") == "event: said\ndata: a\u2028b\ndata: c\n\n".encode()


def test_search_finds_fields_owners_tags_and_new_subjects(hub: StagedEstate, client: TestClient) -> None:
    def hits(q: str) -> dict[str, list[str]]:
        found = client.get("/api/search", params={"q": q}).json()
        return {kind: [hit["name"] for hit in some] for kind, _, some in found["groups"]}

    assert hits("customer_id") == {"schemas": [f"{ORDERS}-value"]}
    assert hits("pii")["topics"] == ["crm.consent", "crm.customers"]
    assert hits("ORDERS shop")["topics"][0] == ORDERS
    assert hits("seven systems") == {"views": [VIEW]}
    assert hits("shop takes them") == {"topics": [ORDERS]}  # a topic's doc
    assert hits("whose") == {"schemas": [f"{ORDERS}-value"]}  # a field's doc
    assert hits("zebra") == {}
    hub.register("zoo.animals-value", {"type": "record", "name": "Zebra", "fields": []})
    assert hits("zebra") == {"schemas": ["zoo.animals-value"]}


def test_a_view_tells_its_sources_versions_and_ways(hub: StagedEstate, client: TestClient) -> None:
    told = client.get(f"/api/views/{VIEW}").json()
    assert (told["served"], [each["number"] for each in told["versions"]]) == (2, [1, 2])
    assert told["text"].startswith(f"view: {VIEW}") and "text" not in told["versions"][0]
    assert f"http://testserver/views/{VIEW}/C-10" in told["ways"][0]["command"]
    kept = hub.versions.pop(VIEW)
    try:
        told = client.get(f"/api/views/{VIEW}").json()
        assert told["missing"] == [f'versions: view "{VIEW}" has no versions'] and told["text"] == ""
    finally:
        hub.versions[VIEW] = kept


def test_a_store_that_nobody_can_prove_says_why_and_what_to_do(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = StagedViewFacts.describe

    def silent(self: StagedViewFacts, view: str) -> dict[str, Any]:
        found = dict(plain(self, view))
        proof = {
            **found["stores"][0]["proof"],
            "state": "UNKNOWN",
            "reason": "the applier has not reported for 100 s",
        }
        return {**found, "stores": [{**found["stores"][0], "proof": proof}]}

    assert "/alerts/runbooks/view-unproved" not in client.get(f"/views/{VIEW}", headers=HTML).text
    monkeypatch.setattr(StagedViewFacts, "describe", silent)
    text = client.get(f"/views/{VIEW}", headers=HTML).text
    assert (
        "the applier has not reported for 100 s" in text and 'href="/alerts/runbooks/view-unproved"' in text
    )
    assert client.get("/alerts/runbooks/view-unproved", headers=HTML).status_code == 200


def test_a_view_that_waits_for_a_source_transaction_names_it(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = StagedViewFacts.describe
    group = {"name": f"{VIEW}.transactions", "state": "together", "why": None, "views": [VIEW]}
    group |= {"engine": "together", "engine_why": None}

    def waiting(self: StagedViewFacts, view: str) -> dict[str, Any]:
        return {**plain(self, view), "cut": group}

    monkeypatch.setattr(StagedViewFacts, "describe", waiting)
    text = client.get(f"/views/{VIEW}", headers=HTML).text
    assert 'data-state="live">together</span>' in text and "whole source transactions" in text
    group |= {"engine": "waiting", "engine_why": "transaction 7 has no END"}
    text = client.get(f"/views/{VIEW}", headers=HTML).text
    assert 'data-state="retrying">waiting</span>' in text and "transaction 7 has no END" in text


def test_the_lookup_of_a_view_stays_on_its_page(client: TestClient) -> None:
    text = client.get(f"/views/{VIEW}?key=C-1001", headers=HTML).text
    assert f'action="/views/{VIEW}"' in text and f"/views/{VIEW}/changes?key=C-1001" in text
    part = client.get("/ui/lookup", params={"view": VIEW, "key": "C-1002", "only": "true"})
    assert part.headers["hx-push-url"] == f"/views/{VIEW}?key=C-1002"


def test_lag_is_filtered_as_the_address_says(client: TestClient) -> None:
    text = client.get("/lag?state=STALLED", headers=HTML).text
    assert 'data-testid="lag-billing-shop.orders"' in text and "lag-crm-sync" not in text
    assert "at risk 1" in text and "ok 2" in text  # other states stay to be chosen
    assert "none-fit" in client.get("/lag?owner=crm&kind=view", headers=HTML).text


def test_many_readers_come_in_pages_that_keep_the_filter(hub: StagedEstate, client: TestClient) -> None:
    kept = hub.rows
    hub.rows = [lag_row(f"g{number}", ORDERS, "STALLED" if number % 2 else "OK") for number in range(400)]
    try:
        text = client.get("/lag?state=OK&state=STALLED&owner=shop&prefix=&kind=", headers=HTML).text
        following = re.findall(r'rel="next" href="([^"]+)"', text)[0].replace("&amp;", "&")
        assert following == "/lag?owner=shop&state=OK&state=STALLED&page=2"
        assert 'data-testid="lag-g100-' in client.get(following, headers=HTML).text
        twin = re.findall(r'href="(/api/lag[^"]*)"', text)[0].replace("&amp;", "&")
        assert len(client.get(twin).json()) == 400
    finally:
        hub.rows = kept


def test_a_topics_page_says_what_is_promised(client: TestClient) -> None:
    text = client.get(f"/topics/{ORDERS}", headers=HTML).text
    for words in ("Promised lag</dt><dd>30 s", "Promised completeness</dt><dd>99.9 %"):
        assert words in text


def test_mirrors_before_they_answered_without_a_file_and_in_trouble(
    hub: StagedEstate, client: TestClient
) -> None:
    known = hub.mirrors
    try:
        for now, words in (
            (MirrorFacts(), 'data-testid="loading"'),
            (MirrorFacts(declared=False), "No mirror is declared"),
            (replace(known, error="cluster nyc does not answer"), "cluster nyc does not answer"),
        ):
            hub.mirrors = now
            assert words in client.get("/mirrors", headers=HTML).text
    finally:
        hub.mirrors = known


def test_the_checklist_says_why_a_target_could_not_take_over() -> None:
    (status, away) = estate_mirrors()
    assert [each.state for each in checks(status)] == ["ok", "bad", "ok", "ok", "ok", "bad"]
    assert [each.state for each in checks(away)] == ["bad"]
    ready = {**status, "lag_records": 0, "lag_s": 0.0, "groups": [{**status["groups"][0], "rpo_records": 0}]}
    assert {each.state for each in checks(ready)} == {"ok"}
    stuck = {**ready, "workers": 0, "gaps": [{}], "operations": [{"kind": "failover", "next": "fence"}]}
    assert [each.state for each in checks(stuck)] == ["bad", "unknown", "ok", "bad", "ok", "ok", "bad"]
    for said, words in (
        ({"restarts": 3}, "A shard makes no progress: it was restarted 3 times"),
        ({"different": 2}, "2 partitions differ from the source: hub mirror verify nyc-lon"),
        ({"heartbeats": [{"worker": "w1", "ago_s": 25.0}]}, "A worker has not reported for 25 s"),
        ({"trouble": {"nyc.new": "foreign data"}}, "1 topic is not mirrored, first nyc.new: foreign data"),
        (
            {"partitions": [{**ready["partitions"][0], "engine_why": "mask email (hash)"}]},
            (
                f"1 copy is masked, first {ORDERS}: not a replacement for the original; records written there "  # noqa: E501
                "are not copied back"
            ),
        ),
    ):
        (found,) = [each for each in checks({**ready, **said}) if each.state != "ok"]
        assert (found.state, found.what) == ("bad", words)
    assert {each.state for each in checks({**ready, "verified_s": None})} == {"ok", "unknown"}
    # A source that does not answer may have more than was seen of it.
    unheard = {**ready, "partitions": [{**ready["partitions"][0], "reason": "nyc does not answer"}]}
    assert [each.what for each in checks(unheard) if each.state == "unknown"] == [
        "The target has all that was seen at the source; what came since is not known"
    ]


def test_a_mirrors_page_offers_only_what_is_not_refused_now() -> None:
    status, away = estate_mirrors()
    where = {"nyc": "nyc-1:9092", "lon": "lon-1:9093"}

    def offered(**said: Any) -> list[str]:
        found = mirror({**status, **said}, where)
        assert all(each.what for each in found.commands)
        return [each.command.removeprefix("hub mirror ") for each in found.commands]

    assert offered() == [
        "drill nyc-lon",
        "failover nyc-lon",
        "drill nyc-lon --kind switchover",
        "switchover nyc-lon",
    ]
    over = mirror(status, where).commands[1]
    assert "point writers and readers to lon (lon-1:9093)" in over.around
    home = ["left-behind nyc-lon", "failback nyc-lon --merge --dry-run", "failback nyc-lon"]
    handed = {"acting": {"nyc": "lon"}, "state": "handed over"}
    assert offered(**handed) == home
    assert [each.what for each in checks({**status, **handed})] == ["lon serves the topics of nyc"]
    back = {"mirror": "nyc-lon~back", "declared": "nyc-lon", "source": "lon", "target": "nyc"}
    assert offered(**back, acting={"nyc": "lon"}) == home
    assert "give it back" not in str(mirror(status, where).commands).lower()
    running = [{"home": "nyc", "kind": "failover", "id": "1", "next": "place_groups"}]
    assert offered(operations=running) == ["resume nyc-lon", "resume nyc-lon --abort"]
    assert [each.command for each in mirror(away).commands] == ["hub mirror status lon-tyo"]


def test_a_mirrors_page_has_heartbeats_comparisons_bytes_and_groups(client: TestClient) -> None:
    text = client.get("/mirrors", headers=HTML).text
    for words in (
        '<span class="mono">w1</span> beat 0.70 s ago, 1 shard',
        "30 records were compared",
        "90 B",
        "billing",
    ):
        assert words in text
    assert '<th scope="col" class="n">Would lose</th>' in text


def test_a_mirrors_page_has_its_rehearsals(hub: StagedEstate, client: TestClient) -> None:
    text = client.get("/mirrors", headers=HTML).text
    for words in (
        "weekly, Tue 03:00 UTC",
        "The last one failed, ",
        "topic &#34;nyc.full&#34; is not mirrored",
        "at least 12",
        'href="/mirrors/nyc-lon/rehearse"',
    ):
        assert words in text
    status, _ = estate_mirrors()
    none = {**status["rehearsal"], "last": None, "results": [], "overdue_s": 7_300.0}
    known = hub.mirrors
    hub.mirrors = MirrorFacts([{**status, "rehearsal": none}], 1)
    try:
        text = client.get("/mirrors", headers=HTML).text
    finally:
        hub.mirrors = known
    assert "whether a failover would succeed is unknown" in text and "is due since 2" in text


def test_a_mirrors_page_has_the_names_of_renamed_copies(hub: StagedEstate, client: TestClient) -> None:
    assert "copies named" not in client.get("/mirrors", headers=HTML).text
    status, _ = estate_mirrors()
    known = hub.mirrors
    hub.mirrors = MirrorFacts([{**status, "rename": "nyc.{topic}"}], 1)
    try:
        text = client.get("/mirrors", headers=HTML).text
    finally:
        hub.mirrors = known
    assert "nyc → lon, copies named nyc.{topic}" in text


def test_a_mirrors_page_says_what_a_failover_left_behind(hub: StagedEstate, client: TestClient) -> None:
    status, _ = estate_mirrors()
    rows = [
        {"topic": "nyc.chat", "partition": n, "first": 7, "end": 9, "known": n > 0}
        for n in range(MOST_LOST + 2)
    ]
    known = hub.mirrors
    hub.mirrors = MirrorFacts([{**status, "lost": rows, "redelivered": 1_200}], 1)
    try:
        text = client.get("/mirrors", headers=HTML).text
    finally:
        hub.mirrors = known
    assert "nyc.chat partition 0: offsets 7 up to 9 at least stayed at nyc when lon took over" in text
    assert "nyc.chat partition 1: offsets 7 up to 9 stayed at nyc when lon took over" in text
    assert "2 partitions more: hub mirror status nyc-lon" in text
    assert "1,200 records were read again when lon took over" in text
    assert 'data-testid="lost"' not in client.get("/mirrors", headers=HTML).text


def estate_mirrors() -> tuple[dict, dict]:  # type: ignore[type-arg]
    staged = estate()
    assert staged.node is not None
    staged.node.stop()
    status, away = staged.mirrors.mirrors
    return dict(status), dict(away)


def test_a_registry_that_is_not_ready_keeps_no_page_waiting(hub: StagedEstate) -> None:
    made = hub.estate()
    waiting = replace(made, registry=RegistryNode(hub.cluster, timeout_s=600.0))
    app = FastAPI()
    app.include_router(create_router(waiting))
    collector = hub.collector
    assert collector is not None
    collector.ask_kafka()
    with TestClient(app) as client:
        schemas = client.get("/schemas", headers=HTML)
        assert schemas.status_code == 503 and "has not read its log yet" in schemas.text
        page = client.get(f"/topics/{ORDERS}", headers=HTML)
        assert page.status_code == 200 and "Not available: schemas" in page.text
        assert "Not searched: schemas" in client.get("/search?q=order", headers=HTML).text


def test_an_empty_hub_says_what_to_do() -> None:
    staged = StagedEstate()
    with TestClient(staged.app()) as client:
        for path, words in (
            ("/topics", "hub topic apply"),
            ("/schemas", "hub schema register"),
            ("/views", "hub demo"),
            ("/lag", "Nobody reads anything yet"),
            ("/search?q=x", "Nothing has all of"),
            ("/query", "No view has rows yet"),
            ("/lineage", "Nothing reads anything yet"),
            ("/connect", "connect_urls"),
            ("/mirrors", "Asking the clusters"),
            ("/completeness", "hub completeness run"),
            ("/alerts", "Every objective that can be evaluated is met"),
        ):
            assert words in client.get(path, headers=HTML).text, path
        # Unknown lists are not shown as empty.
        for path in ("/lag", "/lineage"):
            for staged.unmeasured, shown in (("", "loading"), ("its groups cannot be listed", "unknown")):
                page = client.get(path, headers=HTML).text
                assert f'data-testid="{shown}"' in page and staged.unmeasured in page, path
                assert "reads anything yet" not in page, path
        staged.views.broken = "the store is locked"
        for path in ("/views", "/query"):
            page = client.get(path, headers=HTML).text
            assert "the store is locked" in page and "yet" not in page.split('data-testid="unknown"')[1][:200]
    assert staged.node is not None
    staged.node.stop()


def test_views_that_were_not_told_yet_are_not_none() -> None:
    staged = StagedEstate()
    app = staged.app()
    assert staged.collector is not None and staged.node is not None
    staged.collector.ask_store = lambda: None  # type: ignore[method-assign]  # the store has not answered yet
    with TestClient(app) as client:
        for path in ("/views", "/latency", "/query"):
            page = client.get(path, headers=HTML).text
            assert "Asking the store for its views" in page and 'data-testid="loading"' in page, path
            assert not [
                each
                for each in ("No view is running", "No view is measured", "No view has rows")
                if each in page
            ], path
    staged.node.stop()


def test_a_subject_tells_whom_a_change_touches(hub: StagedEstate, client: TestClient) -> None:
    before = hub.views.records[f"state:{VIEW}"]
    told = client.get("/api/schemas/shop.payments-value").json()["impact"]
    (view,) = told["views"]
    assert (view["view"], view["touched"]) == (VIEW, [])
    assert view["columns"] == [["paid_cents", ["amount_cents"]]]
    assert ["group", "billing", "OK"] in told["readers"]
    text = client.get("/schemas/shop.payments-value", headers=HTML).text
    assert "Who is affected by a change" in text and "paid_cents" in text
    # A field that is another one between the two versions marks the columns that are made of it.
    hub.register("crm.customers-value", {**PERSON, "fields": PERSON["fields"][:2]})
    hub.register("crm.customers-value", PERSON)
    (view,) = client.get("/api/schemas/crm.customers-value").json()["impact"]["views"]
    assert view["touched"] == ["name"]
    assert view["columns"] == [["name", ["first_name", "last_name"]], ["", ["customer_id"]]]
    text = client.get("/schemas/crm.customers-value", headers=HTML).text
    assert text.count('data-testid="touched"') == 1 and "which rows there are" in text
    assert hub.views.records[f"state:{VIEW}"] == before
    assert 'data-testid="nobody"' in client.get("/schemas/shared.Money", headers=HTML).text


PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "customer_id", "type": "string"},
        {"name": "first_name", "type": "string", "default": ""},
        {"name": "last_name", "type": "string", "default": ""},
    ],
}


def test_batches_are_seen_once_each_the_newest_first(hub: StagedEstate, client: TestClient) -> None:
    hub.commit(VIEW, ["crm.customers"], input_rows=7, batch_ms=50)
    client.get(f"/views/{VIEW}", headers=HTML)
    time.sleep(0.002)  # another batch has another time
    hub.commit(VIEW, ["crm.customers"], input_rows=9, batch_ms=30)
    first, second, *_ = client.get(f"/api/views/{VIEW}").json()["batches"]
    assert (first["events"], first["took_ms"], second["events"]) == (9, 30, 7)
    assert client.get(f"/api/views/{VIEW}").json()["batches"][0] == first
    assert client.get(f"/api/views/{VIEW}").json()["batches"][1] == second
    assert 'data-testid="batches"' in client.get(f"/views/{VIEW}", headers=HTML).text


def test_the_cluster_says_what_is_wrong_and_what_is_not_known(hub: StagedEstate, client: TestClient) -> None:
    text = client.get("/cluster", headers=HTML).text
    for said in (
        "partitions are offline",
        "controller",
        "crm.consent",
        "50.0 GB of 1 TB free",
        "error 56",
        "mirror:nyc-lon",
        "4102",
    ):
        assert said in text, said
    before = hub.health
    try:
        hub.health = replace(before, error="Kafka does not answer")
        text = client.get("/cluster", headers=HTML).text
        assert "The page shows the last known state" in text and "does not answer" in text
        hub.health = Health()
        assert 'data-testid="loading"' in client.get("/cluster", headers=HTML).text
        told = client.get("/api/cluster").json()
        assert (told["state"], told["offline"], told["brokers"]) == ("connecting", None, [])
        hub.health = Health(error="Kafka does not answer")
        assert 'data-testid="unknown"' in client.get("/cluster", headers=HTML).text
    finally:
        hub.health = before


def test_latency_is_filtered_and_says_when_there_is_none(hub: StagedEstate, client: TestClient) -> None:
    text = client.get("/latency", headers=HTML).text
    assert "&gt; 30 min" in text and "99.9 %" in text and "100 %" in text
    text = client.get("/latency?stage=read", headers=HTML).text
    assert "<option selected>read</option>" in text and 'data-key="read//live"' in text
    assert 'data-key="changelog//live"' not in text
    text = client.get("/latency?stage=pushed", headers=HTML).text
    assert "pushed" in text and "18 204" not in text.replace("\u202f", " ").replace("\u2009", " ")
    assert 'data-testid="none-fit"' in client.get("/latency?view=other", headers=HTML).text
    assert 'data-testid="skewed"' not in client.get("/latency", headers=HTML).text
    before = hub.latency
    try:
        hub.latency = [replace(each, skewed=1_204) if each.stage == "changelog" else each for each in before]
        text = client.get("/latency", headers=HTML).text
        assert text.count('data-testid="skewed"') == 1 and "a producer's clock is ahead" in text
        hub.latency = []
        assert 'data-testid="nothing"' in client.get("/latency", headers=HTML).text
    finally:
        hub.latency = before


def test_readers_that_nobody_measured_yet_are_not_none(hub: StagedEstate, client: TestClient) -> None:
    rows, hub.rows, hub.unmeasured = hub.rows, [], "Kafka does not answer"
    try:
        for path in (f"/topics/{ORDERS}", "/schemas/shared.Money", f"/schemas/{ORDERS}-value"):
            text = client.get(path, headers=HTML).text
            assert "Readers are not known now" in text, path
            assert "No consumer group has" not in text and "Nobody is known" not in text, path
        assert client.get(f"/api/topics/{ORDERS}").json()["unmeasured"] == "Kafka does not answer"
    finally:
        hub.rows, hub.unmeasured = rows, None
    assert "Readers are not known now" not in client.get(f"/topics/{ORDERS}", headers=HTML).text


def test_a_topic_of_very_many_readers_shows_the_worst(hub: StagedEstate, client: TestClient) -> None:
    rows = hub.rows
    hub.rows = [lag_row(f"console-{number}", ORDERS, "OK") for number in range(2_500)]
    hub.rows.append(lag_row("z-worst", ORDERS, "STOPPED"))
    try:
        text = client.get(f"/topics/{ORDERS}", headers=HTML).text
        assert text.count('data-key="group/') == 100 and 'data-key="group/z-worst"' in text
        assert "2\u202f401 more" in text and f'href="/lag?prefix={ORDERS}"' in text
        assert len(client.get(f"/api/topics/{ORDERS}").json()["groups"]) == 2_501
    finally:
        hub.rows = rows


def test_what_came_while_kafka_is_away_is_not_nothing(hub: StagedEstate) -> None:
    before, app = hub.collector, hub.app()
    try:
        with TestClient(app) as client:
            client.get(f"/topics/{ORDERS}", headers=HTML)
            assert hub.collector is not None
            hub.cluster.cut, hub.collector.now_ms = True, lambda: epoch_ms() + 120_000
            text = client.get(f"/topics/{ORDERS}", headers=HTML).text
        assert "No event in the last" not in text and 'data-testid="flow-unknown"' in text
    finally:
        hub.cluster.cut, hub.collector = False, before


@pytest.mark.parametrize("name", ["billing", "a, b", "one|two", "smith, john | [x]*"])
def test_a_silence_of_any_name_fits_its_alert(name: str) -> None:
    labels = {"severity": "page", "consumer": name, "topic": ORDERS}
    written = narrow({"labels": labels})
    matchers = matchers_from(each for each in written.split(",") if each.strip())
    assert fits(matchers, labels_of(labels)) and len(matchers) == 2
    assert not fits(matchers, labels_of({**labels, "consumer": "another"}))


def test_no_more_watch_at_once_than_may_however_many_come_at_the_same_moment(hub: StagedEstate) -> None:
    before, routes = hub.collector, create_router(hub.estate()).routes
    assert hub.collector is not None
    hub.collector.ask_kafka()
    hub.collector = before
    endpoint = next(
        each.endpoint for each in routes if isinstance(each, APIRoute) and each.path.endswith("/tail")
    )

    async def here() -> bool:
        return False

    async def second(stream: Any) -> bytes:
        await anext(stream)
        said: bytes = await anext(stream)
        return said

    async def watched() -> list[bytes]:
        answers = [await endpoint(SimpleNamespace(is_disconnected=here), ORDERS, "", "") for _ in range(30)]
        streams = [each.body_iterator for each in answers]
        try:
            return await asyncio.gather(*map(second, streams))
        finally:
            for each in streams:
                await each.aclose()

    said = asyncio.run(watched())
    assert sum(b"people watch messages already" in each for each in said) == 30 - TAILS_AT_ONCE
