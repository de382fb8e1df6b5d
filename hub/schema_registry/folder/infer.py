"""[core] Infer a schema from samples, with evidence: number of samples, their types, examples.

Two steps: ``PlaceSamples`` counts the values at each place of the samples, in bounded memory; then each
place gets a type::

    true, false             boolean                    3, 4                 long
    3, 4.5                  double                     "2024-05-01"         date
    "2024-05-01T10:00:00Z"  timestamp-millis (micros when there are more digits; local- without a zone)
    a UUID                  string, uuid               few texts, repeated  enum
    {…} with steady keys    record                     {…} with keys that are data (ids, dates)   map
    missing or null in one  nullable, default null     several of these     union

The same samples give the same schema. ``conform`` converts a sample to a value of the proposed schema:
texts that are times become times, and keys that are not Avro names get their Avro names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hub.errors import CallerError
from hub.schema_registry.folder.inference.place_samples import (
    _DATA_KEY,
    _LONGEST,
    _MS,
    MOST_KEYS,
    PlaceSamples,
)
from hub.schema_registry.folder.inference.shapes import (
    _TIMES,
    FieldReport,
    Inferred,
    InferredKind,
    avro_shape,
    json_schema_shape,
    kind_text,
)

ENUM_SYMBOLS = 12
ENUM_SAMPLES = 20
MAP_KEYS = 20

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TIME_NAME = re.compile(r"(?i)(?:.*_)?(?:at|time|timestamp|ts|ms)|.*(?:At|Time|Timestamp|Date)")


# ---- counting samples


# ---- deciding types


def infer(values: Iterable[Any], name: str = "Record", *, text_only: bool = False) -> Inferred:
    """Infer a schema from samples. ``name`` may have a namespace (``shop.Order``).

    ``text_only``: the samples' format has only text (CSV, XML), so numbers and booleans are parsed from it.
    Raises CallerError when there is no sample, or one that is not JSON.
    """
    samples = PlaceSamples()
    for value in values:
        samples.take(value)
    if samples.count == samples.nulls:
        raise CallerError(
            "no sample was given to infer a schema from", hint="name a file or topic with records"
        )
    decided = _Decider(text_only)
    full = ".".join(_valid(each) for each in name.split(".") if each) or "Record"
    kind = decided.kind(samples, "", full.rpartition(".")[2], samples.count)
    namespace = full.rpartition(".")[0]
    avro = avro_shape(kind)
    if namespace and isinstance(avro, dict) and avro["type"] in ("record", "enum"):
        avro = {"type": avro["type"], "name": avro["name"], "namespace": namespace, **avro}
    json_schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": full,
        **json_schema_shape(kind),
    }
    return Inferred(avro, json_schema, tuple(decided.reports), samples.count, kind)


class _Decider:
    def __init__(self, text_only: bool) -> None:
        self.text_only = text_only
        self.reports: list[FieldReport] = []
        self._names: set[str] = set()

    def kind(self, samples: PlaceSamples, path: str, name: str, of: int) -> InferredKind:
        """Decide the type of a place; reports are in the order of the places."""
        at = len(self.reports)
        made = self._kind(samples, path, name)
        made.nullable = made.nullable or samples.nulls > 0 or samples.count < of
        if path or made.name != "record":
            self.reports.insert(at, self._report(samples, path, made, of))
        return made

    def _kind(self, samples: PlaceSamples, path: str, name: str) -> InferredKind:
        kinds = dict(samples.kinds)
        if "double" in kinds:
            kinds["double"] += kinds.pop("long", 0)
        if not kinds:
            return InferredKind("string", nullable=True)
        if self.text_only and "array" in kinds and len(kinds) > 1:  # one child here, several there
            return self._list_of_all(samples, path, name)
        if len(kinds) > 1:
            order = ("boolean", "long", "double", "string", "object", "array")
            inferred_kinds = [
                self._kind_of(each, samples, path, name, alone=False) for each in order if each in kinds
            ]
            return InferredKind("union", branches=tuple(inferred_kinds))
        return self._kind_of(next(iter(kinds)), samples, path, name, alone=True)

    def _kind_of(
        self, kind: str, samples: PlaceSamples, path: str, name: str, *, alone: bool
    ) -> InferredKind:
        if kind == "object":
            return self._object(samples, path, name)
        if kind == "array":
            items = samples.items or PlaceSamples()
            inner = self.kind(items, f"{path}[]", _singular(name), items.count)
            return InferredKind("array", inner=inner)
        if kind == "string" and alone:
            return self._text(samples, name)
        if kind == "long" and alone and _MS[0] <= samples.least and samples.most < _MS[1]:
            last = path.rpartition(".")[2]
            if _TIME_NAME.fullmatch(last):
                return InferredKind("timestamp-millis", of_integers=True)
        return InferredKind(kind)

    def _text(self, samples: PlaceSamples, name: str) -> InferredKind:
        texts = samples.kinds["string"]
        formats = samples.formats
        for each in ("uuid", "date"):
            if formats[each] == texts:
                return InferredKind(each)
        for zone in ("timestamp", "local-timestamp"):
            millis, micros = formats[f"{zone}-millis"], formats[f"{zone}-micros"]
            if millis + micros == texts:
                name = f"{zone}-micros" if micros else f"{zone}-millis"
                return InferredKind(name, is_rfc3339=formats["date-time"] == texts)
        if self.text_only:
            if formats["boolean"] == texts:
                return InferredKind("boolean")
            if formats["long"] + formats["double"] == texts:
                return InferredKind("double" if formats["double"] else "long")
        distinct = len(samples.texts)
        few = 2 <= distinct <= min(ENUM_SYMBOLS, texts // 4) and not samples.has_more_texts
        if (
            few
            and texts >= ENUM_SAMPLES
            and all(_NAME.fullmatch(each) and len(each) <= 40 for each in samples.texts)
        ):
            return InferredKind("enum", symbols=tuple(sorted(samples.texts)), type_name=self._type_name(name))
        return InferredKind("string", format="email" if formats["email"] == texts else "")

    def _object(self, samples: PlaceSamples, path: str, name: str) -> InferredKind:
        objects = samples.kinds["object"]
        if not samples.fields or _keys_are_data(samples.fields, objects):
            values = PlaceSamples()
            for each in samples.fields.values():
                values.add(each)
            return InferredKind("map", inner=self.kind(values, f"{path}{{}}", _singular(name), values.count))
        made = InferredKind("record", type_name=self._type_name(name) if path else _unique(name, self._names))
        taken: set[str] = set()
        for key, each in samples.fields.items():
            field_name = _unique(_valid(key), taken)
            kind = self.kind(each, f"{path}.{key}" if path else key, f"{name}_{field_name}", objects)
            made.fields[key] = field_name, kind
            if each.count >= objects:
                made.required.add(key)
        return made

    def _list_of_all(self, samples: PlaceSamples, path: str, name: str) -> InferredKind:
        """Merge the places of single values and of items into one list type."""
        alone = PlaceSamples(
            samples.count - samples.kinds["array"] - samples.nulls,
            0,
            Counter({kind: times for kind, times in samples.kinds.items() if kind != "array"}),
            samples.formats,
            samples.texts,
            samples.has_more_texts,
            examples=list(samples.examples),
            fields=samples.fields,
        )
        if samples.items is not None:
            alone.add(samples.items)
        inner = self.kind(alone, f"{path}[]", _singular(name), alone.count)
        return InferredKind("array", inner=inner, single_is_list=True)

    def _type_name(self, name: str) -> str:
        parts = [each for each in re.split(r"[^A-Za-z0-9]+", name) if each]
        pascal = "".join(each[0].upper() + each[1:] for each in parts)
        return _unique(pascal if pascal and pascal[0].isalpha() else f"T{pascal}", self._names)

    def _report(self, samples: PlaceSamples, path: str, kind: InferredKind, of: int) -> FieldReport:
        values = samples.count - samples.nulls
        kinds = dict(samples.kinds)
        if kind.name == "double":
            kinds["double"] = kinds.get("double", 0) + kinds.get("long", 0)
        share = 1.0 if self.text_only or not values else max(kinds.values(), default=0) / values
        remarks = []
        if kind.format:
            remarks.append(f"looks like {kind.format}: personal data? tag it")
        if kind.name in ("date", *_TIMES) and samples.kinds["string"]:
            remarks.append("text that is to be converted")
        if samples.least < -_LONGEST or samples.most >= _LONGEST:
            remarks.append("has integers beyond 64 bits, which a double rounds")
        last = path.rpartition(".")[2].removesuffix("[]").removesuffix("{}")
        if last and not _NAME.fullmatch(last):
            remarks.append(f'"{last}" is not a name in Avro: it becomes {_valid(last)}')
        return FieldReport(
            path,
            kind_text(kind),
            samples.count,
            of,
            samples.nulls,
            round(share * values / (values + 1), 2),
            dict(sorted(samples.kinds.items())),
            tuple(samples.examples),
            "; ".join(remarks),
        )


def _keys_are_data(fields: Mapping[str, PlaceSamples], objects: int) -> bool:
    """Return True for keys such as ids and dates, and for many different keys with values of one kind."""
    if len(fields) >= MOST_KEYS:
        return True
    data = sum(_DATA_KEY.fullmatch(key) is not None for key in fields)
    if len(fields) >= 2 and data * 2 > len(fields):
        return True
    shown = sum(each.count for each in fields.values())
    kinds = {kind for each in fields.values() for kind in each.kinds}
    return len(fields) > MAP_KEYS and shown * 2 < len(fields) * objects and len(kinds) <= 1


def _valid(name: str) -> str:
    """Return the nearest valid Avro name; a valid name stays unchanged."""
    if _NAME.fullmatch(name):
        return name
    made = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "field"
    return f"_{made}" if made[0].isdigit() else made


def _unique(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}{number}", number + 1
    taken.add(found)
    return found


def _singular(name: str) -> str:
    return name[:-1] if len(name) > 3 and name.endswith("s") and not name.endswith("ss") else f"{name}_item"


# ---- the proposal in each format


# ---- a sample as a value of the schema
