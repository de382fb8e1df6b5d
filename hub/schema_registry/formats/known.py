"""[core] The formats that the registry knows, by the ``schemaType`` that clients send."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from hub.schema_registry.formats import Difference, Format, avro_format, json_schema, protobuf

FORMATS: Final[Mapping[str, Format]] = {
    "AVRO": avro_format,
    "JSON": json_schema,
    "PROTOBUF": protobuf,
}
# As Confluent's registry lists them.
TYPES_IN_ORDER: Final = ("JSON", "PROTOBUF", "AVRO")


def types() -> list[str]:
    """The types that are known, in Confluent's order."""
    return [each for each in TYPES_IN_ORDER if each in FORMATS]


def differences(form: Format, reader: Any, writer: Any, *, lenient: bool) -> list[Difference]:
    """Why ``reader`` cannot read ``writer``; lenient only where the format knows the word."""
    if lenient and "lenient" in inspect.signature(form.differences).parameters:
        return form.differences(reader, writer, lenient=True)  # type: ignore[call-arg]
    return form.differences(reader, writer)


def serialized(form: Format, schema: Any) -> str | None:
    """The schema as ``format=serialized`` wants it (base64); None when the format has no such form."""
    write = getattr(form, "serialized", None)
    return None if write is None else str(write(schema))


def field_names(form: Format, schema: Any) -> frozenset[str]:
    """The names of the fields at the top; none when the format does not tell."""
    tell = getattr(form, "field_names", None)
    return frozenset() if tell is None else frozenset(tell(schema))
