"""[core] An inferred type, as Avro and as JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hub.schema_registry.folder.inference.place_samples import _LONGEST, _SCALARS, _moment


@dataclass(frozen=True, slots=True)
class FieldReport:
    """Evidence for the type of one place.

    ``samples`` of ``of`` samples of the enclosing place have it. ``confidence`` (0 to 1) is the share of
    values that are of the type's first kind, times n / (n + 1) to account for few values.
    """

    path: str
    type: str
    samples: int
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
    kind: InferredKind = field(repr=False)

    def conform(self, sample: Any) -> Any:
        """Convert a sample to a value of ``avro``.

        Values other than the samples may not fit: ValueError, KeyError.
        """
        return _conformed(sample, self.kind)


@dataclass(slots=True)
class InferredKind:
    """Type of one place: ``name`` is an Avro type, a logical type, or one of record, map, array, enum,
    union.
    """

    name: str
    nullable: bool = False
    fields: dict[str, tuple[str, InferredKind]] = field(
        default_factory=dict
    )  # by key of the sample: (name, kind)
    required: set[str] = field(default_factory=set)
    inner: InferredKind | None = None
    branches: tuple[InferredKind, ...] = ()
    symbols: tuple[str, ...] = ()
    type_name: str = ""
    format: str = ""
    of_integers: bool = False
    single_is_list: bool = False
    is_rfc3339: bool = False


_TIMES = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")


def kind_text(kind: InferredKind) -> str:
    if kind.name == "union":
        text = " or ".join(kind_text(each) for each in kind.branches)
    elif kind.name in ("array", "map") and kind.inner is not None:
        text = f"{kind.name} of {kind_text(kind.inner)}"
    elif kind.name == "enum":
        text = f"enum of {', '.join(kind.symbols)}"
    else:
        text = kind.name
    return f"nullable {text}" if kind.nullable else text


def avro_shape(kind: InferredKind) -> Any:
    """Return the Avro schema. Names of named types are unique, so each type is defined where it is used."""
    if kind.name == "union":
        branches = [avro_shape(each) for each in kind.branches]
        return ["null", *branches] if kind.nullable else branches
    made: Any = kind.name
    if kind.name == "record":
        made = {"type": "record", "name": kind.type_name, "fields": [*_avro_fields(kind)]}
    elif kind.name == "enum":
        made = {"type": "enum", "name": kind.type_name, "symbols": list(kind.symbols)}
    elif kind.name in ("array", "map") and kind.inner is not None:
        made = {"type": kind.name, "items" if kind.name == "array" else "values": avro_shape(kind.inner)}
    elif kind.name == "uuid":
        made = {"type": "string", "logicalType": "uuid"}
    elif kind.name == "date":
        made = {"type": "int", "logicalType": "date"}
    elif kind.name in _TIMES:
        made = {"type": "long", "logicalType": kind.name}
    return ["null", made] if kind.nullable else made


def _avro_fields(kind: InferredKind) -> Iterator[dict[str, Any]]:
    for name, each in kind.fields.values():
        yield {"name": name, "type": avro_shape(each), **({"default": None} if each.nullable else {})}


def json_schema_shape(kind: InferredKind) -> dict[str, Any]:
    if kind.name == "union":
        branches = [json_schema_shape(each) for each in kind.branches]
        return {"anyOf": [*branches, {"type": "null"}] if kind.nullable else branches}
    types = {"long": "integer", "double": "number", "boolean": "boolean", "array": "array"}
    types |= {"record": "object", "map": "object"}
    name = "integer" if kind.of_integers else types.get(kind.name, "string")
    made: dict[str, Any] = {"type": [name, "null"] if kind.nullable else name}
    if kind.name == "record":
        made["properties"] = {key: json_schema_shape(each) for key, (_, each) in kind.fields.items()}
        required = [key for key in kind.fields if key in kind.required]
        if required:
            made["required"] = required
    elif kind.name == "map" and kind.inner is not None:
        made["additionalProperties"] = json_schema_shape(kind.inner)
    elif kind.name == "array" and kind.inner is not None:
        made["items"] = json_schema_shape(kind.inner)
    elif kind.name == "enum":
        made["enum"] = [*kind.symbols, *([None] if kind.nullable else [])]
    elif kind.name in ("date", "uuid") or kind.format:
        made["format"] = kind.format or kind.name
    elif kind.is_rfc3339:
        made["format"] = "date-time"
    return made


def _conformed(value: Any, kind: InferredKind) -> Any:
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


def _is_of(value: Any, kind: InferredKind) -> bool:
    if isinstance(value, Mapping):
        return kind.name in ("record", "map")
    if isinstance(value, list | tuple):
        return kind.name == "array"
    name = _SCALARS[type(value)]
    if name == "long" and not -_LONGEST <= value < _LONGEST:
        name = "double"
    return kind.name == name or (name == "long" and kind.name == "double")
