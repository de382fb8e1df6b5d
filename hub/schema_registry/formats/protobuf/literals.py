"""[core] Values of options and defaults as .proto text."""

from __future__ import annotations

from io import StringIO
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, SymbolVisibility
from google.protobuf.text_encoding import CEscape

from hub.schema_registry.formats.protobuf.scoped_names import ProtoType

_READABLE_BYTES = 10_000  # text_format takes quadratic time for bytes that are not UTF-8


def visible(definition: Any) -> str:
    if definition.visibility == SymbolVisibility.VISIBILITY_UNSET:
        return ""
    return "local " if definition.visibility == SymbolVisibility.VISIBILITY_LOCAL else "export "


def default_text(field: FieldDescriptorProto) -> str:
    if field.type == ProtoType.TYPE_BYTES:
        return f'"{field.default_value}"'  # escaped already
    return quoted_text(field.default_value) if field.type == ProtoType.TYPE_STRING else field.default_value


def quoted_text(text: str | bytes) -> str:
    """Quote a text, readable if possible; protobuf returns strings that are not UTF-8 as bytes."""
    raw = text if isinstance(text, bytes) else text.encode()
    try:
        raw.decode()
    except UnicodeDecodeError:
        return f'"{CEscape(raw, as_utf8=False)}"'
    return f'"{CEscape(raw, as_utf8=True)}"'


def value_text(field: Any, value: Any) -> str:
    """Return an option's value. A message is written in protobuf's text format, in braces."""
    if field.type == ProtoType.TYPE_STRING:
        return quoted_text(value)
    is_small = field.type != ProtoType.TYPE_MESSAGE or value.ByteSize() < _READABLE_BYTES
    out = StringIO()
    text_format.PrintFieldValue(field, value, out, as_utf8=is_small, as_one_line=True)
    return out.getvalue().strip()
