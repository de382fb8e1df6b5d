"""[core] A first version of a view and its golden test, drafted from the schemas of its topics.

A source whose events have the view's key as their own key says what is true of it now: its columns become
fields, with the value of the latest event. Events of other sources have keys of their own: they are counted,
and their numbers added up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

import yaml

from hub.errors import CallerError
from hub.materializers.types.avro_types import AvroType, field_types, kind

_TIME = "2026-01-01T09:00:00Z"
_SAMPLES: Mapping[str, Any] = {
    "integer": 1,
    "floating": 1.5,
    "string": "a",
    "boolean": True,
    "timestamp": _TIME,
    "date": "2026-01-01",
}
_ADDED = ("integer", "floating")
_IS_IDENTIFIER = re.compile(r"(^|_)(id|key|no|number|code)$")


@dataclass(frozen=True, slots=True)
class DraftSource:
    """A topic of the view. ``key``: the column that topics.yaml names as the key of its events,
    None if it names none."""

    topic: str
    schema: AvroType
    key: str | None


@dataclass(frozen=True, slots=True)
class ViewDraft:
    """The texts of the two files. ``test`` is None where no sample event can be made."""

    view: str
    test: str | None


@dataclass
class _Drafting:
    key: str
    fields: dict[str, str] = field(default_factory=dict)
    sources: dict[str, dict[str, str]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    row: dict[str, Any] = field(default_factory=dict)
    no_sample: bool = False


def draft(name: str, key: str, sources: Sequence[DraftSource]) -> ViewDraft:
    """Draft a view called ``name`` with one row per value of the column ``key``. Raises CallerError
    (HUB-1005) for a source without that column, or when nothing would be a field.
    """
    made = _Drafting(key)
    for source in sources:
        _add(made, source)
    if not made.fields:
        raise CallerError(
            f'view "{name}": no column but "{key}" has a type that a field can have',
            hint="write the fields yourself: docs/reference/view-files.md",
            code="HUB-1005",
        )
    view = {"view": name, "sources": made.sources, "fields": made.fields}
    if made.no_sample:
        return ViewDraft(_yaml(view), None)
    case = {"events": made.events, "rows": {str(made.events[0]["value"][key]): made.row}}
    return ViewDraft(
        _yaml(view), _yaml({"view": name, "tests": {"one event of each topic makes one row": case}})
    )


def _add(made: _Drafting, source: DraftSource) -> None:
    columns = field_types(source.schema)
    if made.key not in columns:
        raise CallerError(
            f'topic "{source.topic}" has no column "{made.key}"',
            hint=f"it has {', '.join(columns)}; --key names one that all topics have",
            code="HUB-1005",
        )
    alias = source_name(source.topic, made.sources)
    times = [name for name, avro_type in columns.items() if kind(avro_type) == "timestamp"]
    order = next(
        (name for name in times if name.startswith(("updated", "changed"))), times[0] if times else None
    )
    entry = {"topic": source.topic, "key": made.key} | ({"order": order} if order else {})
    sample = {name: _sample(avro_type) for name, avro_type in columns.items()}
    own_key = source.key or (_own_key(alias, columns) if made.sources else made.key)
    counted = own_key not in (None, made.key) and own_key in columns
    if counted:
        entry["unique_by"] = str(own_key)
    made.sources[alias] = entry
    made.events.append({"source": alias, "value": sample})
    made.no_sample |= any(value is _NONE for value in sample.values())
    found = _counts(alias, columns, str(own_key)) if counted else _latest(alias, columns, made.key, order)
    for name, text, column in found:
        unique = name if name not in made.fields else f"{alias}_{name}"
        made.fields[unique] = text
        made.row[unique] = sample[column] if column else 1


def _latest(
    alias: str, columns: Mapping[str, AvroType], key: str, order: str | None
) -> Iterator[tuple[str, str, str]]:
    """Yield (field, expression, column) for each column that a field can have."""
    for name, avro_type in columns.items():
        if name not in (key, order, "event_id") and kind(avro_type) in _SAMPLES and name.isidentifier():
            yield name, f"{alias}.{name}", name


def _own_key(alias: str, columns: Mapping[str, AvroType]) -> str | None:
    """Return the column that most likely identifies an event: order_id of orders, else an event's own id."""
    likely = (f"{alias.removesuffix('s')}_id", f"{alias}_id", "event_id", "id")
    return next((name for name in likely if name in columns), None)


def _counts(alias: str, columns: Mapping[str, AvroType], own_key: str) -> Iterator[tuple[str, str, str]]:
    """Yield the count of distinct events, and the sum of each column with a number."""
    yield alias, f"count({alias}.{own_key})", ""
    for name, avro_type in columns.items():
        if kind(avro_type) in _ADDED and not _IS_IDENTIFIER.search(name) and name.isidentifier():
            yield f"{alias}_{name}", f"sum({alias}.{name})", name


_NONE = object()


def _sample(avro_type: AvroType) -> Any:
    """Return a JSON value of a type; ``_NONE`` for a type that has a name only."""
    if isinstance(avro_type, list):
        others = [branch for branch in avro_type if branch != "null"]
        return _sample(others[0]) if others else None
    if (found := kind(avro_type)) in _SAMPLES and not _is(avro_type, "enum"):
        return _SAMPLES[found]
    if isinstance(avro_type, Mapping):
        match avro_type["type"]:
            case "enum":
                return avro_type["symbols"][0]
            case "array":
                return []
            case "map":
                return {}
            case "record":
                inner = {each["name"]: _sample(each["type"]) for each in avro_type["fields"]}
                return _NONE if _NONE in inner.values() else inner
            case "bytes" if avro_type.get("logicalType") == "decimal":
                return "1"
    return _NONE


def _is(avro_type: AvroType, name: str) -> bool:
    return isinstance(avro_type, Mapping) and avro_type["type"] == name


def source_name(topic: str, taken: Mapping[str, Any]) -> str:
    """Return the last label of a topic as a name in expressions, the whole topic where that is taken."""
    last, whole = (re.sub(r"\W", "_", each).lower() for each in (topic.rpartition(".")[2], topic))
    name = last if last not in taken else whole
    return f"t_{name}" if name[0].isdigit() else name


def draft_sql(
    name: str, sql: str, sources: Mapping[str, Mapping[str, Any]], key: Sequence[str], more: Mapping[str, Any]
) -> str:
    """Return the text of a SQL view's file. ``more``: other keys of the file, such as ``doc``."""
    head = _yaml({"view": name, **more, "sources": {each: dict(entry) for each, entry in sources.items()}})
    tail = _yaml({"key": list(key)}) if key else ""
    lines = "\n".join(f"  {line}".rstrip() for line in dedent(sql).strip().splitlines())
    text = f"{head}sql: |\n{lines}\n{tail}"
    try:
        readable = yaml.safe_load(text)["sql"].strip() == dedent(sql).strip()
    except (yaml.YAMLError, KeyError, TypeError):
        readable = False
    # A block cannot hold every text: that of trailing blanks or control characters is quoted.
    return text if readable else head + _yaml({"sql": sql}) + tail


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)
