"""[core] Objects that have series, their metrics and units, and the panels that charts show of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from hub.errors import CallerError


class SeriesKind(StrEnum):
    """Kind of an object. ``hub``: totals of all topics and views. ``reader``: a consumer on one topic."""

    hub = "hub"
    topic = "topic"
    view = "view"
    reader = "reader"
    mirror = "mirror"
    cluster = "cluster"
    process = "process"


class Unit(StrEnum):
    """Unit of a metric, as charts format it."""

    per_second = "per second"
    seconds = "seconds"
    number = "count"
    bytes = "bytes"
    bytes_per_second = "bytes per second"
    percent = "percent of one core"


class SeriesObject(NamedTuple):
    """An object with series. ``name``: "" for ``hub`` and ``cluster``; of a reader KIND/NAME/TOPIC."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def title(self) -> str:
        """Name in a legend, such as ``billing reads shop.orders``."""
        if self.kind != SeriesKind.reader:
            return self.name or str(self.kind)
        return f"{self.reader[1]} reads {self.reader[2]}"

    @property
    def reader(self) -> tuple[str, str, str]:
        """Kind, name and topic of a reader. A group's name may have slashes, the other two have none."""
        kind, _, rest = self.name.partition("/")
        name, _, topic = rest.rpartition("/")
        return kind, name, topic


HUB, CLUSTER = SeriesObject(SeriesKind.hub), SeriesObject(SeriesKind.cluster)


def reader_object(kind: str, name: str, topic: str) -> SeriesObject:
    return SeriesObject(SeriesKind.reader, f"{kind}/{name}/{topic}")


def parsed_object(text: str) -> SeriesObject:
    """Return the object of its text. Raises CallerError (HUB-1006).

    >>> parsed_object("reader:group/billing/shop.orders").reader
    ('group', 'billing', 'shop.orders')
    """
    kind, _, name = text.partition(":")
    found = SeriesObject(kind, name)
    is_single = kind in (SeriesKind.hub, SeriesKind.cluster)
    is_whole = all(found.reader) if kind == SeriesKind.reader else bool(name)
    if kind not in list(SeriesKind) or (bool(name) if is_single else not is_whole):
        raise CallerError(
            f'object "{text[:200]}" has no series',
            hint="use hub, cluster, topic:NAME, view:NAME, mirror:NAME, process:NAME or "
            "reader:KIND/NAME/TOPIC, such as reader:group/billing/shop.orders",
            code="HUB-1006",
        )
    return found


@dataclass(frozen=True, slots=True)
class SeriesMetric:
    """A metric. ``promql``: its expression, where ``/metrics`` has it; "": the hub's own store alone has it.
    ``$of`` stands for the label matchers of the object, ``$w`` for the window of rates."""

    name: str
    title: str
    unit: Unit
    promql: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: metrics of the same unit. ``error``: the metric of the error bound of the first one, drawn
    as a band. ``per``: the kind whose objects each are a line, instead of the page's own object."""

    title: str
    metrics: tuple[str, ...]
    error: str = ""
    per: SeriesKind | None = None


_PUBLISHED = '{topic!~"_.*|views[.].*|.*[.]dlq"}'
_END_RATE = "sum(max by (topic) (rate(hub_topic_end_offset{0}[$w])))"
_QUANTILE = (
    "histogram_quantile({0}, sum by (le) (rate(hub_view_latency_seconds_bucket"
    '{{$of,stage="readable",store="serving",origin="live"}}[$w])))'
)
_IN = SeriesMetric("in_per_s", "in", Unit.per_second, _END_RATE.replace("{0}", "{$of}"))
_READ = SeriesMetric("read_per_s", "read", Unit.per_second)
_DLQ = "sum(max by (topic) (hub_topic_undecodable_events{0}))"


def _lag(seconds: str, error: str, records: str) -> tuple[SeriesMetric, ...]:
    return (
        SeriesMetric("lag_s", "lag", Unit.seconds, seconds),
        SeriesMetric("lag_error_s", "error of lag", Unit.seconds, error),
        SeriesMetric("lag_records", "records waiting", Unit.number, records),
    )


_KINDS: Mapping[SeriesKind, tuple[SeriesMetric, ...]] = {
    SeriesKind.hub: (
        SeriesMetric("in_per_s", "in", Unit.per_second, _END_RATE.replace("{0}", _PUBLISHED)),
        *_lag(
            "max(hub_view_freshness_seconds)",
            "",
            'sum(max by (consumer, topic) (hub_consumer_lag_records{kind="view"}))',
        ),
        SeriesMetric("undecodable", "records", Unit.number, _DLQ.replace("{0}", "")),
        SeriesMetric("firing", "firing", Unit.number, "max(sum by (instance) (hub_alerts_firing))"),
    ),
    SeriesKind.topic: (
        _IN,
        SeriesMetric("out_per_s", "out, all readers", Unit.per_second),
        *_lag(
            "max(hub_consumer_lag_seconds{$of})",
            "",
            "max(hub_consumer_lag_records{$of})",
        ),
        SeriesMetric("undecodable", "records", Unit.number, _DLQ.replace("{0}", "{$of}")),
    ),
    SeriesKind.view: (
        *_lag("max(hub_view_freshness_seconds{$of})", "", ""),
        _READ,
        *(
            SeriesMetric(f"p{share}_s", f"p{share}", Unit.seconds, _QUANTILE.format(f"0.{share}"))
            for share in (50, 95, 99)
        ),
        SeriesMetric("batch_s", "batch", Unit.seconds, "max(hub_view_batch_seconds{$of})"),
        SeriesMetric("rows", "rows", Unit.number, "max(hub_view_rows{$of})"),
        SeriesMetric("subscribers", "subscribers", Unit.number),
    ),
    SeriesKind.reader: (
        *_lag(
            "max(hub_consumer_lag_seconds{$of})",
            "max(hub_consumer_lag_error_seconds{$of})",
            "max(hub_consumer_lag_records{$of})",
        ),
        _READ,
    ),
    SeriesKind.mirror: (
        *_lag("max(hub_mirror_lag_seconds_max{$of})", "", "max(hub_mirror_lag_records_all{$of})"),
        SeriesMetric("lag_bytes", "bytes waiting", Unit.bytes, "max(hub_mirror_lag_bytes_all{$of})"),
        SeriesMetric("records_per_s", "carried", Unit.per_second, "max(hub_mirror_records_per_second{$of})"),
        SeriesMetric(
            "bytes_per_s", "carried", Unit.bytes_per_second, "max(hub_mirror_bytes_per_second{$of})"
        ),
    ),
    SeriesKind.cluster: (
        SeriesMetric("bytes", "logs", Unit.bytes, "sum(max by (broker, folder) (hub_kafka_log_dir_bytes))"),
        SeriesMetric("offline", "offline", Unit.number, "max(hub_kafka_offline_partitions)"),
        SeriesMetric(
            "under_replicated", "under-replicated", Unit.number, "max(hub_kafka_under_replicated_partitions)"
        ),
        SeriesMetric("brokers", "brokers", Unit.number, "max(hub_kafka_brokers)"),
        SeriesMetric("connect_failed", "failed connectors", Unit.number, "max(hub_connect_failures)"),
    ),
    SeriesKind.process: (
        SeriesMetric("cpu_percent", "CPU", Unit.percent),
        SeriesMetric("memory_bytes", "memory", Unit.bytes),
    ),
}
METRICS: Mapping[str, Mapping[str, SeriesMetric]] = {
    kind: {each.name: each for each in metrics} for kind, metrics in _KINDS.items()
}
_LAG_PANELS = (Panel("Lag", ("lag_s",), "lag_error_s"), Panel("Records waiting", ("lag_records",)))
PANELS: Mapping[str, tuple[Panel, ...]] = {
    SeriesKind.hub: (
        Panel("Events in", ("in_per_s",)),
        Panel("Longest lag of a view", ("lag_s",), "lag_error_s"),
        Panel("Dead-letter records", ("undecodable",)),
        Panel("Alerts firing", ("firing",)),
    ),
    SeriesKind.topic: (
        Panel("Records in and out", ("in_per_s", "out_per_s")),
        Panel("Lag of its latest reader", ("lag_s",), "lag_error_s"),
        Panel("Records waiting, latest reader", ("lag_records",)),
        Panel("Dead-letter records", ("undecodable",)),
    ),
    SeriesKind.view: (
        *_LAG_PANELS,
        Panel("Latency, event to readable row", ("p50_s", "p95_s", "p99_s")),
        Panel("Batch time", ("batch_s",)),
        Panel("Events read", ("read_per_s",)),
        Panel("Rows", ("rows",)),
    ),
    SeriesKind.reader: (*_LAG_PANELS, Panel("Records read", ("read_per_s",))),
    SeriesKind.mirror: (
        *_LAG_PANELS,
        Panel("Records carried", ("records_per_s",)),
        Panel("Bytes carried", ("bytes_per_s",)),
    ),
    SeriesKind.cluster: (
        Panel("Partitions in trouble", ("offline", "under_replicated")),
        Panel("Logs, all replicas", ("bytes",)),
        Panel("Brokers", ("brokers",)),
        Panel("CPU of the hub's processes", ("cpu_percent",), per=SeriesKind.process),
        Panel("Memory of the hub's processes", ("memory_bytes",), per=SeriesKind.process),
    ),
    SeriesKind.process: (Panel("CPU", ("cpu_percent",)), Panel("Memory", ("memory_bytes",))),
}


def checked_metrics(objects: Iterable[SeriesObject], names: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics that are asked for; without a name, all of the objects' kinds. Raises CallerError
    (HUB-1007) for a name that none of them has."""
    known = list(dict.fromkeys(name for each in objects for name in METRICS[each.kind]))
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            raise CallerError(
                f'metric "{name[:100]}" is unknown here',
                hint=f"use one of: {', '.join(known)}",
                code="HUB-1007",
            )
    return wanted or tuple(known)


def matchers(found: SeriesObject) -> str:
    """Return the label matchers of an object in ``/metrics``.

    >>> matchers(SeriesObject("topic", 'a"b'))
    'topic="a\\\\"b"'
    """
    if found.kind == SeriesKind.reader:
        kind, name, topic = found.reader
        return ",".join(
            f"{label}={_quoted(value)}"
            for label, value in (("kind", kind), ("consumer", name), ("topic", topic))
        )
    return f"{found.kind}={_quoted(found.name)}" if found.name else ""


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
