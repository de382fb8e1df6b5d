"""[edge] prometheus-client: processes without contact with Kafka, as a series. Unknown values have no
sample."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from hub.kafka.contact.notes import ContactNote
from hub.metrics.gauges import gauge


def family(notes: Iterable[ContactNote]) -> Metric:
    """Return ``hub_kafka_cut_off_seconds`` for each process, cluster and kind of client."""
    return gauge(
        "hub_kafka_cut_off_seconds",
        "Time since a process's client of Kafka has had an answer; 0 while all of this kind are answered",
        ("process", "cluster", "client"),
        (
            ((note.process, each.cluster, each.client), each.cut_off_s)
            for note in notes
            for each in note.reports or ()
        ),
    )
