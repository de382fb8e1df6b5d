"""A small view for tests: a topic of sensor readings, and the file that declares its view."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from pipeline import Pipeline, wait_until

from hub.record import NewRecord, Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "sensor", "type": "string"}, {"name": "celsius", "type": "double"}],
}
WIDER = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"name": "site", "type": ["null", "string"], "default": None}],
}


class Plant:
    """A topic of sensor readings and a view over it."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self.pipeline = pipeline
        self.topic, self.view = f"plant.{name}", f"plant_{name}"
        self.registry = pipeline.registry
        self.writer = pipeline.writer
        pipeline.cluster.create_topic(self.topic, partitions=1, config={}, replication_factor=1)
        self.schema_id = self.registry.register(f"{self.topic}-value", json.dumps(SCHEMA))

    def declare(self, fields: dict[str, str], indexes: str = "[]") -> None:
        lines = "".join(f"  {name}: {sql}\n" for name, sql in fields.items())
        text = (
            f"view: {self.view}\nsources:\n  r: {{topic: {self.topic}, key: "
            f"sensor}}\nfields:\n{lines}indexes: {indexes}\n"
        )
        (self.pipeline.views / f"{self.view}.yaml").write_text(text)

    def write(self, key: str, value: bytes | None) -> Positions:
        return self.writer.append([NewRecord(self.topic, key.encode(), value)])

    def reading(self, sensor: str, celsius: float, **more: Any) -> bytes:
        schema = WIDER if more else SCHEMA
        schema_id = self.registry.register(f"{self.topic}-value", json.dumps(schema))
        return encode(schema_id, parsed(schema), {"sensor": sensor, "celsius": celsius, **more})

    def row(self, key: str, after: Positions | None = None, timeout_ms: int = 60_000) -> httpx2.Response:
        parameters = {"timeout_ms": str(timeout_ms), **({"after": str(after)} if after else {})}
        return httpx2.get(f"{self.pipeline.url}/views/{self.view}/{key}", params=parameters, timeout=70.0)

    def covered(self, key: str, after: Positions) -> None:
        """Wait until the row includes a write."""
        answer = self.row(key, after)
        assert answer.status_code == 200, answer.text

    def running(self) -> None:
        """Wait until the engine is live and the store has a table."""

        def live() -> bool:
            state = self.pipeline.state(self.view)
            return state.get("state") == "live" and bool(state["fields"])

        wait_until(live, 240.0, lambda: str(self.pipeline.state(self.view)))
