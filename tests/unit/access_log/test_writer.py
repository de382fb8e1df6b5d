"""The thread that writes the access log: changes wait for Kafka, notes do not, and losses are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from alert_receivers import until
from patience import patient

from hub.access_log import writer as writer_module
from hub.access_log.actions import LoggedAction, Outcome
from hub.access_log.chain import LogSigner
from hub.access_log.entry import TOPIC, Entry, StoredEntry, Who
from hub.access_log.repeats import WINDOW_MS, Repeats
from hub.access_log.search import LogFilter, find, verify
from hub.access_log.writer import AccessLog, NotLogged
from hub.errors import PeerError
from hub.log import MemoryCluster, Writer
from hub.record import NewRecord, Positions

SIGNER = LogSigner(b"k" * 32)
NOW_MS = 1_700_000_000_000


@dataclass
class Breakable(MemoryCluster):
    """A cluster whose appends fail while ``broken``; a failed one may be in the log, as with Kafka."""

    broken: bool = False
    takes: bool = False
    writers: list[str] = field(default_factory=list)

    def writer(self, name: str | None = None) -> Writer:  # type: ignore[override]
        return _BreakableWriter(self, super().writer(name))


@dataclass
class _BreakableWriter:
    cluster: Breakable
    inner: Writer

    def append(self, records: Sequence[NewRecord]) -> Positions:
        if self.cluster.broken:
            if self.cluster.takes:
                self.inner.append(records)
            raise PeerError("Kafka does not answer")
        return self.inner.append(records)

    def close(self) -> None:
        self.inner.close()


def entry(action: LoggedAction = LoggedAction.topic_change, who: str = "ana", name: str = "t") -> Entry:
    return Entry(action, Outcome.started, Who(who, "session", "10.0.0.7"), NOW_MS, "topic", name)


@contextmanager
def running(cluster: MemoryCluster) -> Iterator[AccessLog]:
    log = AccessLog(cluster, SIGNER, "server", timeout_s=patient(5.0))
    log.start()
    try:
        yield log
    finally:
        log.stop()


def stored(cluster: MemoryCluster, action: str = "") -> list[StoredEntry]:
    return list(find(cluster, LogFilter(action=action), 1_000).entries)


def test_a_change_is_in_the_log_when_its_future_is_done() -> None:
    cluster = MemoryCluster()
    with running(cluster) as log:
        first = entry()
        log.change(first).result(patient(5.0))
        assert [each.entry.id for each in stored(cluster)] == [first.id]
        log.result(first.then(Outcome.ok, NOW_MS))
    assert [each.entry.result for each in stored(cluster)] == ["started", "ok"]
    check = verify(cluster, [SIGNER.public])
    assert check.is_whole is True and all(each.closed for each in check.chains.values())


def test_a_change_is_refused_while_kafka_is_away_and_notes_wait() -> None:
    cluster = Breakable()
    with running(cluster) as log:
        log.change(entry()).result(patient(5.0))
        cluster.broken = True
        log.note(entry(LoggedAction.sql))
        refused = entry(name="refused")
        with pytest.raises(NotLogged, match="nothing was changed: Kafka does not answer"):
            log.change(refused).result(patient(5.0))
        log.result(refused.then(Outcome.failed, NOW_MS))
        assert log.state().trouble == "Kafka does not answer"
        cluster.broken = False
        until(lambda: log.state().trouble is None and log.state().waiting == 0, 10.0)
    assert sorted(each.entry.action for each in stored(cluster)) == ["sql", "topic.change", "topic.change"]
    assert verify(cluster, [SIGNER.public]).is_whole is True


def test_an_append_with_an_unknown_outcome_ends_the_chain() -> None:
    cluster = Breakable()
    with running(cluster) as log:
        log.change(entry()).result(patient(5.0))
        cluster.broken = cluster.takes = True
        with pytest.raises(NotLogged):
            log.change(entry(name="unknown")).result(patient(5.0))
        cluster.broken = False
        log.change(entry(name="later")).result(patient(5.0))
    assert [each.entry.name for each in stored(cluster)] == ["t", "unknown", "later"]
    check = verify(cluster, [SIGNER.public])
    assert check.is_whole is True and len(check.chains) == 2


def test_notes_that_find_no_room_are_counted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MOST_NOTES", 3)
    cluster = Breakable(broken=True)
    with running(cluster) as log:
        log.note(entry(LoggedAction.sql, name="first"))
        until(lambda: log.state().trouble is not None, 10.0)
        for number in range(10):
            log.note(entry(LoggedAction.sql, name=str(number)))
        assert log.state().lost >= 6
        cluster.broken = False
        until(lambda: bool(log.state().written) and log.state().waiting == 0, 10.0)
    (told,) = stored(cluster, "log.lost")
    assert told.entry.count == log.state().lost
    assert len(stored(cluster, "sql")) + told.entry.count == 11


def test_repeated_notes_are_one_record_with_their_count() -> None:
    cluster = MemoryCluster()
    with running(cluster) as log:
        for _ in range(50):
            log.note(entry(LoggedAction.masked_read))
    assert sum(each.entry.count for each in stored(cluster)) == 50
    assert [each.entry.count for each in stored(cluster)] == [1, 49]


def test_repeats_are_due_after_a_minute() -> None:
    repeats, first = Repeats(), entry(LoggedAction.sql)
    assert repeats.take(first) is first
    assert repeats.take(entry(LoggedAction.sql)) is None
    assert repeats.take(entry(LoggedAction.sql, who="bob")) is not None
    assert repeats.due(NOW_MS + WINDOW_MS - 1) == []
    (counted,) = repeats.due(NOW_MS + WINDOW_MS)
    assert (counted.count, counted.who.name) == (1, "ana") and counted.id != first.id
    assert repeats.take(first) is first


def test_the_topic_keeps_entries_as_long_as_the_setting_says() -> None:
    cluster = MemoryCluster()
    for days in (30, 60):
        log = AccessLog(cluster, SIGNER, "cli", retention_days=days, timeout_s=patient(5.0))
        log.start()
        log.change(entry()).result(patient(5.0))
        log.stop()
        assert cluster.topic_config([TOPIC])[TOPIC]["retention.ms"] == str(days * 86_400_000)
    assert cluster.topic_config([TOPIC])[TOPIC]["cleanup.policy"] == "delete"


def test_filters() -> None:
    cluster = MemoryCluster()
    with running(cluster) as log:
        for who, name in (("ana", "shop.orders"), ("bob", "shop.orders"), ("bob", "hr.salaries")):
            log.change(entry(who=who, name=name)).result(patient(5.0))

    def names(wanted: LogFilter) -> list[tuple[str, str]]:
        return [(each.entry.who.name, each.entry.name) for each in find(cluster, wanted, 10).entries]

    assert names(LogFilter(by="bob", on="shop.*")) == [("bob", "shop.orders")]
    assert names(LogFilter(on="topic:hr.salaries")) == [("bob", "hr.salaries")]
    assert names(LogFilter(action="topic.*", result=Outcome.ok)) == []
    assert len(names(LogFilter())) == 3
    assert [each.entry.action for each in find(cluster, LogFilter(action="log.*"), 10).entries] == [
        "log.open",
        "log.close",
    ]
