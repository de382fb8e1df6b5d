"""[core] Explain why an Avro reader cannot read a writer's data: place, rule, both types, smallest fix.

The rules are those of Avro's schema resolution (specification 1.12, "Schema Resolution"; Java's
SchemaCompatibility). Apache's library gives the verdict (``formats/avro/format.py``); a test checks that
both agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hub.schema_registry.formats import SchemaDifference
from hub.schema_registry.formats.avro.types import PRIMITIVES, AvroField, AvroNode

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

    def difference(self, rule: str, what: str, fix: str) -> SchemaDifference:
        return SchemaDifference(rule, self.path or "/", self.field, what, fix)


class AvroComparison:
    """Comparison of one reader with one writer."""

    def __init__(self, reader: AvroNode, writer: AvroNode) -> None:
        self.reader, self.writer = reader, writer
        # Results of pairs of named types. A pair met again during its own comparison counts as compatible so
        # far; met later, only its first reason is reported, or types that use each other twice would double
        # the work each time.
        self._known: dict[tuple[AvroNode, AvroNode], list[SchemaDifference]] = {}

    def differences(self) -> list[SchemaDifference]:
        """Return every reason, in the reader's order; [] when it can read."""
        return list(self._compare(self.reader, self.writer, _AvroPlace()))

    def _compare(self, reader: AvroNode, writer: AvroNode, at: _AvroPlace) -> Iterator[SchemaDifference]:
        if writer.kind == "union":
            yield from self._from_union(reader, writer, at)
            return
        if reader.kind == "union":
            yield from self._into_union(reader, writer, at)
            return
        read, wrote = reader.kind, writer.kind
        if read != wrote:
            if wrote not in _PROMOTED.get(read, ()):
                yield at.difference(
                    "TYPE_MISMATCH",
                    f"the reader expects {called(reader)}, the writer has {called(writer)}",
                    f"keep {called(writer)}, or add a field with another name"
                    if at.field
                    else "keep the type",
                )
            return
        if read in ("array", "map"):
            part = at.step("items" if read == "array" else "values")
            yield from self._compare(reader.item, writer.item, part)
        elif reader.name:
            pair = (reader, writer)
            if pair in self._known:
                yield from self._known[pair][:1]
                return
            self._known[pair] = []
            self._known[pair] = list(self._named(reader, writer, at))
            yield from self._known[pair]

    def _named(self, reader: AvroNode, writer: AvroNode, at: _AvroPlace) -> Iterator[SchemaDifference]:
        kind, own, other = reader.kind, reader.name, writer.name
        if not _is_named_so(reader, other):
            yield at.step("name").difference(
                "NAME_MISMATCH",
                f"the reader's {kind} is `{own}`, the writer's is `{other}`",
                f'keep the name, or give `{own}` the alias "{other}"',
            )
        if kind == "fixed" and reader.size != writer.size:
            yield at.step("size").difference(
                "FIXED_SIZE_MISMATCH",
                f"the reader's `{own}` has {reader.size} bytes, the writer's has {writer.size}",
                f"keep the size {writer.size}",
            )
        if kind == "enum":
            symbols = set(reader.symbols)
            missing = [each for each in writer.symbols if each not in symbols]
            if missing and reader.spec.get("default") not in symbols:
                lacks = ", ".join(f"`{each}`" for each in missing[:20])
                yield at.step("symbols").difference(
                    "MISSING_ENUM_SYMBOLS",
                    f"the reader's enum `{own}` lacks {lacks}, which the writer may write",
                    f"keep the symbols, or give the enum `{own}` a default symbol",
                )
        if kind == "record":
            yield from self._fields(reader, writer, at)

    def _fields(self, reader: AvroNode, writer: AvroNode, at: _AvroPlace) -> Iterator[SchemaDifference]:
        written: Mapping[str, AvroField] = {field.name: field for field in writer.fields}
        for index, field in enumerate(reader.fields):
            here = at.into(index, field.name)
            sources = [each for each in dict.fromkeys((field.name, *field.aliases)) if each in written]
            if len(sources) > 1:
                several = " and ".join(f"`{each}`" for each in sources[:20])
                yield here.difference(
                    "READER_FIELD_AMBIGUOUS",
                    f"the reader's field `{here.field}` is, by its name and aliases, "
                    f"{several} of the writer's",
                    f"leave out an alias of `{here.field}`",
                )
            elif sources:
                yield from self._compare(field.type, written[sources[0]].type, here.step("type"))
            elif "default" not in field.spec:
                yield here.difference(
                    "READER_FIELD_MISSING_DEFAULT_VALUE",
                    f"the reader's field `{here.field}` ({called(field.type)}) is not in the writer's "
                    f"`{writer.name}` and has no default",
                    f"give `{here.field}` a default",
                )

    def _from_union(self, reader: AvroNode, writer: AvroNode, at: _AvroPlace) -> Iterator[SchemaDifference]:
        for index, branch in enumerate(writer.inner):
            schema_differences = list(self._compare(reader, branch, at))
            if schema_differences and reader.kind == "union":
                yield at.step(index).difference(
                    "MISSING_UNION_BRANCH",
                    f"the reader's {called(reader)} has no branch for the writer's {called(branch)}",
                    f"keep a branch that reads {called(branch)} in the union",
                )
            elif (
                schema_differences
                and schema_differences[0].rule == "TYPE_MISMATCH"
                and schema_differences[0].path == (at.path or "/")
            ):
                yield at.difference(
                    "TYPE_MISMATCH",
                    f"the reader expects {called(reader)}, the writer may write {called(branch)}",
                    f"keep {called(writer)}",
                )
            else:
                yield from schema_differences

    def _into_union(self, reader: AvroNode, writer: AvroNode, at: _AvroPlace) -> Iterator[SchemaDifference]:
        if not any(
            _may_read(branch, writer) and not list(self._compare(branch, writer, at))
            for branch in reader.inner
        ):
            yield at.difference(
                "MISSING_UNION_BRANCH",
                f"the reader's {called(reader)} has no branch for the writer's {called(writer)}",
                f"put {called(writer)} into the union",
            )


def _may_read(reader: AvroNode, writer: AvroNode) -> bool:
    """Return False where names alone decide: comparing each pair of two unions' records would be too slow."""
    return not (reader.name and writer.name) or _is_named_so(reader, writer.name)


def _is_named_so(reader: AvroNode, name: str) -> bool:
    """Return True if a named type may read one with that full name; namespaces matter only in aliases."""
    return reader.name.rpartition(".")[2] == name.rpartition(".")[2] or name in reader.aliases


def called(node: AvroNode) -> str:
    """Return a type in words: ``int``, ``union of null and string``, ``record `Order```."""
    if node.kind == "union":
        return "union of " + " and ".join(map(called, node.inner[:10])) if node.inner else "empty union"
    if node.name:
        return f"{node.kind} `{node.name}`"
    return node.kind if node.kind in PRIMITIVES else f"{node.kind} of {called(node.item)}"
