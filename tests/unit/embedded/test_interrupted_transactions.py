"""The decisions of transactions in Kafka's log of transactions, in both of its formats."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hub.embedded.interrupted_transactions import (
    TransactionDecision,
    decision_of,
    decisions_in,
    known_and_new,
)
from hub.record import TopicPartition
from hub.varint import unsigned

PARTITIONS = (TopicPartition("shop.orders", 0), TopicPartition("shop.orders", 7), TopicPartition("größe", 1))
PREPARE_COMMIT, PREPARE_ABORT = 2, 3


def fixed(status: int, partitions: tuple[TopicPartition, ...] = PARTITIONS) -> bytes:
    """A state in the format before tagged fields."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    found = struct.pack(">hqhibi", 0, 1000, 5, 60_000, status, len(topics))
    for topic, numbers in topics.items():
        name = topic.encode()
        found += struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
    return found + struct.pack(">qq", 1, 2)


def flexible(status: int, tags: dict[int, bytes]) -> bytes:
    """The same in the format with tagged fields."""
    found = struct.pack(">hqhib", 1, 1000, 5, 60_000, status) + unsigned(3)
    for topic, numbers in (("shop.orders", (0, 7)), ("größe", (1,))):
        name = topic.encode()
        found += unsigned(len(name) + 1) + name + unsigned(len(numbers) + 1)
        found += struct.pack(f">{len(numbers)}i", *numbers) + unsigned(0)
    found += struct.pack(">qq", 1, 2) + unsigned(len(tags))
    for tag, value in tags.items():
        found += unsigned(tag) + unsigned(len(value)) + value
    return found


@pytest.mark.parametrize(("status", "commits"), [(PREPARE_COMMIT, True), (PREPARE_ABORT, False)])
def test_a_decision_is_read_in_both_formats(status: int, commits: bool) -> None:
    wanted = TransactionDecision("billing", 1000, 5, commits, PARTITIONS)
    assert decision_of("billing", fixed(status)) == wanted
    assert decision_of("billing", flexible(status, {})) == wanted


def test_the_ids_and_the_version_of_a_client_with_an_epoch_each_are_read() -> None:
    tags = {0: struct.pack(">q", 999), 1: struct.pack(">q", 1001), 2: struct.pack(">h", 2)}
    found = decision_of("billing", flexible(PREPARE_COMMIT, tags))
    assert found == TransactionDecision("billing", 1000, 5, True, PARTITIONS, previous_id=999, version=2)


def test_states_that_decide_nothing_and_formats_of_later_releases_are_no_decisions() -> None:
    for status in (0, 1, 4, 5, 6, 7):
        assert decision_of("billing", fixed(status)) is None
    assert decision_of("billing", None) is None
    assert decision_of("billing", b"\x00") is None
    assert decision_of("billing", struct.pack(">h", 9) + fixed(PREPARE_COMMIT)[2:]) is None


def test_a_folder_without_transactions_has_none_and_a_file_that_cannot_be_read_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert decisions_in(tmp_path) == []
    kept = tmp_path / "kept.json"
    assert known_and_new(kept, tmp_path) == []
    assert not kept.exists()
    kept.write_text('[{"transactional_id": "billing"}]')
    assert known_and_new(kept, tmp_path) == []
    assert "cannot be read" in caplog.text
