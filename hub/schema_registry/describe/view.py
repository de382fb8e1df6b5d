"""[core] View of a schema: named types with their fields, and each field's path below the root."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

TYPES = (
    "string",
    "int",
    "long",
    "float",
    "double",
    "boolean",
    "bytes",
    "timestamp",
    "date",
    "time",
    "decimal",
    "uuid",
    "record",
    "array",
    "map",
    "enum",
    "union",
    "null",
    "any",
)


@dataclass(frozen=True, slots=True)
class FieldShape:
    """Type of a field. ``of``: full names of the records and enums that it holds, also as elements.

    ``logical`` adds to the plain type: ``timestamp-millis``, ``decimal(10,2)``, ``date-time``.
    """

    type: str
    of: tuple[str, ...] = ()
    optional: bool = False
    logical: str = ""


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of a record. ``path`` is dotted, from the root; ``optional`` means null or absent is allowed.

    ``default`` is JSON text, None when there is none; ``number`` is Protobuf's; ``own`` is False when a
    referenced schema gave the field to a record (JSON's ``allOf``).
    """

    name: str
    shape: FieldShape
    path: str = ""
    doc: str = ""
    tags: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    default: str | None = None
    number: int | None = None
    own: bool = True

    @property
    def type(self) -> str:
        """One of ``TYPES``."""
        return self.shape.type


@dataclass(frozen=True, slots=True)
class SchemaType:
    """A record or an enum.

    ``named`` is False when the format gave it no name (inline JSON objects); ``own`` is False when it comes
    from a referenced schema; ``called`` is its name in the schema when another type has that name already.
    """

    name: str
    kind: str
    fields: tuple[SchemaField, ...] = ()
    symbols: tuple[str, ...] = ()
    doc: str = ""
    tags: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    named: bool = True
    own: bool = True
    called: str = ""

    @property
    def simple_name(self) -> str:
        return (self.called or self.name).rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class SchemaView:
    """View of a schema.

    ``roots`` are the records an event may be: one, several for a union, none otherwise.
    """

    schema_type: str
    roots: tuple[str, ...]
    types: Mapping[str, SchemaType]

    @property
    def own_types(self) -> list[SchemaType]:
        """The types that are not from referenced schemas, which are judged under their own subjects."""
        return [each for each in self.types.values() if each.own]

    def fields(self) -> Iterator[tuple[SchemaType, SchemaField]]:
        """Iterate over the schema's own fields, each once."""
        return ((each, field) for each in self.own_types for field in each.fields if field.own)

    def find(self, root: str, path: str) -> SchemaField | None:
        """Return the field at a dotted path below a root, through records, arrays and maps of records."""
        places: tuple[str, ...] = (root,)
        schema_field = None
        for name in path.split("."):
            inside = [field for place in places if place in self.types for field in self.types[place].fields]
            schema_field = next((field for field in inside if field.name == name), None)
            if schema_field is None:
                return None
            places = schema_field.shape.of
        return schema_field


def placed(schema_type: str, roots: tuple[str, ...], types: Mapping[str, SchemaType]) -> SchemaView:
    """Return the view with every field's path: the shortest from a root.

    With several roots a path begins with the root's name; a type that no root reaches uses its own name.
    """
    prefixes: dict[str, str] = {}
    left: deque[str] = deque()

    def reach(name: str, prefix: str) -> None:
        if name in types and name not in prefixes:
            prefixes[name] = prefix
            left.append(name)

    for root in roots:
        reach(root, f"{types[root].simple_name}." if len(roots) > 1 else "")
    loose = iter(types)
    held: set[int] = set()  # by identity: thousands of fields may hold the same thousands of types
    while len(prefixes) < len(types) or left:
        if not left:
            name = next(each for each in loose if each not in prefixes)
            reach(name, f"{types[name].simple_name}.")
        name = left.popleft()
        for field in types[name].fields:
            if id(field.shape.of) not in held:
                held.add(id(field.shape.of))
                for inner in field.shape.of:
                    reach(inner, f"{prefixes[name]}{field.name}.")
    return SchemaView(
        schema_type,
        roots,
        {
            name: replace(
                each,
                fields=tuple(replace(field, path=prefixes[name] + field.name) for field in each.fields),
            )
            for name, each in types.items()
        },
    )
