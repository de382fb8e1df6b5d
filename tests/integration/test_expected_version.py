"""Writers that race on keys over two servers, one of which is killed: no update is lost."""

from __future__ import annotations

import json
import time
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from patience import patient
from pipeline import records_of, wait_until
from processes import Server, own_settings

from hub.client import Hub, Unreachable, VersionConflict
from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.record import NewRecord, Record

WRITERS, KEYS, WANTED, LONGEST_S = 8, 20, 60, 60.0


@dataclass(frozen=True)
class Acknowledged:
    key: str
    on: str
    token: str
    ident: str


def test_no_update_is_lost_in_a_race_over_two_servers_one_of_which_is_killed(
    kafka: str, tmp_path: Path
) -> None:
    topic = f"race.{uuid.uuid4().hex[:8]}"
    cluster = KafkaCluster(kafka, 15.0)
    cluster.create_topic(topic, partitions=3, config={}, replication_factor=1)
    shared = {"embedded_kafka": False, "bootstrap": kafka}
    servers = [Server(own_settings(tmp_path / name).model_copy(update=shared)) for name in ("one", "two")]
    for each in servers:
        each.start()
    acknowledged: list[Acknowledged] = []
    conflicts: list[str] = []
    stop = time.monotonic() + patient(LONGEST_S)

    def write(number: int) -> None:
        hubs = [Hub(each.url, timeout_s=patient(20.0)) for each in servers]
        turn = number
        while len(acknowledged) < WANTED and time.monotonic() < stop:
            key, ident = f"k-{(turn * 7 + number) % KEYS}", uuid.uuid4().hex
            turn += 1
            try:
                on = hubs[turn % 2].version(topic, key)
            except Unreachable:
                continue
            for attempt in range(6):  # the same request, at either server
                try:
                    token = hubs[(turn + attempt) % 2].produce(
                        topic, {"on": on, "ident": ident}, key=key, type="JSON",
                        expected_version=on, idempotency_key=ident,
                    )  # fmt: skip
                except VersionConflict as conflict:
                    conflicts.append(conflict.version)
                except Unreachable:
                    continue
                else:
                    acknowledged.append(Acknowledged(key, on, str(token), ident))
                break
        for each in hubs:
            each.close()

    pool = ThreadPoolExecutor(WRITERS)
    racing = [pool.submit(write, number) for number in range(WRITERS)]
    wait_until(lambda: len(acknowledged) > WANTED / 3, LONGEST_S)
    servers[0].kill()
    # A foreign producer takes part without any version.
    writer = cluster.writer()
    for number in range(10):
        writer.append([NewRecord(topic, f"k-{number}".encode(), json.dumps({"foreign": number}).encode())])
    servers[0].start()
    for future in racing:
        future.result(patient(120.0))
    pool.shutdown()
    for each in servers:
        each.stop(10.0)
    assert len(acknowledged) >= WANTED and conflicts
    judge(records_of(cluster, topic), acknowledged)


def judge(records: list[Record], acknowledged: list[Acknowledged]) -> None:
    """Assert that each event of the hub is on the version that it names, and each acknowledged one is once
    at the position of its token."""
    before: dict[bytes, str] = defaultdict(lambda: "none")
    places: dict[str, list[str]] = defaultdict(list)
    partitions: dict[bytes, int] = {}
    for record in sorted(records, key=lambda each: (each.partition, each.offset)):
        assert record.key is not None and record.value is not None
        assert partitions.setdefault(record.key, record.partition) == record.partition
        event, token = json.loads(record.value), f"{record.topic}:{record.partition}:{record.offset + 1}"
        if "ident" in event:
            assert event["on"] == before[record.key], (record.key, record.offset)
            places[event["ident"]].append(token)
        before[record.key] = token
    assert all(len(each) == 1 for each in places.values())
    for each in acknowledged:
        assert places[each.ident] == [each.token], each


def test_a_version_is_refused_over_http_with_the_actual_one(hub_server: str, kafka: str) -> None:
    topic = f"race.{uuid.uuid4().hex[:8]}"
    KafkaCluster(kafka, 15.0).create_topic(topic, partitions=2, config={}, replication_factor=1)
    with Hub(hub_server, timeout_s=patient(20.0)) as hub:
        assert hub.version(topic, "a") == "none"
        first = hub.produce(topic, {"n": 1}, key="a", type="JSON", expected_version="none")
        assert hub.version(topic, "a") == str(first)
        with pytest.raises(VersionConflict) as conflict:
            hub.produce(topic, {"n": 2}, key="a", type="JSON", expected_version="none")
        assert conflict.value.version == str(first)
        plain = hub.produce(topic, {"n": 3}, key="a", type="JSON")  # without a version: always written
        with pytest.raises(VersionConflict):
            hub.produce(topic, {"n": 4}, key="a", type="JSON", expected_version=first)
        second = hub.produce(topic, {"n": 5}, key="a", type="JSON", expected_version=plain)
        deleted = hub.produce(topic, None, key="a", expected_version=second)
        assert hub.version(topic, "a") == str(deleted)
        hub.produce(topic, {"n": 6}, key="a", type="JSON", expected_version="none")
        for wrong in ("yesterday", "another:0:1"):
            with pytest.raises(HubError, match="Expected-Version"):
                hub.produce(topic, {"n": 7}, key="a", type="JSON", expected_version=wrong)
        with pytest.raises(HubError, match="key"):
            hub.produce(topic, {"n": 8}, key=None, type="JSON", expected_version="none")
