"""[core] The measurements of one moment as samples of series. Nothing is measured for them: the values are
those of the overview, the monitor's rows, latency, health and mirrors. Unknown values have no sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

from hub.alerts.snapshot import AlertSnapshot
from hub.observability.cluster.health import Health
from hub.observability.cluster.processes import Process
from hub.observability.lag.consumers import LagRow
from hub.observability.latency.latency import SERVING, LatencyRow
from hub.observability.overview.overview import BatchSummary, Overview
from hub.observability.series.catalog import CLUSTER, HUB, SeriesKind, SeriesObject, reader_object

# A reading older than this is not a reading of now.
STALE_MS = 90_000
_MIRROR_FIELDS = {
    "lag_records": "lag_records",
    "lag_bytes": "lag_bytes",
    "records_per_s": "records_per_s",
    "bytes_per_s": "bytes_per_s",
}


class Sample(NamedTuple):
    """A known value of a series at a time (epoch ms)."""

    object: SeriesObject
    metric: str
    at_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class Moment:
    """Measurements at ``at_ms``.

    ``rows_known``: all readers are measured, so a topic without a row has no reader. ``mirrors``: statuses as
    in
    ``hub mirror status -o json``; () while they are not current. ``batches``: the last batches of each view.
    ``versions``: records ``versions:VIEW`` of ``_hub.progress``. ``firing`` None: unknown.
    """

    at_ms: int
    overview: Overview
    rows: Sequence[LagRow] = ()
    rows_known: bool = False
    latency: Sequence[LatencyRow] = ()
    health: Health = field(default_factory=Health)
    processes: Sequence[Process] = ()
    mirrors: Sequence[Mapping[str, Any]] = ()
    batches: Mapping[str, Sequence[BatchSummary]] = field(default_factory=dict)
    versions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    alerts: AlertSnapshot | None = None
    firing: int | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """Values of the last round that rates need: positions of readers with the time of their measurement, and
    the time up to which batches were sampled; None: this is the first round."""

    positions: Mapping[SeriesObject, tuple[int, int]] = field(default_factory=dict)
    batches_to_ms: int | None = None


def sampled(moment: Moment, before: Before) -> tuple[list[Sample], Before]:
    """Return the samples of a moment, and what the next round needs."""
    rates, positions = read_rates(moment, before)
    values: list[tuple[SeriesObject, str, float | None]] = [
        *_of_hub(moment),
        *_of_topics(moment, rates),
        *_of_readers(moment.rows, rates),
        *_of_views(moment, rates),
        *_of_mirrors(moment),
        *_of_cluster(moment),
    ]
    samples = [
        Sample(about, metric, moment.at_ms, float(value))
        for about, metric, value in values
        if value is not None and isfinite(value)
    ]
    since_ms = moment.at_ms if before.batches_to_ms is None else before.batches_to_ms
    newest_ms = since_ms
    for view, batches in moment.batches.items():
        for batch in batches:
            newest_ms = max(newest_ms, batch.at_ms)
            if since_ms < batch.at_ms <= moment.at_ms:
                about = SeriesObject(SeriesKind.view, view)
                samples.append(Sample(about, "batch_s", batch.at_ms, batch.took_ms / 1000))
    return samples, Before(positions, min(newest_ms, moment.at_ms))


def read_rates(
    moment: Moment, before: Before
) -> tuple[dict[SeriesObject, float], dict[SeriesObject, tuple[int, int]]]:
    """Return the records per second of each reader since its last measurement, and the positions now. A
    reader that was set back, or was not measured meanwhile, has no rate."""
    rates: dict[SeriesObject, float] = {}
    positions: dict[SeriesObject, tuple[int, int]] = {}
    for row in moment.rows:
        if row.topic is None or row.position is None or row.measured_at_ms is None:
            continue
        about = reader_object(row.kind, row.name, row.topic)
        positions[about] = (row.position, row.measured_at_ms)
        position, at_ms = before.positions.get(about, (0, 0))
        took_ms = row.measured_at_ms - at_ms
        if at_ms and 0 < took_ms <= STALE_MS and row.position >= position:
            rates[about] = (row.position - position) * 1000 / took_ms
    return rates, positions


Values = Iterator[tuple[SeriesObject, str, float | None]]


def _of_hub(moment: Moment) -> Values:
    overview = moment.overview
    up = overview.kafka.state == "up"
    # The overview shows its last rate for a minute while Kafka is away; a chart has a gap.
    yield HUB, "in_per_s", overview.events_per_second if up else None
    yield HUB, "undecodable", overview.undecodable if up else None
    yield HUB, "firing", moment.firing
    worst = overview.worst_lag
    if worst is not None:
        yield HUB, "lag_s", worst.seconds
        yield HUB, "lag_error_s", worst.error_s
        yield HUB, "lag_records", worst.records


def _of_topics(moment: Moment, rates: Mapping[SeriesObject, float]) -> Values:
    up = moment.overview.kafka.state == "up"
    by_topic: dict[str, list[LagRow]] = {}
    for row in moment.rows:
        if row.topic is not None and row.kind != "applier":
            by_topic.setdefault(row.topic, []).append(row)
    for topic in moment.overview.topics:
        about = SeriesObject(SeriesKind.topic, topic.name)
        yield about, "in_per_s", topic.events_per_second if up else None
        yield about, "undecodable", topic.undecodable if up else None
        rows = by_topic.get(topic.name, [])
        yield from _latest(about, rows)
        own = [rates.get(reader_object(row.kind, row.name, topic.name)) for row in rows]
        known = [rate for rate in own if rate is not None]
        # A reader whose rate is not known makes the sum unknown.
        if moment.rows_known and up and len(known) == len(own):
            yield about, "out_per_s", sum(known)


def _latest(about: SeriesObject, rows: Iterable[LagRow]) -> Values:
    """Yield the lag of the latest of some readers: known values alone."""
    measured = [row for row in rows if row.seconds is not None]
    if not measured:
        return
    worst = max(measured, key=lambda row: (row.seconds or 0.0, row.records or 0))
    yield about, "lag_s", worst.seconds
    yield about, "lag_error_s", worst.error_s
    yield about, "lag_records", worst.records


def _of_readers(rows: Iterable[LagRow], rates: Mapping[SeriesObject, float]) -> Values:
    for row in rows:
        if row.topic is not None:
            about = reader_object(row.kind, row.name, row.topic)
            yield about, "lag_s", row.seconds
            yield about, "lag_error_s", row.error_s
            yield about, "lag_records", row.records
            yield about, "read_per_s", rates.get(about)


def _of_views(moment: Moment, rates: Mapping[SeriesObject, float]) -> Values:
    for view in moment.overview.views:
        about = SeriesObject(SeriesKind.view, view.name)
        if view.lag is not None:
            yield about, "lag_s", view.lag.seconds
            yield about, "lag_error_s", view.lag.error_s
            yield about, "lag_records", view.lag.records
        yield about, "rows", view.rows
        yield about, "subscribers", view.subscribers
        own = [rates.get(reader_object("view", view.name, source.topic)) for source in view.sources]
        known = [rate for rate in own if rate is not None]
        yield about, "read_per_s", sum(known) if known and len(known) == len(own) else None
    for row in moment.latency:
        if (row.stage, row.store, row.origin) == ("readable", SERVING, "live") and not row.silent:
            about = SeriesObject(SeriesKind.view, row.view)
            yield about, "p50_s", row.p50_s
            yield about, "p95_s", row.p95_s
            yield about, "p99_s", row.p99_s


def _of_mirrors(moment: Moment) -> Values:
    by_mirror: dict[str, list[LagRow]] = {}
    for row in moment.rows:
        if row.kind == "mirror":
            by_mirror.setdefault(row.name, []).append(row)
    for status in moment.mirrors:
        name = str(status["mirror"])
        about = SeriesObject(SeriesKind.mirror, name)
        if status.get("state") == "unknown":
            continue
        rows = [row for row in by_mirror.get(name, []) if row.seconds is not None]
        if rows:  # the monitor's lag of the same mirror, which has an error bound
            worst = max(rows, key=lambda row: row.seconds or 0.0)
            yield about, "lag_s", worst.seconds
            yield about, "lag_error_s", worst.error_s
        else:
            yield about, "lag_s", _number(status.get("lag_s"))
        for metric, name_of_field in _MIRROR_FIELDS.items():
            yield about, metric, _number(status.get(name_of_field))


def _of_cluster(moment: Moment) -> Values:
    health = moment.health
    if health.is_known and moment.at_ms - (health.answered_at_ms or 0) <= STALE_MS:
        logs = [broker.bytes for broker in health.brokers if broker.up]
        known = [size for size in logs if size is not None]
        yield CLUSTER, "bytes", sum(known) if known and len(known) == len(logs) else None
        yield CLUSTER, "offline", health.offline
        yield CLUSTER, "under_replicated", health.under_replicated
        yield CLUSTER, "brokers", sum(broker.up for broker in health.brokers)
    connect = moment.overview.connect
    if connect is not None and connect.is_known:
        yield CLUSTER, "connect_failed", connect.failed
    for process in moment.processes:
        about = SeriesObject(SeriesKind.process, process.process)
        yield about, "cpu_percent", process.cpu_percent
        yield about, "memory_bytes", process.memory_mb * 1_000_000


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
