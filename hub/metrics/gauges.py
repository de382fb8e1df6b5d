"""[edge] prometheus-client: a family of gauges from samples. Unknown values have no sample: a zero would
be wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric


def gauge(
    name: str,
    documentation: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float | None]],
) -> Metric:
    """Return a family of gauges. ``samples``: label values in the order of ``labels``, and the number;
    None: unknown."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, float(number))
    return family
