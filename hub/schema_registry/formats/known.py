"""[core] The formats that the registry knows, by the ``schemaType`` that clients send."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from hub.schema_registry.formats import Format, SchemaDifference
from hub.schema_registry.formats.avro import format as avro_format
from hub.schema_registry.formats.json_schema import format as json_schema
from hub.schema_registry.formats.protobuf import format as protobuf

FORMATS: Final[Mapping[str, Format]] = {
    "AVRO": avro_format,
    "JSON": json_schema,
    "PROTOBUF": protobuf,
}
# As Confluent's registry lists them.
TYPES_IN_ORDER: Final = ("JSON", "PROTOBUF", "AVRO")

# What ``format=`` may ask for. A format writes those that it has a function of this name for.
FORMATTED: Final = ("serialized", "ignore_extensions", "resolved")


def types() -> list[str]:
    """The types that are known, in Confluent's order."""
    return [each for each in TYPES_IN_ORDER if each in FORMATS]


def differences(form: Format, reader: Any, writer: Any, *, lenient: bool) -> list[SchemaDifference]:
    """Why ``reader`` cannot read ``writer``; lenient only where the format knows the word."""
    if lenient and "lenient" in inspect.signature(form.differences).parameters:
        return form.differences(reader, writer, lenient=True)  # type: ignore[call-arg]
    return form.differences(reader, writer)


def formatted(form: Format, schema: Any, name: str) -> str | None:
    """The schema in one of FORMATTED; None when its format has no such form, or nobody knows the name."""
    write = getattr(form, name, None) if name in FORMATTED else None
    return None if write is None else str(write(schema))


def field_names(form: Format, schema: Any) -> frozenset[str]:
    """The names of the fields at the top; none when the format does not tell."""
    tell = getattr(form, "field_names", None)
    return frozenset() if tell is None else frozenset(tell(schema))
