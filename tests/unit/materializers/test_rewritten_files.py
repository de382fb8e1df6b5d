"""A rewritten store has nothing of a removed table in its files."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from hub.errors import PeerError
from hub.materializers.stores.sql.connection import open_engine
from hub.materializers.stores.sql.rewriting import rewrite_file

CANARY = "ann@canary.example"


def test_no_byte_of_a_removed_table_is_left(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/hub.db")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE people (email TEXT)")
        connection.exec_driver_sql("CREATE TABLE others (email TEXT)")
        connection.exec_driver_sql(f"INSERT INTO people VALUES ('{CANARY}')")
        connection.exec_driver_sql("INSERT INTO others VALUES ('ben@stays.example')")
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA secure_delete=OFF")  # as some builds of SQLite have it
        connection.exec_driver_sql("DROP TABLE people")
    assert CANARY.encode() in files(tmp_path)
    with closing(engine.raw_connection()) as reader:
        reader.cursor().execute("BEGIN")
        reader.cursor().execute("SELECT * FROM others").fetchone()
        with pytest.raises(PeerError, match="in use"):
            rewrite_file(engine, wait_ms=50)
    assert rewrite_file(engine)
    assert CANARY.encode() not in files(tmp_path) and b"ben@stays.example" in files(tmp_path)
    engine.dispose()


def files(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.iterdir())
