"""[edge] prometheus-client: the cluster's health as series. Unknown values have no sample."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from hub.metrics.gauges import gauge
from hub.observability.cluster.health import Health

MOST_BROKERS = 200


def families(health: Health) -> Iterator[Metric]:
    """Yield the series of the cluster, of each broker, and of each of its folders."""
    known = health.is_known
    for name, description, value in (
        ("brokers", "Brokers that are there", len(health.brokers) - len(health.away)),
        ("missing_brokers", "Brokers that partitions name but that are unreachable", len(health.away)),
        ("partitions", "Partitions of all topics, Kafka's own too", health.partitions),
        ("offline_partitions", "Partitions without a leader", health.offline),
        (
            "under_replicated_partitions",
            "Partitions with fewer replicas in sync than they should have",
            health.under_replicated,
        ),
    ):
        yield gauge(f"hub_kafka_{name}", description, (), [((), value if known else None)])
    brokers = health.brokers[:MOST_BROKERS] if known else ()
    yield gauge(
        "hub_kafka_broker_leads",
        "Partitions that a broker leads",
        ("broker",),
        (((str(each.id),), each.leads) for each in brokers),
    )
    yield gauge(
        "hub_kafka_broker_lacking",
        "Replicas of a broker that are not in sync",
        ("broker",),
        (((str(each.id),), each.lacking) for each in brokers),
    )
    folders = [(str(each.id), folder) for each in brokers for folder in each.dirs or ()]
    for name, description, field in (
        ("log_dir_bytes", "Bytes of the logs in a folder of a broker", "bytes"),
        ("log_dir_total_bytes", "Bytes of the disk that a folder is on", "total_bytes"),
        ("log_dir_usable_bytes", "Bytes of that disk that are free", "usable_bytes"),
    ):
        yield gauge(
            f"hub_kafka_{name}",
            description,
            ("broker", "folder"),
            (((id, folder.path), getattr(folder, field)) for id, folder in folders),
        )
    yield gauge(
        "hub_kafka_log_dir_failed",
        "1 for a folder that its broker cannot use",
        ("broker", "folder"),
        (((id, folder.path), bool(folder.error)) for id, folder in folders),
    )
