"""Channels against a real HTTP server and a real SMTP server; the outbox: retries, a dead channel, bounds."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alert_receivers import smtp, until, webhook
from certificates import certificate

from hub.alerts.config.alerts_yaml import Channel
from hub.alerts.delivery import notification_queues as outbox_module
from hub.alerts.delivery.channels import send
from hub.alerts.delivery.notification_queues import NotificationQueues
from hub.alerts.delivery.payloads import mail, object_path, slack_body, title, webhook_body
from hub.alerts.model.alert_state import Alert, GroupKey, Notification
from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import Verdict
from hub.errors import CallerError, ConfigError, HubError, PeerError
from hub.runtime import Backoff

LINK = "https://hub.example.com"


def alert(name: str = "billing", *, firing: bool = True, summary: str = "") -> Alert:
    object = labels_of({"consumer": name, "topic": "shop.orders"})
    labels = labels_of({**dict(object), "alertname": "lag", "severity": "page", "owner": "shop-team"})
    return Alert(
        *(f"k-{name}", "lag", object, labels, summary or f"{name} is late", "STOPPED: nobody reads", 41.0),
        phase="firing" if firing else "resolved",
        since_ms=1_790_000_000_000,
        last=Verdict.BAD,
        last_ms=0,
        fired_at_ms=1_790_000_060_000,
        ended_at_ms=None if firing else 1_790_000_100_000,
        ended="" if firing else "well again",
        runbook="lag",
    )


def notification(channel: str = "ops", id: str = "n1", *alerts: Alert) -> Notification:
    group = GroupKey("r1", labels_of({"owner": "shop-team"}))
    return Notification(id, channel, group, alerts or (alert(),), 1_790_000_100_000)


def channel(**said: Any) -> Channel:
    return Channel.model_validate(said)


def test_the_webhooks_body_is_alertmanagers_version_4() -> None:
    body = webhook_body(notification("ops", "n1", alert("a"), alert("b", firing=False)), LINK)
    assert {
        k: body[k] for k in ("version", "status", "receiver", "groupLabels", "truncatedAlerts", "externalURL")
    } == {
        "version": "4",
        "status": "firing",
        "receiver": "ops",
        "groupLabels": {"owner": "shop-team"},
        "truncatedAlerts": 0,
        "externalURL": LINK,
    }
    assert body["commonLabels"] == {
        "alertname": "lag",
        "severity": "page",
        "owner": "shop-team",
        "topic": "shop.orders",
    }
    first, second = body["alerts"]
    assert (first["status"], first["startsAt"], first["endsAt"]) == (
        "firing",
        "2026-09-21T14:14:20.000Z",
        "0001-01-01T00:00:00Z",
    )
    assert (second["status"], second["endsAt"]) == ("resolved", "2026-09-21T14:15:00.000Z")
    assert first["annotations"]["runbook_url"] == f"{LINK}/alerts/runbooks/lag"
    assert first["generatorURL"] == f"{LINK}/lag?name=a&prefix=shop.orders"
    assert isinstance(body["groupKey"], str)
    assert webhook_body(notification("ops", "n", alert("a", firing=False)), "")["status"] == "resolved"


def test_links_lead_to_what_it_is_about() -> None:
    assert object_path(labels_of({"view": "customer_360"})) == "/views/customer_360"
    assert object_path(labels_of({"topic": "shop.orders"})) == "/topics/shop.orders"
    assert object_path(labels_of({"alertname": "canary", "way": "ack"})) == "/cluster"
    assert object_path(labels_of({"alertname": "unpaid"})) == "/alerts?name=unpaid"


def test_slack_escapes_and_a_mail_has_one_line_of_subject() -> None:
    hostile = alert("x", summary="<!channel> & <https://evil|click>")
    body = slack_body(notification("shop", "n", hostile), LINK)
    text = body["attachments"][0]["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://evil|click&gt;" in text
    assert "<!channel>" not in text
    many = slack_body(notification("shop", "n", *(alert(str(n)) for n in range(50))), LINK)
    assert len(many["attachments"]) == 20 and "and 30 more" in many["text"]
    group = GroupKey("r", (("owner", "a\r\nBcc: everybody@example.com"),))
    sly = Notification("n", "mail", group, (alert(),), 0)
    made = mail(sly, LINK, "hub@example.com", ["a@example.com"])
    assert made["Bcc"] is None and "\n" not in made["Subject"]
    assert title(sly).startswith("FIRING 1: lag")


def test_a_webhook_is_sent_with_its_secret_and_its_id() -> None:
    with webhook() as hook:
        made = channel(webhook={"url": "${HOOK}", "bearer": "${TOKEN}"})
        send("ops", made, notification(), LINK, {"HOOK": hook.url, "TOKEN": "s3cret"})
        assert hook.bodies[0]["alerts"][0]["fingerprint"] == "k-billing"
        assert hook.headers[0]["Authorization"] == "Bearer s3cret"
        assert hook.headers[0]["Hub-Notification-Id"] == "n1"
        send("chat", channel(slack={"url": "${HOOK}"}), notification(), LINK, {"HOOK": hook.url})
        assert hook.bodies[1]["text"].startswith("FIRING 1")
        with pytest.raises(ConfigError, match="TOKEN is not set"):
            send("ops", made, notification(), LINK, {"HOOK": hook.url})


@pytest.mark.parametrize(
    ("status", "kind"), [(500, PeerError), (429, PeerError), (404, CallerError), (302, CallerError)]
)
def test_what_a_webhook_does_not_take(status: int, kind: type[HubError]) -> None:
    with webhook() as hook:
        hook.answers = [status]
        with pytest.raises(kind, match=f"HTTP {status}") as found:
            send("ops", channel(webhook={"url": hook.url}), notification(), LINK, {})
        assert found.value.retriable == (kind is PeerError)


def test_a_webhook_that_does_not_answer_is_not_waited_for_longer_than_its_time() -> None:
    with webhook() as hook:
        hook.delay_s = 30.0
        made = channel(webhook={"url": "${SECRET_URL}"}, timeout="200ms")
        with pytest.raises(PeerError) as found:
            send("ops", made, notification(), LINK, {"SECRET_URL": f"{hook.url}?key=s3cret"})
        assert "s3cret" not in str(found.value)


def test_mail_over_smtp() -> None:
    with smtp() as box:
        made = channel(
            email={
                "server": box.server,
                "from": "hub@example.com",
                "to": ["a@x.org", "b@x.org"],
                "tls": "off",
            }
        )
        send("mail", made, notification("mail", "n1", alert("a"), alert("b", firing=False)), LINK, {})
        (got,) = box.mails
        assert got["Subject"] == "[hub] FIRING 1, resolved 1: lag (shop-team)"
        assert got["Message-ID"] == "<n1@example.com>"
        assert box.recipients == [["a@x.org", "b@x.org"]]
        text = got.get_content()
        assert "FIRING (page)  lag: a is late" in text and f"{LINK}/alerts/runbooks/lag" in text
        box.refuse = {"a@": "550 no such user", "b@": "550 no such user"}
        with pytest.raises(CallerError, match="550"):
            send("mail", made, notification("mail"), LINK, {})
        box.refuse = {"a@": "451 later", "b@": "451 later"}
        with pytest.raises(PeerError, match="451"):
            send("mail", made, notification("mail"), LINK, {})
        with_tls = channel(email={"server": box.server, "from": "hub@example.com", "to": ["a@x.org"]})
        with pytest.raises(CallerError, match="SMTPNotSupportedError"):
            send("mail", with_tls, notification("mail"), LINK, {})
    with pytest.raises(PeerError, match="does not take mail now"):
        send("mail", made, notification("mail"), LINK, {})


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here makes a certificate")
def test_mail_with_starttls_and_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = certificate(tmp_path, "server", "localhost")
    with smtp(pem) as box:
        said = {"server": box.server, "from": "hub@example.com", "to": ["a@x.org"]}
        made = channel(email={**said, "user": "hub", "password": "${PW}"})
        with pytest.raises(PeerError, match="SSLCertVerificationError"):
            send("mail", made, notification("mail"), LINK, {"PW": "s3cret"})
        assert box.logins == [] and box.mails == []
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        send("mail", made, notification("mail"), LINK, {"PW": "s3cret"})
        assert (box.logins, len(box.mails)) == (["|hub|s3cret"], 1)
        with pytest.raises(CallerError, match="SMTPAuthenticationError") as found:
            send("mail", made, notification("mail"), LINK, {"PW": "wr0ng"})
        assert "wr0ng" not in str(found.value)


# ---- the outbox

SLACK = {"slack": {"url": "${X}"}}


class Told:
    """A sender with scripted results that records its calls."""

    def __init__(self, act: Callable[[str, Notification], None] = lambda _name, _n: None) -> None:
        self.sent: list[str] = []
        self.done: list[str] = []
        self.act = act
        self.outbox = NotificationQueues(
            self.send, lambda n: self.done.append(n.id), backoff=lambda: Backoff(0.001, 0.002)
        )
        self.outbox.use({"good": channel(**SLACK), "bad": channel(**SLACK)})

    def send(self, name: str, _channel: Channel, notification: Notification) -> None:
        self.act(name, notification)
        self.sent.append(notification.id)


def test_it_is_tried_again_and_then_given_up_and_counted() -> None:
    failures = [2]

    def act(name: str, _n: Notification) -> None:
        if name == "bad" or failures[0]:
            failures[0] -= name == "good"
            raise PeerError(f"{name} is away")

    told = Told(act)
    told.outbox.put(notification("good", "g"))
    told.outbox.put(notification("bad", "b"))
    until(lambda: len(told.done) == 2, 60)
    good, bad = (next(s for s in told.outbox.statuses() if s.name == n) for n in ("good", "bad"))
    assert (good.sent, good.failed, good.given_up, good.error) == (1, 2, 0, None)
    assert (bad.sent, bad.failed, bad.given_up, bad.error) == (0, outbox_module.TRIES, 1, "bad is away")
    told.outbox.stop()


def test_what_is_refused_for_good_is_not_tried_again_and_a_bug_ends_no_thread() -> None:
    tries: list[str] = []

    def act(_name: str, n: Notification) -> None:
        tries.append(n.id)
        if n.id == "refused":
            raise CallerError("HTTP 404")
        if n.id == "bug":
            raise RuntimeError("oh")

    told = Told(act)
    for id in ("refused", "bug", "fine"):
        told.outbox.put(notification("good", id))
    until(lambda: told.done == ["refused", "bug", "fine"], 60, lambda: str(told.done))
    assert tries == ["refused", "bug", "fine"]
    told.outbox.stop()


def test_a_dead_channel_delays_no_other_and_its_queue_is_bounded() -> None:
    hang = threading.Event()

    def act(name: str, _n: Notification) -> None:
        if name == "bad":
            hang.wait(30)

    told = Told(act)
    most = outbox_module.MOST_WAITING
    for number in range(most + 20):
        told.outbox.put(notification("bad", f"b{number}"))
        told.outbox.put(notification("good", f"g{number}"))
        until(lambda number=number: f"g{number}" in told.sent, 60)  # type: ignore[misc]
    (bad,) = (each for each in told.outbox.statuses() if each.name == "bad")
    assert bad.waiting == most and bad.given_up == 20
    assert {f"b{n}" for n in range(20)} <= set(told.done), "the oldest are given up"
    hang.set()
    told.outbox.stop()


def test_a_channel_that_is_gone_gives_up_what_waits() -> None:
    hang = threading.Event()
    told = Told(lambda _name, _n: hang.wait(30) and None)
    for number in range(3):
        told.outbox.put(notification("bad", f"b{number}"))
    told.outbox.use({"good": channel(**SLACK)})
    assert set(told.done) == {"b0", "b1", "b2"}
    told.outbox.put(notification("bad", "late"))
    assert "late" in told.done
    hang.set()
    told.outbox.stop()
