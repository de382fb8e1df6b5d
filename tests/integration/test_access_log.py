"""Who did what, at a real server over a Kafka of its own: recorded, refused while it cannot be recorded,
whole after kill -9, and checked after somebody really rewrote the topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import psycopg
import pytest
from alert_receivers import until, webhook
from confluent_kafka import TopicPartition as KafkaPlace
from confluent_kafka.admin import AdminClient
from kafka_nodes import running_node
from patience import patient
from ports import free_ports
from processes import Server, call_hub, own_settings

from hub.access.secrets import hash_of_password, hash_of_token
from hub.access_log.chain import LogSigner
from hub.access_log.entry import SCHEMA, TOPIC
from hub.access_log.search import LogFilter, bounds, find, records
from hub.access_log.writer import make_topic
from hub.config import Settings
from hub.embedded import KafkaNode
from hub.home_key import make_key
from hub.kafka import KafkaCluster
from hub.record import NewRecord

PASSWORD, TOKEN = "correct horse", "hubt_of-checkout-4711"
CANARY = "ann@mask.example"
SECRETS = (PASSWORD, TOKEN, CANARY, "wrong-guess")
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
EVERYTHING = '{role: admin, topics: ["**"], views: ["**"], hub: true}'


@dataclass
class Logged:
    settings: Settings
    node: KafkaNode
    server: Server
    hook: Any
    siem: Any

    @cached_property
    def cluster(self) -> KafkaCluster:
        return KafkaCluster(self.settings.bootstrap, 15.0)

    def client(self, user: str = "root", password: str = PASSWORD) -> httpx2.Client:
        return httpx2.Client(
            base_url=self.settings.url, auth=(user, password) if user else None, timeout=patient(60.0)
        )

    def entries(self, **filters: str) -> list[dict[str, Any]]:
        found = find(self.cluster, LogFilter(**filters), 1_000)  # type: ignore[arg-type]
        return [each.row() for each in found.entries]

    def wait_for(self, count: int, **filters: str) -> list[dict[str, Any]]:
        """Wait until so many entries are there: notes are written a moment later."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = self.entries(**filters)
            return len(found) >= count

        until(there, 30.0, lambda: f"{filters}: {found} {self.server.last_words()}")
        return found

    def verified(self, *more: str) -> tuple[int, dict[str, Any]]:
        checked = call_hub(self.settings, "access", "audit", "verify", "-o", "json", *more)
        assert checked.stdout, checked.stderr
        return checked.returncode, json.loads(checked.stdout)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    folder: Path = tmp_path_factory.mktemp("logged")
    with webhook() as hook, webhook() as siem:
        more = {"pgwire_port": free_ports(1)[0], "audit_export": {"siem": {"webhook": siem.url}}}
        settings = own_settings(folder / "home", folder, kafka_timeout_s=3.0, embedded_kafka=False, **more)
        written(settings, hook.url)
        with running_node(KafkaNode(settings)) as node:
            server = Server(settings)
            try:
                server.start()
                yield Logged(settings, node, server, hook, siem)
            finally:
                server.stop(20.0)


def written(settings: Settings, channel: str) -> None:
    """Write the project's files."""
    settings.home.mkdir()
    folder = settings.project
    (folder / "access.yaml").write_text(
        f"""\
users:
  ana: {{password: "{hash_of_password(PASSWORD, b"0" * 16)}", grants: [{{role: read, topics: ["shop.**"]}}]}}
  root: {{password: "{hash_of_password(PASSWORD, b"1" * 16)}", grants: [{EVERYTHING}]}}
tokens:
  checkout: {{token: "{hash_of_token(TOKEN)}", grants: [{{role: write, topics: ["shop.**"]}}]}}
masks:
  - {{fields: [id], topics: [shop.orders], as: hashed, users: {{root: shown}}}}
"""
    )
    (folder / "topics.yaml").write_text("topics: {shop: {topics: {orders: {key: id}}}}\n")
    (folder / "alerts.yaml").write_text(
        f'channels: {{slow: {{webhook: {{url: "{channel}"}}, timeout: 60s}}}}\n'
    )


def test_each_kind_of_act_has_its_record_and_no_value(logged: Logged) -> None:
    applied = call_hub(logged.settings, "topic", "apply")
    assert applied.returncode == 0, applied.stderr
    with logged.client() as root, logged.client("ana") as ana, logged.client("") as nobody:
        said = {"schema": json.dumps(ORDER)}
        assert root.post("/subjects/shop.orders-value/versions", json=said).status_code == 200
        assert root.post("/subjects/shop.orders-value", json=said).status_code == 200  # a lookup: no change
        produced = nobody.post(
            "/topics/shop.orders/events", json={"id": CANARY}, headers={"Authorization": f"Bearer {TOKEN}"}
        )
        assert produced.status_code == 200, produced.text
        assert ana.post("/topics/shop.orders/events", json={"id": "1"}).status_code == 403
        sql = f"SELECT * FROM \"shop.orders\" WHERE id = '{CANARY}' -- {CANARY}"
        assert root.post("/query", json={"sql": sql, "format": "csv"}).status_code == 200
        assert ana.get("/api/topics/shop.orders/messages").status_code == 200
        made = ana.post("/api/access/tokens", json={"name": "ci", "expires_days": 1, "grants": []})
        assert made.status_code == 200, made.text
        own = {"Authorization": f"Bearer {made.json()['token']}"}
        assert nobody.get("/api/topics", headers=own).status_code == 200
        assert ana.delete(f"/api/access/tokens/{made.json()['id']}").status_code == 200
        here = {"Origin": logged.settings.url}
        signed = nobody.post("/sign-in", data={"name": "ana", "password": PASSWORD}, headers=here)
        assert signed.status_code == 303
        wrong = nobody.post("/sign-in", data={"name": "ana", "password": "wrong-guess"}, headers=here)
        assert wrong.status_code == 401
        assert nobody.post("/sign-out", headers=here).status_code == 303
    port, sql = logged.settings.pgwire_port, f"SELECT * FROM topics.\"shop.orders\" WHERE id = '{CANARY}'"
    for password in (PASSWORD, "wrong-guess"):
        try:
            with psycopg.connect(
                host="127.0.0.1", port=port, user="ana", password=password, dbname="hub"
            ) as connection:
                connection.execute(sql).fetchall()  # type: ignore[arg-type]
        except psycopg.OperationalError:
            assert password != PASSWORD
    with logged.client("ana", "wrong-guess") as guess:
        assert guess.get("/api/topics").status_code == 401

    (started, done) = logged.wait_for(2, action="topic.change")
    assert [started["result"], done["result"]] == ["started", "ok"]
    assert started["way"] == "cli" and started["detail"]["command"] == "hub topic apply"
    assert any("shop.orders" in step for step in started["detail"]["plan"])
    assert started["request_id"] == done["request_id"] and started["who"]
    changes = logged.wait_for(2, action="schema.change", by="root")
    assert [(each["name"], each["result"]) for each in changes] == [
        ("shop.orders-value", "started"),
        ("shop.orders-value", "ok"),
    ]
    (produced_once,) = logged.wait_for(1, action="records.write", by="checkout")
    assert (produced_once["kind"], produced_once["name"], produced_once["result"]) == (
        "topic",
        "shop.orders",
        "ok",
    )
    (denied,) = logged.wait_for(1, result="denied", by="ana")
    assert (denied["action"], denied["name"]) == ("records.write", "shop.orders")
    (asked,) = logged.wait_for(1, action="sql", on="shop.orders", by="root")
    assert asked["detail"]["statement"] == 'SELECT * FROM "shop.orders" WHERE id = ?'
    assert asked["detail"]["tables"] == ["shop.orders"]
    (over_postgres,) = logged.wait_for(1, action="sql", by="ana")
    assert over_postgres["detail"]["statement"].endswith("WHERE id = ?"), over_postgres
    assert over_postgres["detail"]["tables"] == ["shop.orders"]
    (read,) = logged.wait_for(1, action="export", by="ana")
    assert (read["kind"], read["name"]) == ("topic", "shop.orders")
    seen = logged.wait_for(2, action="masked.read", on="shop.orders")
    assert {(each["who"], each["detail"]["seen"]) for each in seen} == {
        ("root", "everything"),
        ("ana", "a part"),
    }
    logged.wait_for(1, action="token.use", on="token:checkout")
    logged.wait_for(1, action="token.use", on=f"token:{made.json()['id']}", by="ana")
    results = [(each["action"], each["result"]) for each in logged.entries(action="token.[cr]*")]
    assert results == [
        ("token.create", "started"),
        ("token.create", "ok"),
        ("token.revoke", "started"),
        ("token.revoke", "ok"),
    ]
    logged.wait_for(1, action="sign-out", by="ana")
    signs = logged.wait_for(3, action="sign-in", by="ana")
    assert {(each["way"], each["result"]) for each in signs} >= {("password", "ok"), ("password", "failed")}
    claimed = [each for each in logged.entries(action="sign-in", result="failed") if not each["who"]]
    assert claimed and claimed[0]["detail"]["claimed"] == "ana" and claimed[0]["address"] == "127.0.0.1"

    listed = call_hub(logged.settings, "access", "audit", "ls", "--by", "ro*", "--action", "schema.change")
    assert listed.returncode == 0 and "subject shop.orders-value" in listed.stdout, listed.stderr
    wrong_action = call_hub(logged.settings, "access", "audit", "ls", "--action", "schema.chang")
    assert wrong_action.returncode == 1 and 'did you mean "schema.change"?' in wrong_action.stderr
    with logged.client() as root, logged.client("ana") as ana:
        found = root.get("/api/access/log", params={"action": "schema.*", "since": "1h"}).json()
        assert [each["result"] for each in found["entries"]] == ["ok", "started"]
        page = root.get("/access-log", params={"on": "shop.orders"}, headers={"Accept": "text/html"})
        assert page.status_code == 200 and "records.write" in page.text and CANARY not in page.text
        assert ana.get("/api/access/log").status_code == 403

    for value in raw(logged):
        jsonschema.validate(json.loads(value), dict(SCHEMA))
        secrets = (*SECRETS, made.json()["token"])
        assert not any(secret.encode() in value for secret in secrets), value
    assert logged.verified()[0] == 0


def raw(logged: Logged) -> list[bytes]:
    begin, end = bounds(logged.cluster)
    return [record.value or b"" for record in records(logged.cluster, begin, end)]


def test_a_change_without_its_record_does_not_happen_and_reads_go_on(logged: Logged) -> None:
    logged.node.stop()
    try:
        with logged.client() as root:
            body = {"matchers": {"topic": "shop.**"}, "reason": "x", "for": "2h"}
            refused = root.post("/api/alerts/silences", json=body)
            assert refused.status_code == 503 and refused.json()["error_code"] == "HUB-3094", refused.text
            assert "nothing was changed" in refused.json()["message"]
            assert root.get("/api/views").status_code == 200
            assert root.get("/subjects").status_code == 200
            assert root.get("/health").status_code == 200
        with logged.client("ana") as ana:
            assert ana.post("/dlq/hr.pay.dlq/0/0/dismiss", json={"why": "x"}).status_code == 403
        command = call_hub(logged.settings, "topic", "publish", "shop.orders", "-k", "1", "--json", "{}")
        assert command.returncode == 1 and "HUB-3094" in command.stderr, command.stderr
    finally:
        logged.node.start()
        logged.node.wait_ready(patient(60.0))
    denied = logged.wait_for(1, action="dead-letter.change", result="denied")
    assert denied[0]["who"] == "ana"
    (failed,) = logged.wait_for(1, action="alert.change", result="failed")
    assert failed["detail"]["error"] == "HUB-3094" and failed["who"] == "root"
    assert logged.verified()[0] == 0


def test_kill_9_between_intent_and_result_leaves_the_intent(logged: Logged) -> None:
    logged.hook.delay_s = patient(30.0)
    with ThreadPoolExecutor(1) as pool, logged.client() as root:
        under_way = pool.submit(lambda: root.post("/api/alerts/channels/slow/test"))
        logged.wait_for(1, action="alert.change", on="channel:slow")
        logged.server.kill()
        with pytest.raises(httpx2.HTTPError):
            under_way.result(patient(60.0))
    logged.hook.delay_s = 0.0
    (left,) = logged.entries(action="alert.change", on="channel:slow")
    assert (left["result"], left["who"]) == ("started", "root")
    logged.server.start()
    with logged.client() as root:
        assert root.post("/api/alerts/channels/slow/test").status_code == 200
    assert len(logged.wait_for(3, action="alert.change", on="channel:slow")) == 3
    code, checked = logged.verified()
    assert code == 0 and checked["whole"] == "yes", checked
    # The export went on where it was: the target has every entry of the topic.
    wanted = {json.loads(value)["id"] for value in raw(logged)}
    until(lambda: wanted <= {each["id"] for body in logged.siem.bodies for each in body}, 60.0)


def test_a_rewritten_topic_is_found_with_the_offset(logged: Logged) -> None:
    logged.server.stop(20.0)
    assert logged.server.process.returncode is not None
    values = raw(logged)
    code, checked = logged.verified()
    assert code == 0 and checked["records"] == len(values) and checked["not_signed_yet"] == 0
    own = LogSigner(make_key(logged.settings.home)).public
    (started,) = [
        offset
        for offset, value in enumerate(values)
        if json.loads(value)["data"]["action"] == "schema.change" and b'"started"' in value
    ]

    delete_to(logged, started + 1)  # as retention does
    code, checked = logged.verified("--holds", checked["head"])
    assert (code, checked["begins_at"], checked["problems"]) == (0, started + 1, []), checked
    assert checked["cut_by_retention"] >= 1

    rewrite(logged, [*values[:started], *values[started + 1 :]])
    code, checked = logged.verified()
    assert code == 1 and checked["problems"][0]["offset"] == started, checked
    assert checked["problems"][0]["kind"] == "removed"

    changed = values[started].replace(b'"who":"root"', b'"who":"ana"')
    assert changed != values[started]
    rewrite(logged, [*values[:started], changed, *values[started + 1 :]])
    code, checked = logged.verified()
    assert code == 1 and (started, "changed") in [(p["offset"], p["kind"]) for p in checked["problems"]]
    code, checked = logged.verified("--trust", own)
    assert code == 1
    table = call_hub(logged.settings, "access", "audit", "verify")
    assert table.returncode == 1 and f"offset {started}" in table.stdout


def rewrite(logged: Logged, values: Sequence[bytes]) -> None:
    """Make the topic again with these values, as somebody with all rights in Kafka could."""
    cluster = logged.cluster
    cluster.delete_topic(TOPIC)
    until(lambda: TOPIC not in cluster.topics(), 30.0)
    make_topic(cluster, 1, 365)
    writer = cluster.writer()
    writer.append([NewRecord(TOPIC, b"x", value, partition=0) for value in values])
    writer.close()


def delete_to(logged: Logged, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": logged.settings.bootstrap})
    for deleted in admin.delete_records([KafkaPlace(TOPIC, 0, offset)]).values():
        deleted.result(patient(30.0))
