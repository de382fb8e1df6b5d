"""Alerts on real Kafka: a lagging group is notified once, through restarts; silenced; and its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from alert_receivers import Webhook, until, webhook
from confluent_kafka import Consumer, Producer
from kafka_nodes import running_node
from patience import patient
from postgres import Postgres
from processes import Server, own_settings
from typer.testing import CliRunner

from hub.alerts.alert_log import read
from hub.alerts.alert_manager import AlertManager
from hub.alerts.config.live_config import LiveAlerts
from hub.alerts.delivery.notification_queues import NotificationQueues
from hub.alerts.model.records import ALERTS_TOPIC
from hub.cli import app
from hub.cli.context import environment_of
from hub.embedded import KafkaNode
from hub.kafka import KafkaCluster
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

TOPIC = "shop.orders"
TREE = """
topics:
  shop:
    owner: shop-team
    slo: {lag: 1s}
    topics:
      orders: {}
      payments: {slo: {lag: 1d}}
"""


class Hub(Server):
    """A server process on a Kafka of its own."""

    def alerts(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx2.get(f"{self.url}/api/alerts", timeout=30).json()
        return found

    def cli(self, *arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments), env=environment_of(self.settings))
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output


@pytest.fixture(scope="module")
def hook() -> Iterator[Webhook]:
    with webhook() as running:
        yield running


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, hook: Webhook) -> Iterator[Hub]:
    settings = own_settings(tmp_path_factory.mktemp("alerts"), lag_sample_s=0.5, alert_every_s=0.3)
    settings.project.mkdir()
    settings.logs.mkdir()
    (settings.project / "topics.yaml").write_text(TREE)
    (settings.project / "alerts.yaml").write_text(
        f"""
group: {{wait: 1s, repeat: 1d}}
rules: {{lag: {{for: 1s, keep: 1s, severity: page}}}}
channels:
  ops: {{webhook: {{url: "{hook.url}", bearer: "${{HOOK_TOKEN}}"}}}}
  dead: {{webhook: {{url: "http://127.0.0.1:1/nobody"}}}}
routes:
  - {{match: {{topic: "shop.**"}}, to: [dead, ops]}}
  - {{match: {{owner: billing}}, to: [ops], by: [alertname]}}
"""
    )
    running = Hub(settings, environment={"HOOK_TOKEN": "s3cret"})
    with running_node(KafkaNode(settings)):
        cluster = KafkaCluster(settings.bootstrap, 15.0)
        for topic in (TOPIC, "shop.payments"):
            cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
        try:
            running.start()
            yield running
        finally:
            running.stop()


def produce(hub: Hub, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": hub.settings.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(30) == 0


def read_and_commit(hub: Hub, group: str, count: int, *topics: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": hub.settings.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(list(topics))
    deadline = time.monotonic() + patient(60)
    try:
        while count:
            assert time.monotonic() < deadline
            for message in consumer.consume(count, 0.2):
                consumer.commit(message=message, asynchronous=False)
                count -= 1
    finally:
        consumer.close()


def test_a_group_falls_behind_and_people_are_told_once(hub: Hub, hook: Webhook) -> None:
    produce(hub, TOPIC, 1)
    produce(hub, "shop.payments", 1)
    read_and_commit(hub, "billing", 2, TOPIC, "shop.payments")
    until(lambda: any(r["good"] for r in hub.alerts()["rules"]), 60, lambda: str(hub.alerts()))
    assert hub.alerts()["alerts"] == []
    produce(hub, TOPIC, 5)
    produce(hub, "shop.payments", 5)

    (told,) = hook.wait(1)[:1]
    assert (told["version"], told["status"], told["receiver"]) == ("4", "firing", "ops")
    assert told["groupLabels"] == {"owner": "shop-team", "node": "shop"}
    (alert,) = told["alerts"]
    assert alert["labels"] == {
        "alertname": "lag",
        "consumer": "billing",
        "kind": "group",
        "node": "shop",
        "owner": "shop-team",
        "severity": "page",
        "topic": TOPIC,
    }
    assert "behind on shop.orders" in alert["annotations"]["summary"]
    assert hook.headers[0]["Authorization"] == "Bearer s3cret"

    # The dead channel is tried as well, and hides nothing.
    until(lambda: any(c["failed"] for c in hub.alerts()["channels"]), 60)
    until(lambda: any(c["sent"] for c in hub.alerts()["channels"]), 60)  # counted once it is answered
    metrics = httpx2.get(f"{hub.url}/metrics", timeout=30).text
    assert 'hub_alerts_firing{alertname="lag",severity="page"} 1.0' in metrics
    assert "hub_alerts_watched 1.0" in metrics
    assert 'hub_alert_sent_total{channel="ops"} 1.0' in metrics
    assert '"object": "billing on shop.orders"' in hub.cli("alert", "ls", "-o", "json")
    assert "billing on shop.orders" in hub.cli("alert", "ls")
    assert "s3cret" not in str(hub.alerts())

    # Killed and started again: the alert is there, and nobody is notified a second time.
    hub.kill()
    hub.start()
    until(lambda: any(r["bad"] for r in hub.alerts()["rules"]), 60, lambda: str(hub.alerts()))
    (row,) = hub.alerts()["alerts"]
    assert row["state"] == "firing" and row["key"] == alert["fingerprint"]
    time.sleep(3)
    assert len(hook.bodies) == 1

    # A test goes out at once, whatever fires.
    hub.cli("alert", "test", "ops")
    assert hook.wait(2)[1]["alerts"][0]["labels"]["alertname"] == "test"

    # A second group is behind and silenced: shown and counted, but never sent, also after a restart.
    silence = hub.cli("alert", "silence", "consumer=audit", "--for", "1h", "--reason", "moving", "-o", "json")
    assert '"holds": true' in silence
    read_and_commit(hub, "audit", 1, TOPIC)
    until(lambda: len(hub.alerts()["alerts"]) == 2, 60, lambda: str(hub.alerts()["alerts"]))

    def firing() -> dict[str, Any]:
        return {r["object"]: r["silenced_by"] for r in hub.alerts()["alerts"] if r["state"] == "firing"}

    until(lambda: len(firing()) == 2, 60)
    id = firing()["audit on shop.orders"]
    assert id is not None and firing()["billing on shop.orders"] is None
    assert hub.alerts()["firing"] == 1
    hub.kill()
    hub.start()
    until(lambda: len(firing()) == 2, 60)
    assert firing()["audit on shop.orders"] == id
    time.sleep(2)
    assert len(hook.bodies) == 2
    hub.cli("alert", "unsilence", id)
    third = hook.wait(3)[2]
    assert {a["labels"]["consumer"] for a in third["alerts"]} == {"audit", "billing"}

    # Caught up: the end is sent to those who received the beginning.
    read_and_commit(hub, "billing", 10, TOPIC, "shop.payments")
    fourth = hook.wait(4)[3]
    assert {(a["labels"]["consumer"], a["status"]) for a in fourth["alerts"]} == {
        ("audit", "firing"),
        ("billing", "resolved"),
    }
    read_and_commit(hub, "audit", 5, TOPIC)
    fifth = hook.wait(5)[4]
    assert (fifth["status"], [a["status"] for a in fifth["alerts"]]) == ("resolved", ["resolved"])
    until(lambda: len(hub.alerts()["past"]) == 2 and hub.alerts()["firing"] == 0, 60)

    # What is kept is what is known; that the last one was sent is written after it was.
    cluster = KafkaCluster(hub.settings.bootstrap, 15.0)

    def settled() -> bool:
        kept = read(cluster)
        return not kept.groups and all(each.channel == "dead" for each in kept.unsent.values())

    until(settled, 60, lambda: str(read(cluster)))
    kept = read(cluster)
    assert not kept.alerts and len(kept.past) == 2
    config = cluster.topic_config([ALERTS_TOPIC])[ALERTS_TOPIC]
    assert config["cleanup.policy"] == "compact"


def test_a_silence_that_makes_no_sense_is_refused(hub: Hub) -> None:
    def refused(body: dict[str, Any]) -> str:
        answer = httpx2.post(f"{hub.url}/api/alerts/silences", json=body, timeout=30)
        assert answer.status_code == 400, answer.text
        return str(answer.json()["message"])

    fine: dict[str, Any] = {"matchers": {"topic": "shop.**"}, "reason": "why", "for": "1h"}
    assert "is not the end" in refused({**fine, "for": "soon"})
    assert "needs its end" in refused({**fine, "until": "2030-01-01T00:00:00Z"})
    assert "in the future" in refused({**fine, "for": None, "until": "2020-01-01T00:00:00Z"})
    assert "reason" in refused({**fine, "reason": "   "})
    answer = httpx2.delete(f"{hub.url}/api/alerts/silences/nope", timeout=30)
    assert answer.status_code == 404


def test_a_form_of_another_site_is_refused(hub: Hub) -> None:
    body = "matchers=topic%3Dshop.**&reason=x&for=1h"
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {}):
        answer = httpx2.post(
            f"{hub.url}/alerts/silences", content=body, headers={**kind, **headers}, timeout=30
        )
        # The guard refuses a form of another site; the form itself refuses one without an origin.
        assert answer.status_code == (403 if headers else 400)
    before = len(hub.alerts()["silences"])
    answer = httpx2.post(
        f"{hub.url}/alerts/silences", content=body, headers={**kind, "Origin": hub.url}, timeout=30
    )
    assert answer.status_code == 303
    assert len(hub.alerts()["silences"]) == before + 1


OWING = """
alert: owing
query: SELECT key, owes FROM debtors WHERE owes > 100
for: 0s
every: 1s
severity: info
by: [key]
owner: billing
summary: "{key} owes {owes}"
"""


def test_a_query_on_a_view_is_an_alert(hub: Hub, hook: Webhook) -> None:
    told = len(hook.bodies)
    store = Store(hub.settings.store)
    fields = [{"name": "owes", "type": ["null", "long"], "default": None}]
    store.ensure_view("debtors", {"type": "record", "name": "debtors", "fields": fields}, [], "topic-1")

    def owe(version: int, **amounts: int) -> None:
        rows = [RowVersion(key, version, 0, version, {"owes": owes}) for key, owes in amounts.items()]
        reached = Positions.of([("views.debtors", 0, version)])
        store.apply([ViewBatch("debtors", rows, reached, Positions.of([("shop.debts", 0, version)]))], {})

    owe(1, ada=5, bob=700, eve=900)
    file = hub.settings.project / "alerts" / "owing.yaml"
    file.parent.mkdir()
    file.write_text(OWING.replace("{owes}", "{ows}"))

    def rule() -> dict[str, Any]:
        return next((r for r in hub.alerts()["rules"] if r["alert"] == "owing"), {})

    until(lambda: 'did you mean "owes"?' in (rule().get("error") or ""), 60, lambda: str(rule()))
    file.write_text(OWING)
    first = hook.wait(told + 1)[told]
    assert (first["status"], first["groupLabels"]) == ("firing", {"alertname": "owing"})
    assert {a["annotations"]["summary"] for a in first["alerts"]} == {"bob owes 700", "eve owes 900"}
    owe(2, bob=0)
    second = hook.wait(told + 2)[told + 1]
    assert {(a["labels"]["key"], a["status"]) for a in second["alerts"]} == {
        ("bob", "resolved"),
        ("eve", "firing"),
    }
    file.unlink()
    third = hook.wait(told + 3)[told + 2]
    assert third["alerts"][0]["annotations"]["ended"] == "the rule no longer exists"
    store.close()


BAD_CHANNEL = """
group: {{wait: 0s, repeat: 1d}}
rules: {{alerts-file: {{for: 0s, keep: 0s}}}}
channels:
  ops: {{webhook: {{url: "{url}"}}}}
  shop: {shop}
routes:
  - {{match: {{owner: billing}}, to: [shop]}}
  - {{to: [ops]}}
"""


def test_a_bad_channel_is_told_and_stops_no_other(hub: Hub, hook: Webhook) -> None:
    before, told = (hub.settings.project / "alerts.yaml").read_text(), len(hook.bodies)
    file = hub.settings.project / "alerts.yaml"
    query = hub.settings.project / "alerts" / "nobody.yaml"
    query.parent.mkdir(exist_ok=True)
    hub.kill()  # a server that starts with the bad file has nothing that held before
    plain = "https://hooks.slack.com/services/T/B/unspoken"
    file.write_text(BAD_CHANNEL.format(url=hook.url, shop=f'{{slack: {{url: "{plain}"}}}}'))
    query.write_text("alert: nobody\nquery: SELECT 1 AS one\nfor: 0s\nevery: 1s\nowner: billing\n")
    hub.start()
    try:
        # Alerts left over from the killed server may come first.
        def of_the_file() -> list[dict[str, Any]]:
            every = [each for body in hook.bodies[told:] for each in body["alerts"]]
            return [each for each in every if each["labels"]["alertname"] == "alerts-file"]

        until(lambda: bool(of_the_file()), 60, lambda: str(hook.bodies[told:]))
        alert = of_the_file()[0]
        assert alert["labels"]["part"] == "channels.shop"
        assert f"{file}:6:23" in alert["annotations"]["summary"]
        until(lambda: any(r["alert"] == "nobody" for r in hub.alerts()["alerts"]), 60)
        until(lambda: "reaches nobody" in hub.cli("alert", "ls"), 60, lambda: str(hub.alerts()))
        body = hub.alerts()
        shop = next(each for each in body["channels"] if each["name"] == "shop")
        assert (shop["kind"], shop["waiting"] > 0) == ("unusable", True) and "${NAME}" in shop["error"]
        assert "unspoken" not in str(body) and "route owner=billing reaches nobody" in str(body["troubles"])
        tried = httpx2.post(f"{hub.url}/api/alerts/channels/shop/test", timeout=30)
        assert tried.status_code == 400 and f"{file}:6:23" in tried.text
        doctor = CliRunner().invoke(app, ["doctor"], env=environment_of(hub.settings))
        assert doctor.exit_code == 1 and "reaches nobody" in " ".join(doctor.output.split())
        assert f"{file}:6:23" in (hub.settings.logs / "server.log").read_text()
        page = httpx2.get(f"{hub.url}/alerts", headers={"Accept": "text/html"}, timeout=30).text
        assert "reaches nobody" in page and "unspoken" not in page

        # The channel is right: what waited for it is sent.
        file.write_text(BAD_CHANNEL.format(url=hook.url, shop=f'{{webhook: {{url: "{hook.url}"}}}}'))
        until(lambda: "nobody" in {b["alerts"][0]["labels"]["alertname"] for b in hook.bodies[told:]}, 60)
        until(lambda: hub.alerts()["troubles"] == [], 60, lambda: str(hub.alerts()["troubles"]))
    finally:
        query.unlink()
        file.write_text(before)


def test_what_is_pending_is_not_pending_anew_after_a_kill(hub: Hub) -> None:
    store = Store(hub.settings.store)
    fields = [{"name": "owes", "type": ["null", "long"], "default": None}]
    store.ensure_view("late", {"type": "record", "name": "late", "fields": fields}, [], "topic-1")
    reached = Positions.of([("views.late", 0, 1)])
    covered = Positions.of([("shop.debts", 0, 1)])
    store.apply([ViewBatch("late", [RowVersion("ada", 1, 0, 1, {"owes": 900})], reached, covered)], {})
    file = hub.settings.project / "alerts" / "slowly.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        OWING.replace("alert: owing", "alert: slowly").replace("debtors", "late").replace("0s", "1h")
    )

    def pending() -> dict[str, Any]:
        rows = hub.alerts()["alerts"]
        return next((row for row in rows if row["alert"] == "slowly" and not row["unknown"]), {})

    try:
        until(lambda: pending() != {}, 60, lambda: str(hub.alerts()))
        before = pending()
        assert before["state"] == "pending"
        hub.kill()
        hub.start()
        until(lambda: pending() != {}, 60, lambda: str(hub.alerts()))
        after = pending()
        assert (after["state"], after["since_ms"], after["key"]) == (
            "pending",
            before["since_ms"],
            before["key"],
        )
    finally:
        file.unlink()
        store.close()
    until(lambda: pending() == {}, 60)
    until(lambda: not read(KafkaCluster(hub.settings.bootstrap, 15.0)).pending, 30)


def test_the_last_server_that_started_watches(hub: Hub, tmp_path: Path) -> None:
    other = AlertManager(
        KafkaCluster(hub.settings.bootstrap, 15.0),
        LiveAlerts(tmp_path),
        NotificationQueues(lambda _name, _channel, _notification: None),
    )
    other.step()
    try:
        assert other.snapshot().error is None
        answer = httpx2.post(
            f"{hub.url}/api/alerts/silences",
            json={"matchers": {"topic": "x"}, "reason": "why", "for": "1h"},
            timeout=60,
        )
        assert answer.status_code == 409, answer.text
        assert "another server" in hub.alerts()["error"]
        assert hub.alerts()["firing"] is None
    finally:
        other.close()


def test_a_store_that_is_away_is_told_until_it_is_back(hub: Hub, postgres: Postgres, tmp_path: Path) -> None:
    away = Hub(
        own_settings(
            tmp_path / "home", store_url=postgres.database("away"), lag_sample_s=0.5, alert_every_s=0.3
        ).model_copy(update={"bootstrap": hub.settings.bootstrap})
    )

    away.settings.project.mkdir(parents=True)
    (away.settings.project / "alerts.yaml").write_text("rules: {store-away: {for: 1s, keep: 1s}}\n")

    def told() -> list[str]:
        return [row["state"] for row in away.alerts()["alerts"] if row["alert"] == "store-away"]

    def up() -> str:
        series = httpx2.get(f"{away.url}/metrics", timeout=30).text.splitlines()
        return next(line for line in series if line.startswith("hub_store_up "))

    away.start()
    try:
        until(lambda: up() == "hub_store_up 1.0", 60, up)
        assert told() == []
        postgres.kill()
        until(lambda: told() == ["firing"], 60, lambda: str(away.alerts()))
        assert up() == "hub_store_up 0.0"
        postgres.start()
        until(lambda: told() == [], 60, lambda: str(away.alerts()))
        assert up() == "hub_store_up 1.0"
    finally:
        away.stop()
