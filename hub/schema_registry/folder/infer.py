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

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hub.errors import CallerError

MOST_KEYS = 2_000  # of one object over all samples; with more, keys are data
MOST_DISTINCT = 32
ENUM_SYMBOLS = 12
ENUM_SAMPLES = 20
MAP_KEYS = 20
_EXAMPLES = 3
_EXAMPLE_LENGTH = 60
_MOST_DEPTH = 60

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_EMAIL = re.compile(r"[^@\s]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")
_RFC3339 = re.compile(
    r"[^T]*T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
)  # the subset of _TIME that JSON Schema's date-time allows
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,18})")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
_DATA_KEY = re.compile(r"\d.*|[0-9a-fA-F]{8}-.*|.*[@/\s].*|(?=.*\d)[0-9a-fA-F]{12,}|[A-Za-z]+[-_:]?\d{2,}")
_TIME_NAME = re.compile(r"(?i)(?:.*_)?(?:at|time|timestamp|ts|ms)|.*(?:At|Time|Timestamp|Date)")
_LONGEST = 2**63
_MS = (946_684_800_000, 4_102_444_800_000)  # 2000 to 2100
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SCALARS = {bool: "boolean", int: "long", float: "double", str: "string"}


# ---- counting samples


@dataclass(slots=True)
class PlaceSamples:
    """Statistics of one place. ``count`` includes nulls, but not samples in which the place is missing."""

    count: int = 0
    nulls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)
    has_more_texts: bool = False
    least: int = 0
    most: int = 0
    has_least: bool = False
    examples: list[str] = field(default_factory=list)
    fields: dict[str, PlaceSamples] = field(default_factory=dict)
    items: PlaceSamples | None = None

    def take(self, value: Any, depth: int = 0) -> None:
        """Add one value. Raises CallerError for a value that is nested too deep or is not JSON."""
        if depth > _MOST_DEPTH:
            raise CallerError(f"a sample is nested deeper than {_MOST_DEPTH}", hint="is it data?")
        self.count += 1
        if value is None:
            self.nulls += 1
            return
        if isinstance(value, Mapping):
            self.kinds["object"] += 1
            for key, each in value.items():
                self._field(str(key)).take(each, depth + 1)
        elif isinstance(value, list | tuple):
            self.kinds["array"] += 1
            self.items = self.items or PlaceSamples()
            for each in value:
                self.items.take(each, depth + 1)
        else:
            self._scalar(value)

    def _field(self, name: str) -> PlaceSamples:
        if name not in self.fields and len(self.fields) >= MOST_KEYS:
            name = next(iter(self.fields))  # it is a map by now: one place stands for the rest
        return self.fields.setdefault(name, PlaceSamples())

    def _scalar(self, value: Any) -> None:
        kind = _SCALARS.get(type(value))
        if kind is None:
            raise CallerError(f"a sample has a value that is not JSON: {type(value).__name__}")
        if kind == "long":
            self.least = min(self.least, value) if self.has_least else value
            self.most = max(self.most, value) if self.has_least else value
            self.has_least = True
            if not -_LONGEST <= value < _LONGEST:
                kind = "double"
        self.kinds[kind] += 1
        text = str(value)
        if kind == "string":
            self.formats.update(_formats(text))
            if text in self.texts or len(self.texts) < MOST_DISTINCT:
                self.texts[text] += 1
            else:
                self.has_more_texts = True
        shown = text if len(text) <= _EXAMPLE_LENGTH else f"{text[: _EXAMPLE_LENGTH - 1]}…"
        if len(self.examples) < _EXAMPLES and shown not in self.examples:
            self.examples.append(shown)

    def add(self, other: PlaceSamples) -> None:
        """Add the statistics of another place."""
        self.count += other.count
        self.nulls += other.nulls
        self.kinds.update(other.kinds)
        self.formats.update(other.formats)
        if other.has_least:
            self.least = min(self.least, other.least) if self.has_least else other.least
            self.most = max(self.most, other.most) if self.has_least else other.most
            self.has_least = True
        self.has_more_texts |= other.has_more_texts
        for text, times in other.texts.items():
            if text in self.texts or len(self.texts) < MOST_DISTINCT:
                self.texts[text] += times
            else:
                self.has_more_texts = True
        self.examples += [each for each in other.examples if each not in self.examples]
        del self.examples[_EXAMPLES:]
        for name, each in other.fields.items():
            self._field(name).add(each)
        if other.items is not None:
            self.items = self.items or PlaceSamples()
            self.items.add(other.items)


def _formats(text: str) -> Iterator[str]:
    """Yield the formats that a text could have besides text; a year outside the calendar is not a time."""
    if len(text) > 320:
        return
    if _UUID.fullmatch(text):
        yield "uuid"
    elif _EMAIL.fullmatch(text):
        yield "email"
    elif _DATE.fullmatch(text) and _moment(text) is not None:
        yield "date"
    elif (found := _TIME.fullmatch(text)) and _moment(text) is not None:
        digits = len((found[3] or ".").rstrip("0")) - 1
        if digits <= 6:
            yield ("timestamp" if found[4] else "local-timestamp") + ("-micros" if digits > 3 else "-millis")
            if _RFC3339.fullmatch(text):
                yield "date-time"
    elif _INTEGER.fullmatch(text) and -_LONGEST <= int(text) < _LONGEST:
        yield "long"
    elif _NUMBER.fullmatch(text) and abs(float(text)) < 1e308:
        yield "double"
    elif text in ("true", "false"):
        yield "boolean"


def _moment(text: str) -> datetime.datetime | None:
    """Parse a text as a time; None when no calendar has it."""
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            return datetime.datetime.fromisoformat(text)
        fraction = (found[3] or "")[:7]
        zone = (found[4] or "").replace("Z", "+00:00")
        moment = datetime.datetime.fromisoformat(f"{found[1]}T{found[2]}{fraction}{zone}")
        return moment.astimezone(datetime.UTC) if zone else moment
    except (ValueError, OverflowError):
        return None


# ---- deciding types


@dataclass(frozen=True, slots=True)
class FieldReport:
    """Evidence for the type of one place.

    ``seen`` of ``of`` samples of the enclosing place have it. ``confidence`` (0 to 1) is the share of values
    that are of the type's first kind, times n / (n + 1) to account for few values.
    """

    path: str
    type: str
    seen: int
    of: int
    nulls: int
    confidence: float
    types: Mapping[str, int]
    examples: Sequence[str]
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Inferred:
    """Proposal: the Avro schema, the equivalent JSON Schema, and a report per field."""

    avro: Any
    json_schema: Any
    fields: tuple[FieldReport, ...]
    samples: int
    kind: _Kind = field(repr=False)

    def conform(self, sample: Any) -> Any:
        """Convert a sample to a value of ``avro``.

        Values other than the samples may not fit: ValueError, KeyError.
        """
        return _conformed(sample, self.kind)


@dataclass(slots=True)
class _Kind:
    """Type of one place: ``name`` is an Avro type, a logical type, or one of record, map, array, enum,
    union.
    """

    name: str
    nullable: bool = False
    fields: dict[str, tuple[str, _Kind]] = field(default_factory=dict)  # by key of the sample: (name, kind)
    required: set[str] = field(default_factory=set)
    inner: _Kind | None = None
    branches: tuple[_Kind, ...] = ()
    symbols: tuple[str, ...] = ()
    type_name: str = ""
    format: str = ""
    of_integers: bool = False
    single_is_list: bool = False
    is_rfc3339: bool = False


def infer(values: Iterable[Any], name: str = "Record", *, text_only: bool = False) -> Inferred:
    """Infer a schema from samples. ``name`` may have a namespace (``shop.Order``).

    ``text_only``: the samples' format has only text (CSV, XML), so numbers and booleans are parsed from it.
    Raises CallerError when there is no sample, or one that is not JSON.
    """
    seen = PlaceSamples()
    for value in values:
        seen.take(value)
    if seen.count == seen.nulls:
        raise CallerError(
            "no sample was given to infer a schema from", hint="name a file or topic with records"
        )
    decided = _Decider(text_only)
    full = ".".join(_valid(each) for each in name.split(".") if each) or "Record"
    kind = decided.kind(seen, "", full.rpartition(".")[2], seen.count)
    namespace = full.rpartition(".")[0]
    avro = _avro(kind)
    if namespace and isinstance(avro, dict) and avro["type"] in ("record", "enum"):
        avro = {"type": avro["type"], "name": avro["name"], "namespace": namespace, **avro}
    json_schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": full,
        **_json_schema(kind),
    }
    return Inferred(avro, json_schema, tuple(decided.reports), seen.count, kind)


class _Decider:
    def __init__(self, text_only: bool) -> None:
        self.text_only = text_only
        self.reports: list[FieldReport] = []
        self._names: set[str] = set()

    def kind(self, seen: PlaceSamples, path: str, name: str, of: int) -> _Kind:
        """Decide the type of a place; reports are in the order of the places."""
        at = len(self.reports)
        made = self._kind(seen, path, name)
        made.nullable = made.nullable or seen.nulls > 0 or seen.count < of
        if path or made.name != "record":
            self.reports.insert(at, self._report(seen, path, made, of))
        return made

    def _kind(self, seen: PlaceSamples, path: str, name: str) -> _Kind:
        kinds = dict(seen.kinds)
        if "double" in kinds:
            kinds["double"] += kinds.pop("long", 0)
        if not kinds:
            return _Kind("string", nullable=True)
        if self.text_only and "array" in kinds and len(kinds) > 1:  # one child here, several there
            return self._list_of_all(seen, path, name)
        if len(kinds) > 1:
            order = ("boolean", "long", "double", "string", "object", "array")
            found = [self._one(each, seen, path, name, alone=False) for each in order if each in kinds]
            return _Kind("union", branches=tuple(found))
        return self._one(next(iter(kinds)), seen, path, name, alone=True)

    def _one(self, kind: str, seen: PlaceSamples, path: str, name: str, *, alone: bool) -> _Kind:
        if kind == "object":
            return self._object(seen, path, name)
        if kind == "array":
            items = seen.items or PlaceSamples()
            inner = self.kind(items, f"{path}[]", _singular(name), items.count)
            return _Kind("array", inner=inner)
        if kind == "string" and alone:
            return self._text(seen, name)
        if kind == "long" and alone and _MS[0] <= seen.least and seen.most < _MS[1]:
            last = path.rpartition(".")[2]
            if _TIME_NAME.fullmatch(last):
                return _Kind("timestamp-millis", of_integers=True)
        return _Kind(kind)

    def _text(self, seen: PlaceSamples, name: str) -> _Kind:
        texts = seen.kinds["string"]
        formats = seen.formats
        for each in ("uuid", "date"):
            if formats[each] == texts:
                return _Kind(each)
        for zone in ("timestamp", "local-timestamp"):
            millis, micros = formats[f"{zone}-millis"], formats[f"{zone}-micros"]
            if millis + micros == texts:
                name = f"{zone}-micros" if micros else f"{zone}-millis"
                return _Kind(name, is_rfc3339=formats["date-time"] == texts)
        if self.text_only:
            if formats["boolean"] == texts:
                return _Kind("boolean")
            if formats["long"] + formats["double"] == texts:
                return _Kind("double" if formats["double"] else "long")
        distinct = len(seen.texts)
        few = 2 <= distinct <= min(ENUM_SYMBOLS, texts // 4) and not seen.has_more_texts
        if (
            few
            and texts >= ENUM_SAMPLES
            and all(_NAME.fullmatch(each) and len(each) <= 40 for each in seen.texts)
        ):
            return _Kind("enum", symbols=tuple(sorted(seen.texts)), type_name=self._type_name(name))
        return _Kind("string", format="email" if formats["email"] == texts else "")

    def _object(self, seen: PlaceSamples, path: str, name: str) -> _Kind:
        objects = seen.kinds["object"]
        if not seen.fields or _keys_are_data(seen.fields, objects):
            values = PlaceSamples()
            for each in seen.fields.values():
                values.add(each)
            return _Kind("map", inner=self.kind(values, f"{path}{{}}", _singular(name), values.count))
        made = _Kind("record", type_name=self._type_name(name) if path else _unique(name, self._names))
        taken: set[str] = set()
        for key, each in seen.fields.items():
            field_name = _unique(_valid(key), taken)
            kind = self.kind(each, f"{path}.{key}" if path else key, f"{name}_{field_name}", objects)
            made.fields[key] = field_name, kind
            if each.count >= objects:
                made.required.add(key)
        return made

    def _list_of_all(self, seen: PlaceSamples, path: str, name: str) -> _Kind:
        """Merge the places of single values and of items into one list type."""
        alone = PlaceSamples(
            seen.count - seen.kinds["array"] - seen.nulls,
            0,
            Counter({kind: times for kind, times in seen.kinds.items() if kind != "array"}),
            seen.formats,
            seen.texts,
            seen.has_more_texts,
            examples=list(seen.examples),
            fields=seen.fields,
        )
        if seen.items is not None:
            alone.add(seen.items)
        inner = self.kind(alone, f"{path}[]", _singular(name), alone.count)
        return _Kind("array", inner=inner, single_is_list=True)

    def _type_name(self, name: str) -> str:
        words = [each for each in re.split(r"[^A-Za-z0-9]+", name) if each]
        pascal = "".join(each[0].upper() + each[1:] for each in words)
        return _unique(pascal if pascal and pascal[0].isalpha() else f"T{pascal}", self._names)

    def _report(self, seen: PlaceSamples, path: str, kind: _Kind, of: int) -> FieldReport:
        values = seen.count - seen.nulls
        kinds = dict(seen.kinds)
        if kind.name == "double":
            kinds["double"] = kinds.get("double", 0) + kinds.get("long", 0)
        share = 1.0 if self.text_only or not values else max(kinds.values(), default=0) / values
        remarks = []
        if kind.format:
            remarks.append(f"looks like {kind.format}: personal data? tag it")
        if kind.name in ("date", *_TIMES) and seen.kinds["string"]:
            remarks.append("text that is to be converted")
        if seen.least < -_LONGEST or seen.most >= _LONGEST:
            remarks.append("has integers beyond 64 bits, which a double rounds")
        last = path.rpartition(".")[2].removesuffix("[]").removesuffix("{}")
        if last and not _NAME.fullmatch(last):
            remarks.append(f'"{last}" is not a name in Avro: it becomes {_valid(last)}')
        return FieldReport(
            path,
            _kind_text(kind),
            seen.count,
            of,
            seen.nulls,
            round(share * values / (values + 1), 2),
            dict(sorted(seen.kinds.items())),
            tuple(seen.examples),
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

_TIMES = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")


def _kind_text(kind: _Kind) -> str:
    if kind.name == "union":
        said = " or ".join(_kind_text(each) for each in kind.branches)
    elif kind.name in ("array", "map") and kind.inner is not None:
        said = f"{kind.name} of {_kind_text(kind.inner)}"
    elif kind.name == "enum":
        said = f"enum of {', '.join(kind.symbols)}"
    else:
        said = kind.name
    return f"nullable {said}" if kind.nullable else said


def _avro(kind: _Kind) -> Any:
    """Return the Avro schema. Names of named types are unique, so each type is defined where it is used."""
    if kind.name == "union":
        branches = [_avro(each) for each in kind.branches]
        return ["null", *branches] if kind.nullable else branches
    made: Any = kind.name
    if kind.name == "record":
        made = {"type": "record", "name": kind.type_name, "fields": [*_avro_fields(kind)]}
    elif kind.name == "enum":
        made = {"type": "enum", "name": kind.type_name, "symbols": list(kind.symbols)}
    elif kind.name in ("array", "map") and kind.inner is not None:
        made = {"type": kind.name, "items" if kind.name == "array" else "values": _avro(kind.inner)}
    elif kind.name == "uuid":
        made = {"type": "string", "logicalType": "uuid"}
    elif kind.name == "date":
        made = {"type": "int", "logicalType": "date"}
    elif kind.name in _TIMES:
        made = {"type": "long", "logicalType": kind.name}
    return ["null", made] if kind.nullable else made


def _avro_fields(kind: _Kind) -> Iterator[dict[str, Any]]:
    for name, each in kind.fields.values():
        yield {"name": name, "type": _avro(each), **({"default": None} if each.nullable else {})}


def _json_schema(kind: _Kind) -> dict[str, Any]:
    if kind.name == "union":
        branches = [_json_schema(each) for each in kind.branches]
        return {"anyOf": [*branches, {"type": "null"}] if kind.nullable else branches}
    types = {"long": "integer", "double": "number", "boolean": "boolean", "array": "array"}
    types |= {"record": "object", "map": "object"}
    name = "integer" if kind.of_integers else types.get(kind.name, "string")
    made: dict[str, Any] = {"type": [name, "null"] if kind.nullable else name}
    if kind.name == "record":
        made["properties"] = {key: _json_schema(each) for key, (_, each) in kind.fields.items()}
        required = [key for key in kind.fields if key in kind.required]
        if required:
            made["required"] = required
    elif kind.name == "map" and kind.inner is not None:
        made["additionalProperties"] = _json_schema(kind.inner)
    elif kind.name == "array" and kind.inner is not None:
        made["items"] = _json_schema(kind.inner)
    elif kind.name == "enum":
        made["enum"] = [*kind.symbols, *([None] if kind.nullable else [])]
    elif kind.name in ("date", "uuid") or kind.format:
        made["format"] = kind.format or kind.name
    elif kind.is_rfc3339:
        made["format"] = "date-time"
    return made


# ---- a sample as a value of the schema


def _conformed(value: Any, kind: _Kind) -> Any:
    if value is None:
        return None
    if kind.name == "union":
        return _conformed(value, next(each for each in kind.branches if _is_of(value, each)))
    if kind.name == "record":
        return {name: _conformed(value.get(key), each) for key, (name, each) in kind.fields.items()}
    if kind.name == "map" and kind.inner is not None:
        return {key: _conformed(each, kind.inner) for key, each in value.items()}
    if kind.name == "array" and kind.inner is not None:
        items = [value] if kind.single_is_list and not isinstance(value, list | tuple) else value
        return [_conformed(each, kind.inner) for each in items]
    if isinstance(value, str) and kind.name in ("date", *_TIMES):
        moment = _moment(value)
        if moment is None:
            raise ValueError(f"{value!r} is not a valid {kind.name}")
        return moment.date() if kind.name == "date" else moment
    if isinstance(value, str) and kind.name in ("long", "double"):
        return int(value) if kind.name == "long" else float(value)
    if isinstance(value, str) and kind.name == "boolean":
        return value == "true"
    return float(value) if kind.name == "double" else value


def _is_of(value: Any, kind: _Kind) -> bool:
    if isinstance(value, Mapping):
        return kind.name in ("record", "map")
    if isinstance(value, list | tuple):
        return kind.name == "array"
    name = _SCALARS[type(value)]
    if name == "long" and not -_LONGEST <= value < _LONGEST:
        name = "double"
    return kind.name == name or (name == "long" and kind.name == "double")
