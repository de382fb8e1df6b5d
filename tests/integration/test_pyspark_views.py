"""PySpark views on real Kafka and real Spark: killed between batches, changed, and beside a function that
ends its process."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pipeline import EXAMPLES, Pipeline, plain, wait_until
from pyspark.sql import SparkSession

from hub.config import Settings
from hub.errors import ConfigError
from hub.materializers.definition.load import load_view
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.spark.building.builder import ViewBuilder
from hub.materializers.spark.building.carried_view import carried_view
from hub.record import NewRecord
from hub.schema_registry.codecs.wire_format import encode, parsed

EXAMPLE = EXAMPLES / "pyspark"
TOPICS = {"orders": "pyspark.orders", "customers": "pyspark.customers"}
Event = dict[str, Any]


def orders(chance: random.Random, numbers: range) -> list[Event]:
    day = 1_709_251_200_000  # 2024-03-01
    return [
        {
            "order_id": f"o{number}",
            "customer_id": f"c{chance.randrange(8)}",
            "status": chance.choice(["paid", "paid", "refunded"]),
            "amount_cents": chance.randrange(100, 10_000),
            "paid_at": day + chance.randrange(3 * 86_400_000),
        }
        for number in numbers
    ]


def by_day(written: list[Event], share: float = 100) -> dict[str, Event]:
    rows: dict[str, Event] = {}
    for each in written:
        day = f"2024-03-0{1 + (each['paid_at'] - 1_709_251_200_000) // 86_400_000}"
        row = rows.setdefault(day, {"day": day, "paid_eur": 0, "refunded_eur": 0, "orders": 0})
        row["orders"] += 1
        row["paid_eur" if each["status"] == "paid" else "refunded_eur"] += each["amount_cents"]
    return {
        day: {**row, **{name: row[name] / share for name in ("paid_eur", "refunded_eur")}}
        for day, row in rows.items()
    }


def by_country(written: list[Event], countries: dict[str, str]) -> dict[str, Event]:
    rows: dict[str, Event] = {}
    seen: set[tuple[str, str]] = set()
    for each in written:
        country = countries.get(each["customer_id"])
        if country is None or each["status"] != "paid":
            continue
        row = rows.setdefault(country, {"country": country, "paid_eur": 0, "customers": 0})
        row["paid_eur"] += each["amount_cents"]
        row["customers"] += (country, each["customer_id"]) not in seen
        seen.add((country, each["customer_id"]))
    return {country: {**row, "paid_eur": row["paid_eur"] / 100} for country, row in rows.items()}


def timed(event: Event) -> Event:
    """Return an event with its time as the encoder takes it."""
    if "paid_at" not in event:
        return event
    return {**event, "paid_at": datetime.fromtimestamp(event["paid_at"] / 1000, UTC)}


class Writer:
    """Writes events of the example to the topics of this test."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._forms = {}
        for source, topic in TOPICS.items():
            pipeline.cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
            schema = (EXAMPLE / "schemas" / f"{source.removesuffix('s')}.avsc").read_text()
            number = pipeline.registry.register(f"{topic}-value", schema)
            self._forms[source] = (number, parsed(json.loads(schema)))

    def write(self, source: str, key: str, events: list[Event]) -> None:
        number, form = self._forms[source]
        self._pipeline.writer.append(
            [
                NewRecord(TOPICS[source], str(each[key]).encode(), encode(number, form, timed(each)))
                for each in events
            ]
        )


@pytest.fixture
def written(pipeline: Pipeline) -> Iterator[Writer]:
    files = [*(EXAMPLE / "views").glob("*.yaml"), *(EXAMPLE / "views").glob("*.py")]
    writer = Writer(pipeline)
    for file in sorted(files, key=lambda each: each.suffix):
        shutil.copy(file, pipeline.views / file.name)
        if file.suffix == ".yaml":
            path = pipeline.views / file.name
            path.write_text(path.read_text().replace("topic: shop.", "topic: pyspark."))
    yield writer
    for file in (*files, Path("ending.py")):
        (pipeline.views / file.name).unlink(missing_ok=True)


@pytest.mark.timeout(900)
def test_rows_are_those_of_the_events_after_kills_and_a_change(pipeline: Pipeline, written: Writer) -> None:
    chance, all_orders = random.Random(11), list[Event]()
    countries = {f"c{n}": chance.choice(["FR", "BR"]) for n in range(8)}

    def write(count: int) -> None:
        made = orders(chance, range(len(all_orders), len(all_orders) + count))
        all_orders.extend(made)
        written.write("orders", "order_id", made)

    def customers() -> None:
        events = [{"customer_id": name, "name": name, "country": of} for name, of in countries.items()]
        written.write("customers", "customer_id", events)

    customers()
    write(60)
    pipeline.covers("sales_by_day", [TOPICS["orders"]])
    write(40)
    countries["c1"], countries["c2"] = "FR", "BR"
    customers()
    pipeline.kill("materialize", "too")
    write(40)
    pipeline.start("materialize")
    for view, topics in (("sales_by_day", ["orders"]), ("sales_by_country", ["orders", "customers"])):
        pipeline.covers(view, [TOPICS[each] for each in topics])

    def served(view: str) -> dict[str, Event]:
        return {key: plain(row) for key, row in pipeline.rows(view).items()}

    assert served("sales_by_day") == by_day(all_orders)
    assert served("sales_by_country") == by_country(all_orders, countries)
    money = pipeline.views / "money.py"
    money.write_text(money.read_text().replace("F.lit(100)", "F.lit(200)"))
    wait_until(
        lambda: served("sales_by_day") == by_day(all_orders, 200), 240.0, lambda: str(served("sales_by_day"))
    )
    address = f"{pipeline.url}/view-versions/sales_by_day"
    versions = httpx2.get(address, timeout=60.0).json()["versions"]
    assert {each["number"]: each["state"] for each in versions} == {1: "former", 2: "served"}
    httpx2.post(address, json={"action": "rollback"}, timeout=60.0).raise_for_status()
    wait_until(
        lambda: served("sales_by_day") == by_day(all_orders), 240.0, lambda: str(served("sales_by_day"))
    )
    (pipeline.views / "ending.py").write_text("import os\n\ndef build(orders):\n    os._exit(3)\n")
    (pipeline.views / "ending.yaml").write_text(
        "view: ending\npython: ending.py:build\nkey: order_id\nsources: {orders: {topic: pyspark.orders}}\n"
    )
    wait_until(lambda: "ended its process" in str(pipeline.state("ending").get("reason")), 120.0)
    write(20)
    pipeline.covers("sales_by_day", [TOPICS["orders"]])
    assert served("sales_by_day") == by_day(all_orders)


VIEW = """
view: v
python: {file}
key: id
sources: {{p: {{topic: t, format: json, schema: {{id: bigint, n: bigint}}}}}}
"""
BROKEN = {
    "def build(p):\n    return p.select('i')\n": (2, "cannot be resolved"),
    "def build(p):\n    n = p.count()\n    return p\n": (2, "`count` is refused in build"),
    "def build(p):\n    try:\n        p.collect()\n    except Exception:\n        return p\n": (
        1,
        "`collect` is",
    ),
    "def build(p):\n    return 1 / 0\n": (2, "ZeroDivisionError"),
    "import nothing_there\n\ndef build(p):\n    return p\n": (1, "ModuleNotFoundError"),
    "\ndef build(p):\n    return [p]\n": (2, "returns list, not a data frame"),
    "def build(p):\n    return p.select('n')\n": (1, 'key "id" is not a column'),
    "def build(p):\n    return p.limit(3)\n": (1, "limit without orderBy"),
    "def build(p):\n    return p.union(p.sparkSession.range(3))\n": (2, "`range` is refused"),
}


def declared(folder: Path, text: str) -> SqlView:
    (folder / "v.yaml").write_text(VIEW.format(file="v.py"))
    (folder / "v.py").write_text(text)
    view = load_view(folder / "v.yaml")
    assert isinstance(view, SqlView)
    return view


@pytest.mark.parametrize("text", BROKEN)
def test_what_no_view_has_is_refused_with_its_line(
    spark_session: SparkSession, tmp_path: Path, text: str
) -> None:
    line, said = BROKEN[text]
    view = declared(tmp_path, text)
    schemas = {"p": view.sources["p"].declared}
    with pytest.raises(ConfigError, match=said) as raised:
        checked(carried_view(spark_session, view, schemas), schemas)
    assert raised.value.where == f"v.py:{line}"
    assert raised.value.hint


def test_a_function_that_does_not_return_is_ended_and_a_result_is_kept(
    settings: Settings, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    quick = settings.model_copy(update={"home": home, "build_timeout_s": 3.0})

    def built(text: str, with_: Settings) -> SqlView:
        view = declared(tmp_path, text)
        return ViewBuilder(with_).built(view, {"p": view.sources["p"].declared})

    with pytest.raises(ConfigError, match="did not return within 3 s"):
        built("def build(p):\n    while True:\n        pass\n", quick)
    text = (
        "from pyspark.sql import functions as F\n\ndef build(p):\n    print('said')\n"
        "    return p.where('n > 1')"
    )
    clock = f"{text}.select(\n        'id',\n        F.current_timestamp().alias('now'),\n    )\n"
    made = built(text, settings.model_copy(update={"home": home}))
    assert made.sql.split() == [
        "SELECT",
        "p.id",
        "AS",
        "id,",
        "p.n",
        "AS",
        "n",
        "FROM",
        "p",
        "WHERE",
        "(p.n",
        ">",
        "CAST(1",
        "AS",
        "BIGINT))",
    ]
    assert "said" in (home / "build.log").read_text()
    assert built(text, quick.model_copy(update={"build_timeout_s": 0.001})) == made, "it is not run again"
    refused = built(clock, settings.model_copy(update={"home": home}))
    with pytest.raises(ConfigError, match="another value on every replay") as raised:
        checked(refused, {"p": refused.sources["p"].declared})
    assert raised.value.where == "v.py:7", "the line of the expression"
    off = quick.model_copy(update={"transforms": "off"})
    with pytest.raises(ConfigError, match="turned off"):
        built(text, off)
