"""Deletions for the rows that a TRUNCATE removed, from the events of their topic."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hub.connectors.truncations import TruncatedRows
from hub.errors import CallerError
from hub.record import NewRecord, Record

TOPIC = "crm.public.notes"


def change(op: str, lsn: int, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn}, "ts_ms": lsn}


class Topic:
    """Records as a topic has them, and what reading them finds."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, key: int | None, value: dict[str, Any] | None, partition: int = 0) -> None:
        text = None if key is None else json.dumps({"id": key}).encode()
        body = None if value is None else json.dumps(value).encode()
        self.records.append(Record(TOPIC, partition, len(self.records), 0, text, body, ()))

    def read(self) -> TruncatedRows:
        found = TruncatedRows(TOPIC)
        for record in self.records:
            found.apply(record)
        return found

    def append(self, new: list[NewRecord]) -> None:
        for each in new:
            self.write(
                json.loads(each.key or b"")["id"],
                None if each.value is None else json.loads(each.value),
                each.partition or 0,
            )


@pytest.fixture
def notes() -> Topic:
    made = Topic()
    made.write(1, change("r", 10, {"id": 1}))
    made.write(2, {"schema": {}, "payload": change("c", 20, {"id": 2})}, 1)
    made.write(3, change("c", 30, {"id": 3}))
    made.write(3, change("d", 40, None, {"id": 3}))
    made.write(3, None)
    made.write(None, change("t", 50))
    made.write(4, change("c", 60, {"id": 4}))
    return made


def test_rows_from_before_the_truncation_are_deleted_and_later_ones_stay(notes: Topic) -> None:
    one, gone, two, gone_too = notes.read().deletions()
    assert (one.partition, gone.value, gone_too.value) == (0, None, None)
    assert json.loads(one.value or b"") == change("d", 50, None, {"id": 1})
    assert two.partition == 1
    assert json.loads(two.value or b"") == {"schema": {}, "payload": change("d", 50, None, {"id": 2})}


def test_a_second_call_deletes_nothing_and_a_second_truncation_does(notes: Topic) -> None:
    notes.append(notes.read().deletions())
    assert notes.read().deletions() == []
    notes.write(None, change("t", 70))
    deletions = notes.read().deletions()
    assert [json.loads(each.key or b"") for each in deletions[::2]] == [{"id": 4}]


def test_nothing_is_deleted_without_a_truncation_and_other_formats_are_refused() -> None:
    made = Topic()
    made.write(1, change("c", 1, {"id": 1}))
    assert made.read().deletions() == []
    made.records.append(Record(TOPIC, 2, 7, 0, b"k", b"\0\0\0\0\1x", ()))
    with pytest.raises(CallerError, match="partition 2 offset 7: no change event in JSON") as refused:
        made.read()
    assert refused.value.code == "HUB-1464"
