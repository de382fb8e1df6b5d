"""[core] Differences between two schemas in plain words, and who can still read whose data.

A change is not a verdict: every reader accepts a new doc or another default. ``diff_schemas`` lists all
changes; ``readers`` adds the registry's verdict in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass

from hub.schema_registry.folder.avro_diff import AvroDiff
from hub.schema_registry.folder.changes import SchemaChange
from hub.schema_registry.folder.json_schema_diff import JsonSchemaDiff
from hub.schema_registry.folder.protobuf_diff import protobuf_changes
from hub.schema_registry.formats import InvalidSchema, SchemaDifference
from hub.schema_registry.formats.avro.types import AvroNode, types_of
from hub.schema_registry.registry.snapshot import ParsedSchema, differences

MOST_CHANGES = 1_000


@dataclass(frozen=True, slots=True)
class ReaderProblems:
    """Reasons why each schema cannot read the other's data; empty when it can."""

    new_reads_old: tuple[SchemaDifference, ...]
    old_reads_new: tuple[SchemaDifference, ...]

    def lines(self) -> list[str]:
        """Return both directions as sentences."""
        found = []
        for who, wrote, reasons in (
            ("Consumers with the new schema", "the old one", self.new_reads_old),
            ("Consumers with the old schema", "the new one", self.old_reads_new),
        ):
            if not reasons:
                found.append(f"{who} can read data written with {wrote}.")
                continue
            found.append(f"{who} can NOT read data written with {wrote}:")
            found += [f"  {each.field or each.path}: {each.what}; fix: {each.fix}" for each in reasons]
        return found


def readers(old: ParsedSchema, new: ParsedSchema) -> ReaderProblems:
    """Compare two schemas in both directions.

    Raises InvalidSchema for schemas that are too much work to compare.
    """
    return ReaderProblems(tuple(differences(new, old)), tuple(differences(old, new)))


def diff_schemas(schema_type: str, old: ParsedSchema, new: ParsedSchema) -> list[SchemaChange]:
    """Return the changes from ``old`` to ``new``, at most ``MOST_CHANGES``; [] when they are equivalent.

    ``schema_type`` is that of ``new``; when ``old`` has another, that is the only change. Raises
    InvalidSchema for types that are chained too long.
    """
    if old.schema_type != schema_type:
        return [
            SchemaChange("schema type", "", f"the schema type was {old.schema_type} and is {schema_type}")
        ]
    if schema_type == "AVRO":
        schema_changes = AvroDiff(*map(avro_root, (old, new))).changes()
    elif schema_type == "JSON":
        schema_changes = JsonSchemaDiff(old.schema, new.schema).changes()
    else:
        schema_changes = protobuf_changes(old.schema.file, new.schema.file)
    try:
        return [each for each, _ in zip(schema_changes, range(MOST_CHANGES), strict=False)]
    except RecursionError:
        raise InvalidSchema("the schema's types are chained too long to be compared") from None


def avro_root(parsed: ParsedSchema) -> AvroNode:
    """Return the type of an Avro schema. Raises InvalidSchema."""
    return types_of(parsed.schema, parsed.named.values(), strict=False)
