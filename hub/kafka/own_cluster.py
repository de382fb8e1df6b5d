"""[edge] The hub's own Kafka, as the settings say it:
the one place where its clients get their address, TLS and SASL."""

from __future__ import annotations

import os

from hub.config import Settings
from hub.errors import ConfigError
from hub.files import read_bytes
from hub.kafka.cluster import KafkaCluster
from hub.kafka.protocol.unpacked_size import MIB, UnpackedBounds
from hub.kafka.read_proxy import ReadProxy
from hub.security import ClusterConnection, secrets_of


def own_connection(settings: Settings) -> ClusterConnection:
    """Return the connection settings of the hub's own Kafka. Raises ConfigError: HUB-1602 for a variable that
    is not set, HUB-1603 for a file that cannot be read.
    """
    hint = "set {}=… in the environment of the hub's processes"
    secrets = secrets_of(settings.tls, settings.sasl, os.environ, "hub.yaml", hint)
    bootstrap = tuple(host.strip() for host in settings.bootstrap.split(","))
    folder = settings.project.expanduser().absolute()
    cluster_connection = ClusterConnection("hub", bootstrap, settings.tls, settings.sasl, secrets, folder)
    check_files(cluster_connection, "hub.yaml: tls")
    return cluster_connection


def own_cluster(settings: Settings, at_most_s: float | None = None) -> KafkaCluster:
    """Return the hub's own cluster; connects to nothing yet. A request waits for the lesser of
    ``kafka_timeout_s`` and ``at_most_s``. Raises ConfigError as ``own_connection`` does.

    Raises ConfigError as above.
    """
    timeout_s = settings.kafka_timeout_s if at_most_s is None else min(at_most_s, settings.kafka_timeout_s)
    security = own_connection(settings).librdkafka()
    bootstrap = security.pop("bootstrap.servers")
    return KafkaCluster(bootstrap, timeout_s, security, settings.kafka_cut_off_s, bounds_of(settings))


def own_proxy(settings: Settings) -> ReadProxy:
    """Return the proxy that readers of the hub's own Kafka connect to, Spark included. Raises ConfigError as
    ``own_connection`` does.
    """
    return own_cluster(settings).proxy


def bounds_of(settings: Settings) -> UnpackedBounds:
    return UnpackedBounds(settings.largest_batch_mb * MIB, settings.largest_record_mb * MIB)


def check_files(connection: ClusterConnection, whose: str) -> None:
    """Raise ConfigError (HUB-1603) for the first file of the connection that cannot be read. librdkafka would
    report OpenSSL's message instead.
    """
    for key, path in connection.files().items():
        try:
            read_bytes(path, 0)
        except OSError as error:
            raise ConfigError(
                f'{whose}: {key}: file "{path}": {error.strerror}',
                hint=f"paths are taken from {connection.folder}",
                code="HUB-1603",
            ) from None
