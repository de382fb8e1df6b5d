"""[core] Findings of Connect's own validation as refusals with a place in connectors.yaml, and likely
misspellings.

Connect names a setting; the file may have it under ``config``, under a key of its own (``topics``), or not at
all. What the file lacks is reported at the connector's name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from hub.connectors.connectors_file import Connectors, ConnectorSpec
from hub.connectors.kinds import CONVERTERS, plugin_of
from hub.connectors.plan import ConnectorRefusal, redacted
from hub.errors import nearest

_MOST_ERRORS = 50
_LONGEST = 500
# Settings that plugins pass on without declaring them.
_FREE = (
    "transforms",
    "predicates",
    "key.converter.",
    "value.converter.",
    "header.converter",
    "topic.creation.",
    "producer.override.",
    "consumer.override.",
    "admin.override.",
    "errors.",
    "driver.",
    "signal.",
    "aws.",
    "connection.",
    "kafka.",
)


def key_in_file(spec: ConnectorSpec, setting: str) -> tuple[str, ...]:
    """Return the keys, below the connector, of the place in the file that decides a setting.

    () is the connector itself: the file does not have the setting.
    """
    if setting in spec.config:
        return ("config", setting)
    if setting == "connector.class":
        return ("class",) if spec.class_name is not None else ("kind",)
    if setting in ("topics", "topics.regex") or setting.startswith("topic.creation."):
        return ("topics",)
    for prefix, key in (("key.converter", "key_converter"), ("value.converter", "converter")):
        if setting.startswith(prefix) and key in spec.model_fields_set:
            return (key,)
    return ("tasks",) if setting == "tasks.max" and "tasks" in spec.model_fields_set else ()


def refusals_of(
    file: Connectors, name: str, answer: Sequence[Mapping[str, Any]], secrets: Collection[str] = ()
) -> Iterator[ConnectorRefusal]:
    """Yield one refusal per error of ``PUT /connector-plugins/<class>/config/validate``."""
    spec, reported, number = file.by_name[name], set(), 0
    for each in answer:
        value = each.get("value") or {}
        setting = str(value.get("name", ""))
        for error in value.get("errors") or ():
            message = redacted(" ".join(str(error).split()), secrets)[:_LONGEST]
            if (setting, message) in reported or number >= _MOST_ERRORS:
                continue
            reported.add((setting, message))
            number += 1
            keys = key_in_file(spec, setting)
            hint = "" if keys else f"add it below config: {setting}"
            yield ConnectorRefusal(name, f"{setting}: {message}", file.place(name, *keys), setting, hint)


def unknown_settings(
    file: Connectors, name: str, answer: Sequence[Mapping[str, Any]]
) -> Iterator[ConnectorRefusal]:
    """Yield settings that the plugin does not declare and that look like one that it does."""
    known = {str((each.get("definition") or {}).get("name", "")) for each in answer} - {""}
    for setting in file.by_name[name].config if known else ():
        if setting in known or setting.startswith(_FREE):
            continue
        if (guess := nearest(setting, known)) is not None:
            where = file.place(name, "config", setting)
            message = f'the plugin has no setting "{setting}"; did you mean "{guess}"?'
            yield ConnectorRefusal(name, message, where, setting)


def missing_plugins(file: Connectors, name: str, installed: Collection[str]) -> Iterator[ConnectorRefusal]:
    """Yield a refusal for a class of the connector or of its converters that no worker has."""
    spec = file.by_name[name]
    needed: dict[tuple[str, ...], str] = {("kind" if spec.class_name is None else "class",): spec.java_class}
    for key in ("converter", "key_converter"):
        if (converter := getattr(spec, key)) is not None:
            needed[(key,) if key in spec.model_fields_set else ()] = CONVERTERS[converter][""]
    for keys, class_name in needed.items():
        if class_name in installed:
            continue
        yield ConnectorRefusal(
            name,
            f"the plugin with {class_name} is not installed",
            file.place(name, *keys),
            hint=_way_to_plugin(class_name),
        )


def _way_to_plugin(class_name: str) -> str:
    if class_name.startswith("io.confluent."):
        return (
            "Confluent's converters are not on Maven Central: put their jars into a folder of the worker's "
            "plugin.path, or take `converter: json`"
        )
    named = plugin_of(class_name) or "GROUP:ARTIFACT:VERSION"
    return f"hub connector add-plugin {named}, then restart the worker (hub down; hub up)"
