"""Series with known values for the staged estate: an hour of a topic, a view, readers, the cluster; with a
gap.
"""

from __future__ import annotations

from contextlib import closing
from math import sin
from pathlib import Path

from hub.observability.series.catalog import CLUSTER, HUB, SeriesObject, reader_object
from hub.observability.series.database import SeriesDatabase
from hub.observability.series.marks import Mark
from hub.observability.series.reading import SeriesReader
from hub.observability.series.recorder import FILE, SeriesStatus
from hub.observability.series.sampling import Sample

from .staged_estate import ORDERS
from .staged_hub import VIEW

STEP_MS = 10_000
STEPS = 360
# Steps of the hour in which nothing was heard.
GAP = range(200, 230)
TOPIC, SHOWN = SeriesObject("topic", ORDERS), SeriesObject("view", VIEW)
READERS = [
    reader_object("group", name, ORDERS) for name in ("billing", "a-very-long-name-of-a-consumer-group/eu")
]


def in_rate(step: int) -> float:
    """Rate of the topic at a step: 100 events per second, with a wave, and a peak of 250 at step 100."""
    return 250.0 if step == 100 else round(100 + 20 * sin(step / 20), 2)


def values_at(step: int) -> list[tuple[SeriesObject, str, float]]:
    wave = 1 + sin(step / 30)
    found = [
        *[(TOPIC, "in_per_s", in_rate(step)), (TOPIC, "out_per_s", in_rate(step) * 0.9)],
        *[(TOPIC, "undecodable", float(step // 120)), (TOPIC, "lag_s", wave), (TOPIC, "lag_error_s", 0.4)],
        (TOPIC, "lag_records", 100 * wave),
        *[
            (SHOWN, "lag_s", 2 * wave),
            (SHOWN, "lag_error_s", 0.5 + wave / 2),
            (SHOWN, "lag_records", 30 * wave),
        ],
        *[(SHOWN, "p50_s", 0.2), (SHOWN, "p95_s", 0.4 + wave / 5), (SHOWN, "p99_s", 0.9 + wave / 2)],
        *[
            (SHOWN, "batch_s", 0.25 + wave / 10),
            (SHOWN, "rows", 1000.0 + step),
            (SHOWN, "read_per_s", 90 * wave),
        ],
        *[(HUB, "in_per_s", 3 * in_rate(step)), (HUB, "lag_s", 2 * wave), (HUB, "lag_error_s", 0.5)],
        *[(HUB, "undecodable", 7.0), (HUB, "firing", float(step > 300))],
        *[(CLUSTER, "bytes", 4e9 + 1e6 * step), (CLUSTER, "offline", 0.0), (CLUSTER, "brokers", 3.0)],
        (CLUSTER, "under_replicated", float(150 < step < 170)),
    ]
    for number, name in enumerate(("server", "materializer")):
        process = SeriesObject("process", name)
        found += [
            (process, "cpu_percent", 12.0 + 30 * number * wave),
            (process, "memory_bytes", 3e8 + 5e8 * number),
        ]
    for number, reader in enumerate(READERS):
        found += [(reader, "lag_s", wave * (number + 1)), (reader, "lag_error_s", 0.3)]
        found += [(reader, "lag_records", 90 * wave), (reader, "read_per_s", 45 * wave)]
    mirror = SeriesObject("mirror", "dr")
    found += [(mirror, "lag_s", wave), (mirror, "lag_error_s", 0.6), (mirror, "lag_records", 50 * wave)]
    return [*found, (mirror, "records_per_s", 70 * wave), (mirror, "bytes_per_s", 9e4 * wave)]


def staged_series(folder: Path, now_ms: int) -> SeriesReader:
    """Return the reader of an hour up to ``now_ms``; its clock does not move."""
    newest_ms = now_ms - now_ms % STEP_MS
    first_ms = newest_ms - (STEPS - 1) * STEP_MS
    with closing(SeriesDatabase(folder / FILE)) as database:
        database.add(
            Sample(about, metric, first_ms + step * STEP_MS, value)
            for step in range(STEPS)
            if step not in GAP
            for about, metric, value in values_at(step)
        )
        database.add_marks(
            [
                Mark(first_ms + 60 * STEP_MS, "start", HUB, "server started"),
                Mark(first_ms + 120 * STEP_MS, "swap", SHOWN, f"version 2 of {VIEW} was swapped in"),
                Mark(first_ms + 301 * STEP_MS, "alert", TOPIC, "alert lag fires"),
            ]
        )
    return SeriesReader(folder, SeriesStatus, now_ms=lambda: now_ms)
