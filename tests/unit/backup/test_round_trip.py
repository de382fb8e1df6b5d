"""A log in memory, saved and restored into another one:
the same committed records, whatever happened to either."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_brokers import MemoryBrokers
from memory_connection import MemoryConnection

from hub.backup.restoring.saved_log import PartitionToRestore, SavedLog
from hub.backup.saving import range_reader, segment_writer
from hub.backup.saving.range_reader import RangeReader
from hub.backup.saving.run_plan import ReadRange
from hub.backup.saving.segment_writer import SegmentWriter
from hub.backup.storage.manifest import SavedPartition
from hub.backup.storage.object_store import FolderStore
from hub.backup.storage.vault import Vault, open_or_make
from hub.errors import PeerError
from hub.kafka.protocol.broker_client import ConnectionLost
from hub.record import NewRecord, TopicPartition
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.connection.port import SystemClock
from hub.replication.engine.shard_state import EngineSettings
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, MAP_TOPIC

TOPIC, PARTITIONS = "t", 6
PLACES = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
SETTINGS = EngineSettings(commit_interval_s=0.01, fetch_wait_ms=10, hold_lag=-1)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return open_or_make(FolderStore(tmp_path), bytes(32), "cluster", 1)


def brokers(*topics: str) -> MemoryBrokers:
    made = MemoryBrokers(SystemClock())
    for name in topics:
        made.create_topic(name, PARTITIONS if name == TOPIC else 1)
    return made


def write(source: MemoryBrokers, chance: random.Random) -> None:
    """Write with and without transactions, some of which are aborted; delete the beginning of a partition."""
    for number in range(chance.randrange(4, 20)):
        records = [
            NewRecord(TOPIC, b"%d" % number, chance.randbytes(chance.randrange(40)), partition=tp.partition)
            for tp in chance.choices(PLACES, k=chance.randrange(1, 12))
        ]
        if chance.random() < 0.4:
            source.append(records)
        else:
            source.transaction(f"w{chance.randrange(2)}", records, commit=chance.random() < 0.6)
    log = source.logs[chance.choice(PLACES)]
    log.start = max(log.start, chance.randrange(log.end + 1))


def save(
    source: MemoryBrokers,
    vault: Vault,
    number: int,
    before: dict[TopicPartition, SavedPartition],
    ends: dict[TopicPartition, int] | None = None,
) -> dict[TopicPartition, SavedPartition]:
    """One run, as ``take`` does it, up to the present ends or earlier ones."""
    ranges = []
    for tp in PLACES:
        log = source.logs[tp]
        saved = before.get(tp, SavedPartition(log.start, log.start))
        if saved.next < log.start:
            saved = SavedPartition(saved.start, log.start, saved.segments)
        ranges.append(ReadRange(tp, saved.next, log.stable_end if ends is None else ends[tp], saved))
    reader = RangeReader(MemoryConnection(source, "source"), ranges)
    writer = SegmentWriter(vault, number, number, {each.tp: each.saved for each in ranges})
    try:
        for taken in reader.taken():
            assert taken.error is None
            writer.add(taken.tp, taken.batches, taken.next)
            if taken.over:
                writer.end(taken.tp, read=True)
        return writer.state(wait=True)
    finally:
        writer.close()


def restore(vault: Vault, saved: dict[TopicPartition, SavedPartition], target: MemoryBrokers) -> int:
    log = SavedLog(vault, {tp: PartitionToRestore("id", each, each.end) for tp, each in saved.items()})
    engine = BatchEngine(
        log,
        MemoryConnection(target, "target"),
        link="restore-x",
        shard=0,
        partitions=PLACES,
        settings=SETTINGS,
        clock=SystemClock(),
    )
    done = 0
    try:
        engine.start()
        for _ in range(200):
            states = {TopicPartition(each.topic, each.partition): each for each in engine.progress()}
            assert [each.error for each in states.values() if each.error] == []
            if all(states[tp].source_next >= each.end for tp, each in saved.items()):
                return done
            done += engine.step()
        raise AssertionError(engine.error)
    finally:
        engine.close()
        log.end()


def values(side: MemoryBrokers) -> Iterator[list[tuple[int, bytes | None, bytes | None]]]:
    for tp in PLACES:
        yield [(each.timestamp_ms, each.key, each.value) for each in side.records(tp, side.logs[tp].start)]


@pytest.mark.parametrize("seed", range(12))
def test_what_was_committed_is_restored_in_order_and_a_second_run_adds_the_rest(
    vault: Vault, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "SEGMENT_BYTES", 500)
    chance = random.Random(seed)
    source, target = brokers(TOPIC), brokers(TOPIC, CHECKPOINTS_TOPIC, MAP_TOPIC)
    write(source, chance)
    ends = {tp: source.logs[tp].stable_end for tp in PLACES}
    expected = list(values(source))
    source.append([NewRecord(TOPIC, None, b"later", partition=tp.partition) for tp in PLACES])
    first = save(source, vault, 1, {}, ends)  # those come after the ends: the second run reads them
    assert {tp: each.next for tp, each in first.items()} == ends
    count = restore(vault, first, target)
    assert list(values(target)) == expected
    assert (
        count == sum(map(len, expected)) == sum(each.records for p in first.values() for each in p.segments)
    )

    starts = {tp: source.logs[tp].start for tp in PLACES}
    write(source, chance)
    for tp, start in starts.items():
        source.logs[tp].start = start  # what the second run reads begins where the first one ended
    second = save(source, vault, 2, first)
    restore(vault, second, target)
    assert list(values(target)) == list(values(source))
    assert restore(vault, second, target) == 0


def test_a_broker_that_loses_connections_costs_time_only(vault: Vault) -> None:
    source, target = brokers(TOPIC), brokers(TOPIC, CHECKPOINTS_TOPIC, MAP_TOPIC)
    write(source, random.Random(3))
    chance = random.Random(5)

    def lose(request: str, moment: str) -> None:
        if request in ("fetch", "metadata") and chance.random() < 0.3:
            raise ConnectionLost(f"{request} {moment}")

    source.hook = lose
    saved = save(source, vault, 1, {})
    restore(vault, saved, target)
    assert list(values(target)) == list(values(source))


def test_a_cluster_that_says_nothing_ends_the_run_with_an_error(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "SILENCE_S", 0.3)
    source = brokers(TOPIC)
    write(source, random.Random(1))
    source.up = False
    with pytest.raises(PeerError, match="nothing was read"):
        save(source, vault, 1, {})


def test_two_runs_of_one_number_at_once_leave_each_other_whole(vault: Vault) -> None:
    """S3 has no lock: both runs may be planned before either has written."""
    source = brokers(TOPIC)
    write(source, random.Random(3))
    ends = {tp: source.logs[tp].stable_end for tp in PLACES}
    first = save(source, vault, 1, {}, ends)
    write(source, random.Random(4))
    save(source, vault, 1, {})
    for saved in first.values():
        for segment in saved.segments:
            assert vault.segment(segment)
