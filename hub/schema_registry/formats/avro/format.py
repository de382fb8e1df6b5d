"""[core] Avro as a ``Format``: a parsed schema includes the types that it references.

Apache Avro's reader/writer compatibility (``avro.compatibility``, the port of the Java class that
Confluent's registry uses) gives the verdict, so it is equal for every input; the explanations are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from avro.compatibility import (
    CompatibleResult,
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
    SchemaIncompatibilityType,
    incompatible,
    schema_name_equals,
)
from avro.schema import NamedSchema, RecordSchema, Schema

from hub.schema_registry.formats import InvalidSchema, SchemaDifference
from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.avro.differences import AvroComparison
from hub.schema_registry.formats.avro.types import AvroNode, types_of

MOST_STEPS = 200_000  # pairs of types in one comparison


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """Parsed Avro schema: ``value`` as JSON values; ``types`` of referenced schemas, dependencies first."""

    value: Any
    types: tuple[Any, ...] = ()

    def root(self) -> AvroNode:
        """Return its type. Raises InvalidSchema."""
        return types_of(self.value, self.types)


def parse(text: str, named: Mapping[str, AvroSchema] | None = None) -> AvroSchema:
    """See Format. Raises InvalidSchema."""
    types = {name: each.value for name, each in (named or {}).items()}
    return AvroSchema(avro.parse(text, types), tuple(types.values()))


def canonical(schema: AvroSchema) -> str:
    """See Format."""
    return avro.canonical(schema.value)


def normalized(schema: AvroSchema) -> str:
    """See Format: Avro's canonical text equals Confluent's normalized text."""
    return avro.canonical(schema.value)


def resolved(schema: AvroSchema) -> str:
    """Return the text with every referenced type written out, for ``format=resolved``."""
    return avro.resolved(schema.value, schema.types)


def differences(reader: AvroSchema, writer: AvroSchema) -> list[SchemaDifference]:
    """See Format. Raises InvalidSchema for type chains that are too long to compare."""
    try:
        read, wrote = reader.root(), writer.root()
        if can_read(read, wrote):
            return []
        # The verdict is the library's; if no difference explains a "no", a generic one does.
        return AvroComparison(read, wrote).differences() or [
            SchemaDifference(
                "TYPE_MISMATCH", "/", "", "the schemas do not resolve", "keep the schema as it was"
            )
        ]
    except RecursionError:
        raise InvalidSchema("the schema's types are chained too long to be compared") from None


def field_names(schema: AvroSchema) -> list[str]:
    """Return the names of a record's fields."""
    return [each["name"] for each in avro.fields_of(schema.value)]


def can_read(reader: AvroNode, writer: AvroNode) -> bool:
    """Return Avro's verdict on two types."""
    result = _Checker().get_compatibility(avro.avro_schema(reader), avro.avro_schema(writer))
    return result.compatibility is SchemaCompatibilityType.compatible


class _Checker(ReaderWriterCompatibilityChecker):  # type: ignore[misc]  # untyped library
    """The library's checker within limits, with Java's verdict where the two differ.

    Keeps few reasons: the library adds up those of each use of a type, so 40 types that each use the previous
    one twice would need 2^40. Does not compare types of different names in depth, because two unions of
    records would compare each pair.
    """

    def get_compatibility(
        self,
        reader: Schema,
        writer: Schema,
        reference_token: str = ReaderWriterCompatibilityChecker.ROOT_REFERENCE_TOKEN,
        location: list[str] | None = None,
    ) -> SchemaCompatibilityResult:
        pair = id(reader), id(writer)  # the library's key is the xor of both ids: most pairs would collide
        known = self.memoize_map.get(pair)
        if known is not None:
            under_way = known.compatibility is SchemaCompatibilityType.recursion_in_progress
            return CompatibleResult if under_way else known
        if len(self.memoize_map) >= MOST_STEPS:
            raise InvalidSchema(
                f"the two schemas cannot be compared: that takes more than {MOST_STEPS} steps"
            )
        self.memoize_map[pair] = SchemaCompatibilityResult()
        place = [*(location or ()), reference_token]
        result: SchemaCompatibilityResult
        if (
            reader.type == writer.type
            and isinstance(reader, NamedSchema)
            and not schema_name_equals(reader, writer)
        ):
            result = incompatible(SchemaIncompatibilityType.name_mismatch, writer.fullname, place)
        else:
            result = self.calculate_compatibility(reader, writer, place)
            del result.incompatibilities[10:]
        self.memoize_map[pair] = result
        return result

    def check_reader_writer_record_fields(
        self, reader: RecordSchema, writer: RecordSchema, location: list[str]
    ) -> SchemaCompatibilityResult:
        written = writer.fields_dict  # a property that builds a new dict on each access
        for field in reader.fields:
            names = {field.name, *(field.props.get("aliases") or ())}
            sources = [written[each] for each in names if each in written]
            # Java renames the writer's fields by the aliases, and would have one twice.
            if len(sources) > 1 or not (sources or field.has_default):
                return incompatible(
                    SchemaIncompatibilityType.reader_field_missing_default_value, field.name, location
                )
            for source in sources:
                found = self.get_compatibility(field.type, source.type)
                if found.compatibility is SchemaCompatibilityType.incompatible:
                    return found
        return CompatibleResult
