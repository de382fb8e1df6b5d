"""MirrorMaker 2's records, by bytes written by hand from the schemas of OffsetSync.java, Checkpoint.java,
Heartbeat.java."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hub.errors import CallerError, PeerError
from hub.record import Record, TopicPartition
from hub.replication.config.mirrors import Mirror
from hub.replication.migration.mirror_maker_import import Importer
from hub.replication.migration.mirror_maker_records import (
    GroupCheckpoint,
    OffsetSync,
    checkpoint_of,
    checkpoints_topic,
    heartbeat_of,
    meant,
    renamed,
    sync_of,
    syncs_topic,
    usable,
)
from hub.replication.ownership.links import Link

SYNC_KEY = b"\x00\x08nyc.chat" + b"\x00\x00\x00\x03"
SYNC_VALUE = b"\x00\x00\x00\x00\x00\x00\x01\x00" + b"\x00\x00\x00\x00\x00\x00\x01\x05"
GROUP_KEY = b"\x00\x09r\xc3\xa9aders|" + b"\x00\x08nyc.chat" + b"\x00\x00\x00\x03"
GROUP_VALUE = b"\x00\x00" + SYNC_VALUE + b"\x00\x02hi"


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record("internal", 0, 7, 0, key, value)


def test_an_offset_sync_is_two_offsets_of_one_record() -> None:
    found = sync_of(record(SYNC_KEY, SYNC_VALUE))
    assert found == OffsetSync(TopicPartition("nyc.chat", 3), 256, 261)


def test_a_checkpoint_is_a_groups_position_on_both_sides() -> None:
    found = checkpoint_of(record(GROUP_KEY, GROUP_VALUE))
    assert found == GroupCheckpoint("réaders|", TopicPartition("nyc.chat", 3), 256, 261)


def test_tombstones_say_nothing_and_offsets_that_were_never_learnt_are_none() -> None:
    assert sync_of(record(SYNC_KEY, None)) is None
    assert checkpoint_of(record(GROUP_KEY, None)) is None
    assert sync_of(record(SYNC_KEY, SYNC_VALUE[:8] + b"\xff" * 8)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (SYNC_KEY[:-1], SYNC_VALUE),
        (SYNC_KEY + b"\x00", SYNC_VALUE),
        (SYNC_KEY, SYNC_VALUE[:-1]),
        (SYNC_KEY, SYNC_VALUE + b"\x00"),
        (b"\x00\x02\xff\xfe" + b"\x00\x00\x00\x03", SYNC_VALUE),
        (b"\x7f\xffnyc", SYNC_VALUE),
        (b"\xff\xff\x00\x00\x00\x03", SYNC_VALUE),
        (b"", b""),
        (SYNC_KEY[:-4] + b"\xff\xff\xff\xff", SYNC_VALUE),
        (b'{"topic":"nyc.chat"}', b'{"offset":1}'),
    ],
)
def test_other_bytes_are_refused_with_their_place(key: bytes, value: bytes) -> None:
    with pytest.raises(PeerError, match="internal, partition 0, offset 7"):
        sync_of(record(key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (SYNC_KEY, GROUP_VALUE),
        (GROUP_KEY + b"\x00", GROUP_VALUE),
        (GROUP_KEY, GROUP_VALUE[:-1]),
        (GROUP_KEY, GROUP_VALUE + b"\x00"),
        (GROUP_KEY, b"\x00\x01" + GROUP_VALUE[2:]),  # a version that is not known yet
        (GROUP_KEY, SYNC_VALUE),
        (GROUP_KEY, b""),
    ],
)
def test_other_checkpoints_too(key: bytes, value: bytes) -> None:
    with pytest.raises(PeerError, match="no checkpoint of MirrorMaker 2"):
        checkpoint_of(record(key, value))


def test_the_names_are_those_that_mirror_maker_gives() -> None:
    assert syncs_topic("lon") == "mm2-offset-syncs.lon.internal"
    assert checkpoints_topic("nyc") == "nyc.checkpoints.internal"
    assert renamed("nyc", "chat") == "nyc.chat"
    assert heartbeat_of(record(b"\x00\x03nyc\x00\x03lon", b"")) == "nyc"
    assert heartbeat_of(record(b"\x00", b"")) is None


def test_a_topic_that_is_not_there_is_guessed() -> None:
    there = ["chat", "mm2-offset-syncs.london.internal", "newyork.checkpoints.internal"]
    assert meant(there, "mm2-offset-syncs.lon.internal") == "mm2-offset-syncs.london.internal"
    assert meant(there, "nyc.checkpoints.internal") == "newyork.checkpoints.internal"
    assert meant(["chat"], "mm2-offset-syncs.lon.internal") == ""


def test_what_mirror_maker_said_before_it_began_again_is_taken_back() -> None:
    place = TopicPartition("nyc.chat", 0)

    def pairs(*offsets: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        return usable(OffsetSync(place, *each) for each in offsets)

    assert pairs((0, 0), (100, 100), (200, 201)) == ((0, 0), (100, 100), (200, 201))
    assert pairs((0, 0), (100, 100), (50, 140), (120, 210)) == ((0, 0), (50, 140), (120, 210))
    assert pairs((100, 100), (0, 200)) == ((0, 200),)
    assert pairs((100, 100), (200, 50)) == ((200, 50),)  # the copy was made again
    assert pairs() == ()


def test_a_mirror_with_rules_takes_over_no_copies() -> None:
    """What MirrorMaker copied is whole: the rules would make other records of it."""
    mirror = Mirror(source="nyc", target="lon", topics=["nyc.**"], schema_ids="rewrite")
    with pytest.raises(CallerError, match="other records than MirrorMaker copied"):
        Importer(cast(Any, None), Link("nyc-lon", mirror, "nyc-lon"), {}, cast(Any, None))
