"""Iceberg tables of topics on real Kafka and registry: a killed writer, two catalogs, S3, other readers,
the commands.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from lake_topic import FLIGHT, LATER, Lake, has_rows
from patience import patient
from pipeline import records_of, wait_until
from postgres import Postgres
from s3_server import s3_server

from hub.config import Settings
from hub.record import NewRecord


@pytest.fixture
def lake(settings: Settings, hub_server: str, tmp_path: Path) -> Iterator[Lake]:
    topic = f"lake.{uuid.uuid4().hex[:8]}.flights"
    _, middle, last = topic.split(".")
    (tmp_path / "topics.yaml").write_text(
        f"topics:\n  lake:\n    lake: true\n    topics:\n      {middle}:\n        topics: {{{last}: {{}}}}\n"
    )
    own = settings.model_copy(
        update={"home": tmp_path / "home", "project": tmp_path, "lake_commit_s": 1.0, "lake_maintain_h": 0.0}
    )
    made = Lake(own, topic)
    yield made
    for writer in made.writers:
        writer.stop(10.0)


def test_a_writer_killed_at_any_time_neither_loses_nor_doubles(lake: Lake) -> None:
    """Kill -9 while records of two schema versions are written; then read back by pyiceberg and DuckDB."""
    chance = random.Random(7)
    lake.write(FLIGHT, 4_000)
    writing = threading.Thread(target=lambda: [lake.write(FLIGHT, 4_000) for _ in range(4)])
    writing.start()
    for _ in range(4):
        writer = lake.writer()
        wait_until(lambda: has_rows(lake), 60.0, writer.last_words)
        threading.Event().wait(chance.uniform(0.05, 1.0))
        writer.kill()
    writing.join(patient(60.0))
    lake.write(LATER, 3_000)
    lake.writer()
    wait_until(lake.caught_up, 90.0, lake.said)

    records = {(each.partition, each.offset): each for each in lake.records()}
    rows = lake.table().scan().to_arrow()
    assert rows.num_rows == len(records) == lake.written
    for row in rows.to_pylist():
        record = records.pop((row["_partition"], row["_offset"]))
        number = int(record.header("n") or b"")
        late = number >= 20_000
        assert (row["_key"], row["_headers"]) == (record.key, [{"key": "n", "value": b"%d" % number}])
        assert round(row["_timestamp"].timestamp() * 1_000) == record.timestamp_ms
        assert row["number"] == number
        assert row["stand"] == (f"s{number % 7}" if late else f"g{number % 7}")
        assert row["delay"] == (number / 2 if late else None)
    assert not records

    connection = lake.table().scan().to_duckdb("flights")
    totals = connection.execute("select count(*), sum(number), count(distinct _timestamp::date) from flights")
    assert totals.fetchall() == [(lake.written, sum(range(lake.written)), 4)]

    (row,) = lake.hub("lake", "ls")
    assert (row["state"], row["rows"], row["lost"]) == ("WRITING", lake.written, 0)
    lake.writers[-1].stop()
    (upkeep,) = lake.hub("lake", "maintain", "--keep-h", "0", "--least-files", "2")
    assert upkeep["into"] == 4
    assert upkeep["merged"] > 4
    (compared,) = lake.hub("lake", "verify")
    assert (compared["state"], compared["compared"]) == ("EQUAL", lake.written)

    # A row that is missing is found: the check can fail.
    lake.table().delete(f"_partition == 0 and _offset == {5}")
    (compared,) = lake.hub("lake", "verify", ok=1)
    assert (compared["state"], compared["missing"]) == ("DIFFERS", 1)
    assert compared["examples"] == [f"{lake.topic}:0:5 is missing"]


def test_a_catalog_in_postgres_a_warehouse_in_s3_and_a_broken_record(
    lake: Lake, postgres: Postgres, tmp_path: Path
) -> None:
    with s3_server(tmp_path / "moto.log", "acme") as environment:
        places = {"lake_warehouse": "s3://acme/lake", "lake_uri": postgres.database("lake")}
        lake.settings = lake.settings.model_copy(update=places)
        lake.environment = environment
        lake.write(FLIGHT, 500)
        writer = lake.cluster.writer()
        writer.append([NewRecord(lake.topic, b"k", b"no frame", (), 1_700_000_000_000, 0)])
        writer.close()
        lake.writer()
        wait_until(lambda: has_rows(lake), 60.0, lake.said)
        wait_until(lambda: lake.table().scan().count() == 500, 60.0, lake.said)
        assert lake.table().location().startswith("s3://acme/lake/")
        (dead,) = records_of(lake.cluster, f"{lake.topic}.dlq")
        assert (dead.value, dead.header("hub.dlq.view")) == (b"no frame", b"lake")
        lake.writers[-1].stop()
        (compared,) = lake.hub("lake", "verify", "lake.**")
        assert (compared["state"], compared["compared"], compared["dead_letters"]) == ("EQUAL", 500, 1)
