"""Cost of the charts' store: time and CPU of a round, bytes of a series and day, time of a page's query.

Run: ``./run bench series`` (a minute; ``--topics N``, 10,000 by default). Prints figures, asserts none.
bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median

from hub.observability.lag.consumers import LagRow
from hub.observability.overview.overview import KafkaHealth, Overview, TopicKind, TopicLine
from hub.observability.series.catalog import SeriesObject
from hub.observability.series.database import SeriesDatabase
from hub.observability.series.reading import SeriesReader
from hub.observability.series.recorder import FILE, SeriesRecorder
from hub.observability.series.rollup import DAY_MS, LEVELS, MINUTE_MS, RANGES
from hub.observability.series.sampling import Moment, Sample

NOW = 1_790_000_000_000 // DAY_MS * DAY_MS
STEP_MS = 10_000


def estate(topics: int, at_ms: int) -> Moment:
    """Return the moment of an estate: each topic has a rate that changes, and one reader."""
    step = at_ms // STEP_MS
    names = [f"team{n % 97}.system{n % 997}.events{n}" for n in range(topics)]
    lines = tuple(
        TopicLine(name, TopicKind.events, 4, step * n, float(n % 50 + step % 7), 0, ())
        for n, name in enumerate(names)
    )
    rows = [
        LagRow(
            *("group", f"group{n % 500}", None, name, "", "OK", "", None, step % 90, 0.5, 0.3),
            *("arrival", None, None, 0, step * 10, 1, at_ms, ()),
        )
        for n, name in enumerate(names)
    ]
    return Moment(
        at_ms, Overview(at_ms, KafkaHealth("", at_ms, None), None, lines, ()), rows, rows_known=True
    )


def rounds(topics: int, count: int) -> None:
    """Print what a round takes in an estate of ``topics`` topics."""
    with tempfile.TemporaryDirectory() as folder:
        now = [NOW]
        moments = [estate(topics, NOW + n * STEP_MS) for n in range(count)]
        recorder = SeriesRecorder(
            Path(folder),
            lambda: moments[(now[0] - NOW) // STEP_MS],
            now_ms=lambda: now[0],
        )
        took, cpu = [], []
        for _ in range(count):
            began_s, cpu_s = time.perf_counter(), time.process_time()
            recorder.step()
            took.append(time.perf_counter() - began_s)
            cpu.append(time.process_time() - cpu_s)
            now[0] += STEP_MS
        status = recorder.status
        recorder.close()
        print(f"{topics:,} topics: a round of {status.fine:,} series finely, {status.coarse:,} by the hour")
        print(
            f"  {median(took) * 1000:.0f} ms, at most {max(took) * 1000:.0f} ms (with the series by the hour)"
        )
        print(
            f"  CPU: {sum(cpu) / count * 1000:.0f} ms a round, {sum(cpu) / count / 10 * 100:.1f} % of a core"
        )
        print(f"  not kept: {status.left_out:,} objects")


def bytes_of_a_day(series: int, hours: int) -> None:
    """Print the bytes that a series takes by level, and what a page's query takes."""
    objects = [SeriesObject("topic", f"t{n}") for n in range(series)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        with closing(SeriesDatabase(path)) as database:
            for level in LEVELS:
                before = database.bytes()
                span_ms = hours * 60 * MINUTE_MS if level.step_ms < 60 * MINUTE_MS else 30 * DAY_MS
                steps = span_ms // level.step_ms
                for step in range(steps):
                    at_ms = NOW - (steps - step) * level.step_ms
                    # Two samples, or a bucket of one, as each level has them.
                    samples = [
                        Sample(about, "in_per_s", at_ms, number * 1.37 + step % 11 + extra / 3)
                        for number, about in enumerate(objects)
                        for extra in range(1 if level.step_ms == STEP_MS else 2)
                    ]
                    database.add(samples, (level,))
                share = (database.bytes() - before) / series / steps
                day = share * DAY_MS / level.step_ms
                kept = share * level.keep_ms / level.step_ms
                print(
                    f"{level.name}: {share:.0f} bytes a point, {day / 1000:.1f} kB a series and day, "
                    f"{kept / 1000:.0f} kB when full"
                )
        reader = SeriesReader(Path(folder), now_ms=lambda: NOW - 1)
        for wanted in RANGES.values():
            began_s = time.perf_counter()
            for about in objects[:20]:
                reader.read([about], (), wanted)
            each_ms = (time.perf_counter() - began_s) * 1000 / 20
            print(f"query of a topic's charts over {wanted.title}: {each_ms:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=14)
    chosen = parser.parse_args()
    for topics in (200, chosen.topics):
        rounds(topics, chosen.rounds)
    bytes_of_a_day(200, 6)


if __name__ == "__main__":
    main()
