"""[core] Explain why an Avro reader cannot read a writer's data: place, rule, both types, smallest fix.

The rules are those of Avro's schema resolution (specification 1.12, "Schema Resolution"; Java's
SchemaCompatibility). Apache's library gives the verdict (``formats/avro/format.py``); a test checks that
both agree. Schemas must be spelled out (``avro.spelled_out``): full names, all types defined inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hub.schema_registry.formats import SchemaDifference
from hub.schema_registry.formats.avro import schema as avro

_PROMOTED: Mapping[str, tuple[str, ...]] = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


@dataclass(frozen=True, slots=True)
class _AvroPlace:
    path: str = ""
    field: str = ""

    def step(self, *steps: object) -> _AvroPlace:
        return _AvroPlace(self.path + "".join(f"/{each}" for each in steps), self.field)

    def into(self, index: int, name: str) -> _AvroPlace:
        return _AvroPlace(f"{self.path}/fields/{index}", f"{self.field}.{name}" if self.field else name)

    def says(self, rule: str, what: str, fix: str) -> SchemaDifference:
        return SchemaDifference(rule, self.path or "/", self.field, what, fix)


class AvroComparison:
    """Comparison of one reader with one writer."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self.reader, self.writer = reader, writer
        self._of_reader = avro.definitions(reader)
        self._of_writer = avro.definitions(writer)
        # Results of pairs of named types. A pair met again during its own comparison counts as compatible so
        # far; met later, only its first reason is reported, or types that use each other twice would double
        # the work each time.
        self._known: dict[tuple[str, str], list[SchemaDifference]] = {}

    def differences(self) -> list[SchemaDifference]:
        """Return every reason, in the reader's order; [] when it can read."""
        return list(self._compare(self.reader, self.writer, _AvroPlace()))

    def _compare(self, reader: Any, writer: Any, at: _AvroPlace) -> Iterator[SchemaDifference]:
        reader = self._of_reader.get(reader, reader) if isinstance(reader, str) else reader
        writer = self._of_writer.get(writer, writer) if isinstance(writer, str) else writer
        if isinstance(writer, list):
            yield from self._from_union(reader, writer, at)
            return
        if isinstance(reader, list):
            yield from self._into_union(reader, writer, at)
            return
        read, wrote = _kind(reader), _kind(writer)
        if read != wrote:
            if wrote not in _PROMOTED.get(read, ()):
                yield at.says(
                    "TYPE_MISMATCH",
                    f"the reader expects {called(reader)}, the writer has {called(writer)}",
                    f"keep {called(writer)}, or add a field with another name"
                    if at.field
                    else "keep the type",
                )
            return
        if read == "array":
            yield from self._compare(reader["items"], writer["items"], at.step("items"))
        elif read == "map":
            yield from self._compare(reader["values"], writer["values"], at.step("values"))
        elif read in ("enum", "fixed", "record"):
            pair = (reader["name"], writer["name"])
            if pair in self._known:
                yield from self._known[pair][:1]
                return
            self._known[pair] = []
            self._known[pair] = list(self._named(read, reader, writer, at))
            yield from self._known[pair]

    def _named(self, kind: str, reader: Any, writer: Any, at: _AvroPlace) -> Iterator[SchemaDifference]:
        own, other = reader["name"], writer["name"]
        if not _is_named_so(reader, other):
            yield at.step("name").says(
                "NAME_MISMATCH",
                f"the reader's {kind} is `{own}`, the writer's is `{other}`",
                f'keep the name, or give `{own}` the alias "{other}"',
            )
        if kind == "fixed" and reader["size"] != writer["size"]:
            yield at.step("size").says(
                "FIXED_SIZE_MISMATCH",
                f"the reader's `{own}` has {reader['size']} bytes, the writer's has {writer['size']}",
                f"keep the size {writer['size']}",
            )
        if kind == "enum":
            symbols = set(reader["symbols"])
            missing = [each for each in writer["symbols"] if each not in symbols]
            if missing and reader.get("default") not in symbols:
                lacks = ", ".join(f"`{each}`" for each in missing[:20])
                yield at.step("symbols").says(
                    "MISSING_ENUM_SYMBOLS",
                    f"the reader's enum `{own}` lacks {lacks}, which the writer may write",
                    f"keep the symbols, or give the enum `{own}` a default symbol",
                )
        if kind == "record":
            yield from self._fields(reader, writer, at)

    def _fields(self, reader: Any, writer: Any, at: _AvroPlace) -> Iterator[SchemaDifference]:
        written = {field["name"]: field for field in writer["fields"]}
        for index, field in enumerate(reader["fields"]):
            name = field["name"]
            here = at.into(index, name)
            sources = [each for each in dict.fromkeys((name, *field.get("aliases", ()))) if each in written]
            if len(sources) > 1:
                several = " and ".join(f"`{each}`" for each in sources[:20])
                yield here.says(
                    "READER_FIELD_AMBIGUOUS",
                    f"the reader's field `{here.field}` is, by its name and aliases, {several} of the writer's",
                    f"leave out an alias of `{here.field}`",
                )
            elif sources:
                yield from self._compare(field["type"], written[sources[0]]["type"], here.step("type"))
            elif "default" not in field:
                yield here.says(
                    "READER_FIELD_MISSING_DEFAULT_VALUE",
                    f"the reader's field `{here.field}` ({called(field['type'])}) is not in the writer's "
                    f"`{writer['name']}` and has no default",
                    f"give `{here.field}` a default",
                )

    def _from_union(self, reader: Any, writer: list[Any], at: _AvroPlace) -> Iterator[SchemaDifference]:
        for index, branch in enumerate(writer):
            found = list(self._compare(reader, branch, at))
            if found and isinstance(reader, list):
                yield at.step(index).says(
                    "MISSING_UNION_BRANCH",
                    f"the reader's {called(reader)} has no branch for the writer's {called(self._whole(branch))}",
                    f"keep a branch that reads {called(self._whole(branch))} in the union",
                )
            elif found and found[0].rule == "TYPE_MISMATCH" and found[0].path == (at.path or "/"):
                yield at.says(
                    "TYPE_MISMATCH",
                    f"the reader expects {called(reader)}, the writer may write {called(self._whole(branch))}",
                    f"keep {called(writer)}",
                )
            else:
                yield from found

    def _into_union(self, reader: list[Any], writer: Any, at: _AvroPlace) -> Iterator[SchemaDifference]:
        if not any(
            self._may_read(branch, writer) and not list(self._compare(branch, writer, at))
            for branch in reader
        ):
            yield at.says(
                "MISSING_UNION_BRANCH",
                f"the reader's {called(reader)} has no branch for the writer's {called(writer)}",
                f"put {called(writer)} into the union",
            )

    def _may_read(self, branch: Any, writer: Any) -> bool:
        """Return False where names alone decide: comparing each pair of two unions' records would be too
        slow.
        """
        reader = self._of_reader.get(branch, branch) if isinstance(branch, str) else branch
        named = (
            isinstance(reader, dict) and isinstance(writer, dict) and "name" in reader and "name" in writer
        )
        return not named or _is_named_so(reader, writer["name"])

    def _whole(self, branch: Any) -> Any:
        return self._of_writer.get(branch, branch) if isinstance(branch, str) else branch


def _is_named_so(reader: Mapping[str, Any], name: str) -> bool:
    """Return True if a named type may read one with that full name; namespaces matter only in aliases."""
    return bool(
        reader["name"].rpartition(".")[2] == name.rpartition(".")[2] or name in reader.get("aliases", ())
    )


def _kind(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def called(schema: Any) -> str:
    """Return a type in words: ``int``, ``null or string``, ``record `Order```."""
    if isinstance(schema, list):
        return (
            "union of " + " and ".join(called(branch) for branch in schema[:10]) if schema else "empty union"
        )
    if isinstance(schema, str):
        return schema if schema in avro.PRIMITIVES else f"`{schema}`"
    kind = schema["type"]
    if "name" in schema:
        return f"{kind} `{schema['name']}`"
    if kind == "array":
        return f"array of {called(schema['items'])}"
    return f"map of {called(schema['values'])}"
