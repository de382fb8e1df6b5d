"""Positions in folders and databases: the input stays, and a plan is carried out whole or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from positions_world import MAPS, log

from hub.errors import CallerError, ConfigError, Conflict
from hub.replication.positions.spark_checkpoint import read_logs, write_moved
from hub.replication.positions.spark_logs import moved
from hub.replication.positions.sql_table import apply_plan, read_plan


def checkpoint(folder: Path) -> Path:
    for batch, offset in ((0, 12), (1, 16)):
        for kind, text in (("offsets", log(offset)), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            (folder / kind / str(batch)).write_text(text)
            (folder / kind / f".{batch}.crc").write_bytes(b"crc")
    (folder / "state" / "0" / "0").mkdir(parents=True)
    (folder / "state" / "0" / "0" / "1.delta").write_bytes(b"\x00state")
    (folder / "metadata").write_text('{"id":"q"}')
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_checkpoint_is_written_elsewhere_and_its_input_stays(tmp_path: Path) -> None:
    old, new = checkpoint(tmp_path / "old"), tmp_path / "new"
    before = contents(old)
    (tmp_path / "new.partial").mkdir()  # of a command that was killed
    write_moved(old, new, moved(read_logs(old), MAPS))
    assert contents(old) == before
    after = contents(new)
    assert (after["offsets/0"], after["offsets/1"]) == (log(2).encode(), log(6).encode())
    rewritten = {"offsets/0", "offsets/1"}
    assert {name: text for name, text in after.items() if name not in rewritten} == {
        name: text
        for name, text in before.items()
        if name not in rewritten and not name.startswith("offsets/.")
    }  # without Hadoop's checksums of the former texts
    assert not (tmp_path / "new.partial").exists()


def test_no_folder_is_replaced_and_none_is_inside_the_input(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "old")
    plan = moved(read_logs(old), MAPS)
    for taken in (old, tmp_path, old / "inside"):
        with pytest.raises(Conflict) as caught:
            write_moved(old, taken, plan)
        assert caught.value.code == "HUB-1977"
    with pytest.raises(CallerError, match="not a folder"):
        read_logs(tmp_path / "none")


def table(path: Path, rows: list[tuple[str, int, int]]) -> str:
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE positions (reader TEXT, topic TEXT, "partition" INT, "offset" INT)')
        database.executemany("INSERT INTO positions VALUES ('r', ?, ?, ?)", rows)
    return f"sqlite:///{path}"


def rows(path: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as database:
        return database.execute('SELECT topic, "partition", "offset" FROM positions ORDER BY 3').fetchall()


def test_a_table_is_updated_once_in_one_transaction(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    url = table(path, [("nyc.orders", 0, 12), ("nyc.orders", 0, 16), ("nyc.orders", 0, 18)])
    plan = read_plan(url, "positions", MAPS)
    assert rows(path) == [("nyc.orders", 0, each) for each in (12, 16, 18)]  # a dry run
    apply_plan(url, "positions", MAPS, plan.digest)
    assert rows(path) == [("nyc.orders", 0, each) for each in (2, 6, 8)]
    with pytest.raises(Conflict) as caught:  # after a crash nobody knows whether it was applied: again
        apply_plan(url, "positions", MAPS, plan.digest)
    assert caught.value.code == "HUB-1978"
    assert rows(path) == [("nyc.orders", 0, each) for each in (2, 6, 8)]


def test_rows_that_become_each_other_are_each_translated_once(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    url = table(path, [("nyc.orders", 0, each) for each in (0, 4, 6, 10)])
    back = read_plan(url, "positions", MAPS, back=True)
    apply_plan(url, "positions", MAPS, back.digest, back=True)
    assert [row[2] for row in rows(path)] == [10, 14, 16, 21]
    again = read_plan(url, "positions", MAPS)
    apply_plan(url, "positions", MAPS, again.digest)
    assert [row[2] for row in rows(path)] == [0, 4, 6, 10]


def test_one_unknown_position_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    url = table(path, [("nyc.orders", 0, 12), ("nyc.other", 0, 12)])
    plan = read_plan(url, "positions", MAPS)
    with pytest.raises(Conflict) as caught:
        apply_plan(url, "positions", MAPS, plan.digest)
    assert caught.value.code == "HUB-1975" and "nyc.other" in caught.value.message
    assert [row[2] for row in rows(path)] == [12, 12]


def test_a_wrong_table_or_address_is_named(tmp_path: Path) -> None:
    url = table(tmp_path / "p.db", [])
    with pytest.raises(CallerError, match='table "none" does not exist'):
        read_plan(url, "none", MAPS)
    with sqlite3.connect(tmp_path / "p.db") as database:
        database.execute("CREATE TABLE half (topic TEXT)")
    with pytest.raises(CallerError, match="no column partition, offset"):
        read_plan(url, "half", MAPS)
    with pytest.raises(ConfigError) as caught:
        read_plan("mysql://ana:secret@db/x", "p", MAPS)
    assert "secret" not in caught.value.message
