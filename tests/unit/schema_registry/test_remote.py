"""A registry over HTTP as one state, through the hub's own routes: plan, apply, and the plan is empty."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.cli.schema.commands import list_subjects
from hub.cli.schema.folder import with_compatibility
from hub.errors import CallerError, Conflict, NotFound, PeerError
from hub.log import MemoryCluster
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.client.remote import RemoteRegistry
from hub.schema_registry.folder.apply import apply
from hub.schema_registry.folder.load import load
from hub.schema_registry.folder.plan import FolderPlan, plan
from hub.schema_registry.folder.rules import rules_of
from hub.schema_registry.http import levels_routes
from hub.schema_registry.http.routes import create_router
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.policy.policy import Policies
from hub.schema_registry.registry.rulebook import Rulebook
from hub.schema_registry.server.node import RegistryNode
from hub.topics.tree.apply_plan import RegisteredSchemas
from hub.topics.tree.plan import Actual
from hub.topics.tree.plan import plan as plan_of_topics
from hub.topics.tree.tree import TopicSpec, TopicTree

BOOK = Rulebook(
    Policies.of(
        {"shop": {"owner": "required", "pii": {"mail": "PII"}, "doc": "record", "severity": {"doc": "warn"}}}
    )
)


@pytest.fixture
def registry() -> Iterator[RemoteRegistry]:
    node = RegistryNode(MemoryCluster(), rules=lambda: BOOK)
    node.start()
    app = FastAPI()
    app.include_router(create_router(node))
    app.include_router(levels_routes.create_router(node))
    with TestClient(app) as client:

        def answered(request: httpx2.Request) -> httpx2.Response:
            answer = client.request(
                request.method, str(request.url), content=request.content, headers=dict(request.headers)
            )
            return httpx2.Response(answer.status_code, content=answer.content)

        yield RemoteRegistry("http://registry", transport=httpx2.MockTransport(answered))
    node.stop()


def record(name: str, *fields: tuple[str, str]) -> str:
    made = [{"name": field, "type": kind} for field, kind in fields]
    return json.dumps({"type": "record", "name": name, "fields": made})


def test_the_state_has_versions_references_levels_and_what_is_deleted(registry: RemoteRegistry) -> None:
    assert registry.register("b/c", record("B", ("x", "int")), "AVRO", (), None) == 1
    reference = Reference("B", "b/c", 1)
    metadata = {"properties": {"owner": "us"}}
    assert registry.register("a", record("A", ("b", "B")), "AVRO", (reference,), metadata) == 1
    assert registry.register("a", record("A", ("b", "B")), "AVRO", (reference,), metadata) == 1
    registry.set_level("a", "NONE")
    assert registry.register("a", '"int"', "AVRO", (), None) == 2
    registry.request("DELETE", "/subjects/a/versions/2")
    state = registry.state(["a", "new"])
    a = state.subjects["a"]
    assert [(each.version, each.deleted) for each in a.versions] == [(1, False), (2, True)]
    assert (a.level, a.next_version, a.live[0].references, a.live[0].metadata) == (
        "NONE",
        3,
        (reference,),
        metadata,
    )
    assert (state.subjects["new"].versions, state.subjects["new"].level) == ((), "BACKWARD")
    assert [(name, each.version) for name, each in registry.latest()] == [("a", 1), ("b/c", 1)]
    assert registry.numbers("a") == [1]
    parsed = registry.parsed(registry.version("a", 1))
    assert set(parsed.named) == {"B"}
    assert registry.with_id(a.live[0].schema_id or 0).text == a.live[0].text


def test_a_folder_applied_over_http_leaves_nothing_to_do(registry: RemoteRegistry, tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_text(record("A", ("b", "B")))
    (tmp_path / "b.avsc").write_text(record("B", ("x", "int")))
    (tmp_path / "schemas.yaml").write_text(
        "schemas: {a.avsc: {owner: us, tags: [pii], compatibility: BACKWARD_TRANSITIVE}}"
    )
    folder = load(tmp_path)
    for changed in (False, True):
        if changed:
            (tmp_path / "b.avsc").write_text(record("B"))
            folder = load(tmp_path)
        made = plan(folder, registry.state(["a", "b"]))
        assert made.exit_code == 2
        apply(made, registry)
        again = plan(folder, registry.state(["a", "b"]))
        assert [(each.subject, each.changes) for each in again.steps] == []
    assert registry.numbers("a") == [1, 2]


def test_a_file_for_an_alias_is_one_for_the_subject_that_it_stands_for(
    registry: RemoteRegistry, tmp_path: Path
) -> None:
    """Regression: the schema of an alias is stored under its subject; each plan reported it as new."""
    registry.request("PUT", "/config/old-value", {"alias": "orders-value"})
    registry.register("old-value", record("Order"), "AVRO", (), None)
    (tmp_path / "old-value.avsc").write_text(record("Order"))
    folder = load(tmp_path)

    def planned() -> FolderPlan:
        return plan(folder, registry.state([each.subject for each in folder.files]))

    (same,) = planned().items
    assert (same.subject, same.status.value, same.version) == ("orders-value", "unchanged", 1)
    (tmp_path / "old-value.avsc").write_text(record("Order", ("to", "Address")))
    (tmp_path / "address.avsc").write_text(record("Address"))
    (tmp_path / "schemas.yaml").write_text("schemas: {old-value.avsc: {compatibility: FORWARD}}")
    folder = load(tmp_path)
    apply(planned(), registry)
    assert planned().exit_code == 0
    assert registry.numbers("orders-value") == [1, 2] and registry.levels(["orders-value"]) == {
        "orders-value": "FORWARD"
    }


def test_an_alias_and_its_subject_are_not_two_files(registry: RemoteRegistry, tmp_path: Path) -> None:
    registry.request("PUT", "/config/a", {"alias": "b"})
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.avsc").write_text(record("Order"))
    made = plan(load(tmp_path), registry.state(["a", "b", "c"]))
    (refused,) = made.refused
    assert refused.file is not None and refused.file.path == "a.avsc"
    assert '"b", of which "a" is an alias, is that of the file b.avsc already' in refused.reasons[0].what


def test_the_registry_is_asked_with_the_metadata_of_the_folder(
    registry: RemoteRegistry, tmp_path: Path
) -> None:
    """Tags that schemas.yaml brings were not sent along,
    and the registry refused the schema for want of them."""
    registry.register("shop.a-value", record("A"), "AVRO", (), {"properties": {"owner": "us"}})
    registry.set_level("shop.a-value", "NONE")
    text = record("A", ("mail", "string"))
    (tmp_path / "shop.a-value.avsc").write_text(text)
    (tmp_path / "schemas.yaml").write_text("schemas: {shop.a-value.avsc: {owner: us, tags: {mail: [PII]}}}")

    def planned() -> FolderPlan:
        state = registry.state(["shop.a-value"])
        return with_compatibility(plan(load(tmp_path), state, rules_of(BOOK)), state, registry)

    made = planned()
    assert [reason.what for each in made.refused for reason in each.reasons] == []
    apply(made, registry)
    assert planned().exit_code == 0
    (broken,) = registry.incompatibilities("shop.a-value", text, "AVRO", (), {"properties": {"owner": "us"}})
    assert 'lacks the tag "PII"' in broken  # and nothing of the doc, which only warns


def test_subjects_of_contexts_refer_to_what_is_meant(registry: RemoteRegistry, tmp_path: Path) -> None:
    """`address` in a context is the context's own there:
    the plan looked for the default one's, apply for the other."""
    address, order = record("Address", ("x", "int")), record("Order", ("to", "Address"))
    registry.register(":.eu:address", address, "AVRO", (), None)
    body = {"schema": order, "references": [{"name": "Address", "subject": "address", "version": 1}]}
    registry.request("POST", "/subjects/:.eu:order/versions", body)
    (tmp_path / "address.avsc").write_text(address)
    (tmp_path / "order.avsc").write_text(order)
    for within, steps in ((":.eu:address", []), ("address", ["address", ":.eu:order"])):
        said = f"schemas: {{order.avsc: {{subject: ':.eu:order'}}, address.avsc: {{subject: '{within}'}}}}"
        (tmp_path / "schemas.yaml").write_text(said)
        made = plan(load(tmp_path), registry.state([]))
        assert not made.refused and [each.subject for each in made.steps] == steps
        apply(made, registry)
        assert plan(load(tmp_path), registry.state([])).exit_code == 0
    assert registry.version(":.eu:order", 2).references == (Reference("Address", "address", 1),)


def test_a_client_keeps_the_schemas_it_was_asked_for_last(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def told(_method: str, path: str) -> dict[str, str]:
        asked.append(path)
        return {"schema": "x" * 4_000_000}

    known = RegistryClient("http://registry")
    monkeypatch.setattr(known, "request", told)
    for schema_id in (1, 1, 2, 3, 4, 4, 1):
        assert len(known.schema(schema_id)) == 4_000_000
    assert asked == [f"/schemas/ids/{each}" for each in (1, 2, 3, 4, 1)]


def test_the_plan_of_topics_asks_the_rules_of_a_first_version_too(registry: RemoteRegistry) -> None:
    """Regression: the plan accepted the schema, and apply failed. Warnings refuse nothing."""
    known = RegistryClient("http://registry")
    known._http = registry._http
    text = '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}'
    shop, other = (
        TopicSpec(f"{name}.orders", "", "", 1, 1, {}, "FULL", Path("orders.avsc"), (), {})
        for name in ("shop", "other")
    )
    texts = {each.name: text for each in (shop, other)}
    made = plan_of_topics(TopicTree((shop, other)), Actual({}), texts, RegisteredSchemas(known))
    (refused,) = made.refusals
    assert refused.topic == "shop.orders" and "its schema breaks a rule: owner: " in refused.reason
    assert refused.found == "no version"


def test_errors_are_the_hubs(registry: RemoteRegistry) -> None:
    registry.register("a", record("A", ("x", "int")), "AVRO", (), None)
    with pytest.raises(NotFound, match="Subject 'no' not found"):
        registry.numbers("no")
    with pytest.raises(Conflict):
        registry.register("a", record("A", ("y", "int")), "AVRO", (), None)
    with pytest.raises(CallerError, match="Invalid schema"):
        registry.register("a", "{", "AVRO", (), None)
    assert registry.incompatibilities("a", record("A", ("x", "int")), "AVRO", ()) == []
    assert "`y`" in registry.incompatibilities("a", record("A", ("y", "int")), "AVRO", ())[0]
    silent = RemoteRegistry("http://127.0.0.1:1", timeout_s=1)
    with pytest.raises(PeerError, match="does not answer"):
        silent.latest()


def listed(registry: RemoteRegistry, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[dict[str, object]]]:
    """``hub schema ls``: how many requests it took, and its rows."""
    asked: list[str] = []
    ask = registry.request
    monkeypatch.setattr(
        registry, "request", lambda *each, **query: (asked.append(each[1]), ask(*each, **query))[1]
    )
    monkeypatch.setattr("hub.schema_registry.client.remote.RemoteRegistry", lambda _url: registry)
    rows: list[dict[str, object]] = []
    monkeypatch.setattr("hub.cli.schema.commands.show", lambda found, *_: rows.extend(found))
    list_subjects()
    return len(asked), rows


def filled(registry: RemoteRegistry) -> list[dict[str, object]]:
    for name in ("b", "a", "gone"):
        registry.register(name, record("A", ("x", "int")), "AVRO", (), None)
    registry.set_level("b", "NONE")
    registry.register("b", '"int"', "AVRO", (), None)
    registry.request("DELETE", "/subjects/gone")
    registry.request("DELETE", "/subjects/gone", permanent="true")
    return [
        {"subject": "a", "version": 1, "id": 1, "compatibility": "BACKWARD"},
        {"subject": "b", "version": 2, "id": 2, "compatibility": "NONE"},
    ]


def test_a_listing_takes_as_many_requests_however_many_subjects_there_are(
    registry: RemoteRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = filled(registry)
    assert listed(registry, monkeypatch) == (2, expected)


def test_another_registry_is_asked_for_each_level(
    registry: RemoteRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, ask = filled(registry), registry.request

    def confluent(method: str, path: str, *body: object, **query: str) -> object:
        if path.startswith("/api"):
            raise NotFound("HTTP 404 Not Found")
        return ask(method, path, *body, **query)

    monkeypatch.setattr(registry, "request", confluent)
    assert listed(registry, monkeypatch) == (4, expected)
