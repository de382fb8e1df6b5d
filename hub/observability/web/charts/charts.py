"""[core] Charts of the objects of a page: one for each panel of their kind, as values for the templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hub.observability.format import moment
from hub.observability.series.catalog import METRICS, PANELS, Panel, SeriesMetric, SeriesObject, Unit
from hub.observability.series.marks import Mark
from hub.observability.series.reading import SeriesAnswer, SeriesLine
from hub.observability.series.rollup import SeriesWindow
from hub.observability.web.charts.axes import labeled, time_ticks, value_ticks
from hub.observability.web.charts.drawing import band, gaps, line, share

# An error bound beyond this many times the largest value is cut off, so that it does not flatten the line.
MOST_BAND = 4.0
# Ticks nearer to an edge than this have no label: it would be cut off.
EDGE = 0.03
# Marks nearer than this share one place.
NEAR = 0.05


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line: its path, the band of its error or of its extremes, and its newest value. ``number``: its
    color.
    """

    number: int
    title: str
    path: str
    band: str
    newest: str


@dataclass(frozen=True, slots=True)
class ChartMark:
    """Marks at one place of a chart. ``numbers``: theirs in the list below, such as 2 or 2–5."""

    numbers: str
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. Ticks are (label, place). ``gaps`` are (place, width). ``summary`` is the chart in words;
    ``data`` is what the cursor reads, as JSON."""

    name: str
    title: str
    unit: str
    lines: tuple[ChartLine, ...]
    values: tuple[tuple[str, str], ...]
    times: tuple[tuple[str, str], ...]
    gaps: tuple[tuple[str, str], ...]
    marks: tuple[ChartMark, ...]
    band_of: str
    is_known: bool
    summary: str
    data: str


@dataclass(frozen=True, slots=True)
class NumbersTable:
    """Numbers of the charts as a table, newest first. ``columns`` are titles; a row has its time and
    cells.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


def charts_of(
    objects: Sequence[SeriesObject],
    answer: SeriesAnswer,
    others: Callable[[str], SeriesAnswer | None],
) -> tuple[Chart, ...]:
    """Return the charts of objects of one kind. ``others``: series of all objects of another kind, for panels
    with a line for each of them; None: there are none."""
    marks = _placed(answer.marks, answer.window)
    found = []
    for panel in PANELS[objects[0].kind]:
        source = answer if panel.per is None else others(panel.per)
        if source is not None:
            found.append(_chart(panel, source, _lines_of(panel, objects, source), marks))
    return tuple(found)


def _lines_of(
    panel: Panel, objects: Sequence[SeriesObject], answer: SeriesAnswer
) -> list[tuple[str, SeriesLine]]:
    """Return the lines of a panel with their titles: its metrics for one object, else its first metric for
    each object."""
    if panel.per is None and len(objects) == 1:
        lines = [answer.line(objects[0], name) for name in panel.metrics]
        return [(found.metric.title, found) for found in lines if found is not None]
    name = panel.metrics[0]
    return [(found.object.title, found) for found in answer.lines if found.metric.name == name]


def _chart(
    panel: Panel, answer: SeriesAnswer, lines: Sequence[tuple[str, SeriesLine]], marks: tuple[ChartMark, ...]
) -> Chart:
    metric = _metric(panel, answer, lines)
    error = answer.line(lines[0][1].object, panel.error) if len(lines) == 1 and panel.error else None
    bands = [_band(found, error) for _, found in lines]
    top = _top([found.values for _, found in lines], [high for _, high in bands])
    ticks, band_of = value_ticks(top, metric.unit), _band_title(error is not None, bands)
    drawn = tuple(
        ChartLine(
            number,
            title,
            line(found.values, ticks[-1]),
            band(*bands[number - 1], ticks[-1]) if band_of else "",
            labeled(_newest(found.values), metric.unit),
        )
        for number, (title, found) in enumerate(lines, 1)
    )
    window, count = answer.window, len(answer.window.times)
    common = gaps(_any_known([found.values for _, found in lines]))
    return Chart(
        "-".join(panel.metrics),
        panel.title,
        str(metric.unit),
        drawn,
        tuple((labeled(value, metric.unit), share(ticks[-1] - value, ticks[-1])) for value in ticks),
        _times(window),
        tuple(
            (share(first, count), share(after - first, count)) for first, after in _shown_gaps(common, count)
        ),
        marks,
        band_of,
        any(value is not None for _, found in lines for value in found.values),
        _summary(panel, metric, lines, common, count),
        _data(window, metric.unit, lines, error),
    )


def _metric(panel: Panel, answer: SeriesAnswer, lines: Sequence[tuple[str, SeriesLine]]) -> SeriesMetric:
    if lines:
        return lines[0][1].metric
    kind = panel.per or (answer.lines[0].object.kind if answer.lines else "hub")
    return METRICS[kind][panel.metrics[0]]


Values = tuple[float | None, ...]


def _band(found: SeriesLine, error: SeriesLine | None) -> tuple[Values, Values]:
    """Return lower and upper edge: the error bound of the value, else the extremes of each bucket. An unknown
    bound has no band."""
    if error is None:
        return (
            tuple(None if each is None else each.low for each in found.buckets),
            tuple(None if each is None else each.high for each in found.buckets),
        )
    pairs = list(zip(found.buckets, error.buckets, strict=True))
    low = tuple(
        None if one is None or bound is None else max(0.0, one.low - bound.high) for one, bound in pairs
    )
    high = tuple(None if one is None or bound is None else one.high + bound.high for one, bound in pairs)
    return low, high


def _band_title(has_error: bool, bands: Sequence[tuple[Values, Values]]) -> str:
    if has_error:
        return "band: error bound"
    spread = any(
        one is not None and other is not None and other > one
        for low, high in bands
        for one, other in zip(low, high, strict=True)
    )
    return "band: smallest and largest value" if spread else ""


def _top(lines: Sequence[Values], highs: Sequence[Values]) -> float:
    largest = max((value for each in lines for value in each if value is not None), default=0.0)
    upper = max((value for each in highs for value in each if value is not None), default=0.0)
    return max(largest, min(upper, largest * MOST_BAND) if largest > 0 else upper)


def _newest(values: Values) -> float | None:
    """Return the value of the last bucket; of the one before while the last has not been sampled yet."""
    return next((value for value in reversed(values[-2:]) if value is not None), None)


def _any_known(lines: Sequence[Values]) -> Values:
    return tuple(
        next((value for value in each if value is not None), None) for each in zip(*lines, strict=True)
    )


def _shown_gaps(found: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Return the gaps to shade: the last bucket may just not have been sampled yet."""
    return [(first, after) for first, after in found if first < count - 1]


def _times(window: SeriesWindow) -> tuple[tuple[str, str], ...]:
    span = window.end_ms - window.start_ms
    return tuple(
        (label, share(at_ms - window.start_ms, span))
        for at_ms, label in time_ticks(window.start_ms, window.end_ms)
        if EDGE < (at_ms - window.start_ms) / span < 1 - EDGE
    )


def _placed(marks: Sequence[Mark], window: SeriesWindow) -> tuple[ChartMark, ...]:
    """Return the marks with their places, near ones at the place of the first of them."""
    span, found = window.end_ms - window.start_ms, list[ChartMark]()
    first, last = 0, -1.0
    for number, mark in enumerate(marks, 1):
        at = (mark.at_ms - window.start_ms) / span
        text = f"{moment(mark.at_ms, window.end_ms)} {mark.text}"
        if found and at - last < NEAR:
            before = found[-1]
            found[-1] = ChartMark(f"{first}–{number}", before.at, f"{before.text}; {text}")
        else:
            found.append(ChartMark(str(number), share(at, 1), text))
            first, last = number, at
    return tuple(found)


def _summary(
    panel: Panel,
    metric: SeriesMetric,
    lines: Sequence[tuple[str, SeriesLine]],
    unknown: Sequence[tuple[int, int]],
    count: int,
) -> str:
    """Describe a chart: the newest, smallest and largest value of each line, and the unknown share."""
    sentences = []
    for title, found in lines:
        known = [value for value in found.values if value is not None]
        if known:
            newest, low, high = (
                labeled(value, metric.unit) for value in (_newest(found.values), min(known), max(known))
            )
            sentences.append(f"{title} {newest} now, from {low} to {high}")
        else:
            sentences.append(f"{title} is not known")
    missing = sum(after - first for first, after in _shown_gaps(unknown, count))
    if missing:
        sentences.append(f"{round(100 * missing / count)} % of the time is not known")
    return f"{panel.title}: {'; '.join(sentences) or 'nothing is known'}."


def _data(
    window: SeriesWindow, unit: Unit, lines: Sequence[tuple[str, SeriesLine]], error: SeriesLine | None
) -> str:
    """Return what the cursor reads: start, step, unit, and the values of each line, rounded to 4 digits."""
    body: dict[str, Any] = {
        "start": window.start_ms,
        "step": window.step_ms,
        "unit": str(unit),
        "lines": [{"title": title, "values": _rounded(found.values)} for title, found in lines],
    }
    if error is not None:
        body["error"] = _rounded(error.values)
    return orjson.dumps(body).decode()


def _rounded(values: Values) -> list[float | None]:
    return [None if value is None else float(f"{value:.4g}") for value in values]


def numbers_of(answer: SeriesAnswer) -> NumbersTable:
    """Return the numbers of the charts; times without any known value are left out."""
    several = len({each.object for each in answer.lines}) > 1
    columns = tuple(
        f"{each.object.title}: {each.metric.title}" if several else each.metric.title for each in answer.lines
    )
    rows = [
        (at_ms, tuple(labeled(each.values[index], each.metric.unit) for each in answer.lines))
        for index, at_ms in enumerate(answer.window.times)
        if any(each.buckets[index] is not None for each in answer.lines)
    ]
    return NumbersTable(columns, tuple(reversed(rows)))
