"""[core] Explain why a Protobuf reader cannot read a writer's data, by Confluent's kinds of difference.

Reports only differences that Confluent calls incompatible. Everything else may change: names of fields,
enums and their values, reserved, options, services, extensions, the order of messages, a new message in the
reader.

- Messages are matched by name within their parent; fields by number, wherever in the message they are: in a
  oneof, in another one or in none. So the new name of a oneof hides nothing (the rule of 2026, stricter than
  the releases to 8.3.1).
- Scalars that share a wire format are one: int32, int64, uint32, uint64, bool and enums; sint32 and sint64;
  string and bytes; fixed and sfixed of one width. A message never becomes a scalar, though the wire has both
  as bytes.
- Labels count only if both sides write one: proto3's `int32 a` has none, `optional int32 a` has.
- A message type is identified by its name within its package. When either side imports it, its content is
  compared too, because another version may have the same name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from hub.schema_registry.formats import SchemaDifference
from hub.schema_registry.formats.protobuf.schema import ProtobufSchema
from hub.schema_registry.formats.protobuf.sides import (
    _GROUPS,
    _STRING,
    FieldSide,
    ProtobufSide,
    ProtobufType,
)


def differences(reader: ProtobufSchema, writer: ProtobufSchema) -> list[SchemaDifference]:
    """Return every reason, in the reader's order, then those inside imported types; [] when it can read.

    BACKWARD: the reader is the new schema, the writer the old one; FORWARD: reversed.
    """
    return _ProtobufComparison(ProtobufSide(reader), ProtobufSide(writer)).differences()


# ---- compared types


# ---- places


@dataclass(frozen=True, slots=True)
class _ProtobufPlace:
    steps: tuple[str, ...] = ()
    field: str = ""

    def into(self, name: str) -> _ProtobufPlace:
        return _ProtobufPlace((*self.steps, name), f"{self.field}.{name}" if self.field else name)

    def at(self, member: FieldSide, oneof: str) -> _ProtobufPlace:
        """Return the member's place.

        Confluent's path includes the oneof, the readable field name does not.
        """
        steps = (*self.steps, *([oneof] if oneof else []), str(member.number))
        return _ProtobufPlace(steps, f"{self.field}.{member.name}")

    def difference(self, rule: str, what: str, fix: str) -> SchemaDifference:
        return SchemaDifference(rule, "#/" + "/".join(self.steps), self.field, what, fix)


class _ImportedPair(NamedTuple):
    """Full names of imported types whose content is compared."""

    reader: str
    writer: str


@dataclass(frozen=True, slots=True)
class _Use:
    """Use of a pair; it is a difference itself when the pair has any difference."""

    pair: _ImportedPair
    otherwise: SchemaDifference


@dataclass(slots=True)
class _ProtobufComparison:
    reader: ProtobufSide
    writer: ProtobufSide
    _found: dict[_ImportedPair, list[SchemaDifference | _Use]] = field(default_factory=dict)
    _left: deque[_ImportedPair] = field(default_factory=deque)

    def differences(self) -> list[SchemaDifference]:
        # Pairs wait in a list instead of recursion: recursive types end, and no chain is too long.
        own = list(self._files())
        while self._left:
            pair = self._left.popleft()
            reader, writer = self.reader.type(pair.reader), self.writer.type(pair.writer)
            place = _ProtobufPlace()
            for step in reader.local.split("."):
                place = place.into(step)
            self._found[pair] = list(self._message(reader, writer, place))
        broken = self._broken()
        return [
            each.otherwise if isinstance(each, _Use) else each
            for found in (own, *self._found.values())
            for each in found
            if not isinstance(each, _Use) or each.pair in broken
        ]

    def _broken(self) -> set[_ImportedPair]:
        """Return the pairs that differ, or use a pair that does."""
        users: dict[_ImportedPair, list[_ImportedPair]] = {}
        left = []
        for pair, found in self._found.items():
            for each in found:
                if isinstance(each, _Use):
                    users.setdefault(each.pair, []).append(pair)
            if any(isinstance(each, SchemaDifference) for each in found):
                left.append(pair)
        broken: set[_ImportedPair] = set()
        while left:
            pair = left.pop()
            if pair not in broken:
                broken.add(pair)
                left += users.get(pair, [])
        return broken

    def _files(self) -> Iterator[SchemaDifference | _Use]:
        own, other = self.reader.file.package, self.writer.file.package
        if own != other:
            yield _ProtobufPlace().difference(
                "PACKAGE_CHANGED",
                f"the reader's package is {_or_none(own)}, the writer's is {_or_none(other)}",
                f"keep the package {_or_none(other)}" if other else "leave out the package",
            )
        yield from self._messages(self.reader.top(), self.writer.top(), _ProtobufPlace())

    def _messages(
        self, reader: list[ProtobufType], writer: list[ProtobufType], at: _ProtobufPlace
    ) -> Iterator[SchemaDifference | _Use]:
        written = {each.message.name: each for each in writer}
        for each in reader:
            source = written.pop(each.message.name, None)
            if source is not None:
                yield from self._message(each, source, at.into(each.message.name))
        for name in written:
            here = at.into(name)
            yield here.difference(
                "MESSAGE_REMOVED",
                f"the reader has no message `{here.field}`, the writer has one",
                f"keep the message `{here.field}`",
            )

    def _message(
        self, reader: ProtobufType, writer: ProtobufType, at: _ProtobufPlace
    ) -> Iterator[SchemaDifference | _Use]:
        own, other = self.reader.members(reader), self.writer.members(writer)
        yield from self._exclusive(own, other, at)
        gone = _deleted_oneofs(own, other)
        for number in sorted({*own, *other}):
            if number not in own:
                yield from self._removed(other[number], gone, at)
            elif number in other:
                yield from self._field(own[number], other[number], at.at(own[number], own[number].oneof))
            elif own[number].label == "required":
                here = at.at(own[number], "")
                yield here.difference(
                    "REQUIRED_FIELD_ADDED",
                    f"the reader requires `{here.field}` (number {number}), the writer has no such field",
                    f"make `{here.field}` optional",
                )
        yield from self._messages(self.reader.nested(reader), self.writer.nested(writer), at)

    def _removed(self, member: FieldSide, gone: set[str], at: _ProtobufPlace) -> Iterator[SchemaDifference]:
        here = at.at(member, member.oneof)
        if member.label == "required":
            yield here.difference(
                "REQUIRED_FIELD_REMOVED",
                f"the reader has no field with the number {member.number}, the writer "
                f"requires it (`{here.field}`)",
                f"keep `{here.field}`",
            )
        elif member.oneof and member.oneof not in gone:
            yield here.difference(
                "ONEOF_FIELD_REMOVED",
                f"the reader lacks `{here.field}` (number {member.number}) of the writer's "
                f"oneof `{member.oneof}`",
                f"keep `{here.field}` in the oneof",
            )

    def _exclusive(
        self, own: Mapping[int, FieldSide], other: Mapping[int, FieldSide], at: _ProtobufPlace
    ) -> Iterator[SchemaDifference]:
        """Yield oneofs of the reader whose fields the writer may set together: the reader keeps only one."""
        oneofs: dict[str, list[FieldSide]] = {}
        for number, member in own.items():
            if member.oneof:
                oneofs.setdefault(member.oneof, [])
                if number in other:
                    oneofs[member.oneof].append(other[number])
        for name, sources in oneofs.items():
            moved = [each.name for each in sources if not each.oneof]
            origins = len(moved) + len({each.oneof for each in sources if each.oneof})
            if origins < 2:
                continue
            several = ", ".join(f"`{each.name}`" for each in sources[:20])
            yield _ProtobufPlace((*at.steps, name), f"{at.field}.{name}").difference(
                "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(moved) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF",
                f"the reader's oneof `{name}` keeps one of {several}, which the writer may set together",
                f"leave {'all but one of them' if len(moved) == len(sources) else 'the moved ones'} where "
                "they were",
            )

    def _field(
        self, own: FieldSide, other: FieldSide, at: _ProtobufPlace
    ) -> Iterator[SchemaDifference | _Use]:
        if own.kind != other.kind:
            yield _changed("FIELD_KIND_CHANGED", own, other, at)
        elif own.entry is not None and other.entry is not None:
            for own_field, other_field in zip(own.entry.field, other.entry.field, strict=True):
                yield from self._value(own_field, other_field, own, other, at)
        else:
            yield from self._value(own.proto, other.proto, own, other, at)

    def _value(
        self,
        own_field: FieldDescriptorProto,
        other_field: FieldDescriptorProto,
        own: FieldSide,
        other: FieldSide,
        at: _ProtobufPlace,
    ) -> Iterator[SchemaDifference | _Use]:
        """Compare a field's type, or a map's key or value."""
        group, other_group = _GROUPS.get(own_field.type), _GROUPS.get(other_field.type)
        if group is None or other_group is None:
            if group != other_group:
                yield _changed("FIELD_KIND_CHANGED", own, other, at)
            else:
                yield from self._named(own_field.type_name, other_field.type_name, own, other, at)
        elif group != other_group:
            yield _changed("FIELD_SCALAR_KIND_CHANGED", own, other, at)
        elif own.label and other.label and own.label != other.label and group != _STRING:
            yield at.difference(
                "FIELD_NUMERIC_LABEL_CHANGED",
                f"the reader's `{at.field}` is {own.label}, the writer's is {other.label}",
                f"keep it {other.label}",
            )

    def _named(
        self, own_name: str, other_name: str, own: FieldSide, other: FieldSide, at: _ProtobufPlace
    ) -> Iterator[SchemaDifference | _Use]:
        reader, writer = self.reader.type(own_name), self.writer.type(other_name)
        if reader.local != writer.local:
            yield _changed("FIELD_NAMED_TYPE_CHANGED", own, other, at)
        elif not (reader.is_own and writer.is_own):  # own types are compared where they are defined
            pair = _ImportedPair(reader.full, writer.full)
            if pair not in self._found:
                self._found[pair] = []
                self._left.append(pair)
            yield _Use(
                pair,
                at.difference(
                    "FIELD_NAMED_TYPE_CHANGED",
                    f"the `{reader.full}` that the reader imports for `{at.field}` cannot read the writer's",
                    f"import a `{reader.full}` that can",
                ),
            )


def _changed(rule: str, own: FieldSide, other: FieldSide, at: _ProtobufPlace) -> SchemaDifference:
    return at.difference(
        rule,
        f"the reader's `{at.field}` (number {own.number}) is {own.called}, the writer's is {other.called}",
        f"keep {other.called}, or give the new field a number of its own",
    )


def _deleted_oneofs(own: Mapping[int, FieldSide], other: Mapping[int, FieldSide]) -> set[str]:
    """Return the writer's oneofs of which the reader has neither the name nor any field."""
    gone = {each.oneof for each in other.values()} - {each.oneof for each in own.values()}
    return gone - {each.oneof for each in other.values() if each.number in own}


def _or_none(package: str) -> str:
    return f"`{package}`" if package else "none"
