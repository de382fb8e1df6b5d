"""[core] ``CREATE SOURCE|SINK CONNECTOR`` as an entry of connectors.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hub.connectors.connectors_file import is_secret_key
from hub.importing.report import NotTranslated, StatementTranslation

_CONVERTERS = {
    "JsonConverter": "json",
    "StringConverter": "string",
    "ByteArrayConverter": "bytes",
    "AvroConverter": "avro",
    "ProtobufConverter": "protobuf",
    "JsonSchemaConverter": "json-schema",
}
_PREFIXES = ("topic.prefix", "database.server.name")


def connector(name: str, options: Mapping[str, str], translation: StatementTranslation) -> dict[str, Any]:
    """Return the entry of a connector. Raises NotTranslated."""
    config = dict(options)
    java_class = config.pop("connector.class", "")
    if not java_class:
        raise NotTranslated("it has no 'connector.class'", "name the connector's class")
    entry: dict[str, Any] = {"class": java_class, "topics": _topics(config)}
    if "tasks.max" in config:
        entry["tasks"] = int(config.pop("tasks.max"))
    for key, target in (("value.converter", "converter"), ("key.converter", "key_converter")):
        short = config.get(key, "").rpartition(".")[2]
        if short in _CONVERTERS:
            entry[target] = _CONVERTERS[short]
            for each in [each for each in config if each == key or each.startswith(f"{key}.")]:
                del config[each]
    for key, value in config.items():
        if is_secret_key(key) and not value.startswith("${"):
            variable = re.sub(r"[^A-Z0-9]+", "_", f"{name}_{key.rpartition('.')[2]}".upper())
            config[key] = f"${{{variable}}}"
            translation.differ(f"{key} is not copied: set the variable {variable} where the worker runs")
    if config:
        entry["config"] = config
    translation.note("`hub connector plan` compares it with Kafka Connect")
    return entry


def _topics(config: dict[str, str]) -> list[str]:
    if "topics" in config:
        return [each.strip() for each in config.pop("topics").split(",")]
    tables = config.get("table.whitelist") or config.get("table.include.list")
    prefix = next((config[each] for each in _PREFIXES if each in config), "")
    if tables and prefix.endswith(("_", "-", ".")):
        return [prefix + each.strip() for each in tables.split(",")]
    for name in ("kafka.topic", "topic"):
        if name in config:
            return [config[name]]
    if prefix:
        return [f"{prefix.rstrip('.')}.**"]
    raise NotTranslated(
        "its topics are not in its options", "write the connector into connectors.yaml by hand"
    )
