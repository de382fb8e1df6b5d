"""The editor of a schema: a draft is checked with its impact, then registered; over HTTP and as a page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from browser.staged_estate import ORDERS, V2, StagedEstate
from fastapi.testclient import TestClient

from hub.caller import CALLER, AccessDecision, Action, Caller, Resource
from hub.errors import CallerError
from hub.observability.web.pages.explore.schema_editor import draft_of
from hub.schema_registry.model.facts import Reference

OWN = {"accept": "text/html", "sec-fetch-site": "same-origin"}
SUBJECT = f"{ORDERS}-value"
URL = f"/schema-editor/{SUBJECT}"
V3 = {**V2, "fields": [*V2["fields"], {"name": "country", "type": "string", "default": "NO"}]}
BROKEN = {**V2, "fields": [*V2["fields"], {"name": "country", "type": "string"}]}


def versions(hub: StagedEstate) -> list[int]:
    assert hub.node is not None
    return list(hub.node.read(lambda registry: registry.numbers(SUBJECT)))


def posted(client: TestClient, schema: Any, **more: str) -> Any:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return client.post(URL, data={"schema": text, "type": "AVRO", **more}, headers=OWN)


def test_a_draft_is_checked_and_then_registered(hub: StagedEstate, client: TestClient) -> None:
    page = client.get(URL, headers=OWN).text
    assert "customer_id" in page and 'value="register"' not in page
    checked = posted(client, V3, do="check")
    assert "It may be registered" in checked.text and "country" in checked.text
    assert "billing" in checked.text  # who reads the topic
    assert versions(hub) == [1, 2]
    digest = checked.text.partition('name="plan" value="')[2].partition('"')[0]
    cross = {"schema": json.dumps(V3), "type": "AVRO", "do": "register", "plan": digest}
    foreign = client.post(URL, data=cross, headers={**OWN, "sec-fetch-site": "cross-site"})
    assert foreign.status_code == 400 and versions(hub) == [1, 2]
    edited = posted(client, {**V3, "doc": "Other."}, do="register", plan=digest)
    assert edited.status_code == 409 and "HUB-1941" in edited.text and versions(hub) == [1, 2]
    done = posted(client, V3, do="register", plan=digest)
    assert done.status_code == 200 and "version 3" in done.text and versions(hub) == [1, 2, 3]
    again = posted(client, V3, do="check")
    assert "Version 3 has this schema already" in again.text


def test_a_check_of_another_newest_version_is_refused(hub: StagedEstate, client: TestClient) -> None:
    body = {"schema": json.dumps(V3), "dry_run": True}
    digest = client.post(f"/api{URL}", json=body).json()["check"]["digest"]
    hub.register(SUBJECT, {**V2, "doc": "Registered meanwhile."})
    refused = client.post(f"/api{URL}", json={"schema": json.dumps(V3), "plan": digest})
    assert refused.status_code == 409 and refused.json()["error_code"] == "HUB-1941"
    assert versions(hub) == [1, 2, 3]


def test_what_the_level_refuses_is_explained_and_not_registered(
    hub: StagedEstate, client: TestClient
) -> None:
    page = posted(client, BROKEN, do="check")
    assert "It would be refused" in page.text and "can NOT read" in page.text
    assert 'value="register"' not in page.text
    told = client.post(f"/api{URL}", json={"schema": json.dumps(BROKEN), "dry_run": True}).json()
    assert told["check"]["refusals"] and told["newest"] == 2
    forced = client.post(f"/api{URL}", json={"schema": json.dumps(BROKEN)})
    assert forced.status_code == 409 and versions(hub) == [1, 2]


def test_a_text_that_is_no_schema_stays_in_the_editor(hub: StagedEstate, client: TestClient) -> None:
    page = posted(client, '{"type": "recor<b>"', do="check")
    assert page.status_code == 200 and "recor&lt;b&gt;" in page.text and 'class="reason"' in page.text
    assert "The schema is empty" in posted(client, " ", do="check").text
    forced = posted(client, "{", do="register", plan="x")
    assert forced.status_code == 409 and versions(hub) == [1, 2]


def test_a_new_subject_is_registered(hub: StagedEstate, client: TestClient) -> None:
    url = "/api/schema-editor/shop.refunds-value"
    assert client.get(url).json()["newest"] is None
    done = client.post(url, json={"schema": '"string"'}).json()
    assert done["registered"][0] == 1


def test_references_are_lines() -> None:
    draft = draft_of("s", "{}", "AVRO", "shared.Money shared.Money 1\n\n")
    assert draft.references == (Reference("shared.Money", "shared.Money", 1),)
    assert (
        "curl" in draft.command
        and draft_of("s", "{}", "JSON", "").command == "hub schema register s draft.json"
    )
    for lines in ("a b", "a b x", "a b 1 2"):
        with pytest.raises(CallerError, match="is not complete"):
            draft_of("s", "{}", "AVRO", lines)
    with pytest.raises(CallerError, match="schema type"):
        draft_of("s", "{}", "XML", "")


def test_a_caller_needs_the_subject_and_its_references(hub: StagedEstate, client: TestClient) -> None:
    def decide(action: Action, what: Resource) -> AccessDecision:
        return AccessDecision(what.name == SUBJECT, f"{action} of {what}")

    before = CALLER.set(Caller("ana", frozenset(), decide))
    try:
        assert client.get("/schema-editor/other-value", headers=OWN).status_code == 403
        body = {"schema": json.dumps(V3), "dry_run": True}
        assert client.post(f"/api{URL}", json=body).status_code == 200
        body["references"] = [{"name": "m", "subject": "shared.Money", "version": 1}]  # type: ignore[assignment]
        assert client.post(f"/api{URL}", json=body).status_code == 403
    finally:
        CALLER.reset(before)
