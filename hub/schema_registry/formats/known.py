"""[core] Formats of the registry, by the ``schemaType`` that clients send."""

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
# In the order of Confluent's registry.
TYPES_IN_ORDER: Final = ("JSON", "PROTOBUF", "AVRO")

# Values of ``format=``. A format supports those that it has a function with this name for.
FORMATTED: Final = ("serialized", "ignore_extensions", "resolved")


def types() -> list[str]:
    """Return the known types, in Confluent's order."""
    return [each for each in TYPES_IN_ORDER if each in FORMATS]


def differences(form: Format, reader: Any, writer: Any, *, lenient: bool) -> list[SchemaDifference]:
    """Return why ``reader`` cannot read ``writer``; ``lenient`` applies only to formats that support it."""
    if lenient and "lenient" in inspect.signature(form.differences).parameters:
        return form.differences(reader, writer, lenient=True)  # type: ignore[call-arg]
    return form.differences(reader, writer)


def formatted(form: Format, schema: Any, name: str) -> str | None:
    """Return the schema in one of FORMATTED; None when its format does not support it or the name is
    unknown.
    """
    write = getattr(form, name, None) if name in FORMATTED else None
    return None if write is None else str(write(schema))


def field_names(form: Format, schema: Any) -> frozenset[str]:
    """Return the names of top-level fields; empty when the format does not list them."""
    list_names = getattr(form, "field_names", None)
    return frozenset() if list_names is None else frozenset(list_names(schema))
