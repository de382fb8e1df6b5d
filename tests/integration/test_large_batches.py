"""Batches of a few kilobytes that unpack beyond every reader's limit: they are skipped, and every reader
continues.

Kafka takes them, because its limit is on bytes as they are written. Here real ones of every codec stand in
the topic of running views; the views, SQL over the topic, its pages and the auditor pass them and name them.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from confluent_kafka import Producer
from patience import patient
from pipeline import Pipeline, plain, records_of, wait_until

from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.topics.dead_letters.queue import DeadLetters

MIB = 1 << 20
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "cents", "type": "long"}],
}
CODECS = ("zstd", "gzip", "lz4", "snappy")


class Shop:
    """A topic of orders, three views over it, and a second topic with a view of its own."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self.pipeline, self.name, self.topic, self.other = pipeline, name, f"{name}.orders", f"{name}.healthy"
        for topic in (self.topic, self.other):
            config = {"max.message.bytes": "8000000"}
            pipeline.cluster.create_topic(topic, partitions=1, config=config, replication_factor=1)
            self.schema_id = pipeline.registry.register(f"{topic}-value", json.dumps(ORDER))
        self.views = {
            f"{name}_entity": {
                "sources": {"o": {"topic": self.topic, "key": "id"}},
                "fields": {"sum": "sum(o.cents)", "count": "count(o.cents)"},
            },
            f"{name}_sql": {
                "sources": {"o": {"topic": self.topic}},
                "sql": "SELECT id, sum(cents) AS sum, count(*) AS count FROM o GROUP BY id",
            },
            f"{name}_other": {
                "sources": {"o": {"topic": self.other, "key": "id"}},
                "fields": {"sum": "sum(o.cents)", "count": "count(o.cents)"},
            },
        }
        for view, body in self.views.items():
            (pipeline.views / f"{view}.yaml").write_text(json.dumps({"view": view, **body}))

    def event(self, cents: int) -> bytes:
        return encode(self.schema_id, parsed(ORDER), {"id": "a", "cents": cents})

    def write(self, *values: bytes | None, codec: str = "none", topic: str | None = None) -> int:
        """Each value a record of one batch. Returns the offset of the first."""
        told: list[int] = []
        producer = Producer(
            {
                "bootstrap.servers": self.pipeline.settings.bootstrap,
                "compression.type": codec,
                "message.max.bytes": 400_000_000,
                "batch.size": 400_000_000,
                "batch.num.messages": 1_000_000,
                "queue.buffering.max.messages": 2_000_000,
                "linger.ms": 60_000 if len(values) > 1 else 0,
            }
        )
        for value in values:
            producer.produce(
                topic or self.topic,
                value,
                b"a",
                on_delivery=lambda error, message: told.append(_offset(error, message)),
            )
        assert producer.flush(patient(60.0)) == 0
        return min(told)

    def row(self, view: str) -> dict[str, Any]:
        topic = self.other if view.endswith("_other") else self.topic
        self.pipeline.covers(view, [topic], 400.0)
        return plain(self.pipeline.rows(view)["a"])


def _offset(error: object, message: Any) -> int:
    assert error is None, error
    return int(message.offset())


@pytest.mark.timeout(1_800)
def test_no_reader_unpacks_more_than_it_may_hold(pipeline: Pipeline) -> None:
    shop = Shop(pipeline, "large")
    entity, sql, other = shop.views
    shop.write(shop.event(1))
    shop.write(shop.event(1), topic=shop.other)
    assert shop.row(entity) == {"sum": 1, "count": 1}
    assert shop.row(other) == {"sum": 1, "count": 1}
    shop.row(sql)
    jvm = pipeline.processes["materialize"].process.pid

    # Written while the views are live, each codec's before an event that is to be counted.
    bombs: dict[str, int] = {}
    for number, codec in enumerate(CODECS, 2):
        bombs[codec] = shop.write(bytes(100 * MIB), codec=codec)
        shop.write(shop.event(1), topic=shop.other)
        shop.write(shop.event(1), codec=codec)
        assert shop.row(entity) == {"sum": number, "count": number}, codec
        assert shop.row(other) == {"sum": number, "count": number}, codec
    many = shop.write(*[b"" for _ in range(1_000_000)], codec="zstd")
    within = shop.write(
        *[bytes(10 * MIB) for _ in range(5)], codec="zstd"
    )  # dead for another reason: it is not Avro
    shop.write(shop.event(1), shop.event(1), codec="zstd")
    assert shop.row(entity) == {"sum": 7, "count": 7}
    row = shop.row(sql)
    assert (row["sum"], row["count"]) == (7, 7)
    assert pipeline.processes["materialize"].process.pid == jvm

    # By place and size alone, once a view.
    letters = DeadLetters(pipeline.cluster, pipeline.registry)
    dlq = f"{shop.topic}.dlq"

    def dead(view: str) -> dict[int, str]:
        found = letters.letters([dlq]).letters
        return {
            each.letter.of.offset: each.letter.detail
            for each in found
            if each.letter.by == view and each.letter.of
        }

    places = {*bombs.values(), many, *range(within, within + 5)}
    for view in (entity, sql):
        wait_until(
            lambda v=view: dead(v).keys() >= places, 240.0, lambda v=view: f"{v} has {sorted(dead(v))}"
        )
    said = dead(entity)
    assert said.keys() == places
    for codec, offset in bombs.items():
        assert f"bytes ({codec}), unpacks to" in said[offset], said[offset]
    assert "has 1,000,000 records" in said[many]
    by_view = [
        (record.header("hub.dlq.view"), int(record.header("hub.dlq.offset") or b"-1"))
        for record in records_of(pipeline.cluster, dlq)
        if record.value is None
    ]
    mine = [(view.encode(), place) for view in (entity, sql) for place in (*bombs.values(), many)]
    assert sorted(by_view) == sorted(mine)
    heaps = {row["topic"]: row["by_reason"] for row in letters.heaps()[0]}
    assert heaps[dlq]["too_large"] == 2 * 5

    # The views are rebuilt past them, by a restarted materializer.
    pipeline.kill("materialize", "too")
    pipeline.start("materialize")
    shop.write(shop.event(1))
    assert shop.row(entity) == {"sum": 8, "count": 8}

    # SQL over the topic, and its messages.
    asked = {"sql": f'SELECT count(*) AS n, sum(cents) AS cents FROM "{shop.topic}"'}
    answer = httpx2.post(f"{pipeline.url}/query", json=asked, timeout=patient(60.0))
    assert answer.is_success, answer.text
    page = httpx2.get(
        f"{pipeline.url}/api/topics/{shop.topic}/messages", params={"limit": "50"}, timeout=patient(60.0)
    )
    assert page.is_success, page.text
