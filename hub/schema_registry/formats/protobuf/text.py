"""[core] Write a file descriptor as .proto text. protoc reads the text back to the same descriptor.

Source constructs that a descriptor encodes otherwise are restored: map<> for an entry message, ``optional``
for a oneof of one field, a group for its message. Comments are dropped, and names are as short as possible.

Nested messages keep their order, including those made for maps and groups, because a serialized message
identifies its type by index. A map is therefore written at the place of its entry message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.protobuf.literals import default_text, quoted_text, value_text, visible
from hub.schema_registry.formats.protobuf.scoped_names import (
    _OPTIONS,
    SCALARS,
    ProtoType,
    ScopedNames,
    _in,
    _symbols,
)

_MOST_TAG = 536_870_911
_MOST_VALUE = 2_147_483_647


def written(
    file: FileDescriptorProto, imports: Sequence[FileDescriptorProto], *, normal: bool = False
) -> str:
    """Return the .proto text. ``imports``: every file that it needs, dependencies first.

    ``normal``: sorted where order does not matter, with full type names. Raises InvalidSchema.
    """
    types, others = (set(), set()) if normal else _symbols([*imports, file])
    names = ScopedNames(types, others, file.package, normal)
    return "\n".join(_ProtoWriter(names, file.syntax or "proto2").file(_understood(file, imports))) + "\n"


def _understood(file: FileDescriptorProto, imports: Sequence[FileDescriptorProto]) -> FileDescriptorProto:
    """Return the file with its custom options parsed, by reading it again with their definitions."""
    if all(each.name != _OPTIONS for each in imports):
        return file
    pool = DescriptorPool()
    for each in (*imports, file):
        pool.Add(each)
    known: Any = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    try:
        file_descriptor: FileDescriptorProto = known.FromString(file.SerializeToString())
    except DecodeError:
        raise InvalidSchema("the schema is not valid Protobuf: the value of an option is not UTF-8") from None
    return file_descriptor


def without_extensions(
    file: FileDescriptorProto, imports: Sequence[FileDescriptorProto]
) -> FileDescriptorProto:
    """Return the file without extensions, and without custom options except those of the package
    ``confluent``.
    """
    file_descriptor = _understood(file, imports)
    found: Any = type(file_descriptor)()
    found.CopyFrom(file_descriptor)
    left: list[Any] = [found]
    while left:
        each = left.pop()
        if each.DESCRIPTOR.name.endswith("Options"):
            for field, _ in each.ListFields():
                if field.is_extension and not field.full_name.startswith("confluent."):
                    each.ClearExtension(field)
            continue
        for field, value in each.ListFields():
            if field.name == "extension":
                each.ClearField("extension")
            elif field.message_type is not None:
                left.extend(value if field.is_repeated else [value])
    plain: FileDescriptorProto = FileDescriptorProto.FromString(found.SerializeToString())
    return plain


# ---- names


def json_name(name: str) -> str:
    """Return the default JSON name of a field (protoc's ToJsonName)."""
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)


# ---- text


@dataclass(frozen=True, slots=True)
class _Item:
    """A statement that may create messages: a map, a group, a oneof of groups."""

    order: tuple[Any, ...]  # sort key
    lines: list[str]
    makes: int  # number of messages


@dataclass(frozen=True, slots=True)
class _ProtoWriter:
    names: ScopedNames
    syntax: str

    def file(self, file: FileDescriptorProto) -> Iterator[str]:
        edition = Edition.Name(file.edition).removeprefix("EDITION_") if self.syntax == "editions" else ""
        yield f'edition = "{edition}";' if edition else f'syntax = "{self.syntax}";'
        if file.package:
            yield from ("", f"package {file.package};")
        for group in (list(self._imports(file)), list(self._statements(file.options, file.package))):
            if group:
                yield from ("", *group)
        made = {each.type_name for each in file.extension if each.type == ProtoType.TYPE_GROUP}
        items = list(self._extensions(file.extension, file.message_type, file.package))
        yield from self._around(
            items, file.message_type, file.package, lambda each: f".{each}" in made, apart=True
        )
        for kind in self._sorted(file.enum_type, lambda each: each.name):
            yield from ("", *self._enum(kind, file.package))
        for service in self._sorted(file.service, lambda each: each.name):
            yield from ("", *self._service(service, file.package))

    def _imports(self, file: FileDescriptorProto) -> Iterator[str]:
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        for index, path in self._sorted(enumerate(file.dependency), lambda each: each[1]):
            how = "public " if index in public else "weak " if index in weak else ""
            yield f"import {how}{quoted_text(path)};"
        for path in self._sorted(file.option_dependency, str):
            yield f"import option {quoted_text(path)};"

    # -- messages

    def _message(self, message: DescriptorProto, scope: str) -> Iterator[str]:
        inside = _in(scope, message.name)
        yield from _block(f"{visible(message)}message {message.name}", self._body(message, inside))

    def _body(self, message: DescriptorProto, inside: str) -> Iterator[str]:
        yield from self._statements(message.options, inside)
        items = [
            *self._fields(message, inside),
            *self._extensions(message.extension, message.nested_type, inside),
        ]
        made = {
            each.type_name
            for each in (*message.field, *message.extension)
            if each.type == ProtoType.TYPE_GROUP
        }
        maps = {f"{inside}.{each.name}" for each in message.nested_type if each.options.map_entry}
        yield from self._around(
            items, message.nested_type, inside, lambda each: each in maps or f".{each}" in made, apart=False
        )
        for kind in self._sorted(message.enum_type, lambda each: each.name):
            yield from self._enum(kind, inside)
        for extended in self._sorted(message.extension_range, lambda each: each.start):
            options = self._brackets([], extended.options, inside)
            yield f"extensions {_span(extended.start, extended.end - 1, _MOST_TAG)}{options};"
        spans = self._sorted(message.reserved_range, lambda each: each.start)
        yield from _reserved([_span(each.start, each.end - 1, _MOST_TAG) for each in spans])
        yield from _reserved(self._reserved_names(message.reserved_name))

    def _around(
        self,
        items: Sequence[_Item],
        messages: Sequence[DescriptorProto],
        scope: str,
        is_made: Callable[[str], bool],
        *,
        apart: bool,
    ) -> Iterator[str]:
        """Yield statements first and messages after them, unless that would change the index of a message."""
        left = list(self._sorted(items, lambda each: each.order))
        blank = [""] if apart else []
        owed = 0
        for message in messages:
            if is_made(_in(scope, message.name)):
                while owed == 0 and left:
                    owed = left[0].makes
                    yield from (*blank, *left.pop(0).lines)
                owed -= 1
            else:
                while left and not left[0].makes:
                    yield from (*blank, *left.pop(0).lines)
                yield from (*blank, *self._message(message, scope))
        for item in left:
            yield from (*blank, *item.lines)

    def _fields(self, message: DescriptorProto, inside: str) -> Iterator[_Item]:
        own = {f".{inside}.{each.name}": each for each in message.nested_type}
        oneofs: dict[int, list[FieldDescriptorProto]] = {}
        for field in message.field:
            if field.HasField("oneof_index"):
                oneofs.setdefault(field.oneof_index, []).append(field)
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                makes = field.type == ProtoType.TYPE_GROUP or _is_map(field, own)
                yield _Item((field.number,), list(self._field(field, inside, own)), int(makes))
            elif members := oneofs.pop(field.oneof_index, []):  # at the place of its first field
                groups = sum(each.type == ProtoType.TYPE_GROUP for each in members)
                lines = self._oneof(message.oneof_decl[field.oneof_index], members, inside, own)
                yield _Item((min(each.number for each in members),), list(lines), groups)

    def _oneof(
        self,
        oneof: OneofDescriptorProto,
        members: Sequence[FieldDescriptorProto],
        inside: str,
        own: dict[str, DescriptorProto],
    ) -> Iterator[str]:
        def body() -> Iterator[str]:
            yield from self._statements(oneof.options, inside)
            for each in self._sorted(members, lambda each: each.number):
                yield from self._field(each, inside, own)

        yield from _block(f"oneof {oneof.name}", body())

    def _field(
        self, field: FieldDescriptorProto, scope: str, own: dict[str, DescriptorProto]
    ) -> Iterator[str]:
        special = []
        if field.HasField("default_value"):
            special.append(f"default = {default_text(field)}")
        if field.json_name and field.json_name != json_name(field.name) and not field.extendee:
            special.append(f"json_name = {quoted_text(field.json_name)}")
        tail = f" = {field.number}{self._brackets(special, field.options, scope)}"
        if field.type == ProtoType.TYPE_GROUP:
            group = own.get(field.type_name)
            if group is None:  # possible in a descriptor, but not in text
                raise InvalidSchema(
                    f"the schema is not valid Protobuf: the group {field.name[:200]} is not nested in it"
                )
            body = self._body(group, field.type_name[1:])
            yield from _block(f"{self._label(field)}group {group.name}{tail}", body)
        elif _is_map(field, own):
            key, value = own[field.type_name].field
            yield f"map<{self._type(key, scope)}, {self._type(value, scope)}> {field.name}{tail};"
        else:
            yield f"{self._label(field)}{self._type(field, scope)} {field.name}{tail};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return "repeated "
        if field.label == FieldDescriptorProto.LABEL_REQUIRED:
            return "required "
        is_member = field.HasField("oneof_index")
        return "optional " if field.proto3_optional or (self.syntax == "proto2" and not is_member) else ""

    def _type(self, field: FieldDescriptorProto, scope: str) -> str:
        return SCALARS.get(field.type) or self.names.called(field.type_name, scope)

    def _extensions(
        self, extensions: Sequence[FieldDescriptorProto], nested: Sequence[DescriptorProto], scope: str
    ) -> Iterator[_Item]:
        """Yield one block per run of extensions of the same message."""
        own = {f".{_in(scope, each.name)}": each for each in nested}
        run: list[FieldDescriptorProto] = []
        for each in (*self._sorted(extensions, lambda each: (each.extendee, each.number)), None):
            if run and (
                each is None or each.extendee != run[0].extendee or each.type == ProtoType.TYPE_GROUP
            ):
                head = f"extend {self.names.called(run[0].extendee, scope)}"
                lines = _block(
                    head, [line for extension in run for line in self._field(extension, scope, own)]
                )
                # after all fields: their mutual order does not matter
                order = (_MOST_TAG + 1, run[0].extendee, run[0].number)
                yield _Item(order, list(lines), int(run[0].type == ProtoType.TYPE_GROUP))
                run = []
            if each is not None:
                run.append(each)

    # -- enums and services

    def _enum(self, enum: EnumDescriptorProto, scope: str) -> Iterator[str]:
        inside = _in(scope, enum.name)

        def body() -> Iterator[str]:
            yield from self._statements(enum.options, inside)
            # The first value is the default, so it stays the first.
            others = self._sorted(enum.value[1:], lambda each: each.number)
            for value in (*enum.value[:1], *others):
                yield f"{value.name} = {value.number}{self._brackets([], value.options, inside)};"
            spans = self._sorted(enum.reserved_range, lambda each: each.start)
            yield from _reserved([_span(each.start, each.end, _MOST_VALUE) for each in spans])
            yield from _reserved(self._reserved_names(enum.reserved_name))

        yield from _block(f"{visible(enum)}enum {enum.name}", body())

    def _service(self, service: ServiceDescriptorProto, scope: str) -> Iterator[str]:
        inside = _in(scope, service.name)

        def body() -> Iterator[str]:
            yield from self._statements(service.options, inside)
            for each in self._sorted(service.method, lambda each: each.name):
                takes = ("stream " if each.client_streaming else "") + self.names.called(
                    each.input_type, inside
                )
                gives = ("stream " if each.server_streaming else "") + self.names.called(
                    each.output_type, inside
                )
                head = f"rpc {each.name}({takes}) returns ({gives})"
                options = list(self._statements(each.options, inside))
                yield from _block(head, options) if options else [f"{head};"]

        yield from _block(f"service {service.name}", body())

    def _reserved_names(self, names: Sequence[str]) -> list[str]:
        names = list(self._sorted(names, str))
        return names if self.syntax == "editions" else [quoted_text(each) for each in names]

    # -- options

    def _statements(self, options: Any, scope: str) -> Iterator[str]:
        yield from (f"option {each};" for each in self._options(options, scope))

    def _brackets(self, special: list[str], options: Any, scope: str) -> str:
        found = [*special, *self._options(options, scope)]
        return f" [{', '.join(found)}]" if found else ""

    def _options(self, options: Any, scope: str) -> list[str]:
        """Return ``name = value`` texts. ``options`` is any of descriptor.proto's options messages."""
        found = []
        for field, value in options.ListFields():
            name = (
                f"({self.names.called(f'.{field.full_name}', scope, option=True)})"
                if field.is_extension
                else field.name
            )
            if name == "map_entry":
                continue
            for each in value if field.is_repeated else [value]:
                found.append((name, f"{name} = {value_text(field, each)}"))
        return [text for _, text in self._sorted(found, lambda each: each[0])]

    def _sorted(self, values: Iterable[Any], key: Callable[[Any], Any]) -> Iterable[Any]:
        return sorted(values, key=key) if self.names.normal else values


def _block(head: str, body: Iterable[str]) -> Iterator[str]:
    lines = list(body)
    if not lines:
        yield f"{head} {{}}"
        return
    yield f"{head} {{"
    yield from (f"  {each}" for each in lines)
    yield "}"


def _reserved(entries: Sequence[str]) -> Iterator[str]:
    if entries:
        yield f"reserved {', '.join(entries)};"


def _span(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= most else last}"


def _is_map(field: FieldDescriptorProto, own: dict[str, DescriptorProto]) -> bool:
    return field.type_name in own and own[field.type_name].options.map_entry
