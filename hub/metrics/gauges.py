"""[edge] prometheus-client: one family of gauges out of its samples. What is not known has none: a zero would lie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric


def gauge(
    name: str, said: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float | None]]
) -> Metric:
    """``samples``: the labels' values in the order of ``labels``, and the number; None: not known."""
    family = GaugeMetricFamily(name, said, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, float(number))
    return family
