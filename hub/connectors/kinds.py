"""[core] Short kinds of connectors: the class behind each, its direction, its defaults, and the plugin it
comes with.

A kind saves what everybody would write: ``postgres-cdc`` is Debezium's connector with logical decoding by
``pgoutput``, and with names of slot and publication that follow from the connector's. Any other connector is
named by its ``class``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Direction = Literal["source", "sink"]
Defaults = Callable[[str], Mapping[str, str]]
"""(name of the connector) → settings that the file may change."""

DEBEZIUM_POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"
_FILE = "org.apache.kafka.connect.file.FileStream"


@dataclass(frozen=True, slots=True)
class ConnectorKind:
    """A short kind. ``plugin``: coordinates to add it by, with VERSION where the user chooses one; "": it
    comes with the hub's worker."""

    class_name: str
    direction: Direction
    plugin: str = ""
    defaults: Defaults = lambda _name: {}


def slot_of(name: str) -> str:
    """Return the name of a connector's replication slot and publication: up to 63 of ``a-z``, ``0-9`` and
    ``_``.

    >>> slot_of("crm-EU.1")
    'hub_crm_eu_1'
    """
    return f"hub_{re.sub(r'[^a-z0-9]+', '_', name.lower())}"[:63]


def _postgres(name: str) -> Mapping[str, str]:
    return {
        "topic.prefix": name,
        "plugin.name": "pgoutput",
        "slot.name": slot_of(name),
        "publication.name": slot_of(name),
        "publication.autocreate.mode": "filtered",
        # As JSON without a schema, bytes of a decimal could not be read: their scale would be missing.
        "decimal.handling.mode": "string",
        # Debezium leaves truncations out by default: rows of views would stay, and nobody would know.
        "skipped.operations": "none",
    }


def _outbox(name: str) -> Mapping[str, str]:
    return {
        **_postgres(name),
        "skipped.operations": "t",  # the events of an emptied outbox are in Kafka
        "tombstones.on.delete": "false",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": "${routedByValue}",
    }


KINDS: Mapping[str, ConnectorKind] = {
    "postgres-cdc": ConnectorKind(DEBEZIUM_POSTGRES, "source", defaults=_postgres),
    "outbox": ConnectorKind(DEBEZIUM_POSTGRES, "source", defaults=_outbox),
    "file": ConnectorKind(f"{_FILE}SinkConnector", "sink"),
    "jdbc-sink": ConnectorKind(
        "io.debezium.connector.jdbc.JdbcSinkConnector", "sink", "io.debezium:debezium-connector-jdbc:VERSION"
    ),
    "http-sink": ConnectorKind(
        "io.aiven.kafka.connect.http.HttpSinkConnector",
        "sink",
        "io.aiven:http-connector-for-apache-kafka:VERSION",
    ),
    "s3-sink": ConnectorKind(
        "io.aiven.kafka.connect.s3.S3SinkConnector",
        "sink",
        "io.aiven:s3-sink-connector-for-apache-kafka:VERSION",
    ),
    "search-sink": ConnectorKind(
        "io.aiven.kafka.connect.opensearch.OpenSearchSinkConnector",
        "sink",
        "io.aiven:opensearch-connector-for-apache-kafka:VERSION",
    ),
}

CONVERTERS: Mapping[str, Mapping[str, str]] = {
    "json": {"": "org.apache.kafka.connect.json.JsonConverter", "schemas.enable": "false"},
    "json-with-schema": {"": "org.apache.kafka.connect.json.JsonConverter", "schemas.enable": "true"},
    "string": {"": "org.apache.kafka.connect.storage.StringConverter"},
    "bytes": {"": "org.apache.kafka.connect.converters.ByteArrayConverter"},
    "avro": {"": "io.confluent.connect.avro.AvroConverter", "schema.registry.url": "REGISTRY"},
    "protobuf": {"": "io.confluent.connect.protobuf.ProtobufConverter", "schema.registry.url": "REGISTRY"},
    "json-schema": {"": "io.confluent.connect.json.JsonSchemaConverter", "schema.registry.url": "REGISTRY"},
}
"""Name → settings below ``value.converter``; "" is the class, REGISTRY the hub's registry."""


def kind_of(kind: str, config: Mapping[str, object]) -> ConnectorKind:
    """Return the kind with this name.
    ``file`` reads a file where its config has ``topic``, else it writes one."""
    if kind == "file" and "topic" in config:
        return ConnectorKind(f"{_FILE}SourceConnector", "source")
    return KINDS[kind]


def direction_of(class_name: str) -> Direction:
    """Return the direction of a class outside of the kinds, by the convention of its name.

    >>> direction_of("io.acme.S3SinkConnector"), direction_of("io.acme.SalesforceSource")
    ('sink', 'source')
    """
    return "sink" if "sink" in class_name.rpartition(".")[2].casefold() else "source"


def plugin_of(class_name: str) -> str | None:
    """Return the coordinates by which a class of a short kind is added; None if unknown or with the hub."""
    found = (each.plugin for each in KINDS.values() if each.class_name == class_name and each.plugin)
    return next(found, None)


def system_of(class_name: str, config: Mapping[str, object]) -> str:
    """Return a name of the external system at a connector's other end, without credentials: for the lineage.

    >>> system_of("io.acme.Sink", {"connection.url": "jdbc:postgresql://u:p@db:5432/crm?x=1"})
    'db:5432/crm'
    >>> system_of("a.FooSink", {})
    'FooSink'
    """
    if "database.hostname" in config:
        return f"{config['database.hostname']}/{config.get('database.dbname', '')}".rstrip("/")
    for key in ("connection.url", "http.url", "url"):
        if (match := re.search(r"://(?:[^/@\s]*@)?([^?\s]+)", str(config.get(key, "")))) is not None:
            return match[1].rstrip("/")
    for key in ("file", "aws.s3.bucket.name", "s3.bucket.name"):
        if key in config:
            return str(config[key])
    return class_name.rpartition(".")[2]
