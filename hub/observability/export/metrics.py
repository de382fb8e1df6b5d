"""[edge] The overview and the consumers' lag in Prometheus' text format.

Series: a few for each topic, a dozen for each of the worst consumers, one for each kind and state; none for a
partition. Unknown values have no sample: a missing series can be alerted on, a zero would be wrong.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as as_openmetrics

from hub.metrics.gauges import gauge
from hub.observability.cluster.connect import Connect, ConnectState
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.states import LagState
from hub.observability.overview.overview import Overview, ViewLine

# Default number of consumers with series of their own.
SERIES = 200
CONNECTORS = 100
OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


# (name, help, labels, value): a counter of another package.
Counter = tuple[str, str, Mapping[str, str], float]
Counters = Callable[[], Iterable[Counter]]
Families = Callable[[], Iterable[Metric]]


def exposition(
    overview: Overview,
    counters: Iterable[Counter] = (),
    rows: Sequence[LagRow] = (),
    series: int = SERIES,
    round_s: float | None = None,
    more: Iterable[Metric] = (),
    *,
    openmetrics: bool = False,
) -> bytes:
    """Return all series of this moment, plus other packages' families (``more``).

    The first ``series`` of ``rows`` (worst first) have series of their own; all are counted by state.
    ``openmetrics``: use that format, which supports exemplars.
    """
    registry = CollectorRegistry()
    registry.register(_Families(overview, counters, rows, series, round_s, more))
    if openmetrics:
        text: bytes = as_openmetrics(registry)  # type: ignore[no-untyped-call]
        return text
    return generate_latest(registry)


class _Families:
    def __init__(
        self,
        overview: Overview,
        counters: Iterable[Counter],
        rows: Sequence[LagRow],
        series: int,
        round_s: float | None,
        more: Iterable[Metric] = (),
    ) -> None:
        self.overview = overview
        self.counters = counters
        self.rows, self.series, self.round_s = rows, series, round_s
        self.more = more

    def collect(self) -> Iterator[Metric]:
        views, topics = self.overview.views, self.overview.topics
        yield gauge("hub_kafka_up", "1 while Kafka answers", [], [([], self.overview.kafka.state == "up")])
        if self.overview.views_heard or self.overview.error is not None:
            yield gauge(
                "hub_store_up",
                "1 while the server can read its store",
                [],
                [([], self.overview.error is None)],
            )
        yield gauge(
            "hub_topic_end_offset",
            "Sum of the end offsets of a topic's partitions",
            ["topic"],
            (([topic.name], topic.events) for topic in topics),
        )
        yield gauge(
            "hub_topic_undecodable_events",
            "Events in the topic's dead-letter topic",
            ["topic"],
            (([topic.name], topic.undecodable) for topic in topics),
        )
        yield from _consumers(self.rows, self.series)
        yield gauge(
            "hub_lag_round_seconds", "What measuring every consumer took last time", [], [([], self.round_s)]
        )
        yield gauge(
            "hub_view_rows", "Rows the store serves", ["view"], (([view.name], view.rows) for view in views)
        )
        yield gauge(
            "hub_view_batch_seconds",
            "Duration of the view's last batch",
            ["view"],
            (([view.name], None if view.batch_ms is None else view.batch_ms / 1000) for view in views),
        )
        yield from _connect(self.overview.connect)
        yield _expired(views)
        yield from _counted(self.counters)
        yield from self.more


def _consumers(rows: Sequence[LagRow], series: int) -> Iterator[Metric]:
    """Yield the series of the worst consumers, and the number of all consumers by state.

    Mirrors have series of their own, by partition (hub/replication/status/metrics.py).
    """
    readers = islice((row for row in rows if row.kind != "mirror"), series)
    worst = [([row.kind, row.name, row.topic or ""], row) for row in readers]
    by_consumer = ["kind", "consumer", "topic"]
    yield gauge(
        "hub_consumer_lag_records",
        "Records that a consumer has not read",
        by_consumer,
        ((labels, row.records) for labels, row in worst),
    )
    yield gauge(
        "hub_consumer_lag_seconds",
        "Age of the oldest record that a consumer has not read",
        by_consumer,
        ((labels, row.seconds) for labels, row in worst),
    )
    yield gauge(
        "hub_consumer_lag_error_seconds",
        "The true lag is within hub_consumer_lag_seconds plus or minus this value",
        by_consumer,
        ((labels, row.error_s) for labels, row in worst),
    )
    yield gauge(
        "hub_consumer_state",
        "1 for the state a consumer is in",
        [*by_consumer, "state"],
        (([*labels, state], row.state == state) for labels, row in worst for state in LagState),
    )
    numbers = Tally((row.kind, row.state) for row in rows)
    kinds = sorted({row.kind for row in rows})
    yield gauge(
        "hub_consumers",
        "Consumers by state, each topic of each counted once",
        ["kind", "state"],
        (([kind, state], numbers[kind, state]) for kind in kinds for state in LagState),
    )


def _expired(views: Iterable[ViewLine]) -> Metric:
    found = CounterMetricFamily(
        "hub_view_expired_rows",
        "Rows that were older than the view's ttl; a repeated expiry counts again",
        labels=["view"],
    )
    for view in views:
        if view.expired is not None:
            found.add_metric([view.name], view.expired)
    return found


def _connect(connect: Connect | None) -> Iterator[Metric]:
    """Yield the numbers by state, and the first hundred failed connectors.

    Numbers of workers that never answered are omitted, and so are failures while no worker answers.
    """
    workers = connect.workers if connect is not None else ()
    # An address may be configured twice, with different users; a duplicate series would invalidate the
    # exposition.
    up_by_url: dict[str, bool] = {}
    for worker in workers:
        if worker.state != "connecting":
            up_by_url[worker.url] = up_by_url.get(worker.url, False) or worker.state == "up"
    yield gauge(
        "hub_connect_up",
        "1 while a worker of Kafka Connect answers",
        ["worker"],
        (([url], up) for url, up in up_by_url.items()),
    )
    for what, numbers in (
        ("connectors", connect.connectors_by_state if connect is not None else None),
        ("tasks", connect.tasks_by_state if connect is not None else None),
    ):
        yield gauge(
            f"hub_connect_{what}",
            f"Kafka Connect's {what} by state; UNKNOWN: their workers do not answer",
            ["state"],
            (([state], number) for state, number in (numbers or {}).items()),
        )
    known = connect is not None and connect.is_known
    yield gauge(
        "hub_connect_failures",
        "Connectors that failed or have a task that did",
        [],
        [([], connect.failed)] if known and connect is not None else [],
    )
    failed = (
        {}
        if connect is None
        else {one.name: one for one in connect.connectors if one.state is ConnectState.FAILED}
    )
    yield gauge(
        "hub_connect_failed",
        "1 for a connector that failed or has a task that did, the first hundred by name",
        ["connector"],
        (([name], 1) for name in list(failed)[:CONNECTORS]),
    )


def _counted(counters: Iterable[Counter]) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily] = {}
    for name, description, labels, value in counters:
        if name not in families:
            families[name] = CounterMetricFamily(name, description, labels=list(labels))
        families[name].add_metric(list(labels.values()), value)
    yield from families.values()
