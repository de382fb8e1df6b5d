"""Reports of workers and commands of people, written as records and folded again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hub.errors import HubFault
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.control_state import ControlState, joined, pause_record, retry_record
from hub.replication.clusters.status_records import (
    CarriedTopic,
    GroupPlace,
    GroupStatus,
    LinkContents,
    PartitionStatus,
    WorkerHeartbeat,
)
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import CONTROL_TOPIC, Checkpoint
from hub.replication.ownership import failover, loss_report
from hub.replication.ownership.failover import Control
from hub.replication.ownership.group_offsets import GroupMark
from hub.replication.ownership.links import links
from hub.replication.ownership.operation_steps import Ownership, OwnershipChange
from hub.replication.ownership.shards import Shard
from hub.replication.planning.steps import Acl, SyncedTopic
from hub.replication.planning.write_rights import OwnershipAcls, WriteAcls
from hub.replication.status.mirror_status import summary_of
from hub.replication.status.partition_rows import SourceEndOffsets

BEAT = WorkerHeartbeat("w1", "host", 7, (Shard("m", 0), Shard("m", -1)), 6_000, 1_000_000)
CARRIES = LinkContents("m", {"nyc.a": CarriedTopic(2, "id", 1)}, {"nyc.b": "why"}, ("caution",), "", 5)
PARTITION = PartitionStatus(
    "m", "nyc.a", 0, 0, "w1", "mirroring", "", "batch", 5, 15, 5, 10, 100, 1.5, 2.0, 20.0, 9, 9
)
GROUP = GroupStatus("m", "a|b", (GroupPlace("nyc.a", 0, "exact", "r", 5, 6, 7, 8),), 9)


def folded(*records: NewRecord, now_s: float = 100.0, now_ms: int = 1_000_000) -> ControlState:
    board = ControlState()
    for offset, new in enumerate(records):
        board.apply(Record(new.topic, 0, offset, 0, new.key, new.value, new.headers), now_s, now_ms)
    return board


def test_what_is_written_is_what_is_read() -> None:
    mark = GroupMark("m", "a|b", "nyc.a", 0, 5, None, 4)
    synced = SyncedTopic("m", "nyc.a", {"retention.ms": "1"})
    board = folded(
        BEAT.record(),
        CARRIES.record(),
        PARTITION.record(),
        GROUP.record(),
        mark.record(),
        synced.record(),
        pause_record("m", "me", 3, paused=True),
        retry_record("m", 4),
    )
    assert board.beats == {"w1": BEAT} and board.carries == {"m": CARRIES}
    own = replace(
        CARRIES, topics={"nyc.a": CarriedTopic(2, "x", 1, own_ids=True), "nyc.b": CarriedTopic(1, "y")}
    )
    assert folded(own.record()).carries == {"m": own}
    assert b"true" not in (own.record().value or b"")  # earlier releases read a topic as three values
    rights = WriteAcls("m", frozenset({Acl("nyc.", "PREFIXED", "User:a", "*", "WRITE", "ALLOW")}), 3)
    handed = OwnershipAcls("nyc", {"lon": rights.rules}, {}, {}, 4)
    told = folded(handed.record(), rights.record(), replace(handed, given={}, revision=3).record())
    assert told.rights == {"m": rights} and told.handed == {"nyc": handed}  # the later of two counts
    assert board.partitions == {("m", "nyc.a", 0): PARTITION} and board.groups == {("m", "a|b"): GROUP}
    assert board.marks == {("m", "a|b"): {TopicPartition("nyc.a", 0): mark}}
    assert board.synced == {("m", "nyc.a"): synced}
    assert board.paused == {"m": "me"} and board.retries == {"m": 4}


def test_tombstones_forget() -> None:
    written: list[Any] = [
        BEAT,
        CARRIES,
        PARTITION,
        GROUP,
        GroupMark("m", "a|b", "nyc.a", 0, 5, None, 4),
        SyncedTopic("m", "nyc.a", {}),
    ]
    records = [each.record() for each in written] + [pause_record("m", "me", 3, paused=True)]
    board = folded(*records, *(replace(new, value=None) for new in records))
    assert not any((board.beats, board.carries, board.partitions, board.groups, board.synced, board.paused))
    assert not any(board.marks.values())


def test_a_strange_record_is_an_error_that_says_where() -> None:
    with pytest.raises(HubFault, match="offset 0"):
        folded(NewRecord(CONTROL_TOPIC, b"pause|m", b"no json"))
    with pytest.raises(HubFault):
        folded(replace(BEAT.record(), value=b"{}"))
    assert folded(NewRecord(CONTROL_TOPIC, b"of a newer hub|m", b"{}")).paused == {}


def test_a_worker_lives_as_long_as_it_is_heard_by_the_readers_clock() -> None:
    board = folded(
        BEAT.record(), now_s=100.0, now_ms=BEAT.at_ms + 30_000
    )  # a clock that is half a minute off
    assert board.alive(105.9) == {"w1"} and board.alive(106.1) == frozenset()
    assert {lease.shard for lease in board.leases(101.0)} == set(BEAT.holding)
    assert {lease.until_ms for lease in board.leases(101.0)} == {106_000}
    # One of yesterday, read when a reader begins, is not alive.
    assert folded(BEAT.record(), now_s=100.0, now_ms=BEAT.at_ms + 86_400_000).alive(100.0) == frozenset()


def test_partitions_go_to_shards_and_all_of_them() -> None:
    found = LinkContents("m", {"nyc.a": CarriedTopic(9, "id")}).shards(4)
    assert sorted(tp.partition for each in found.values() for tp in each) == list(range(9))
    assert {shard.link for shard in found} == {"m"}


def test_of_two_clusters_the_one_that_is_further_on_counts() -> None:
    first = failover.begin(Control(), "failover", id="1", mirror="m", home="nyc", new="lon", now_ms=0)
    further = failover.done(first, "claim")
    aborted, _ = failover.abort(further)
    after = replace(first, id="2")

    def control(operation: OwnershipChange) -> Control:
        return Control({}, {"nyc": operation})

    for one, other, expected in (
        (first, further, further),
        (further, aborted, aborted),
        (aborted, after, after),
        (replace(after, epoch=2), further, replace(after, epoch=2)),
    ):
        for order in ((one, other), (other, one)):
            assert joined(map(control, order)).operations["nyc"] == expected
    owners = [Control({"nyc": Ownership("nyc", "lon", epoch)}) for epoch in (1, 2)]
    assert joined(reversed(owners)).owner("nyc").epoch == 2


FILE = MirrorsFile.model_validate(
    {
        "clusters": {"nyc": {"bootstrap": "h:1", "owns": ["nyc.**"]}, "lon": {"bootstrap": "h:2"}},
        "mirrors": {"m": {"source": "nyc", "target": "lon", "topics": ["nyc.**"]}},
    }
)


def test_the_status_of_a_mirror() -> None:
    progress = WrittenState()
    progress.checkpoints["m", "nyc.a", 0] = Checkpoint(
        "m", 0, "nyc.a", 0, "id", 7, -1, 8, committed_at_ms=999_000
    )
    link = links(FILE)["m"]
    fresh = replace(PARTITION, at_ms=1_000_000)
    places = (GroupPlace("nyc.a", 0, "exact", "r", 5, 6, 3, 2),)
    group = GroupStatus("m", "g", places, 9)
    board = folded(BEAT.record(), replace(CARRIES, trouble={}).record(), fresh.record(), group.record())
    # Its other partition was not reported by any worker, and no worker holds it.
    found = summary_of(FILE, link, board, progress, 1_000_500)
    assert (found["state"], found["ok"], found["lag_records"]) == ("unknown", False, None)
    assert [row["state"] for row in found["partitions"]] == ["mirroring", "unknown"]
    assert (
        "1 of its 2 partitions are not reported" in found["reason"] and "nyc.a partition 1" in found["reason"]
    )
    ends = SourceEndOffsets({TopicPartition("nyc.a", 1): 120}, {TopicPartition("nyc.a", 1): 20})
    found = summary_of(FILE, link, board, progress, 1_000_500, ends)
    assert [row["lag_records"] for row in found["partitions"]] == [8, 100] and found["lag_records"] == 108
    assert found["lag_s"] == 1.5 and found["lag_bytes"] is None

    board = folded(
        BEAT.record(),
        LinkContents("m", {"nyc.a": CarriedTopic(1, "id", 1)}).record(),
        fresh.record(),
        group.record(),
    )
    found = summary_of(FILE, link, board, progress, 1_000_500)
    assert (found["state"], found["ok"], found["workers"]) == ("mirroring", True, 1)
    assert (
        found["lag_records"] == 8
    )  # the observed end minus the checkpoint, which is newer than that observation
    assert found["lag_bytes"] == 80
    assert [row["state"] for row in found["partitions"]] == ["mirroring"]
    assert found["last_commit_s"] == 1.5
    assert found["groups"][0]["rpo_records"] == 3 and found["groups"][0]["rpo_s"] == 1.5

    alone = summary_of(FILE, link, board, progress, 1_000_000 + 120_000)
    assert (alone["state"], alone["ok"]) == ("no worker", False)
    beating = folded(
        replace(BEAT, at_ms=1_100_000).record(), replace(CARRIES, trouble={}).record(), fresh.record()
    )
    unheld = summary_of(FILE, link, beating, progress, 1_100_000)
    assert (unheld["state"], unheld["ok"]) == ("trouble", False) and "reported 1 of its" in unheld["reason"]
    refused = summary_of(FILE, link, folded(BEAT.record(), CARRIES.record()), progress, 1_000_500)
    assert refused["state"] == "trouble" and refused["trouble"] == {"nyc.b": "why"}
    away = Ownership("nyc", "lon", 1).record()
    handed = summary_of(
        FILE, link, folded(BEAT.record(), LinkContents("m").record(), away), progress, 1_000_500
    )
    assert (handed["state"], handed["ok"]) == ("handed over", True)
    assert "hub mirror failback m" in handed["reason"]
    paused = folded(BEAT.record(), pause_record("m", "me", 3, paused=True))
    assert summary_of(FILE, link, paused, progress, 1_000_500)["state"] == "paused"


def test_a_status_has_the_changes_of_ownership_with_their_times() -> None:
    """Charts mark them. A home that never moved, and homes of other mirrors, have none."""
    moved = [
        Ownership("nyc", "lon", 1, 5),
        Ownership("nyc", "lon", 2, 7, ("nyc.a",)),
        Ownership("par", "lon", 1, 9),
    ]
    records = [record for each in moved for record in each.records()]
    link = links(FILE)["m"]
    assert summary_of(FILE, link, folded(CARRIES.record()), WrittenState(), 9)["ownership"] == []
    assert summary_of(FILE, link, folded(CARRIES.record(), *records), WrittenState(), 9)["ownership"] == [
        {"home": "nyc", "acting": "lon", "at_ms": 5, "topics": []},
        {"home": "nyc", "acting": "lon", "at_ms": 7, "topics": ["nyc.a"]},
    ]


def test_what_a_failover_left_behind_is_told_until_the_source_acts_again() -> None:
    link = links(FILE)["m"]
    loss = loss_report.Loss(TopicPartition("nyc.a", 1), 100, 130, False)
    older = loss_report.FailoverRecord(
        "nyc", 1, (loss_report.Loss(TopicPartition("nyc.a", 0), 1, 2, True),), 3, 4
    )
    newer = loss_report.FailoverRecord(
        "nyc", 3, (loss,), 7, 5, exact=False, heard_at_ms=4, redelivered_at_most=9
    )
    records = [CARRIES.record(), older.record(), newer.record()]
    board = folded(*records)
    assert board.declared == {"nyc": newer}
    assert folded(*reversed(records)).declared == {"nyc": newer}
    assert (
        summary_of(FILE, link, board, WrittenState(), 9)["lost"] == []
    )  # written down, and not taken over yet

    def owned(acting: str, epoch: int) -> dict[str, object]:
        said = Ownership("nyc", acting, epoch).record()
        found = summary_of(FILE, link, folded(*records, said), WrittenState(), 9)
        return {name: found[name] for name in ("lost", "lost_known", "redelivered")}

    row = {"topic": "nyc.a", "partition": 1, "first": 100, "end": 130, "known": False}
    assert owned("lon", 3) == {"lost": [row], "lost_known": False, "redelivered": None}
    assert owned("nyc", 4) == owned("lon", 5) == {"lost": [], "lost_known": True, "redelivered": 0}


def test_losses_of_two_failovers_are_as_old_as_the_older_report() -> None:
    """A report of which the time is unknown makes the time of all unknown."""

    def heard_at_ms(first: int | None, second: int | None) -> object:
        records = [
            record
            for topic, heard in (("nyc.a", first), ("nyc.b", second))
            for record in (
                loss_report.FailoverRecord(
                    f"nyc|{topic}", 3, (), 0, 0, exact=False, heard_at_ms=heard
                ).record(),
                Ownership(f"nyc|{topic}", "lon", 3).record(),
            )
        ]
        board = folded(CARRIES.record(), *records)
        return summary_of(FILE, links(FILE)["m"], board, WrittenState(), 9)["lost_heard_at_ms"]

    assert (heard_at_ms(8, 4), heard_at_ms(4, 8)) == (4, 4)
    assert heard_at_ms(None, 4) is None
