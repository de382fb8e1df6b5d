"""Targets that hold positions, on real SQLite and files: each event once, whatever fails in between."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from hub.backup.storage.object_store import FolderStore
from hub.errors import ConfigError, Conflict, PeerError
from hub.materializers.queries.relations import OutputColumn
from hub.record import Positions, Record, TopicPartition
from hub.sinks.events import RefusedRecord, SinkBatch, SinkEvent
from hub.sinks.sinks_file import DatabaseTarget
from hub.sinks.targets.database import Database
from hub.sinks.targets.files import Files

STOP = threading.Event()
COLUMNS = (OutputColumn("n", "long"), OutputColumn("at", "timestamp"), OutputColumn("tags", "json"))
PLACE = TopicPartition("t", 0)


def at(offset: int) -> Positions:
    return Positions({PLACE: offset})


def event(offset: int, key: str | None, row: dict[str, Any] | None) -> SinkEvent:
    encoded = None if key is None else key.encode()
    return SinkEvent(Record("t", 0, offset, 1_700_000_000_000, encoded, b"x"), row)


def row(n: Any) -> dict[str, Any]:
    return {"n": n, "at": "2026-01-31T12:00:00.000Z", "tags": ["a"]}


class Buried(list[RefusedRecord]):
    def __call__(self, refused: Sequence[RefusedRecord]) -> None:
        self.extend(refused)


def opened(url: str, **more: Any) -> Database:
    target = DatabaseTarget.model_validate({"url": url, "table": "orders", **more})
    return Database("s", target, COLUMNS, {})


def rows(url: str) -> list[tuple[Any, ...]]:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT key, n FROM orders ORDER BY key")).all()
    engine.dispose()
    return [tuple(each) for each in found]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_rows_replace_those_of_their_key_and_tombstones_delete(url: str) -> None:
    database, buried = opened(url), Buried()
    assert database.positions(at(0)) == at(0)
    events = [event(0, "a", row(1)), event(1, "b", row(2)), event(2, "a", row(3)), event(3, "b", None)]
    assert database.deliver(SinkBatch(events, at(0), at(4)), STOP, buried).events == 4
    database.close()
    again = opened(url)
    assert again.positions(at(0)) == at(4)  # the position of the database wins
    again.close()
    assert rows(url) == [("a", 3)] and not buried


def test_appended_rows_are_one_for_each_record(url: str) -> None:
    database = opened(url, append=True)
    database.positions(at(0))
    events = [event(0, None, row(1)), event(1, "a", row(2)), event(2, "a", None)]
    database.deliver(SinkBatch(events, at(0), at(3)), STOP, Buried())
    database.close()
    assert rows(url) == [("t-0-0", 1), ("t-0-1", 2)]


def test_a_row_that_the_table_refuses_is_buried_before_the_position_passes_it(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE orders (key TEXT PRIMARY KEY, n INT CHECK (n < 9), at TEXT, tags TEXT)")
        )
    engine.dispose()
    database, buried = opened(url), Buried()
    database.positions(at(0))
    events = [event(0, "a", row(1)), event(1, "b", row(9)), event(2, None, row(3)), event(3, "d", row(4))]

    def away(_refused: Sequence[RefusedRecord]) -> None:
        raise PeerError("Kafka does not answer")

    with pytest.raises(PeerError):
        database.deliver(SinkBatch(events[:2], at(0), at(2)), STOP, away)
    database.close()
    again = opened(url)
    assert again.positions(at(0)) == at(1)  # behind "a", before the row that is not buried
    with pytest.raises(PeerError):
        again.deliver(SinkBatch(events[2:3], at(1), at(3)), STOP, away)
    assert again.positions(at(0)) == at(1)
    again.deliver(SinkBatch(events[1:], at(1), at(4)), STOP, buried)
    again.close()
    assert {each.record.offset for each in buried} == {1, 2}
    assert rows(url) == [("a", 1), ("d", 4)]


def test_a_worker_that_was_replaced_writes_nothing_more(url: str) -> None:
    old, new = opened(url), opened(url)
    old.positions(at(0))
    new.positions(at(0))
    new.deliver(SinkBatch([event(0, "a", row(1))], at(0), at(1)), STOP, Buried())
    with pytest.raises(Conflict, match="another worker has written"):
        old.deliver(SinkBatch([event(0, "a", row(7))], at(0), at(1)), STOP, Buried())
    for each in (old, new):
        each.close()
    assert rows(url) == [("a", 1)]


def test_a_table_without_a_column_or_a_unique_key_is_named(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (key TEXT, n INT)"))
    with pytest.raises(ConfigError, match="has no column at, tags"):
        opened(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE orders ADD COLUMN at TEXT"))
        connection.execute(text("ALTER TABLE orders ADD COLUMN tags TEXT"))
    engine.dispose()
    with pytest.raises(ConfigError, match='"key" of table "orders" is not unique'):
        opened(url)


def test_files_are_rolled_by_size_and_age_and_continue_where_the_last_one_ends(tmp_path: Path) -> None:
    now = [0.0]

    def files() -> Files:
        store = FolderStore(tmp_path / "out")
        return Files(store, "t", roll_bytes=10_000, roll_every_s=60.0, clock=lambda: now[0])

    first = files()
    first.positions(at(0))
    batch = SinkBatch([event(0, "a", row(1)), event(1, "b", None)], at(0), at(2))
    assert first.deliver(batch, STOP, Buried()).positions == at(0)  # lines wait: the position waits too
    now[0] = 61.0
    assert first.deliver(SinkBatch([], at(2), at(2)), STOP, Buried()).positions == at(2)
    first.deliver(SinkBatch([event(2, "c", row(3))], at(2), at(3)), STOP, Buried())
    first.close()  # killed: the line that waited is lost, and read again
    second = files()
    assert second.positions(at(0)) == at(2)
    many = [event(n, "c", row(n)) for n in range(2, 200)]
    assert second.deliver(SinkBatch(many, at(2), at(200)), STOP, Buried()).positions == at(200)
    with pytest.raises(Conflict):
        files().positions(at(0))
    second.close()
    names = sorted(each.name for each in (tmp_path / "out").rglob("*.gz"))
    assert [name.split(".")[0].lstrip("0") for name in names] == [
        "-00000000000000000002",
        "2-00000000000000000200",
    ]
    lines = [
        line
        for each in (tmp_path / "out").rglob("*.gz")
        for line in gzip.decompress(each.read_bytes()).splitlines()
    ]
    assert len(lines) == 200
