"""Test the decisions of the fault suite about copies and counts: each must go red for what is wrong."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from fault_suite.copies import Generation, copy_differences, position_differences
from fault_suite.counts import count_violations
from fault_suite.faults import kills, possible
from fault_suite.model import OLD_MS, ORDER_V1, ORDERS, Codec, fold
from fault_suite.world import HUB_PARTS, SECOND_PARTS

from hub.record import Positions, Record, TopicPartition

PLACE = TopicPartition(ORDERS, 0)


def event(offset: int, name: str) -> Record:
    return Record(ORDERS, 0, offset, 1, b"k", b"v", (("id", name.encode()),))


OURS = [event(5, "a"), event(6, "b")]
THEIRS = [event(1, "a"), event(3, "b")]


@pytest.mark.parametrize(
    ("away", "words"),
    [
        ({PLACE: 3}, ""),
        ({PLACE: 1}, "is at 6 at home"),
        ({PLACE: 4}, "is at 6 at home"),
        ({}, "nowhere away"),
    ],
)
def test_a_group_continues_with_the_same_event(away: dict[TopicPartition, int], words: str) -> None:
    found = position_differences(Positions({PLACE: 6}), Positions(away), OURS, THEIRS)
    assert (words in "".join(found)) if words else found == []
    assert (
        position_differences(Positions({PLACE: 7}), Positions({PLACE: 4}), OURS, THEIRS) == []
    )  # at the end


def life(*values: bytes, whole: bool = True) -> Generation:
    return Generation({0: list(values)}, whole)


@pytest.mark.parametrize(
    ("copy", "words"),
    [
        ([b"1", b"2", b"3", b"4"], ""),
        ([b"1", b"3", b"4"], ""),  # the first life was deleted before its rest was mirrored
        ([b"3", b"4"], ""),
        ([b"1", b"2", b"3"], "has 1 of 2"),
        ([b"2", b"3", b"4"], "out of order"),
        ([b"1", b"1", b"3", b"4"], "twice"),
        ([b"1", b"2", b"4", b"3"], "out of order"),
        ([b"1", b"2", b"3", b"4", b"3"], "twice"),
    ],
)
def test_a_copy_has_the_lives_of_its_topic_one_after_the_other(copy: list[bytes], words: str) -> None:
    found = copy_differences([life(b"1", b"2"), life(b"3", b"4")], {0: copy})
    assert (words in "".join(found)) if words else found == []


def test_only_what_kafka_acknowledged_must_be_in_the_copy() -> None:
    assert copy_differences([life(b"1", b"2", whole=False)], {0: [b"1"]}) == []
    assert copy_differences([life(b"1", b"2")], {0: [b"1"]}) != []


@pytest.mark.parametrize(
    "state", ["BALANCED", "OPEN", "UNKNOWN", "NEVER", "SHORT", "MISMATCH", "EXCESS", "UNEXPLAINED"]
)
def test_nothing_is_called_missing_while_something_is_hurt(state: str) -> None:
    found = count_violations(
        [{"topic": ORDERS, "state": state, "cause": "x"}, {"topic": "other", "state": "SHORT"}]
    )
    assert bool(found) == (state in ("SHORT", "MISMATCH", "EXCESS", "UNEXPLAINED"))


def test_rows_whose_events_are_all_old_are_gone_and_one_event_restores_all_of_them() -> None:
    codec = Codec({ORDERS: 1}, {1: ORDER_V1})
    now_ms = int(time.time() * 1000)

    def order(number: int, customer: str, age_ms: int) -> Record:
        value: dict[str, Any] = {
            "id": f"o{number}",
            "customer": customer,
            "city": "Oslo",
            "cents": 5,
            "seq": number,
        }
        return Record(ORDERS, 0, number, now_ms - age_ms, customer.encode(), codec.encode(ORDERS, value))

    orders = [
        order(1, "old", OLD_MS),
        order(2, "back", OLD_MS),
        order(3, "back", 0),
        order(4, "back", OLD_MS),
    ]
    found = fold(codec, orders, [])
    assert found["recent_customers"] == {"back": {"orders": 3, "cents": 15}}
    assert set(found["customer_totals"]) == {"old", "back"}


@pytest.mark.parametrize("seed", range(20))
def test_the_sample_kills_each_process_once_in_an_order_of_its_seed(seed: int) -> None:
    kinds = possible(frozenset({"own disk"}))
    rounds = kills(kinds, Random(seed))
    killed = [each.name for together in rounds for each in together]
    processes = {f"kill -9 {part}" for part in (*HUB_PARTS, *SECOND_PARTS, "spark", "Postgres")}
    assert sorted(killed) == sorted({*processes, "kill -9 a home broker", "kill -9 the away broker"})
    assert rounds == kills(kinds, Random(seed)) and max(map(len, rounds)) <= 3
