"""SQL over the whole past of a topic on real Kafka: its Iceberg table, then its log, through retention and
kills of the writer."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from confluent_kafka import TopicPartition as KafkaPlace
from lake_topic import FLIGHT, LATER, Lake, has_rows
from pipeline import wait_until
from ports import free_ports
from processes import Server, run_hub

from hub.config import Settings

PARTITIONS = 3
TOTALS = "SELECT count(*) AS n, sum(number) AS total, count(DISTINCT number) AS numbers FROM flights"
COLUMNS = "_partition, _offset, _timestamp, _key, number, stand, delay"


class Past(Lake):
    """A topic with a lake, and a server that answers queries over it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.server = Server(self.settings)

    def ask(self, sql: str, **more: Any) -> dict[str, Any]:
        body = {"sql": sql.replace("flights", f'"{self.topic}"'), "events": "all", "limit": 10_000, **more}
        answer = httpx2.post(f"{self.server.url}/query", json={"timeout_ms": 60_000, **body}, timeout=90.0)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def rows(self, **more: Any) -> list[tuple[Any, ...]]:
        return [tuple(each.values()) for each in self.ask(f"SELECT {COLUMNS} FROM flights", **more)["rows"]]

    def delete_before(self, offsets: dict[int, int]) -> None:
        """Move the log's begin, as retention does."""
        places = [KafkaPlace(self.topic, partition, at) for partition, at in offsets.items()]
        for deleted in self.cluster.admin.delete_records(places).values():
            deleted.result(30)

    def archived(self) -> dict[int, int]:
        """Return the positions of the table."""
        summary = self.table().current_snapshot().summary.additional_properties
        return {int(key): at for key, at in json.loads(summary["hub.positions"]).items()}


@pytest.fixture
def past(settings: Settings, hub_server: str, tmp_path: Path) -> Iterator[Past]:
    name = f"past{uuid.uuid4().hex[:8]}"
    (tmp_path / "topics.yaml").write_text(
        f"topics:\n  {name}:\n    lake: true\n    topics: {{flights: {{}}}}\n"
    )
    update = {
        "home": tmp_path / "home",
        "project": tmp_path,
        "registry_url": hub_server,
        "http_port": free_ports(1)[0],
        "lake_commit_s": 1.0,
        "lake_maintain_h": 0.0,
    }
    made = Past(settings.model_copy(update=update), f"{name}.flights")
    made.cluster.alter_config(made.topic, {"retention.ms": "-1"})
    made.server.start()
    yield made
    made.server.stop()
    for writer in made.writers:
        writer.stop(10.0)


def test_answers_are_whole_through_retention_and_kills_of_the_writer(past: Past) -> None:
    chance = random.Random(3)
    past.write(FLIGHT, 3_000)
    for _ in range(2):
        writer = past.writer()
        wait_until(lambda: has_rows(past), 60.0, writer.last_words)
        past.write(FLIGHT, 900)
        for _ in range(3):
            (row,) = past.ask(TOTALS)["rows"]
            assert row == {"n": past.written, "total": sum(range(past.written)), "numbers": past.written}
            if chance.random() < 0.4:
                writer.kill()
        writer.kill()
    past.write(LATER, 600)
    past.writer()
    wait_until(past.caught_up, 90.0, past.said)
    past.writers[-1].kill()
    past.write(LATER, 300)
    whole = past.rows()
    assert len(whole) == past.written == len(set(whole)) and whole == sorted(whole, key=lambda row: row[:2])

    # Retention takes what the table has, and less: the answer is the same, in the order of the log.
    past.delete_before({each: at - 40 for each, at in past.archived().items()})
    assert past.rows() == whole
    answer = past.ask("SELECT count(*) AS n FROM flights")
    assert [each["missing"] for each in answer["scanned"]] == [[]] * PARTITIONS
    assert sum(each["to"] for each in answer["scanned"]) == answer["rows"][0]["n"] == past.written
    ends = {each["partition"]: each["archived_to"] for each in answer["scanned"]}
    assert ends == past.archived() and sum(ends.values()) == past.written - 300
    day = "2023-11-15 22:13:20"
    (early,) = past.ask(
        f"SELECT count(*) AS n FROM flights FOR SYSTEM_TIME AS OF TIMESTAMP '{day}'", events=10
    )["rows"]
    assert early["n"] == sum(n % 4 < 2 for n in range(past.written))
    (later,) = past.ask(f"SELECT count(*) AS n FROM flights WHERE _timestamp > TIMESTAMP '{day}'")["rows"]
    assert later["n"] == past.written - early["n"]
    at = f"{past.topic}:0:7,{past.topic}:2:5"
    assert past.rows(before=at) == [
        row for row in whole if (row[0], row[1]) < (0, 7) or (row[0] == 2 and row[1] < 5)
    ]

    # Retention takes records that the stopped writer had not archived: the answer names them.
    archived = past.archived()
    past.delete_before({0: archived[0] + 30})
    answer = past.ask("SELECT count(*) AS n FROM flights")
    assert answer["rows"] == [{"n": past.written - 30}]
    assert answer["scanned"][0]["missing"] == [[archived[0], archived[0] + 30]]
    done = run_hub(past.settings, "sql", "--events", "all", "-c", f'SELECT count(*) FROM "{past.topic}"')
    gap = f"0:{archived[0]}-{archived[0] + 30}"
    assert done.returncode == 0 and f"Missing: offsets {gap}" in done.stdout + done.stderr, done
