"""Confluent's ``/dek-registry/v1``, path by path: status, error code and body, over the in-memory log."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.caller import CALLER, AccessDecision, Action, Caller, Resource
from hub.config.kms import KmsKey
from hub.errors import PeerError
from hub.log import MemoryCluster
from hub.masking.shape import OPEN, Visibility
from hub.record import NewRecord, Positions
from hub.schema_registry.dek_registry.bodies import kek_of
from hub.schema_registry.dek_registry.handlers import DekHandlers
from hub.schema_registry.dek_registry.node import WRITER_NAME, DekNode
from hub.schema_registry.dek_registry.records import KEYS_TOPIC
from hub.schema_registry.dek_registry.routes import RULES, DekApi, create_router
from hub.schema_registry.dek_registry.state import DekRegistryState, create_kek
from hub.schema_registry.encryption.kms import KmsClient
from hub.schema_registry.encryption.serving import SharedKeys
from hub.schema_registry.model.subject_names import person_subject
from hub.schema_registry.registry.errors import RequestRefused, not_permitted

KEK = {"name": "pii", "kmsType": "local-kms", "kmsKeyId": "k1"}
WRAPPED = base64.b64encode(b"wrapped").decode()
OTHER = base64.b64encode(b"wrapped again").decode()
LOCAL = KmsKey(key="local-kms://*", secrets={"secret": "kms.secret"})


class Http:
    """Client of a server below /dek-registry/v1 whose assertions show the message."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        return self.client.request(method, f"/dek-registry/v1/{path}", json=body)

    def ok(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self(method, path, body)
        assert answer.status_code == status, (method, path, answer.text)
        assert answer.headers["cache-control"] == "no-store"
        return answer.json() if answer.content else None

    def fails(self, status: int, code: int, method: str, path: str, body: Any = None) -> str:
        answer = self(method, path, body)
        assert (answer.status_code, answer.json().get("error_code")) == (status, code), answer.text
        assert set(answer.json()) == {"error_code", "message"}
        return str(answer.json()["message"])


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(now_ms=1_700)


@pytest.fixture
def read_only() -> list[str | None]:
    """Subjects (None: the registry) in a read-only mode."""
    return []


@pytest.fixture
def serve(cluster: MemoryCluster, read_only: list[str | None], tmp_path: Path) -> Callable[[], Http]:
    def writable(subject: str | None) -> None:
        if subject in read_only:
            raise not_permitted(f"{subject} is in read-only mode")

    def start() -> Http:
        app = FastAPI()
        keys = SharedKeys(KmsClient([LOCAL], tmp_path))
        app.include_router(create_router(DekNode(cluster), keys, writable))
        return Http(TestClient(app))

    return start


@pytest.fixture
def http(serve: Callable[[], Http]) -> Http:
    return serve()


def test_a_kek_is_created_read_changed_deleted_and_restored(http: Http) -> None:
    assert http.ok("GET", "keks") == []
    http.fails(404, 40470, "GET", "keks/pii")
    stored = {**KEK, "kmsProps": {}, "shared": False, "ts": 1_700}
    assert http.ok("POST", "keks", KEK) == http.ok("GET", "keks/pii") == stored
    assert "already exists" in http.fails(409, 40971, "POST", "keks", KEK)
    changed = {**stored, "doc": "of people", "kmsProps": {"a": "b"}}
    assert http.ok("PUT", "keks/pii", {"doc": "of people", "kmsProps": {"a": "b"}}) == changed
    http.fails(404, 40471, "DELETE", "keks/pii?permanent=true")
    http.ok("DELETE", "keks/pii", status=204)
    http.fails(404, 40470, "GET", "keks/pii")
    http.fails(404, 40470, "PUT", "keks/pii", {"doc": "x"})
    assert http.ok("GET", "keks/pii?deleted=true") == {**changed, "deleted": True}
    assert (http.ok("GET", "keks"), http.ok("GET", "keks?deleted=true")) == ([], ["pii"])
    http.ok("POST", "keks/pii/undelete", status=204)
    assert http.ok("GET", "keks/pii") == changed
    http.ok("DELETE", "keks/pii", status=204)
    http.ok("DELETE", "keks/pii?permanent=true", status=204)
    http.fails(404, 40470, "POST", "keks/pii/undelete")
    http.fails(404, 40470, "DELETE", "keks/pii")


def test_a_deleted_kek_is_created_again_only_as_it_was(http: Http) -> None:
    http.ok("POST", "keks", KEK)
    http.ok("DELETE", "keks/pii", status=204)
    http.fails(409, 40971, "POST", "keks", {**KEK, "kmsKeyId": "another"})
    assert "deleted" not in http.ok("POST", "keks", KEK)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", None), ("name", ""), ("name", "1a"), ("name", "a b"), ("name", "a" * 65),
        ("kmsType", None), ("kmsKeyId", ""), ("kmsProps", {"a": 1}), ("doc", 5), ("shared", "yes"),
    ],
)  # fmt: skip
def test_an_invalid_kek_is_refused_by_its_field(http: Http, field: str, value: Any) -> None:
    assert http.fails(422, 42271, "POST", "keks", {**KEK, field: value}) == field


def test_names_of_a_clouds_kms_are_normalized(http: Http) -> None:
    assert http.ok("POST", "keks", {**KEK, "kmsType": "AWS"})["kmsType"] == "aws-kms"


def test_deks_by_subject_version_and_algorithm(http: Http) -> None:
    http.ok("POST", "keks", KEK)
    body = {"subject": "a/b-value", "encryptedKeyMaterial": WRAPPED}
    first = http.ok("POST", "keks/pii/deks", body)
    assert first == {
        "kekName": "pii", "subject": "a/b-value", "version": 1, "algorithm": "AES256_GCM",
        "encryptedKeyMaterial": WRAPPED, "ts": 1_700,
    }  # fmt: skip
    place = "keks/pii/deks/a%2Fb-value"
    for path in (place, f"{place}/versions/1", f"{place}/versions/latest", f"{place}/versions/-1"):
        assert http.ok("GET", path) == first
    http.fails(409, 40971, "POST", place, body)
    second = http.ok("POST", place, {"version": 2, "encryptedKeyMaterial": OTHER})
    assert http.ok("GET", f"{place}/versions/-1") == second
    assert http.ok("GET", f"{place}/versions") == [1, 2]
    siv = {"algorithm": "AES256_SIV", "encryptedKeyMaterial": WRAPPED}
    http.ok("POST", place, siv)
    assert http.ok("GET", f"{place}/versions?algorithm=AES256_SIV") == [1]
    http.fails(404, 40470, "GET", f"{place}/versions/2?algorithm=AES256_SIV")
    assert http.ok("GET", "keks/pii/deks") == ["a/b-value"]
    assert http.ok("GET", "keks?subjectPrefix=a/") == ["pii"]
    assert http.ok("GET", "keks?subjectPrefix=b") == []
    http.fails(422, 42202, "GET", f"{place}/versions/0")
    http.fails(422, 42271, "GET", f"{place}/versions/1?algorithm=DES")
    http.fails(404, 40470, "POST", "keks/none/deks", body)
    assert http.fails(422, 42271, "POST", place, {"version": 3}) == "encryptedKeyMaterial"
    assert http.fails(422, 42271, "POST", place, {"version": 3, "encryptedKeyMaterial": "?"})


def test_deks_are_deleted_and_restored(http: Http) -> None:
    http.ok("POST", "keks", KEK)
    for version in (1, 2):
        http.ok("POST", "keks/pii/deks/s", {"version": version, "encryptedKeyMaterial": WRAPPED})
    assert "references" in http.fails(422, 42272, "DELETE", "keks/pii")
    http.fails(404, 40471, "DELETE", "keks/pii/deks/s?permanent=true")
    http.ok("DELETE", "keks/pii/deks/s/versions/2", status=204)
    assert http.ok("GET", "keks/pii/deks/s/versions") == [1]
    assert http.ok("GET", "keks/pii/deks/s/versions/2?deleted=true")["deleted"] is True
    http.ok("DELETE", "keks/pii/deks/s", status=204)
    assert http.ok("GET", "keks/pii/deks") == []
    http.ok("DELETE", "keks/pii", status=204)  # deleted DEKs do not keep it
    http.fails(404, 40472, "POST", "keks/pii/deks/s/undelete")
    http.fails(404, 40472, "POST", "keks/pii/deks/s/versions/2/undelete")
    http.ok("POST", "keks/pii/undelete", status=204)
    http.ok("POST", "keks/pii/deks/s/undelete", status=204)
    assert http.ok("GET", "keks/pii/deks/s/versions") == [1, 2]
    http.ok("DELETE", "keks/pii/deks/s", status=204)
    http.ok("DELETE", "keks/pii/deks/s/versions/1?permanent=true", status=204)
    http.fails(404, 40470, "GET", "keks/pii/deks/s/versions/1?deleted=true")
    http.ok("DELETE", "keks/pii/deks/s?permanent=true", status=204)
    http.fails(404, 40470, "DELETE", "keks/pii/deks/s")
    http.ok("DELETE", "keks/pii", status=204)
    http.ok("DELETE", "keks/pii?permanent=true", status=204)


def test_a_dek_is_wrapped_anew_only_where_that_is_asked(http: Http) -> None:
    http.ok("POST", "keks", KEK)
    http.ok("POST", "keks/pii/deks/s", {"encryptedKeyMaterial": WRAPPED})
    http.fails(409, 40971, "POST", "keks/pii/deks/s", {"encryptedKeyMaterial": OTHER})
    http.ok("POST", "keks/pii/deks/s?rewrap=true", {"encryptedKeyMaterial": OTHER})
    assert http.ok("GET", "keks/pii/deks/s")["encryptedKeyMaterial"] == OTHER


def test_of_a_shared_kek_the_hub_wraps_and_unwraps(
    http: Http, cluster: MemoryCluster, tmp_path: Path
) -> None:
    (tmp_path / "kms.secret").write_text("correct horse\n")
    http.ok("POST", "keks", {**KEK, "shared": True})
    made = http.ok("POST", "keks/pii/deks/s", {})
    assert made["keyMaterial"] and made["encryptedKeyMaterial"]
    assert http.ok("GET", "keks/pii/deks/s") == made
    assert not any(
        made["keyMaterial"].encode() in (each.value or b"") for each in cluster.logs[KEYS_TOPIC][0]
    )
    again = http.ok("POST", "keks/pii/deks/s?rewrap=true", {})
    assert again["keyMaterial"] == made["keyMaterial"]
    assert again["encryptedKeyMaterial"] != made["encryptedKeyMaterial"]
    (tmp_path / "kms.secret").write_text("another")
    message = http.fails(500, 50070, "GET", "keks/pii/deks/s")
    assert 'KMS key "local-kms://k1"' in message and "another" not in message and "horse" not in message
    (tmp_path / "kms.secret").unlink()
    assert "cannot be read" in http.fails(500, 50070, "GET", "keks/pii/deks/s")


def test_the_hub_uses_no_kms_key_that_its_settings_do_not_name(http: Http) -> None:
    """Otherwise a KEK could send the hub's credentials to a server of its author."""
    http.ok("POST", "keks", {**KEK, "kmsType": "hcvault", "kmsKeyId": "http://evil/keys/k", "shared": True})
    assert "has no access to it" in http.fails(500, 50070, "POST", "keks/pii/deks/s", {})


def test_contexts_have_keys_of_their_own(http: Http) -> None:
    http.ok("POST", "keks", KEK)
    http.fails(404, 40470, "GET", "keks/pii?context=.eu")
    http.ok("POST", "keks?context=.eu", {**KEK, "kmsKeyId": "k2"})
    assert http.ok("GET", "keks/pii?context=.eu")["kmsKeyId"] == "k2"
    assert http.ok("GET", "keks/pii")["kmsKeyId"] == "k1"
    made = http.ok("POST", "keks/pii/deks/:.eu:s", {"encryptedKeyMaterial": WRAPPED})
    assert (made["kekName"], made["subject"]) == ("pii", ":.eu:s")
    assert (http.ok("GET", "keks/pii/deks"), http.ok("GET", "keks/pii/deks?context=.eu")) == ([], [":.eu:s"])


def test_lists_have_pages(http: Http) -> None:
    for name in "cab":
        http.ok("POST", "keks", {**KEK, "name": name})
    assert http.ok("GET", "keks?offset=1&limit=1") == ["b"]


def test_a_read_only_mode_refuses_writes(http: Http, read_only: list[str | None]) -> None:
    http.ok("POST", "keks", KEK)
    read_only.append("s")
    http.fails(422, 42205, "POST", "keks/pii/deks/s", {"encryptedKeyMaterial": WRAPPED})
    http.ok("POST", "keks/pii/deks/t", {"encryptedKeyMaterial": WRAPPED})
    read_only.append(None)
    http.fails(422, 42205, "PUT", "keks/pii", {"doc": "x"})
    http.fails(422, 42205, "DELETE", "keks/pii")


def test_unknown_paths_methods_and_types(http: Http) -> None:
    http.fails(404, 404, "GET", "kegs")
    http.fails(405, 405, "PATCH", "keks")
    answer = http.client.post("/dek-registry/v1/keks", content=b"<a/>", headers={"content-type": "text/xml"})
    assert answer.status_code == 415
    http.fails(400, 400, "POST", "keks", [])


# ---- many nodes, and a log that is away


def test_an_answer_does_not_change_by_being_sent(http: Http) -> None:
    for _ in range(3):
        answer = http("GET", "no-such-path")
        assert answer.status_code == 404
        assert answer.headers.get_list("cache-control") == ["no-store"]


def test_every_node_answers_alike(serve: Callable[[], Http], cluster: MemoryCluster) -> None:
    one, two = serve(), serve()
    one.ok("POST", "keks", KEK)
    assert two.ok("GET", "keks/pii") == one.ok("GET", "keks/pii")
    two.ok("POST", "keks/pii/deks/s", {"encryptedKeyMaterial": WRAPPED})
    one.fails(409, 40971, "POST", "keks/pii/deks/s", {"encryptedKeyMaterial": OTHER})
    junk = cluster.writer()
    junk.append(
        [NewRecord(KEYS_TOPIC, b"{", b"{}", partition=0), NewRecord(KEYS_TOPIC, None, None, partition=0)]
    )
    assert serve().ok("GET", "keks/pii/deks/s")["encryptedKeyMaterial"] == WRAPPED


def test_a_decision_is_made_again_when_another_node_wrote(cluster: MemoryCluster) -> None:
    node, seen = DekNode(cluster), []

    def decide(state: DekRegistryState) -> Any:
        seen.append(len(state.keks))
        if len(seen) == 1:
            cluster.writer(WRITER_NAME)  # fences
        return (kek_of(KEK, "."),)

    assert node.submit(decide) == 1
    assert seen == [0, 0]


def test_the_writer_stays_open_for_appends_and_is_opened_anew_for_what_appends_nothing(
    cluster: MemoryCluster,
) -> None:
    opened: list[str | None] = []
    writer = cluster.writer
    cluster.writer = lambda name=None: opened.append(name) or writer(name)  # type: ignore[method-assign, func-returns-value]
    node, other = DekNode(cluster), DekNode(cluster)

    def made(by: DekNode, name: str) -> int:
        return by.submit(lambda state: create_kek(state, kek_of({**KEK, "name": name}, ".")))

    for number in range(3):
        made(node, f"k{number}")
    assert len(opened) == 1
    with pytest.raises(RequestRefused):  # it exists
        made(node, "k1")
    assert len(opened) == 2
    # Each sees what the other wrote, whoever has the name.
    made(other, "theirs")
    with pytest.raises(RequestRefused):
        made(node, "theirs")
    made(node, "k3")
    assert other.read(lambda state: len(state.keks)) == 5
    node.close()
    before = len(opened)
    made(node, "k4")
    assert len(opened) == before + 1


class Away(MemoryCluster):
    """A cluster that may stop to answer."""

    is_away = False

    def end_offsets(self, topics: Any, *, committed: bool = True) -> Positions:
        if self.is_away:
            raise PeerError("Kafka does not answer")
        return super().end_offsets(topics, committed=committed)


def test_known_keys_are_served_while_kafka_is_away() -> None:
    cluster = Away()
    app = FastAPI()
    node = DekNode(cluster)
    app.include_router(create_router(node, SharedKeys(KmsClient([], Path())), lambda _subject: None))
    http = Http(TestClient(app))
    http.ok("POST", "keks", KEK)
    cluster.is_away = True
    assert http.ok("GET", "keks/pii")["name"] == "pii"
    for _ in range(2):  # unknown is not missing: a client would create it
        http.fails(500, 50001, "GET", "keks/other")
    http.fails(500, 50001, "PUT", "keks/pii", {"doc": "x"})
    fresh = FastAPI()
    fresh.include_router(create_router(DekNode(cluster), SharedKeys(KmsClient([], Path())), lambda _s: None))
    Http(TestClient(fresh)).fails(500, 50001, "GET", "keks/pii")


# ---- who may


@contextmanager
def asking(*granted: tuple[Action, str]) -> Iterator[None]:
    """As a caller with these actions over topics or, by "", the hub."""

    def decide(action: Action, what: Resource) -> AccessDecision:
        return AccessDecision(
            (action, what.name.removesuffix("-value")) in granted, f"may not {action} {what}"
        )

    token = CALLER.set(Caller("ana", frozenset(), decide))
    try:
        yield
    finally:
        CALLER.reset(token)


def test_every_path_has_its_rule() -> None:
    keys = SharedKeys(KmsClient([], Path()))
    api = DekApi(DekHandlers(DekNode(MemoryCluster()), keys, lambda _subject: None))
    table = {pattern: set(methods) for pattern, methods in api.paths.paths}
    assert table == {pattern: set(methods) for pattern, methods in RULES.items()}


def test_a_masked_caller_gets_no_key_that_would_show_what_masks_hide(http: Http, tmp_path: Path) -> None:
    (tmp_path / "kms.secret").write_text("secret")
    http.ok("POST", "keks", {**KEK, "shared": True})
    http.ok("POST", "keks/pii/deks/orders-value", {})
    closed = Visibility("orders", closed="a rule hides it")
    token = CALLER.set(
        Caller(
            "ana",
            frozenset(),
            lambda *_: AccessDecision(True, ""),
            shape=lambda _what: closed,
            is_masked=True,
        )
    )
    try:
        assert "masks" in http.fails(403, 40301, "GET", "keks/pii/deks/orders-value")
    finally:
        CALLER.reset(token)
    assert http.ok("GET", "keks/pii/deks/orders-value")["keyMaterial"]


def test_a_masked_caller_gets_no_key_of_a_person_either(http: Http, tmp_path: Path) -> None:
    (tmp_path / "kms.secret").write_text("secret")
    http.ok("POST", "keks", {**KEK, "shared": True})
    path = f"keks/pii/deks/{person_subject('orders', '0' * 32)}"
    http.ok("POST", path, {})

    def shape(what: Resource) -> Visibility:
        return Visibility("orders", closed="a rule hides it") if what.name == "orders" else OPEN

    token = CALLER.set(
        Caller("ana", frozenset(), lambda *_: AccessDecision(True, ""), shape=shape, is_masked=True)
    )
    try:
        assert "masks" in http.fails(403, 40301, "GET", path)
    finally:
        CALLER.reset(token)
    assert http.ok("GET", path)["keyMaterial"]


def test_keks_are_the_hubs_and_deks_their_subjects(http: Http) -> None:
    dek = {"encryptedKeyMaterial": WRAPPED}
    with asking((Action.write, "orders"), (Action.describe, "orders")):
        http.fails(403, 40301, "POST", "keks", KEK)
    with asking((Action.operate, "")):
        http.ok("POST", "keks", KEK)
        http.fails(403, 40301, "DELETE", "keks/pii")
    with asking((Action.describe, "orders"), (Action.read, "orders")):
        http.ok("GET", "keks/pii")
        http.fails(403, 40301, "POST", "keks/pii/deks/orders-value", dek)
        http.fails(403, 40301, "POST", "keks/pii/deks", {**dek, "subject": "orders-value"})
    with asking((Action.describe, "orders"), (Action.write, "orders")):
        http.ok("POST", "keks/pii/deks/orders-value", dek)
        http.ok("GET", "keks/pii/deks/orders-value")  # it has to encrypt with it
        http.fails(403, 40301, "DELETE", "keks/pii/deks/orders-value")
    with asking((Action.describe, "orders")):
        assert http.ok("GET", "keks/pii/deks/orders-value/versions") == [1]
        http.fails(403, 40301, "GET", "keks/pii/deks/orders-value")
    with asking((Action.read, "other"), (Action.describe, "other")):
        assert http.ok("GET", "keks/pii/deks") == []
        http.fails(403, 40301, "GET", "keks/pii/deks/orders-value/versions/1")
    with asking((Action.admin, "orders"), (Action.describe, "orders")):
        http.ok("DELETE", "keks/pii/deks/orders-value", status=204)
