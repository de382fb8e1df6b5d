"""The settings of hub.yaml, from hub.config.Settings."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from hub.config import Settings

from .text import prose, sentence
from .yaml_files import type_of

_INTRO = """# Settings

`hub.yaml` in the project folder, and variables `HUB_<NAME>`. Precedence: a flag of the command, then the variable, then the
file, then the default. An unknown key is an error ([HUB-1101](errors.md)). Nested values are JSON in a variable:
`HUB_STORES='{"history": "duckdb"}'`.
"""  # noqa: E501
_EXAMPLE = """# hub.yaml
bootstrap: kafka-1:9093,kafka-2:9093,kafka-3:9093
embedded_kafka: false
replication_factor: 3
tls: {ca: certs/ca.pem}
sasl: {mechanism: SCRAM-SHA-512, username: hub, password: "${KAFKA_PASSWORD}"}
http_host: 0.0.0.0
allowed_hosts: [hub.example.com]
require_access: true
store_url: postgresql+psycopg://hub@db/hub
stores: {history: duckdb}
spark_heap_mb: 4096
"""


def page() -> str:
    """Return the page."""
    lines = [_INTRO, "## Example", "", f"```yaml\n{_EXAMPLE}```", "", "## All settings", ""]
    schema = Settings.model_json_schema()
    for name, field in sorted(Settings.model_fields.items()):
        kind = type_of(schema["properties"].get(name, {}), schema.get("$defs", {}))
        default = _shown(field.default, field.default_factory)
        lines.append(
            f"- **`{name}`** ({kind}; default {default}): {prose(sentence(field.description or ''))}"
        )
    return "\n".join(lines)


def example() -> str:
    """Return the example file."""
    return textwrap.dedent(_EXAMPLE)


def _shown(default: Any, factory: Any) -> str:
    if factory is not None and default in (None, PydanticUndefined):
        return "see the description" if factory not in (list, dict, tuple) else f"`{json.dumps(factory())}`"
    if default is None:
        return "none"
    if isinstance(default, Path | str):
        return f"`{default}`" if str(default) else "empty"
    return f"`{json.dumps(default, default=str)}`"
