"""[edge] The overview in Prometheus' text format. Series: a few a topic, a few a view and topic; none a partition.

What is not known has no sample at all: a missing series can be alerted on, a zero would lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hub.observability.lag import LagState
from hub.observability.overview import Overview

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Samples = Iterable[tuple[list[str], float | None]]


# (name, help, labels, value): what another part counts.
Counter = tuple[str, str, Mapping[str, str], float]
Counters = Callable[[], Iterable[Counter]]


def exposition(overview: Overview, counters: Iterable[Counter] = ()) -> bytes:
    """All series of this moment."""
    registry = CollectorRegistry()
    registry.register(_Families(overview, counters))
    return generate_latest(registry)


class _Families:
    def __init__(self, overview: Overview, counters: Iterable[Counter]) -> None:
        self.overview = overview
        self.counters = counters

    def collect(self) -> Iterator[Metric]:
        views, topics = self.overview.views, self.overview.topics
        pairs = [([view.name, source.topic], source) for view in views for source in view.sources]
        by_pair = ["view", "topic"]
        yield _gauge("hub_kafka_up", "1 while Kafka answers", [], [([], self.overview.kafka.state == "up")])
        yield _gauge(
            "hub_topic_end_offset",
            "Sum of the end offsets of a topic's partitions",
            ["topic"],
            (([topic.name], topic.events) for topic in topics),
        )
        yield _gauge(
            "hub_topic_undecodable_events",
            "Events in the topic's dead-letter topic",
            ["topic"],
            (([topic.name], topic.undecodable) for topic in topics),
        )
        yield _gauge(
            "hub_consumer_lag_records",
            "Events that a view has not read",
            by_pair,
            ((labels, source.records) for labels, source in pairs),
        )
        yield _gauge(
            "hub_consumer_lag_seconds",
            "Age of the oldest event that a view has not read",
            by_pair,
            ((labels, source.seconds) for labels, source in pairs),
        )
        yield _gauge(
            "hub_consumer_lag_seconds_error",
            "The true lag lies within hub_consumer_lag_seconds plus or minus this",
            by_pair,
            ((labels, source.error_s) for labels, source in pairs),
        )
        yield _gauge(
            "hub_consumer_state",
            "1 for the state a view is in as reader of a topic",
            [*by_pair, "state"],
            (([*labels, state], source.state is state) for labels, source in pairs for state in LagState),
        )
        yield _gauge(
            "hub_view_rows", "Rows the store serves", ["view"], (([view.name], view.rows) for view in views)
        )
        yield _gauge(
            "hub_view_batch_seconds",
            "Duration of the view's last batch",
            ["view"],
            (([view.name], None if view.batch_ms is None else view.batch_ms / 1000) for view in views),
        )
        yield from _counted(self.counters)


def _counted(counters: Iterable[Counter]) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily] = {}
    for name, said, labels, value in counters:
        if name not in families:
            families[name] = CounterMetricFamily(name, said, labels=list(labels))
        families[name].add_metric(list(labels.values()), value)
    yield from families.values()


def _gauge(name: str, help_text: str, labels: list[str], samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, float(number))
    return family
