"""Appends on expected versions, with any other events in between, against a plain list of events."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from samples import fast_or

from hub.errors import CallerError, Conflict, HubError, PeerError
from hub.log import MemoryCluster
from hub.log.memory import MemoryReader, MemoryWriter
from hub.record import NewRecord, Positions, TopicPartition
from hub.times import epoch_ms
from hub.topics.gateway.expected_version.appender import Append, Appended, Appender, append_of
from hub.topics.gateway.expected_version.index import KeyIndex
from hub.topics.gateway.expected_version.version import (
    ExpectedVersionConflict,
    KeyVersion,
    expected_version,
    require_one,
)
from hub.topics.gateway.idempotency import mark
from hub.topics.gateway.produce_batch import ProduceRequest
from hub.topics.gateway.produce_request import IDEMPOTENCY_HEADER

TOPIC = "t"
PLACE = TopicPartition(TOPIC, 0)


@dataclass
class RacingCluster(MemoryCluster):
    """A log in which other events arrive between the look at a version and the place of the append.

    ``hidden``: events at the end that are in an open transaction: uncommitted readers alone see them.
    """

    race: list[Callable[[], None]] = field(default_factory=list)
    failures: list[HubError] = field(default_factory=list)
    hidden: int = 0

    def reader(self, *, committed: bool = True, wait_ms: int = 0) -> MemoryReader:
        return _Committed(self) if committed else MemoryReader(self)

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        ends = super().end_offsets(topics)
        return Positions({place: end - self.hidden for place, end in ends}) if committed else ends

    def writer(self, name: str | None = None) -> MemoryWriter:
        super().writer(name)
        return _Racing(self, name, self.epochs[name or ""])

    def foreign(self, key: bytes, value: bytes | None = b"foreign", partition: int = 0) -> None:
        MemoryWriter(self, None, 0).append([NewRecord(TOPIC, key, value, partition=partition)])


class _Committed(MemoryReader):
    def poll(self, limit, timeout_s):  # type: ignore[no-untyped-def]
        cluster = self.cluster
        assert isinstance(cluster, RacingCluster)
        ends = cluster.end_offsets([TOPIC])
        found = super().poll(limit, timeout_s)
        self.positions = {place: min(at, ends.get(place)) for place, at in self.positions.items()}
        return [each for each in found if each.offset < ends.get(each.topic_partition)]


class _Racing(MemoryWriter):
    def append_if(self, records, check):  # type: ignore[no-untyped-def]
        cluster = self.cluster
        assert isinstance(cluster, RacingCluster)
        if cluster.race:
            cluster.race.pop(0)()
        after = super().append_if(records, check)
        if cluster.failures:
            raise cluster.failures.pop(0)  # committed, and the answer is lost
        return after


@pytest.fixture
def cluster() -> RacingCluster:
    made = RacingCluster()
    made.create_topic(TOPIC, partitions=1, config={}, replication_factor=1)
    return made


def asked(key: bytes, expected: str, number: int = 0, wait_s: float = 5.0) -> Append:
    version = expected_version(TOPIC, expected)
    header = mark(f"m-{number}", "print", 0, 1, epoch_ms())
    new = NewRecord(TOPIC, key, str(number).encode(), ((IDEMPOTENCY_HEADER, header),))
    return Append(new, version, 1, f"m-{number}", "print", time.monotonic() + wait_s)


def token(appended: Appended) -> str:
    return f"{TOPIC}:{appended.place.partition}:{appended.offset + 1}"


def outcome(appender: Appender, append: Append) -> tuple[str, Appended | None]:
    """Return the actual version of a conflict, or the place of the event."""
    try:
        return "", appender.append(append)
    except ExpectedVersionConflict as conflict:
        return conflict.details["version"], None


@pytest.mark.parametrize("seed", range(fast_or(5, 40)))
def test_an_event_follows_the_version_that_it_names_whatever_comes_between(seed: int) -> None:
    chance, cluster = random.Random(seed), RacingCluster()
    cluster.create_topic(TOPIC, partitions=1, config={}, replication_factor=1)
    servers = [Appender(cluster, 1) for _ in range(2)]
    keys = [b"a", b"b", b"c"]
    for number in range(60):
        key = chance.choice(keys)
        seen = [each for each in cluster.logs[TOPIC][0] if each.key == key]
        known = chance.choice([None, *seen[-2:]])
        expected = "none" if known is None else f"{TOPIC}:0:{known.offset + 1}"
        intruder = chance.choice([None, None, *keys])
        if intruder is not None:
            cluster.race.append(lambda name=intruder: cluster.foreign(name))  # type: ignore[misc]
        appender, append = chance.choice(servers), asked(key, expected, number)
        refused, found = outcome(appender, append)
        events = [each for each in cluster.logs[TOPIC][0] if each.key == key]
        if found is None:
            assert refused == (f"{TOPIC}:0:{events[-1].offset + 1}" if events else "none") != expected
        else:
            before = [each for each in events if each.offset < found.offset]
            assert (f"{TOPIC}:0:{before[-1].offset + 1}" if before else "none") == expected
            assert cluster.logs[TOPIC][0][found.offset].value == str(number).encode()
        cluster.race.clear()
    for each in servers:
        each.close()


def test_a_lost_answer_is_no_second_event(cluster: RacingCluster) -> None:
    appender = Appender(cluster, 1)
    cluster.failures.append(PeerError("the answer is lost"))
    found = appender.append(asked(b"a", "none", 1))
    assert found.repeated and len(cluster.logs[TOPIC][0]) == 1
    # The same request again, at another server: the place of the first, although the version has moved.
    appender.append(asked(b"a", token(found), 2))
    again = Appender(cluster, 1).append(asked(b"a", "none", 1))
    assert again.repeated and again.offset == found.offset and len(cluster.logs[TOPIC][0]) == 2
    with pytest.raises(Conflict, match="another request"):
        appender.append(Append(*(asked(b"a", "none", 1).new, None, 1, "m-1", "other", time.monotonic() + 5)))


def test_an_event_in_an_open_transaction_is_waited_for(cluster: RacingCluster) -> None:
    appender = Appender(cluster, 1)
    first = appender.append(asked(b"a", "none", 1))
    cluster.foreign(b"a")
    cluster.hidden = 1
    with pytest.raises(PeerError, match="is being written"):
        appender.append(asked(b"a", token(first), 2, wait_s=0.3))
    assert len(cluster.logs[TOPIC][0]) == 2
    # Another key is not held back, and the version that is confirmed and not readable is no conflict.
    other = appender.append(asked(b"b", "none", 3))
    cluster.hidden = 2
    with pytest.raises(PeerError, match="is being written"):
        appender.append(asked(b"b", token(other), 4, wait_s=1.5))
    cluster.hidden = 0
    assert appender.append(asked(b"b", token(other), 4)).offset == 3
    with pytest.raises(ExpectedVersionConflict) as conflict:
        appender.append(asked(b"a", token(first), 2))
    assert conflict.value.details["version"] == f"{TOPIC}:0:2"


def test_a_deleted_key_has_the_version_of_its_tombstone_and_none(cluster: RacingCluster) -> None:
    appender = Appender(cluster, 1)
    cluster.foreign(b"a", None)
    assert appender.version(TOPIC, b"a", time.monotonic() + 5) == KeyVersion(PLACE, 1, True)
    assert appender.append(asked(b"a", "none", 1)).offset == 1
    cluster.foreign(b"b", None)
    assert appender.append(asked(b"b", f"{TOPIC}:0:3", 2)).offset == 3


def test_events_of_a_key_in_another_partition_are_found_out(cluster: RacingCluster) -> None:
    cluster.add_partitions(TOPIC, 2)
    appender = Appender(cluster, 1)
    mine = Append(*(asked(b"a", "none").new, None, 2, "m", "p", time.monotonic() + 5)).place.partition
    cluster.foreign(b"a", partition=1 - mine)
    with pytest.raises(CallerError, match="has events in partition") as refused:
        appender.append(Append(asked(b"a", "none").new, None, 2, "m", "p", time.monotonic() + 5))
    assert refused.value.code == "HUB-1348"
    foreign = expected_version(TOPIC, f"{TOPIC}:{1 - mine}:1")
    with pytest.raises(CallerError, match="has events in partition"):
        appender.append(Append(asked(b"a", "none").new, foreign, 2, "m", "p", time.monotonic() + 5))


def test_wrong_versions_are_refused_before_anything_is_written() -> None:
    for wrong in ("", "x", "t:0", "other:0:1", "t:0:1,t:1:1"):
        with pytest.raises(CallerError) as refused:
            expected_version(TOPIC, wrong)
        assert refused.value.code == "HUB-1347", wrong
    with pytest.raises(CallerError, match="one event"):
        require_one(2)
    with pytest.raises(CallerError, match="needs a key"):
        append_of(
            ProduceRequest(TOPIC, b"", expected_version="none"), "p", NewRecord(TOPIC, None, b""), 1, 0.0
        )


def test_too_many_keys_are_an_error_and_no_guess(cluster: RacingCluster) -> None:
    index = KeyIndex(TOPIC, most_keys=1)
    cluster.foreign(b"a")
    cluster.foreign(b"b")
    with pytest.raises(PeerError, match="more than 1 keys"):
        index.apply(cluster.logs[TOPIC][0], Positions({PLACE: 2}))
