"""Partitions of which nothing was mirrored when ownership leaves home: which ones, and from where on."""

from __future__ import annotations

from hub.record import Record, TopicPartition
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.status_records import CarriedTopic, SourceEnds
from hub.replication.config.mirrors import Mirror
from hub.replication.engine.shard_start import SeedFacts, seed
from hub.replication.maps.checkpoint import Checkpoint, checkpoint_of
from hub.replication.operations.never_mirrored import first_offsets, never_mirrored
from hub.replication.ownership.links import Link
from hub.replication.ownership.shards import Shard

CHAT = [TopicPartition("nyc.chat", number) for number in range(3)]
LATEST = Mirror(source="nyc", target="lon", topics=["nyc.**"], start="latest")
LINK = Link("nyc-lon", LATEST.model_copy(update={"start": "earliest"}), "nyc-lon")


def test_only_partitions_without_checkpoint_and_without_records_are_recorded() -> None:
    topics = {"nyc.chat": CarriedTopic(3, "id")}
    assert never_mirrored(topics, [], []) == CHAT
    assert never_mirrored(topics, [CHAT[0]], [CHAT[0]]) == CHAT[1:]
    # Records without a checkpoint may be copies of a mirror that was dropped: they would come twice.
    assert never_mirrored(topics, [CHAT[0]], [CHAT[2]]) == [CHAT[1]]


def test_a_source_that_is_away_begins_where_it_was_reported_last() -> None:
    heard = ControlState(ends={"nyc-lon": SourceEnds("nyc-lon", {CHAT[0]: (7, 40)}, 1)})
    assert first_offsets(heard, LINK, CHAT[:2]) == {CHAT[0]: 7, CHAT[1]: 0}
    latest = Link("nyc-lon", LATEST, "nyc-lon")
    assert first_offsets(heard, latest, CHAT[:2]) == {CHAT[0]: 40}
    assert first_offsets(ControlState(), LINK, CHAT[:1]) == {CHAT[0]: 0}


def test_the_checkpoint_says_that_nothing_was_mirrored() -> None:
    facts = SeedFacts(CHAT[1], CarriedTopic(3, "S"), None, 7, 0, 0, 2, "T")  # two offsets of aborted records
    made = [
        checkpoint_of(Record(each.topic, 0, 0, 0, each.key, each.value))
        for each in seed(facts, Shard("nyc-lon", 2), 0, 0)
    ]
    mark = made[0]
    assert isinstance(mark, Checkpoint) and len(made) == 1
    assert (mark.source_start, mark.source_next, mark.target_start, mark.target_next) == (7, 7, 2, 2)
    assert mark.is_of("S", "T") and not mark.is_of("S", "another")
