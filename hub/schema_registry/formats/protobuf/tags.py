"""[core] Tags in a Protobuf schema: the option ``(confluent.message_meta)`` or ``(confluent.field_meta)``.

Confluent writes the option without its import; protoc requires the import, so it is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from hub.schema_registry.formats.protobuf.schema import ProtobufSchema, beside
from hub.schema_registry.formats.protobuf.text import written
from hub.schema_registry.formats.tag_paths import RECORD, changed, nowhere

_META = "confluent/meta.proto"


def retagged(
    schema: ProtobufSchema, changes: Mapping[tuple[str, str], tuple[Sequence[str], Sequence[str]]]
) -> str:
    """Return the .proto text with changes by (path, kind).

    Raises InvalidSchema for a path that leads nowhere.
    """
    file = FileDescriptorProto()
    file.CopyFrom(schema.file)
    if _META not in file.dependency:
        if not any(more for more, _ in changes.values()):  # there is no tag to remove
            for path, kind in changes:
                _found(file, path, kind)
            return written(file, beside(file, schema))
        file.dependency.append(_META)
    imports = beside(file, schema)
    pool = DescriptorPool()
    for each in imports:
        pool.Add(each)
    for (path, kind), (more, less) in changes.items():
        found = _found(file, path, kind)
        name = "Message" if kind == RECORD else "Field"
        known = GetMessageClass(pool.FindMessageTypeByName(f"google.protobuf.{name}Options"))
        meta: Any = pool.FindExtensionByName(f"confluent.{name.lower()}_meta")
        options: Any = known.FromString(found.options.SerializeToString())
        options.Extensions[meta].tags[:] = changed(list(options.Extensions[meta].tags), more, less)
        if not options.Extensions[meta].ByteSize():
            options.ClearExtension(meta)
        found.options.ParseFromString(options.SerializeToString())
        if not found.options.ByteSize():
            found.ClearField("options")
    return written(file, imports)


def _found(file: FileDescriptorProto, path: str, kind: str) -> DescriptorProto | FieldDescriptorProto:
    """Return the message or field at a path like ``Order.Item.mail``.

    The package may precede the messages, a oneof's name its field.
    """
    names = path.removeprefix(".").split(".")
    package = file.package.split(".") if file.package else []
    if package and names[: len(package)] == package and names[0] not in {m.name for m in file.message_type}:
        names = names[len(package) :]
    messages, found = list(file.message_type), None
    while names:
        inner = next((each for each in messages if each.name == names[0]), None)
        if inner is None or inner.options.map_entry:
            break
        found, messages, names = inner, list(inner.nested_type), names[1:]
    if found is None:
        raise nowhere(path)
    if kind == RECORD:
        if names:
            raise nowhere(path)
        return found
    oneofs = [each.name for each in found.oneof_decl]
    of = oneofs.index(names[0]) if len(names) == 2 and names[0] in oneofs else None
    for field in found.field:
        if names[-1:] == [field.name] and (
            len(names) == 1 or (of is not None and field.HasField("oneof_index") and field.oneof_index == of)
        ):
            return field
    raise nowhere(path)
