"""[core] Protobuf schemas: parsed by protoc within limits, and written back as canonical text.

::

    .proto text ──────────────────────────────┐
                                              ├─ protoc ─▶ descriptors ─▶ canonical | normalized | serialized
    base64 of a descriptor ─ linked, printed ─┘

White space, comments, the order of options and the spelling of type names do not make another schema. The
order of fields does, unless the text is normalized. The order of messages always does: a serialized message
identifies its type by its index in the file.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError

from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.protobuf.imports import TEXTS
from hub.schema_registry.formats.protobuf.protoc import ROOT, compiled
from hub.schema_registry.formats.protobuf.text import written

MOST_BYTES = 1_048_576
MOST_DEPTH = 32  # protoc's limit
MOST_MESSAGES = 2_000
MOST_FIELDS = 5_000
MOST_VALUES = 50_000

# An "=" ends the run of characters: with white space in both parts a long run would be retried at each place.
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+(?:=[=\s]*)?")
_KEPT_BELOW = 65_536  # characters; longer texts would fill the memory
_BROUGHT_ALONG = re.compile(r"google/protobuf/[a-z0-9_/]+\.proto")  # included in protoc


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A linked file. Descriptors and mappings are shared: never change them.

    ``named`` holds the schemas that it imports, directly or not, by import path; ``imports`` the descriptors
    of those and of built-in files. Both are ordered, dependencies first.
    """

    file: FileDescriptorProto
    named: Mapping[str, ProtobufSchema]
    imports: tuple[FileDescriptorProto, ...]


def parse(text: str, named: Mapping[str, ProtobufSchema] | None = None) -> ProtobufSchema:
    """Parse a .proto text, or the base64 of a serialized FileDescriptorProto.

    ``named``: parsed schemas by import path, dependencies first. Raises InvalidSchema.
    """
    if len(text) > MOST_BYTES:
        raise InvalidSchema(f"the schema has {len(text)} characters, {MOST_BYTES} are allowed")
    if not text.strip():
        raise InvalidSchema("the schema is empty")
    if "\0" in text:
        raise InvalidSchema("the schema has a null byte in it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("the schema is not valid Unicode") from None
    protobuf_schemas: dict[str, ProtobufSchema] = {}
    for path, each in (named or {}).items():
        if not (_BROUGHT_ALONG.fullmatch(path) and _builtin(path)):  # protoc prefers its own
            protobuf_schemas = {**each.named, **protobuf_schemas, path: each}
    beside = tuple(
        (path, each.file.SerializeToString(deterministic=True)) for path, each in protobuf_schemas.items()
    )
    link = _linked if len(text) < _KEPT_BELOW else _linked.__wrapped__
    file, imports = link(text, beside)
    return ProtobufSchema(
        file,
        {each.name: protobuf_schemas[each.name] for each in imports if each.name in protobuf_schemas},
        imports,
    )


def field_names(schema: ProtobufSchema) -> list[str]:
    """Return the field names of every top-level message, without those of a oneof, as Confluent does."""
    fields = [each for message in schema.file.message_type for each in message.field]
    return [each.name for each in fields if each.proto3_optional or not each.HasField("oneof_index")]


@lru_cache(maxsize=256)
def _linked(
    text: str, beside: tuple[tuple[str, bytes], ...]
) -> tuple[FileDescriptorProto, tuple[FileDescriptorProto, ...]]:
    """Link the file; return it and everything it imports.

    ``beside``: (path, descriptor) of allowed imports.
    """
    allowed: dict[str, FileDescriptorProto] = {}
    for path, content in beside:
        allowed[path] = FileDescriptorProto.FromString(content)
        allowed[path].name = path
    if _BASE64.fullmatch(text):
        text = _printed(text, allowed)
    builtin = {path: each for path, each in _written_here().items() if path not in allowed}
    beside_protoc = [*builtin.values(), *allowed.values()]
    *imports, file = compiled(text, beside_protoc)
    for each in imports:
        if each.name not in allowed and each.name not in builtin and not _BROUGHT_ALONG.fullmatch(each.name):
            raise InvalidSchema(f'the schema is not valid Protobuf: Import "{each.name}" was not found')
    _within_limits(file)
    needed = tuple(allowed.get(each.name) or _shared(each) for each in imports)
    again = written(file, needed)
    if len(again) > MOST_BYTES:
        raise InvalidSchema(f"written out, the schema has {len(again)} characters, {MOST_BYTES} are allowed")
    # The stored text must be readable after a restart, with the same meaning. A stored text equals `again`.
    if again != text and compiled(again, beside_protoc)[-1] != file:
        raise InvalidSchema("the schema cannot be written back unchanged: leave out its rarer options")
    return file, needed


# ---- built-in files


@lru_cache(maxsize=1)
def _written_here() -> Mapping[str, FileDescriptorProto]:
    """Return the built-in files that protoc does not include, by path."""
    file_descriptors: dict[str, FileDescriptorProto] = {}
    for path, text in TEXTS.items():
        file_descriptors[path] = compiled(text, [])[-1]
        file_descriptors[path].name = path
    return file_descriptors


@lru_cache(maxsize=64)
def _builtin(path: str) -> tuple[FileDescriptorProto, ...]:
    """Return a built-in file after its imports; () for an unknown path."""
    if path not in TEXTS and not _BROUGHT_ALONG.fullmatch(path):
        return ()
    try:
        file_descriptors = compiled(f'syntax = "proto3"; import "{path}";', list(_written_here().values()))
    except InvalidSchema:
        return ()
    return tuple(_shared(each) for each in file_descriptors[:-1])


_SHARED: dict[str, FileDescriptorProto] = {}


def _shared(file: FileDescriptorProto) -> FileDescriptorProto:
    return _SHARED.setdefault(file.name, file)  # only built-in files, so there are few


# ---- from base64


def _printed(text: str, allowed: Mapping[str, FileDescriptorProto]) -> str:
    """Return the .proto text of a serialized descriptor; protoc checks far more than the runtime that links
    it.
    """
    try:
        file = FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise InvalidSchema(
            "the schema is not valid Protobuf: neither .proto text nor base64 of a FileDescriptorProto"
        ) from None
    _within_limits(file)
    imports = _closure(_imported(file), allowed)
    pool = DescriptorPool()
    name, file.name = file.name, ROOT
    try:
        for each in (*imports, file):
            pool.Add(each)
    except (TypeError, ValueError, EncodeError) as error:  # EncodeError: required parts are missing
        reason = str(error).replace(f"'{ROOT}'", f"'{name}'")[:500]
        raise InvalidSchema(f"the schema is not valid Protobuf: {reason}") from None
    return written(file, imports)


def _closure(paths: Sequence[str], allowed: Mapping[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return the files at ``paths`` and all their imports, dependencies first. Raises InvalidSchema."""
    file_descriptors: dict[str, FileDescriptorProto] = {}
    left = [(path, False) for path in reversed(paths)]
    while left:
        path, entered = left.pop()
        if path in file_descriptors:
            continue
        if path not in allowed:
            builtin = _builtin(path)
            if not builtin:
                raise InvalidSchema(f'the schema is not valid Protobuf: Import "{path}" was not found')
            file_descriptors.update(
                {each.name: each for each in builtin if each.name not in file_descriptors}
            )
        elif entered:
            file_descriptors[path] = allowed[path]
        else:
            left += [(path, True), *((each, False) for each in reversed(_imported(allowed[path])))]
    return list(file_descriptors.values())


def _imported(file: FileDescriptorProto) -> list[str]:
    return [*file.dependency, *file.option_dependency]


def _within_limits(file: FileDescriptorProto) -> None:
    """Raise InvalidSchema for exceeded limits. Iterative, so that any nesting can be counted."""
    messages, fields = 0, len(file.extension)
    values = sum(len(each.value) for each in file.enum_type)
    left: list[tuple[DescriptorProto, int]] = [(each, 1) for each in file.message_type]
    while left:
        message, depth = left.pop()
        if depth > MOST_DEPTH:
            raise InvalidSchema(f"the schema is nested deeper than {MOST_DEPTH} messages")
        messages += 1
        fields += len(message.field) + len(message.extension)
        values += sum(len(each.value) for each in message.enum_type)
        left.extend((each, depth + 1) for each in message.nested_type)
    for count, most, kind in (
        (messages, MOST_MESSAGES, "messages"),
        (fields, MOST_FIELDS, "fields"),
        (values, MOST_VALUES, "enum values"),
    ):
        if count > most:
            raise InvalidSchema(f"the schema has {count} {kind}, {most} are allowed")


# ---- used by other modules


def beside(file: FileDescriptorProto, schema: ProtobufSchema) -> tuple[FileDescriptorProto, ...]:
    """Return all imports of ``file``, dependencies first, from the imports of ``schema`` and the built-in
    files.

    Raises InvalidSchema.
    """
    return tuple(_closure(_imported(file), {each.name: each for each in schema.imports}))
