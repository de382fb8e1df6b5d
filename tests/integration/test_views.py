"""Whole views on real Kafka and real Spark: rows against independent answers, bad events, new schemas,
changed files."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import httpx2
import pytest
from patience import patient
from pipeline import Pipeline, iso, plain, records_of, wait_until
from plant import Plant

from hub.demo import customers, flights
from hub.errors import CallerError
from hub.record import Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

SEED, CUSTOMERS = 11, 300
DAYS = 4  # of each month


def expected(events: int) -> dict[str, dict[str, Any]]:
    rows = customers.fold(customers.generate(SEED, CUSTOMERS, events))
    return {key: {**row, "last_seen": iso(row["last_seen"])} for key, row in rows.items()}


def test_customer_360_equals_the_plain_computation_in_bulk_and_live(pipeline: Pipeline) -> None:
    pipeline.install("customer-360")
    for events in (25_000, 26_500):  # the first in bulk, what follows live on the same checkpoint
        pipeline.feed(customers.TOPICS, customers.generate(SEED, CUSTOMERS, events))
        pipeline.covers("customer_360", customers.TOPICS)
        served = {key: plain(row) for key, row in pipeline.rows("customer_360").items()}
        assert served == expected(events)
    assert pipeline.state("customer_360")["state"] == "live"


def test_aircraft_360_equals_pandas_for_every_tail_number(pipeline: Pipeline) -> None:
    """Flights of each month's first days: more than a bulk start needs, and every plane of that time."""
    read = [flights.PLANES, *(f"nyc.{airport.lower()}.departures" for airport in flights.AIRPORTS)]
    folder = flights.data_folder()
    planes = [event for event in flights.reference(folder) if event.topic == flights.PLANES]
    # By event time, as `flights.events` gives them; a flight's id begins with its day: 2013-01-31-...
    every = sorted(flights.departures(folder), key=lambda event: event.timestamp_ms)
    flown = [event for event in every if event.value and int(event.value["flight_id"][8:10]) <= DAYS]
    pipeline.install("flights")
    assert pipeline.feed(read, [*planes, *flown]) == len(planes) + len(flown)
    assert len(planes) == 3_322 and len(flown) > 40_000
    pipeline.covers("aircraft_360", read, 240.0)
    served = {key: plain(row) for key, row in pipeline.rows("aircraft_360").items()}
    wanted = by_pandas()
    assert served.keys() == wanted.keys()
    for tailnum, row in wanted.items():
        assert served[tailnum] == pytest.approx(row, nan_ok=True), tailnum


def by_pandas() -> dict[str, dict[str, Any]]:
    """aircraft_360 from the data frames alone."""
    import pandas

    folder = flights.data_folder()
    every = pandas.read_csv(folder / "flights.csv.zip")
    every = every[every.tailnum.notna() & (every.day <= DAYS)]
    hour = pandas.to_datetime(every.time_hour, utc=True)
    every = every.assign(at=(hour.astype("int64") // 10**6 + every.minute * 60_000))
    every = every.reset_index().sort_values(["at", "index"], kind="stable")
    planes = pandas.read_csv(folder / "planes.csv").set_index("tailnum")
    rows: dict[str, dict[str, Any]] = {
        tailnum: dict.fromkeys(("carrier", "last_departure", "last_flight", "last_dest", "first_departure"))
        | dict.fromkeys(
            ("flights", "flown", "cancelled", "air_minutes", "from_jfk", "from_lga", "from_ewr"), 0
        )
        | {"mean_dep_delay": None, "mean_arr_delay": None, "hours": 0.0}
        for tailnum in planes.index
    }
    for tailnum, group in every.groupby("tailnum"):
        last = group.iloc[-1]
        # Two flights of one plane scheduled for the same minute from different airports have no order of
        # their own.
        minutes = int(group.air_time.sum())
        rows[tailnum] = {
            "carrier": last.carrier,
            "last_departure": iso(int(last["at"])),
            "last_flight": int(last.flight),
            "last_dest": last.dest,
            "first_departure": iso(int(group["at"].min())),
            "flights": len(group),
            "flown": int(group.air_time.notna().sum()),
            "cancelled": int(group.dep_delay.isna().sum()),
            "air_minutes": minutes,
            "hours": minutes / 60,
            "mean_dep_delay": _number(group.dep_delay.mean()),
            "mean_arr_delay": _number(group.arr_delay.mean()),
            "from_jfk": int((group.origin == "JFK").sum()),
            "from_lga": int((group.origin == "LGA").sum()),
            "from_ewr": int((group.origin == "EWR").sum()),
        }
    names = {
        "manufacturer": "manufacturer",
        "model": "model",
        "built": "year",
        "engines": "engines",
        "seats": "seats",
    }
    for tailnum, row in rows.items():
        plane = planes.loc[tailnum] if tailnum in planes.index else None
        for name, column in names.items():
            value = None if plane is None or pandas.isna(plane[column]) else plane[column]
            row[name] = value if isinstance(value, str) or value is None else int(value)
    return rows


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


# ---- a small view of its own


def test_bad_events_go_to_the_dead_letter_topic_and_new_schemas_are_picked_up(pipeline: Pipeline) -> None:
    plant = Plant(pipeline, "mixed")
    plant.declare({"celsius": "r.celsius", "hottest": "max(r.celsius)", "readings": "count(r.sensor)"})
    plant.write("a", plant.reading("a", 20.0))
    bad = {
        1: b"not avro at all",
        2: b"\x00\x00\x00\x00\x00",
        3: b"\x00" + plant.schema_id.to_bytes(4, "big") + b"\xff\xff",
        4: b"\x00\x7f\x00\x00\x01\x02a",
    }
    for value in bad.values():
        plant.write("a", value)
    plant.running()
    # A schema that the running query has never heard of, used at once: decoded, never dead-lettered.
    token = plant.write("a", plant.reading("a", 25.0, site="north"))
    row = plant.row("a", token).json()
    assert (row["celsius"], row["hottest"], row["readings"]) == (25.0, 25.0, 2)

    pipeline.covers(plant.view, [plant.topic])  # a row is read before its batch is whole
    records = records_of(pipeline.cluster, f"{plant.topic}.dlq")
    by_offset = {int(record.header("hub.dlq.offset") or b"-1"): record for record in records}
    assert {offset: record.value for offset, record in by_offset.items()} == bad
    assert by_offset[1].header("hub.dlq.topic") == plant.topic.encode()
    assert b"wire format" in (by_offset[1].header("hub.dlq.reason") or b"")
    assert b"do not fit its schema id" in (by_offset[3].header("hub.dlq.reason") or b"")
    assert b"schema id 2130706433" in (by_offset[4].header("hub.dlq.reason") or b"")


def test_unknown_schema_ids_do_not_plan_a_view_again_and_are_learned_when_they_appear(
    pipeline: Pipeline,
) -> None:
    """A producer with another registry's ids makes a mistake: its events are refused, and the view
    continues."""
    plant = Plant(pipeline, "strangers")
    plant.declare({"celsius": "r.celsius", "readings": "count(r.sensor)"})
    plant.write("a", plant.reading("a", 20.0))
    plant.running()

    def plans() -> int:
        text = (pipeline.settings.logs / "materialize.log").read_text()
        return text.count(f"view {plant.view}: planned again for schema id")

    def write(schema_id: int) -> None:
        plant.write("a", b"\x00" + schema_id.to_bytes(4, "big") + b"\x02a")
        plant.covered("a", plant.write("a", plant.reading("a", 21.0)))

    # The id that the registry gives next: nobody has it now, and somebody will.
    following = max(plant.registry.ids()) + 3
    write(following)
    assert plans() == 1  # it was asked for once
    for _ in range(4):
        write(following)
    assert plans() == 1
    for number in range(8):  # a new one each time: after a few of them every far one is refused
        write(2**30 + number)
    most = plans()
    assert most <= 1 + 3

    schema = json.dumps(
        {
            "type": "record",
            "name": "Reading",
            "fields": [{"name": "sensor", "type": "string"}, {"name": "celsius", "type": "double"}],
        }
    )
    number = 0
    while following not in plant.registry.ids():
        number += 1
        plant.registry.register(
            f"{plant.topic}.others-{number}", schema.replace("Reading", f"Reading{number}")
        )
    wait_until(
        lambda: "which were unknown before" in (pipeline.settings.logs / "materialize.log").read_text(),
        60.0,
        lambda: "not learned",
    )
    made = encode(
        following, parsed(json.loads(plant.registry.schema(following))), {"sensor": "b", "celsius": 3.5}
    )
    row = plant.row("b", plant.write("b", made))
    assert row.status_code == 200 and row.json()["celsius"] == 3.5
    dead = records_of(pipeline.cluster, f"{plant.topic}.dlq")
    assert len(dead) == 5 + 8


def test_a_tombstone_clears_its_source_and_a_read_that_cannot_be_covered_says_how_far_it_is(
    pipeline: Pipeline,
) -> None:
    plant = Plant(pipeline, "gone")
    plant.declare({"celsius": "r.celsius", "gone": "r._deleted", "readings": "count(r.sensor)"})
    plant.write("b", plant.reading("b", 1.5))
    plant.running()
    row = plant.row("b", plant.write("b", None)).json()
    assert (row["celsius"], row["gone"], row["readings"]) == (None, True, 1)
    pipeline.covers(plant.view, [plant.topic])  # the row was read before its batch was reported
    never = Positions.of([(plant.topic, 0, 1_000)])
    late = plant.row("b", never, timeout_ms=50)
    assert late.status_code == 503
    assert "998 to go" in late.json()["message"]


def test_a_changed_file_is_computed_again_from_the_start_of_the_log(pipeline: Pipeline) -> None:
    plant = Plant(pipeline, "edited")
    plant.declare({"celsius": "r.celsius"})
    token = plant.write("c", plant.reading("c", 3.0))
    plant.running()
    assert plant.row("c", token).json()["celsius"] == 3.0
    plant.declare({"celsius": "r.celsius", "readings": "count(r.sensor)"}, "[readings]")
    wait_until(lambda: plant.row("c").json().get("readings") == 1, 120.0, lambda: plant.row("c").text)
    url = f"{pipeline.url}/views/{plant.view}?readings.gte=1"
    wait_until(lambda: httpx2.get(url).is_success, 60.0)


def test_a_text_index_comes_to_rows_that_are_there_and_follows_writes(pipeline: Pipeline) -> None:
    plant = Plant(pipeline, "worded")
    fields = {"note": "concat('Sensor ', r.sensor, ' is warming')"}
    plant.declare(fields)
    token = plant.write("d", plant.reading("d", 3.0))
    plant.running()
    before = plant.row("d", token).json()
    plant.declare(fields, "[{text: [note], language: english}]")
    url = f"{pipeline.url}/views/{plant.view}"

    def found(words: str, **more: str) -> list[str]:
        answer = httpx2.get(url, params={"q": words, **more}, timeout=60.0)
        return [row["key"] for row in answer.json()["rows"]] if answer.is_success else []

    wait_until(lambda: found("sensors warm") == ["d"], 60.0, lambda: httpx2.get(f"{url}?q=warm").text)
    assert plant.row("d").json()["_version"] == before["_version"]  # nothing was computed again
    later = str(plant.write("e", plant.reading("e", 4.0)))
    assert sorted(found("warmed", after=later, timeout_ms="30000")) == ["d", "e"]
    assert found("warm -d") == ["e"]


def test_a_view_that_cannot_be_says_why_and_starts_when_it_can(pipeline: Pipeline) -> None:
    plant = Plant(pipeline, "wrong")
    plant.declare({"celsius": "r.celsious"})
    # It is retried: between two attempts it shows no reason.
    said: list[str] = []

    def failed() -> bool:
        state = pipeline.state(plant.view)
        said.append(state.get("reason") or "")
        return state.get("state") == "failed"

    wait_until(failed, 120.0)
    assert 'no column "celsious"' in said[-1] and 'did you mean "celsius"?' in said[-1]
    plant.declare({"celsius": "r.celsius"})
    plant.running()


def test_a_file_that_is_odd_yaml_fails_alone(pipeline: Pipeline) -> None:
    """The view reports it; applier, materializer and the other views continue."""
    plant = Plant(pipeline, "beside")
    plant.declare({"celsius": "r.celsius"})
    plant.running()
    (pipeline.views / "odd_keys.yaml").write_text("? [a]\n: b\n")
    (pipeline.views / "odd_number.yaml").write_text("view: odd_number\npartitions: 0x" + "f" * 5_000 + "\n")
    wait_until(lambda: pipeline.state("odd_keys").get("state") == "failed", 120.0)
    assert "a key must be a name" in pipeline.state("odd_keys")["reason"]
    wait_until(lambda: "a number of 5002" in (pipeline.state("odd_number").get("reason") or ""), 120.0)
    token = plant.write("b", plant.reading("b", 4.0))
    assert plant.row("b", token).json()["celsius"] == 4.0
    for name in ("apply-changelogs", "materialize"):
        assert pipeline.processes[name].process.poll() is None, pipeline.processes[name].last_words()


def test_publishing_names_the_field_that_is_wrong(pipeline: Pipeline) -> None:
    plant = Plant(pipeline, "typo")
    with pytest.raises(CallerError, match='topic "plant.typo".*field "celsius"'):
        pipeline.publisher().publish(plant.topic, "k", {"sensor": "k", "celsius": "warm"})


def test_changes_are_pushed_with_deletes_and_resume_where_they_stopped(pipeline: Pipeline) -> None:
    plant = Plant(pipeline, "pushed")
    plant.declare({"celsius": "r.celsius"})
    plant.write("d", plant.reading("d", 1.0))
    plant.running()
    plant.covered("d", plant.write("d", plant.reading("d", 2.0)))
    url = f"{pipeline.url}/views/{plant.view}/changes"
    events: list[tuple[str, str | None, Any]] = []
    with httpx2.stream("GET", url, timeout=60.0) as stream:
        events.extend(_until(stream, "synced"))
    assert [(name, body["row"]["celsius"]) for name, _, body in events if name == "snapshot"] == [
        ("snapshot", 2.0)
    ]
    last = events[-1][1]
    assert last is not None
    plant.covered("d", plant.write("d", plant.reading("d", 3.0)))
    with httpx2.stream("GET", url, headers={"Last-Event-ID": last}, timeout=60.0) as stream:
        resumed = _until(stream, "upsert")
    assert [(name, body["row"]["celsius"]) for name, _, body in resumed] == [("upsert", 3.0)]


def _until(stream: httpx2.Response, last: str) -> list[tuple[str, str | None, Any]]:
    """The events of a stream up to the first of that name."""
    found: list[tuple[str, str | None, Any]] = []
    name, mark = "", None
    assert stream.status_code == 200, stream.read()
    deadline = time.monotonic() + patient(60.0)
    for line in stream.iter_lines():
        assert time.monotonic() < deadline
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("id: "):
            mark = line[4:]
        elif line.startswith("data: "):
            found.append((name, mark, json.loads(line[6:])))
            mark = None
            if name == last:
                return found
    return found
