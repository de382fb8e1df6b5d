"""The in-memory log keeps the rules of a real log; tests/integration/test_kafka.py verifies Kafka against
the same ones."""

from __future__ import annotations

import pytest

from hub.errors import Conflict, NotFound
from hub.log import Cluster, MemoryCluster, Reader, Writer, WriterFenced, same_setting
from hub.record import NewRecord, Positions


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster(now_ms=7)
    made.create_topic("t", partitions=2, config={"a": "1"}, replication_factor=1)
    return made


def test_the_twin_fits_the_ports(cluster: MemoryCluster) -> None:
    ports: tuple[Cluster, Reader, Writer] = (cluster, cluster.reader(), cluster.writer())
    assert all(ports)


def test_append_answers_the_next_positions_and_reading_goes_on_there(cluster: MemoryCluster) -> None:
    writer, reader = cluster.writer(), cluster.reader()
    reader.assign(cluster.beginning_offsets(["t"]))
    assert writer.append([NewRecord("t", b"k", b"1", partition=1)] * 3) == Positions.of([("t", 1, 3)])
    assert [record.offset for record in reader.poll(2, 0)] == [0, 1]
    assert [(record.offset, record.timestamp_ms) for record in reader.poll(2, 0)] == [(2, 7)]
    assert reader.poll(2, 0) == []
    assert reader.position() == cluster.end_offsets(["t"])


def test_one_key_stays_in_one_partition(cluster: MemoryCluster) -> None:
    writer = cluster.writer()
    first = writer.append([NewRecord("t", b"key", None)])
    ((tp, _),) = first
    assert writer.append([NewRecord("t", b"key", b"2")]).get(tp) == 2


def test_a_later_writer_of_the_name_fences_the_earlier_for_good(cluster: MemoryCluster) -> None:
    earlier, later = cluster.writer("name"), cluster.writer("name")
    for _ in range(2):
        with pytest.raises(WriterFenced):
            earlier.append([NewRecord("t", b"k", b"1")])
    later.append([NewRecord("t", b"k", b"1")])
    assert sum(offset for _, offset in cluster.end_offsets(["t"])) == 1


def test_topics_are_made_changed_and_deleted(cluster: MemoryCluster) -> None:
    with pytest.raises(Conflict):
        cluster.create_topic("t", partitions=1, config={}, replication_factor=1)
    cluster.alter_config("t", {"a": None, "b": "2"})
    cluster.add_partitions("t", 5)
    before = cluster.topics()["t"]
    assert (before.config, before.partitions) == ({"b": "2"}, 5)
    cluster.delete_topic("t")
    with pytest.raises(NotFound):
        cluster.end_offsets(["t"])
    cluster.create_topic("t", partitions=1, config={}, replication_factor=1)
    assert cluster.topics()["t"].topic_id != before.topic_id


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("compact, delete", "compact,delete", True),
        ("delete,compact", "compact,delete", False),
        ("0.50", "0.5", True),
        ("9223372036854775807", "9223372036854775806", False),
        ("True", "true", True),
        ("sNaN", "1", False),
        ("infinity", "infinity ", True),
        ("", "0", False),
        (None, "", False),
        (None, None, True),
    ],
)
def test_a_setting_is_the_same_however_it_is_written(one: str | None, other: str | None, same: bool) -> None:
    assert same_setting(one, other) == same
