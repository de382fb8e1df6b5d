"""A topic of flights with a lake of its own, on the shared hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lake_world import framed
from pipeline import records_of
from processes import HubProcess, call_hub
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError, ProgrammingError

from hub.config import Settings
from hub.kafka import own_cluster
from hub.record import NewRecord, Record
from hub.schema_registry.client.registry_client import RegistryClient

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "gate", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
LATER = {
    **FLIGHT,
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "stand", "type": ["null", "string"], "default": None, "aliases": ["gate"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "delay", "type": ["null", "double"], "default": None},
    ],
}
PARTITIONS = 3
DAY_MS = 86_400_000
NOT_YET = (NoSuchTableError, OperationalError, ProgrammingError)


@dataclass
class Lake:
    """A topic of the shared hub, and a home with a lake of its own."""

    settings: Settings
    topic: str
    environment: Mapping[str, str] = field(default_factory=dict)
    writers: list[HubProcess] = field(default_factory=list)
    written: int = 0

    def __post_init__(self) -> None:
        self.cluster = own_cluster(self.settings)
        self.registry = RegistryClient(self.settings.registry)
        self.cluster.create_topic(self.topic, partitions=PARTITIONS, config={}, replication_factor=1)

    def writer(self) -> HubProcess:
        made = HubProcess(self.settings, "lake", "run", environment=self.environment)
        made.start()
        self.writers.append(made)
        return made

    def write(self, schema: Mapping[str, Any], count: int) -> None:
        """Write numbered flights of some days into the three partitions, with headers."""
        schema_id = self.registry.register(f"{self.topic}-value", json.dumps(schema))
        numbers = range(self.written, self.written + count)
        bare = {**schema, "fields": [{**each, "type": plain(each["type"])} for each in schema["fields"]]}
        writer = self.cluster.writer()
        for first in range(numbers.start, numbers.stop, 1_000):
            some = range(first, min(first + 1_000, numbers.stop))
            writer.append([self._flight(n, schema_id, bare) for n in some])
        writer.close()
        self.written += count

    def _flight(self, n: int, schema_id: int, schema: Mapping[str, Any]) -> NewRecord:
        at_ms = 1_700_000_000_000 + n % 4 * DAY_MS
        value = {"number": n, "at": at_ms, "gate": f"g{n % 7}", "stand": f"s{n % 7}", "delay": n / 2}
        body = framed(schema_id, schema, value)
        headers = (("n", b"%d" % n),)
        return NewRecord(self.topic, b"k%d" % (n % 50), body, headers, at_ms, n % PARTITIONS)

    def records(self) -> list[Record]:
        return records_of(self.cluster, self.topic)

    def table(self) -> Any:
        """Return the table as any user of pyiceberg opens it."""
        uri = self.settings.lake_uri or f"sqlite:///{self.settings.home / 'lake' / 'catalog.db'}"
        properties = {"s3.region": "us-east-1"}
        if self.environment:
            properties["s3.endpoint"] = self.environment["AWS_ENDPOINT_URL"]
            properties["s3.access-key-id"] = "key"
            properties["s3.secret-access-key"] = "secret"
        with load_catalog("hub", type="sql", uri=uri, **properties) as catalog:
            return catalog.load_table(("topics", *self.topic.split(".")))

    def caught_up(self) -> bool:
        try:
            return bool(self.table().scan().count() >= len(self.records()))
        except NOT_YET:
            return False

    def said(self) -> str:
        return self.writers[-1].last_words()

    def hub(self, *arguments: str, ok: int = 0) -> Any:
        done = call_hub({**variables(self.settings), **self.environment}, *arguments, "-o", "json")
        assert done.returncode == ok, done
        return json.loads(done.stdout)


def plain(kind: Any) -> Any:
    return "long" if isinstance(kind, Mapping) else kind


def variables(settings: Settings) -> Mapping[str, str]:
    from hub.cli.context import environment_of

    return environment_of(settings)


def has_rows(lake: Lake) -> bool:
    try:
        return bool(lake.table().scan().count())
    except NOT_YET:
        return False
