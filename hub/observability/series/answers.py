"""[core] Series as the JSON and CSV of ``/api/series``."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

from hub.csv_cells import in_cell
from hub.observability.series.reading import SeriesAnswer
from hub.times import iso

DIGITS = 6


def series_json(answer: SeriesAnswer) -> dict[str, Any]:
    """Return the JSON: ``at_ms`` are the times of all series; each has as many values, null where nothing is
    known, with the smallest and largest sample and their number."""
    return {
        "range": answer.range,
        "source": answer.source,
        "step_ms": answer.window.step_ms,
        "at_ms": list(answer.window.times),
        "series": [
            {
                "object": str(each.object),
                "metric": each.metric.name,
                "unit": str(each.metric.unit),
                "values": [None if one is None else _short(one.mean) for one in each.buckets],
                "low": [None if one is None else _short(one.low) for one in each.buckets],
                "high": [None if one is None else _short(one.high) for one in each.buckets],
                "samples": [0 if one is None else one.samples for one in each.buckets],
            }
            for each in answer.lines
        ],
        "marks": [
            {"at_ms": mark.at_ms, "kind": mark.kind, "object": str(mark.object), "text": mark.text}
            for mark in answer.marks
        ],
        "notes": list(answer.notes),
    }


def series_csv(answer: SeriesAnswer) -> str:
    """Return CSV: a row for each time, a column for each series; an unknown value is an empty cell."""
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(["time", *(in_cell(f"{each.object} {each.metric.name}") for each in answer.lines)])
    for index, at_ms in enumerate(answer.window.times):
        row = (each.values[index] for each in answer.lines)
        writer.writerow([iso(at_ms), *("" if value is None else _short(value) for value in row)])
    return text.getvalue()


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if abs(value) < 10**DIGITS else round(value, 1)
