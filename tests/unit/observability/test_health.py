"""The cluster's health: what is offline, what lacks replicas, what is away; folders off the wire;
rules and series."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from browser.staged_estate import staged_health

from hub.alerts.model.rules import CLUSTER_RULES, RULES, RuleChanges, RuleObservations, Verdict
from hub.errors import PeerError
from hub.kafka.log_dirs import log_dirs
from hub.log import LogDir, PartitionReplicas, Placement
from hub.observability.cluster import health_watch
from hub.observability.cluster.health import MOST_TROUBLES, Health, health_of
from hub.observability.cluster.health_series import families
from hub.observability.cluster.health_watch import DIRS_EVERY_S, HealthWatch
from hub.observability.export.objectives import observe_cluster

BAD, GOOD, UNKNOWN = Verdict.BAD, Verdict.GOOD, Verdict.UNKNOWN
WELL = Placement({1: ("k", 9092)}, 1, {"t": (PartitionReplicas(0, 1, (1,), (1,)),)})


def test_what_is_offline_lacking_and_away_is_counted_once_each() -> None:
    health = staged_health()
    assert (health.state, health.offline, health.under_replicated, health.away) == ("offline", 1, 1, (3,))
    assert [(each.topic, each.leader) for each in health.troubles] == [
        ("crm.consent", None),
        ("shop.orders", 2),
    ]
    one, two, three = health.brokers
    assert (one.is_controller, one.leads, one.replicas, one.lacking, one.free) == (True, 1, 1, 0, 0.5)
    assert (two.bytes, two.free) == (9 * 10**11, 0.05)
    assert (three.up, three.replicas, three.lacking, three.dirs) == (False, 2, 2, None)


def test_well_before_the_first_answer_and_down_are_three_things() -> None:
    assert health_of(WELL, {}, 7).state == "ok"
    assert Health().state == "connecting" and not Health().is_known
    assert replace(health_of(WELL, {}, 7), error="no answer").state == "down"


def test_a_broker_that_is_away_with_nothing_on_it_is_no_broker() -> None:
    gone = Placement({}, None, {"t": (PartitionReplicas(0, None, (), ()),)})
    assert health_of(gone, {}, 7).away == ()


def test_of_very_many_partitions_the_worst_are_listed_and_all_counted() -> None:
    many = tuple(PartitionReplicas(n, 1 if n else None, (1, 2), (1,)) for n in range(3_000))
    health = health_of(Placement({1: ("k", 1), 2: ("k", 2)}, 1, {"t": many}), {}, 7)
    assert (health.offline, health.under_replicated, len(health.troubles)) == (1, 2_999, MOST_TROUBLES)
    assert health.troubles[0].leader is None


# ---- the watch


class Staged:
    def __init__(self) -> None:
        self.error: str | None = None

    def placement(self) -> Placement:
        if self.error:
            raise PeerError(self.error)
        return WELL


def test_the_watch_keeps_what_it_knew_while_kafka_is_away_and_asks_folders_now_and_then() -> None:
    kafka, asked, now_s = Staged(), [], [0.0]

    def dirs(host: str, port: int, _timeout_s: float) -> tuple[LogDir, ...]:
        asked.append((host, port))
        if len(asked) == 2:
            raise PeerError("it hung up")
        return (LogDir("/logs", 5),)

    watch = HealthWatch(kafka, None, dirs, now_ms=lambda: 7, now_s=lambda: now_s[0])
    watch.step()
    watch.step()
    assert asked == [("k", 9092)] and watch.latest().brokers[0].bytes == 5
    kafka.error = "Kafka does not answer"
    watch.step()
    assert watch.latest().error == "Kafka does not answer" and watch.latest().partitions == 1
    kafka.error, now_s[0] = None, DIRS_EVERY_S
    watch.step()
    (broker,) = watch.latest().brokers
    assert watch.latest().error is None and (broker.dirs, broker.dirs_error) == (None, "it hung up")


def test_a_broker_that_hangs_delays_no_others_news() -> None:
    """They were asked one after the other once: folders behind such a broker came as late as its time-out."""
    brokers = {id: ("k", id) for id in range(40)}
    placement, seen = Placement(brokers, 1, {}), threading.Event()

    class Many:
        def placement(self) -> Placement:
            return placement

    def dirs(_host: str, port: int, _timeout_s: float) -> tuple[LogDir, ...]:
        if port in (0, 7) and not seen.wait(30):
            raise AssertionError("the others' folders are not shown while this one is waited for")
        if port == 7:
            raise PeerError("it hung up")
        return (LogDir("/l", port),)

    watch = HealthWatch(Many(), None, dirs)

    def look() -> None:
        while sum(each.dirs is not None for each in watch.latest().brokers) < 38:
            seen.wait(0.01)
        seen.set()

    threading.Thread(target=look, daemon=True).start()
    watch.step()
    found = watch.latest().brokers
    assert [each.id for each in found if each.dirs is None] == [7] and found[7].dirs_error == "it hung up"
    assert [each.bytes for each in found if each.id != 7] == [id for id in range(40) if id != 7]


def test_what_breaks_while_folders_are_asked_is_told() -> None:
    def dirs(*_: object) -> tuple[LogDir, ...]:
        raise RuntimeError("odd")

    with pytest.raises(RuntimeError, match="odd"):
        HealthWatch(Staged(), None, dirs).step()


def test_a_large_cluster_is_asked_more_rarely_and_one_that_is_away_is_not() -> None:
    now_s, kafka = [0.0], Staged()

    class Slow:
        def placement(self) -> Placement:
            now_s[0] += 2.0
            return kafka.placement()

    watch = HealthWatch(Slow(), None, lambda *_: (LogDir("/l", 1),), every_s=5.0, now_s=lambda: now_s[0])
    watch.step()
    assert watch.pause_s() == 38.0
    kafka.error = "Kafka does not answer"
    watch.step()
    assert watch.pause_s() == 5.0


# ---- rules


def verdicts(health: Health) -> Mapping[str, list[Verdict]]:
    found = observe_cluster(health, RuleChanges())
    assert [each.rule.name for each in found] == list(CLUSTER_RULES)
    return {each.rule.name: [one.verdict for one in each.observations] for each in found}


def test_trouble_is_bad_with_words_and_what_is_not_told_is_unknown() -> None:
    assert verdicts(staged_health()) == {
        "kafka-away": [GOOD],
        "partitions-offline": [BAD],
        "under-replicated": [BAD],
        "disk-full": [GOOD, BAD, BAD],
    }
    by_rule: dict[str, RuleObservations] = {
        each.rule.name: each for each in observe_cluster(staged_health(), RuleChanges())
    }
    (offline,) = by_rule["partitions-offline"].observations
    assert (
        offline.summary == "1 of 3 partitions have no leader" and "crm.consent partition 0" in offline.detail
    )
    (few,) = by_rule["under-replicated"].observations
    assert few.summary == "broker 3 is unreachable; 1 of 3 partitions have too few replicas in sync"
    assert not by_rule["disk-full"].whole  # the third broker does not report its folders
    assert verdicts(health_of(WELL, {1: (LogDir("/l", 1),)}, 7))["disk-full"] == [UNKNOWN]


def test_while_kafka_is_away_only_that_is_known() -> None:
    away = replace(staged_health(), error="no answer")
    assert verdicts(away) == {
        "kafka-away": [BAD],
        "partitions-offline": [UNKNOWN],
        "under-replicated": [UNKNOWN],
        "disk-full": [],
    }
    assert all(not each.observations and not each.whole for each in observe_cluster(Health(), RuleChanges()))
    assert {*CLUSTER_RULES} <= RULES.keys()


# ---- series


def samples(health: Health) -> dict[tuple[str, ...], float]:
    return {
        (each.name, *each.labels.values()): each.value
        for family in families(health)
        for each in family.samples
    }


def test_series_are_of_what_is_known_now() -> None:
    found = samples(staged_health())
    assert found["hub_kafka_offline_partitions",] == 1 and found["hub_kafka_missing_brokers",] == 1
    assert found["hub_kafka_log_dir_usable_bytes", "2", "/var/lib/kafka"] == 10**12 // 20
    assert found["hub_kafka_log_dir_failed", "2", "/mnt/b"] == 1
    assert ("hub_kafka_log_dir_bytes", "2", "/mnt/b") not in found
    assert samples(replace(staged_health(), error="no answer")) == {} == samples(Health())


# ---- folders off the wire


def compact(text: bytes) -> bytes:
    return bytes([len(text) + 1]) + text


def answer_4() -> bytes:
    """Two folders: one with two partitions of a topic, and one that cannot be used."""
    partition = b"".join(struct.pack(">iqqb", n, 1_000, 0, 0) + b"\0" for n in range(2))
    topic = compact(b"t") + b"\x03" + partition + b"\0"
    # A tagged field that nobody knows is passed over.
    good = (
        struct.pack(">h", 0)
        + compact(b"/logs")
        + b"\x02"
        + topic
        + struct.pack(">qq", 10_000, 4_000)
        + b"\x01\x09\x02xy"
    )
    broken = struct.pack(">h", 56) + compact(b"/mnt") + b"\x01" + struct.pack(">qq", -1, -1) + b"\0"
    return b"\0" + struct.pack(">ih", 0, 0) + b"\x03" + good + broken + b"\0"


def answer_1() -> bytes:
    text = lambda words: struct.pack(">h", len(words)) + words
    partition = struct.pack(">iqqb", 0, 700, 0, 0)
    return (
        struct.pack(">iih", 0, 1, 0)
        + text(b"/old")
        + struct.pack(">i", 1)
        + text(b"t")
        + struct.pack(">i", 1)
        + partition
    )


@contextmanager
def broker(answer: Callable[[int], bytes | None]) -> Iterator[int]:
    """Answers each request by its version; None: hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    (size,) = struct.unpack(">i", connection.recv(4))
                    request = connection.recv(size)
                    _, version, correlation = struct.unpack_from(">hhi", request)
                    body = answer(version)
                    if body is not None:
                        content = struct.pack(">i", correlation) + body
                        connection.sendall(struct.pack(">i", len(content)) + content)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_folders_are_read_with_their_disks_and_of_older_brokers_without() -> None:
    with broker(lambda version: answer_4() if version == 4 else None) as port:
        good, bad = log_dirs("127.0.0.1", port, 5.0)
    assert good == LogDir("/logs", 2_000, 10_000, 4_000)
    assert (bad.path, bad.bytes, bad.total_bytes) == ("/mnt", None, None) and "56" in bad.error
    with broker(lambda version: answer_1() if version == 1 else None) as port:
        assert log_dirs("127.0.0.1", port, 5.0) == (LogDir("/old", 700),)


@pytest.mark.parametrize("body", [None, b"", b"\xff" * 40, answer_4()[:20]])
def test_what_cannot_be_read_is_an_error_with_the_broker(body: bytes | None) -> None:
    with (
        broker(lambda _version: body) as port,
        pytest.raises(PeerError, match="does not report its log folders"),
    ):
        log_dirs("127.0.0.1", port, 5.0)


def test_folders_of_more_brokers_than_fit_a_round_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_watch, "MOST_BROKERS", 2)
    brokers = {id: ("k", id) for id in range(5)}
    placement, now_s = Placement(brokers, 1, {}), [0.0]

    class Five:
        def placement(self) -> Placement:
            return placement

    watch = HealthWatch(Five(), None, lambda *_: (LogDir("/l", 1),), now_s=lambda: now_s[0])
    for _ in range(3):
        watch.step()
        now_s[0] += DIRS_EVERY_S
    assert all(each.dirs is not None for each in watch.latest().brokers)


def test_what_breaks_beside_the_cluster_does_not_leave_its_health_as_it_was() -> None:
    class Costs:
        def look(self) -> list[Any]:
            raise RuntimeError("no such process")

    kafka = Staged()
    watch = HealthWatch(kafka, Costs(), lambda *_: (LogDir("/l", 1),))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        watch.step()
    assert watch.latest().state == "ok"
    kafka.placement = lambda: {}["odd"]  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        watch.step()
    assert watch.latest().state == "down" and "odd" in (watch.latest().error or "")
