"""Test that the fault suite compares dead-letter queues with the unreadable records of their topics."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from fault_suite.dead_letters import READ_BY, check_dead_letters
from fault_suite.model import ORDER_V1, ORDERS, PEOPLE, PERSON, Codec, fold, readable

from hub.record import Record

CODEC = Codec({ORDERS: 1, PEOPLE: 2}, {1: ORDER_V1, 2: PERSON})
ORDER = CODEC.encode(ORDERS, {"id": "o1", "customer": "c1", "city": "Oslo", "cents": 5, "seq": 1})
UNKNOWN_ID = b"\x00\x7f\xff\xff\xff" + b"x" * 20
LOG = {
    ORDERS: [
        Record(ORDERS, 0, 0, 0, b"c1", ORDER),
        Record(ORDERS, 0, 1, 0, b"poison", b"no schema"),
        Record(ORDERS, 1, 0, 0, b"poison", UNKNOWN_ID),
    ],
    PEOPLE: [Record(PEOPLE, 0, 0, 0, b"c1", None)],
}


def letter(view: str, partition: int, offset: int, value: bytes, topic: str = ORDERS) -> Record:
    headers = tuple(
        (f"hub.dlq.{name}", said.encode())
        for name, said in (
            ("reason", "not in the Confluent wire format"),
            ("view", view),
            ("topic", topic),
            ("partition", str(partition)),
            ("offset", str(offset)),
        )
    )
    return Record(f"{ORDERS}.dlq", 0, 0, 0, b"poison", value, headers)


RIGHT = [
    each
    for view in READ_BY[ORDERS]
    for each in (letter(view, 0, 1, b"no schema"), letter(view, 1, 0, UNKNOWN_ID))
]


def test_a_record_of_an_unknown_schema_is_left_out_of_the_fold() -> None:
    assert [event and event["id"] for _, event in readable(CODEC, LOG[ORDERS])] == ["o1"]
    assert fold(CODEC, LOG[ORDERS], LOG[PEOPLE])["city_totals"]["Oslo"]["orders"] == 1


def test_every_unreadable_record_of_every_view_is_right_however_often_it_was_written() -> None:
    assert check_dead_letters(CODEC, LOG, {ORDERS: RIGHT}) == []
    assert check_dead_letters(CODEC, LOG, {ORDERS: [*RIGHT, *RIGHT]}) == []


def test_a_version_of_a_view_counts_as_the_view() -> None:
    versions = [letter(f"{view}@2", 0, 1, b"no schema") for view in READ_BY[ORDERS]]
    assert check_dead_letters(CODEC, LOG, {ORDERS: [*versions, *RIGHT[1::2]]}) == []


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        (RIGHT[1:], "home.orders.dlq lacks (0, 1) of customer_totals"),
        ([*RIGHT, letter("city_totals", 0, 0, ORDER)], "has (0, 0) of city_totals, which can be read"),
        ([letter("customer_totals", 0, 1, b"other"), *RIGHT[1:]], "has other bytes at (0, 1)"),
        ([*RIGHT, letter("city_totals", 0, 1, b"no schema", "else")], "names no place"),
    ],
)
def test_what_is_missing_or_too_much_is_told(letters: list[Record], expected: str) -> None:
    assert expected in "\n".join(check_dead_letters(CODEC, LOG, {ORDERS: letters}))


def test_a_queue_that_is_not_there_lacks_everything() -> None:
    assert len(check_dead_letters(CODEC, LOG, {})) == 5
