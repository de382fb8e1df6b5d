"""A keyed class on real Kafka and real Spark: killed between its batches, its rows are those of the class
called in plain Python."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline import Pipeline, plain, wait_until

from hub.materializers.applying.applier import Applier
from hub.materializers.definition.load import load_view
from hub.materializers.spark.python_udf_worker import KeyedFold
from hub.materializers.stores.sql_store import Store
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import encode, parsed

EXAMPLE = Path(__file__).parents[2] / "examples" / "fraud"
TOPIC, VIEW = "cards.payments", "card_fraud"


def payments(chance: random.Random, numbers: range) -> list[dict[str, Any]]:
    """Payments with few cards, in no order of their time; two may have the same time."""
    start = datetime(2024, 3, 1, tzinfo=UTC)
    return [
        {
            "payment_id": f"p{number}",
            "card": f"c{chance.randrange(6)}",
            "amount": chance.choice([1.0, 1.5, 30.0, 900.0]),
            "country": chance.choice(["FR", "FR", "FR", "BR"]),
            "paid_at": start + timedelta(minutes=4 * chance.randrange(200)),
        }
        for number in numbers
    ]


def expected(written: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of the class, called in plain Python for the log's payments."""
    space: dict[str, Any] = {}
    exec((EXAMPLE / "views" / "fraud.py").read_text(), space)  # noqa: S102 - the example's own code
    by_card: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for payment in sorted(written, key=lambda each: (each["paid_at"], each["payment_id"])):
        fields = ("paid_at", "payment_id", "amount", "country")
        by_card[payment["card"]].append({name: payment[name] for name in fields})
    rows = {card: KeyedFold(space["Tracker"])(events) for card, events in by_card.items()}
    return {
        card: {"card": card, **row, "last_paid_at": f"{row['last_paid_at']:%Y-%m-%dT%H:%M:%S}.000Z"}
        for card, row in rows.items()
        if row is not None
    }


def test_rows_are_those_of_the_class_after_kills(pipeline: Pipeline, tmp_path: Path) -> None:
    settings = pipeline.settings.model_copy(
        update={"home": tmp_path / "home", "project": tmp_path / "project", "delta_events_per_batch": 100}
    )
    elsewhere = Pipeline(settings, pipeline.url)
    elsewhere.views.mkdir(parents=True)
    for name in (f"{VIEW}.yaml", "fraud.py"):
        shutil.copy(EXAMPLE / "views" / name, elsewhere.views / name)
    schema = (EXAMPLE / "schemas" / "payment.avsc").read_text()
    pipeline.cluster.create_topic(TOPIC, partitions=2, config={}, replication_factor=1)
    number, form = pipeline.registry.register(f"{TOPIC}-value", schema), parsed(json.loads(schema))
    chance, written = random.Random(7), list[dict[str, Any]]()

    def write(count: int) -> None:
        made = payments(chance, range(len(written), len(written) + count))
        written.extend(made)
        pipeline.writer.append(
            [NewRecord(TOPIC, each["card"].encode(), encode(number, form, each)) for each in made]
        )

    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    registry = RegistryClient(pipeline.url)
    applier = Applier(elsewhere.cluster, registry, store)
    declared = [load_view(elsewhere.views / f"{VIEW}.yaml")]

    def applied() -> bool:
        applier.follow(declared)
        while applier.step():
            pass
        return store.positions(VIEW, "source").covers(pipeline.cluster.end_offsets([TOPIC], committed=False))

    write(150)
    elsewhere.start("materialize")
    try:
        for _ in range(2):
            before = elsewhere.written(VIEW)
            write(40)
            wait_until(lambda: elsewhere.written(VIEW) > before, 200.0)  # noqa: B023 called at once
            write(40)
            elsewhere.kill("materialize", "too")
            elsewhere.start("materialize")
        wait_until(applied, 240.0)
        found = {row.key: plain(dict(row.values or {})) for row in store.select(VIEW, [], 1_000, None)}
        assert found == expected(written)
        assert len(found) > 2
        states: dict[tuple[bytes, int], set[bytes | None]] = defaultdict(set)
        for record in elsewhere.changelog(VIEW):
            states[record.key or b"", int(record.header("hub.version") or b"0")].add(record.value)
        assert all(len(values) == 1 for values in states.values())
    finally:
        applier.close()
        registry.close()
        store.close()
        elsewhere.close()
