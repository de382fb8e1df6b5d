"""Current rows of a changelog from any writer; benchmarks compare them before they print a figure."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from hub.kafka import KafkaCluster
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import decode, parsed

_PATIENCE_S = 300.0


def rows_of(
    cluster: KafkaCluster, registry: RegistryClient, topic: str, schema: Any = None
) -> dict[bytes, dict[str, Any]]:
    """The latest row of each key, without deleted ones. ``schema``: of rows that name none, by the id 0."""
    known: dict[int, Any] = {} if schema is None else {0: parsed(schema)}

    def schema_of(schema_id: int) -> Any:
        if schema_id not in known:
            known[schema_id] = parsed(json.loads(registry.schema(schema_id)))
        return known[schema_id]

    found: dict[bytes, bytes] = {}
    end = cluster.end_offsets([topic], committed=False)
    with contextlib.closing(cluster.reader()) as reader:
        reader.assign(cluster.beginning_offsets([topic]))
        deadline = time.monotonic() + _PATIENCE_S
        while not reader.position().covers(end):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} is not read to its end within {_PATIENCE_S:g} s")
            for record in reader.poll(5_000, 0.5):
                if record.value is None:
                    found.pop(record.key or b"", None)
                else:
                    found[record.key or b""] = record.value
    return {key: decode(value, schema_of)[1] for key, value in found.items()}
