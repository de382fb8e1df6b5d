"""Alert manager over an in-memory log: storage, restarts, Kafka outages, two servers, silences, metrics."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hub.alerts.alert_log import CLAIM_HOLDS_MS, LOOK_EVERY_MS, WRITER, read
from hub.alerts.alert_manager import AlertManager
from hub.alerts.alert_series import families
from hub.alerts.alerts_json import body_of, matchers_from, matchers_text
from hub.alerts.config.alerts_yaml import Channel
from hub.alerts.config.live_config import LiveAlerts
from hub.alerts.config.read_entries import observe_files
from hub.alerts.delivery.notification_queues import NotificationQueues
from hub.alerts.model.alert_state import GroupKey, Notification
from hub.alerts.model.matching import labels_of, matchers_of
from hub.alerts.model.records import ALERTS_TOPIC, StoredAlerts
from hub.alerts.model.rules import AlertRule, Observation, RuleChanges, RuleObservations, Verdict
from hub.alerts.snapshot import AlertSnapshot
from hub.errors import CallerError, ConfigError, Conflict, HubFault, NotFound, PeerError
from hub.log import MemoryCluster, MemoryReader, MemoryWriter
from hub.record import NewRecord, Record

RULE = AlertRule("lag", "slo", "late", "page", for_ms=0, keep_ms=0, runbook="lag")
CONFIG = 'group: {wait: 0s}\nchannels:\n  ops: {slack: {url: "${X}"}}\n'


class Cluster(MemoryCluster):
    """In-memory cluster that can be disconnected."""

    cut = False
    wrong: Exception | None = None

    def topics(self) -> Any:
        self.check()
        return super().topics()

    def writer(self, name: str | None = None) -> MemoryWriter:
        self.check()
        made = super().writer(name)
        cluster = self

        class Checked(MemoryWriter):
            def append(self, records: Sequence[NewRecord]) -> Any:
                cluster.check()
                return super().append(records)

        return Checked(made.cluster, made.name, made.epoch)

    def check(self) -> None:
        if self.cut:
            raise self.wrong or PeerError("Kafka is away")


class Box(NotificationQueues):
    """Queue double that records notifications; ``deliver`` reports all of them as sent."""

    def __init__(self) -> None:
        super().__init__(self._nothing)
        self.put_in: list[Notification] = []

    @staticmethod
    def _nothing(_name: str, _channel: Channel, _notification: Notification) -> None: ...

    def put(self, notification: Notification) -> None:
        self.put_in.append(notification)


@dataclass
class World:
    project: Path
    cluster: Cluster = field(default_factory=Cluster)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    now: int = 1_000_000
    fails: Exception | None = None

    def desk(self) -> tuple[AlertManager, Box]:
        box = Box()
        desk = AlertManager(
            self.cluster, LiveAlerts(self.project), box, [self.source], now_ms=lambda: self.now
        )
        return desk, box

    def source(self, _changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        if self.fails is not None:
            raise self.fails
        found = [
            Observation(labels_of({"consumer": name, "topic": "shop.x"}), verdict, f"{name} is late")
            for name, verdict in self.verdicts.items()
        ]
        return [RuleObservations(RULE, tuple(found))]


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "alerts.yaml").write_text(CONFIG)
    return World(tmp_path)


def step(world: World, desk: AlertManager, seconds: float = 1) -> AlertSnapshot:
    world.now += int(seconds * 1000)
    desk.step()
    return desk.snapshot()


def test_nothing_is_written_where_nothing_is_wrong(world: World) -> None:
    desk, _ = world.desk()
    known = step(world, desk)
    assert (known.error, known.firing) == (None, 0)
    assert world.cluster.topics() == {}


def test_a_restart_repeats_nothing_and_sends_what_was_not_sent(world: World) -> None:
    desk, box = world.desk()
    world.verdicts = {"a": Verdict.BAD}
    assert desk.snapshot().firing is None
    step(world, desk)
    (one,) = box.put_in

    killed_before_it_was_sent, second_box = world.desk()
    step(world, killed_before_it_was_sent)
    assert [each.id for each in second_box.put_in] == [one.id]
    killed_before_it_was_sent.sent(one)

    third, third_box = world.desk()
    known = step(world, third)
    assert third_box.put_in == [] and known.firing == 1
    world.verdicts = {"a": Verdict.GOOD}
    step(world, third)  # the first observation since the restart adds no held time yet
    step(world, third)
    (over,) = third_box.put_in
    assert not over.firing
    third.sent(over)
    kept = read(world.cluster)
    assert not kept.alerts and not kept.unsent and not kept.groups and len(kept.past) == 1


def test_a_pending_alert_is_not_pending_anew_because_the_server_was_started_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "RULE", replace(RULE, for_ms=60_000))
    world.verdicts = {"a": Verdict.BAD}
    first, box = world.desk()
    for _ in range(5):
        step(world, first, 10)
    first.close()  # 40 s are held; without this, only 30 s would be stored
    second, second_box = world.desk()
    world.verdicts = {}
    step(world, second, 10)
    world.verdicts = {"a": Verdict.BAD}
    for _ in range(2):
        known = step(world, second, 10)
        assert [each.phase for each in known.state.alerts.values()] == ["pending"]
    killed, killed_box = world.desk()  # 50 s are held; at least 45 s are stored
    step(world, killed, 1)
    for _ in range(2):
        step(world, killed, 10)
    assert [each.firing for each in killed_box.put_in] == [True]
    assert box.put_in == second_box.put_in == []
    again, _ = world.desk()
    assert step(world, again).firing == 1


def test_while_kafka_takes_nothing_people_are_told_and_it_is_written_later(world: World) -> None:
    desk, box = world.desk()
    step(world, desk)
    world.cluster.cut = True
    world.verdicts = {"a": Verdict.BAD}
    known = step(world, desk)
    assert len(box.put_in) == 1
    assert any("Kafka is away" in each for each in known.problems)
    desk.sent(box.put_in[0])
    world.cluster.cut = False
    known = step(world, desk)
    assert known.problems == () and not desk.log.unsaved
    again, again_box = world.desk()
    assert step(world, again).firing == 1
    assert again_box.put_in == []


def test_nothing_is_told_before_it_is_known_what_was_told(world: World) -> None:
    world.verdicts = {"a": Verdict.BAD}
    desk, _ = world.desk()
    step(world, desk)
    world.cluster.cut = True
    started_without_kafka, box = world.desk()
    known = step(world, started_without_kafka)
    assert known.error is not None and "cannot be read" in known.error and known.firing is None
    with pytest.raises(PeerError):
        started_without_kafka.silence(matchers_of({"topic": "x"}), "why", "me", world.now + 1_000)
    world.cluster.cut = False
    assert step(world, started_without_kafka).firing == 1
    assert len(box.put_in) == 1  # only unsent ones


def test_the_one_that_started_last_watches(world: World) -> None:
    world.verdicts = {"a": Verdict.BAD}
    first, _ = world.desk()
    step(world, first)
    second, box = world.desk()
    step(world, second)
    world.verdicts = {"a": Verdict.BAD, "b": Verdict.BAD}
    known = step(world, first)
    assert known.error is not None and "another server" in known.error
    with pytest.raises(Conflict):
        first.silence(matchers_of({"topic": "x"}), "why", "me", world.now + 1_000)
    step(world, second)
    assert {dict(a.object)["consumer"] for n in box.put_in for a in n.alerts} == {"a", "b"}


def test_who_had_nothing_to_write_gives_way_to_one_that_started_later(world: World) -> None:
    first, _ = world.desk()
    assert step(world, first).error is None
    world.verdicts = {"a": Verdict.BAD}
    second, box = world.desk()
    step(world, second)
    assert "another server" in (step(world, first).error or "")
    world.verdicts = {"a": Verdict.BAD, "b": Verdict.BAD}
    assert step(world, second).error is None
    assert {dict(a.object)["consumer"] for n in box.put_in for a in n.alerts} == {"a", "b"}


def test_a_fence_that_nobody_set_up_ends_no_watch(world: World) -> None:
    """Kafka does this to a writer whose transaction timed out."""
    world.verdicts = {"a": Verdict.BAD}
    desk, box = world.desk()
    step(world, desk)
    world.cluster.epochs[WRITER] += 1
    world.verdicts = {"a": Verdict.BAD, "b": Verdict.BAD}
    assert step(world, desk).firing is None
    assert step(world, desk, LOOK_EVERY_MS / 1000).firing == 2
    first, again, both = box.put_in
    assert again.id == first.id  # it was not sent
    assert [dict(each.object)["consumer"] for each in both.alerts] == ["a", "b"]


def test_who_was_fenced_watches_again_when_the_other_is_gone(world: World) -> None:
    first, _ = world.desk()
    world.verdicts = {"a": Verdict.BAD}
    step(world, first)
    second, _ = world.desk()
    step(world, second)
    # A server without other records to write is fenced at its next claim.
    assert step(world, first, 61).firing is None
    for _ in range(2 * CLAIM_HOLDS_MS // LOOK_EVERY_MS):  # while the other server is active
        assert step(world, second, LOOK_EVERY_MS / 2000).error is None
        assert step(world, first, LOOK_EVERY_MS / 2000).firing is None
    for _ in range(CLAIM_HOLDS_MS // LOOK_EVERY_MS - 2):
        assert step(world, first, LOOK_EVERY_MS / 1000).firing is None
    for _ in range(3):
        known = step(world, first, LOOK_EVERY_MS / 1000)
    assert known.error is None
    world.verdicts = {"a": Verdict.BAD, "b": Verdict.BAD}
    assert step(world, first).firing == 2
    # The other server was not gone permanently.
    assert "another server" in (step(world, second).error or "")


def test_a_source_that_fails_ends_nothing(world: World) -> None:
    world.verdicts = {"a": Verdict.BAD}
    desk, box = world.desk()
    step(world, desk)
    for error in (PeerError("the ledger is away"), RuntimeError("a bug")):
        world.fails = error
        for _ in range(3):
            known = step(world, desk, 3_000)
        assert known.firing == 1 and len(known.problems) == 1
        assert [each.rule.name for each in known.rules] == ["lag"]
    assert all(each.firing for each in box.put_in)


def test_silences_of_people(world: World) -> None:
    desk, box = world.desk()
    step(world, desk)
    made = desk.silence(matchers_of({"topic": "shop.**"}), " deploy ", "ada", world.now + 60_000)
    world.verdicts = {"a": Verdict.BAD}
    known = step(world, desk)
    assert box.put_in == [] and known.firing == 0
    (row,) = body_of(known)["alerts"]
    assert (row["silenced_by"], row["state"], row["object"]) == (made.id, "firing", "a on shop.x")
    again, again_box = world.desk()
    step(world, again)
    assert again_box.put_in == [] and again.snapshot().state.silences[made.id].reason == "deploy"
    again.unsilence(made.id)
    step(world, again)
    assert len(again_box.put_in) == 1
    with pytest.raises(NotFound, match="nope"):
        again.unsilence("nope")
    for matchers, reason, ends in (
        ((), "x", 10),
        ({"a": "b"}, " ", 10),
        ({"a": "b"}, "x", -1),
        ({"a": "b"}, "x", 10**12),
    ):
        with pytest.raises(CallerError):
            again.silence(matchers_of(dict(matchers)), reason, "", world.now + ends)


def test_the_order_is_made_once_a_round_and_a_silence_changes_it_at_once(world: World) -> None:
    desk, _ = world.desk()
    world.verdicts = {"a": Verdict.BAD}
    known = step(world, desk)
    assert desk.snapshot().listing is known.listing
    made = desk.silence(matchers_of({"topic": "shop.**"}), "deploy", "ada", world.now + 2_000)
    assert desk.snapshot().listing.silenced == 1 and desk.firing() == 0
    world.now += 2_000
    assert desk.snapshot().state.silences[made.id] == made
    assert (desk.snapshot().listing.silenced, desk.snapshot().firing) == (0, 1)  # it expired


def test_what_people_write_as_matchers() -> None:
    found = matchers_from(["topic=shop.**", " severity = info|warning"])
    assert found == matchers_of({"topic": "shop.**", "severity": ["info", "warning"]})
    assert matchers_from(matchers_text(found).split(",")) == found
    for wrong in ("topic", "=x", "a b=c", "topic="):
        with pytest.raises(ValueError, match="LABEL=VALUE"):
            matchers_from([wrong])
    with pytest.raises(ValueError, match="twice"):
        matchers_from(["a=b", "a=c"])


def test_metrics_say_nothing_of_what_is_not_known(world: World) -> None:
    desk, _ = world.desk()

    def samples() -> dict[str, float]:
        return {
            f"{s.name}{sorted(s.labels.values())}": s.value
            for f in families(desk.snapshot())
            for s in f.samples
        }

    before = samples()
    assert before["hub_alerts_watched[]"] == 0
    assert not any(name.startswith("hub_alerts_firing") for name in before)
    world.verdicts = {"a": Verdict.BAD, "b": Verdict.UNKNOWN}
    step(world, desk)
    after = samples()
    assert after["hub_alerts_watched[]"] == 1
    assert after["hub_alerts_firing['lag', 'page']"] == 1
    assert after["hub_alert_objects['lag', 'unknown']"] == 1


def test_a_record_of_somebody_else_is_an_error_that_names_it() -> None:
    with pytest.raises(HubFault, match="partition 0, offset 7"):
        StoredAlerts().apply(Record(ALERTS_TOPIC, 0, 7, 0, b"firing|k", b"{}", ()))
    StoredAlerts().apply(Record(ALERTS_TOPIC, 0, 8, 0, b"of a newer hub|k", b"{}", ()))


def test_what_cannot_be_written_for_a_reason_of_our_own_is_told_all_the_same(world: World) -> None:
    desk, box = world.desk()
    step(world, desk)
    world.cluster.cut, world.cluster.wrong = True, RuntimeError("a bug of ours")
    world.verdicts = {"billing": Verdict.BAD}
    known = step(world, desk)
    assert known.firing == 1 and len(box.put_in) == 1
    assert any("a bug of ours" in each for each in known.problems)
    world.cluster.cut = False
    step(world, desk)
    assert len(box.put_in) == 1 and read(world.cluster).state.firing


def test_what_was_kept_is_read_for_as_long_as_it_comes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record every ten seconds; then none any more."""
    clock_s, most = 0.0, 1_000

    class Slow(MemoryReader):
        def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
            nonlocal clock_s, most
            clock_s, most = clock_s + 10.0, most - 1
            return super().poll(1, timeout_s) if most > 0 else ()

    desk, _ = world.desk()
    world.verdicts = {f"c{number}": Verdict.BAD for number in range(10)}
    step(world, desk)
    monkeypatch.setattr("time.monotonic", lambda: clock_s)
    monkeypatch.setattr(world.cluster, "reader", lambda: Slow(world.cluster))
    assert len(read(world.cluster).state.alerts) == 10 and clock_s > 60.0
    most = 5
    with pytest.raises(PeerError, match=f'"{ALERTS_TOPIC}" is not read to its end: nothing came for 60 s'):
        read(world.cluster)


def test_a_channel_goes_on_when_what_it_sent_cannot_be_noted() -> None:
    sent: list[str] = []
    noted: list[str] = []
    both = threading.Event()

    def note(notification: Notification) -> None:
        noted.append(notification.id)
        if len(noted) == 2:
            both.set()
        raise RuntimeError("a bug of ours")

    outbox = NotificationQueues(lambda _name, _channel, told: sent.append(told.id), note)
    outbox.use({"ops": Channel.model_validate({"slack": {"url": "${X}"}})})
    for number in ("1", "2"):
        outbox.put(Notification(number, "ops", GroupKey("r", ()), (), 0))
    assert both.wait(10.0) and sent == noted == ["1", "2"]
    outbox.stop()


BAD_CHANNEL = """group: {wait: 0s}
rules: {alerts-file: {for: 0s}}
channels:
  ops: {webhook: {url: "https://ops.example.com/hook"}}
  shop: {slack: {url: "https://hooks.slack.com/services/T/B/hidden"}}
routes:
  - {match: {topic: "shop.**"}, to: [shop]}
  - {to: [ops, shop]}
"""


def test_one_bad_channel_stops_no_other_and_its_rules_say_that_nobody_is_told(world: World) -> None:
    path = world.project / "alerts.yaml"
    path.write_text(BAD_CHANNEL)
    desk, box = world.desk()
    desk.sources.append(lambda changes, _now: [observe_files(desk.live.faults(), changes)])
    world.verdicts = {"a": Verdict.BAD}
    known = step(world, desk)
    assert list(desk.live.file.channels) == ["ops"]
    channels = {each.name: each for each in known.channels}
    assert channels["ops"].error is None and f"{path}:5:23" in (channels["shop"].error or "")
    troubles = " ".join(known.problems)
    assert f"{path}:5:23" in troubles and "${NAME}" in troubles and "hidden" not in troubles
    assert "route topic=shop.** reaches nobody: channel shop cannot be used" in known.problems
    body = body_of(known)
    assert {row["alert"]: row["nobody"] for row in body["alerts"]} == {"lag": True, "alerts-file": False}
    # The valid channel is notified of the file's error; the invalid one's notification waits.
    heard = {(each.channel, each.alerts[0].rule) for each in box.put_in}
    assert heard == {("shop", "lag"), ("ops", "alerts-file"), ("shop", "alerts-file")}
    with pytest.raises(ConfigError, match=f'"shop" cannot be used: {path}:5:23'):
        desk.test("shop")
    samples = {each.name: each.value for family in families(known) for each in family.samples}
    assert samples["hub_alert_file_errors"] == 1.0

    # The entry is fixed: its notifications are sent, and the error ends.
    path.write_text(BAD_CHANNEL.replace("https://hooks.slack.com/services/T/B/hidden", "${SHOP}"))
    step(world, desk)
    known = step(world, desk, 120)
    assert {each.name: each.error for each in known.channels} == {"ops": None, "shop": None}
    assert (known.problems, known.unheard) == ((), frozenset())

    # Invalid again at runtime: the channel's previous version applies.
    path.write_text(BAD_CHANNEL)
    known = step(world, desk)
    assert list(desk.live.file.channels) == ["shop", "ops"] and known.unheard == frozenset()
    assert "the previous content stays in force" in " ".join(known.problems)


def test_a_rule_whose_channels_all_cannot_be_used_says_so(world: World) -> None:
    text = BAD_CHANNEL.replace(
        "  - {to: [ops, shop]}", "  - {match: {severity: [page, warning]}, to: [shoop]}"
    )
    (world.project / "alerts.yaml").write_text(text)
    desk, _ = world.desk()
    known = step(world, desk)
    assert [each.nobody for each in known.rules] == [True]
    assert 'did you mean "shop"?' in " ".join(known.problems)
    assert {each.name: each.kind for each in known.channels} == {
        "ops": "webhook",
        "shop": "unusable",
        "shoop": "unusable",
    }


def test_a_wrong_rule_or_route_is_left_out_alone(world: World) -> None:
    text = BAD_CHANNEL.replace("rules: {", "rules: {lag: {fore: 1m}, topic-freshness: off, ")
    text = text.replace("  - {to: [ops", "  - {match: {Topic: x}, to: [ops]}\n  - {to: [ops")
    (world.project / "alerts.yaml").write_text(text)
    live = LiveAlerts(world.project)
    live.refresh()
    assert [part for _, part, _ in live.faults()] == ["rules.lag", "channels.shop", "routes.1"]
    assert not live.file.changes().rule("topic-freshness").on
    assert [route.channels for route in live.file.as_routes()] == [("shop",), ("ops", "shop")]


def test_what_is_for_a_channel_that_cannot_be_used_waits_until_it_can_be() -> None:
    sent: list[str] = []
    both = threading.Event()
    outbox = NotificationQueues(lambda _name, _channel, told: sent.append(told.id), lambda _told: both.set())
    good = Channel.model_validate({"slack": {"url": "${X}"}})
    outbox.use({}, {"ops": "alerts.yaml:1:1: wrong"})
    outbox.put(Notification("1", "ops", GroupKey("r", ()), (), 0))
    assert not both.wait(0.3)
    (status,) = outbox.statuses()
    assert (status.kind, status.waiting, status.error) == ("unusable", 1, "alerts.yaml:1:1: wrong")
    outbox.use({"ops": good})
    assert both.wait(10.0) and sent == ["1"]
    outbox.stop()
