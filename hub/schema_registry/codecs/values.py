"""[core] Encode and decode JSON values with schemas of any format.

Used by the gateway to write, by conformance checks to validate, and by queries to read. Bodies are those
of Confluent's serializers, without the magic byte and the schema id: JSON text, or a Protobuf message
after its message indexes (on write always the file's first message, written as one zero).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import fastavro
import jsonschema_rs
import orjson
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, EncodeError, Message

from hub.schema_registry.codecs.avro_encoder import JsonEncoder
from hub.schema_registry.codecs.avro_resolution import Resolution, resolve
from hub.schema_registry.codecs.avro_to_json import render_json
from hub.schema_registry.codecs.avro_validator import BrokenValue, checker, counts_nothing
from hub.schema_registry.codecs.misfit import MOST_STEPS, Unfit
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.formats.exact_json import dumped, loaded, may_be_long
from hub.schema_registry.formats.json_schema.schema import JsonSchema
from hub.schema_registry.formats.protobuf.message_indexes import message_indexes
from hub.schema_registry.formats.protobuf.schema import ProtobufSchema

_BASE = "json-schema:///"
_MOST_BACKTRACKING = 100_000  # steps of a pattern; beyond that it does not match
_MOST_DEPTH = 100
_TIMES = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros", "date")
_UNREADABLE = (
    *(EOFError, ValueError, IndexError, TypeError, KeyError, AttributeError, OverflowError, MemoryError),
    fastavro.schema.SchemaParseException,
    fastavro.read.SchemaResolutionError,
    ArithmeticError,  # a decimal with too many digits
)

# Errors that Protobuf's JSON parser lets through: an Any whose @type is not text, an integer beyond a double.
_NO_MESSAGE = (
    *(json_format.ParseError, ValueError, TypeError, RecursionError),
    *(AttributeError, KeyError, OverflowError),
)


class Encoder(Protocol):
    """One schema, prepared for many values. Thread safe."""

    def body(self, value: Any, place: str = "value", most_steps: int = MOST_STEPS) -> bytes:
        """Return the bytes of a JSON value; ``place`` begins the path in errors. Raises Unfit."""


Check = Callable[[bytes, int], int]


def encoder_of(source: SchemaSource) -> Encoder:
    """Prepare an encoder. Raises InvalidSchema, and Unfit for a schema that cannot be used."""
    parsed = source.parsed()
    if isinstance(parsed, AvroSchema):
        return JsonEncoder(parsed.value, parsed.types)
    return JsonText(parsed) if isinstance(parsed, JsonSchema) else Protobuf(parsed)


def check_of(source: SchemaSource) -> Check:
    """Return a check of bodies: (record value, offset of the body) -> end of the body.

    Raises InvalidSchema; the check raises BrokenValue.
    """
    parsed = source.parsed()
    if isinstance(parsed, AvroSchema):
        return checker(parsed.root())
    return (JsonText(parsed) if isinstance(parsed, JsonSchema) else Protobuf(parsed)).check


def decoder_of(source: SchemaSource, *, exact: bool = False) -> Callable[[bytes, int], Any]:
    """Return a decoder of bodies: (record value, offset of the body) -> value.

    The decoder returns JSON values, with integers of more than 64 bits as doubles unless ``exact``. Avro also
    gives bytes, Decimal and, below the top level, datetime and date; times of top-level fields are integers
    of milliseconds and dates integers of days, because some are outside any calendar. Protobuf follows its
    JSON mapping, with the file's field names. Raises InvalidSchema; the decoder raises BrokenValue.
    """
    parsed = source.parsed()
    if isinstance(parsed, AvroSchema):
        return _avro_decoder(parsed)
    if isinstance(parsed, JsonSchema):
        return JsonText(parsed).exact if exact else JsonText(parsed).value
    return Protobuf(parsed).value


def decoder_as(
    source: SchemaSource, reader: SchemaSource, *, as_written: bool = False
) -> Callable[[bytes, int], Any]:
    """Return ``decoder_of(source)`` that yields values under another schema's names and defaults (Avro,
    Protobuf).

    Fields that only the writer's schema has, or has with another type, keep their written value. For schemas
    of two types, and for JSON Schema (``hub.materializers.types.json_defaults`` fills its defaults), this is
    ``decoder_of``. ``as_written``: Avro gives the numbers of times and dates as they were written, at every
    level, and null for a field that the writer lacks, whatever its default.
    """
    wrote, read = source.parsed(), reader.parsed()
    if isinstance(wrote, AvroSchema) and isinstance(read, AvroSchema):
        return _avro_decoder(wrote, read, as_written)
    if isinstance(wrote, ProtobufSchema) and isinstance(read, ProtobufSchema):
        return Protobuf(read).value_of(Protobuf(wrote))
    return decoder_of(source)


def _resolved(parsed: AvroSchema, read: AvroSchema) -> Resolution | None:
    """Resolve two schemas; None when they are equal or one is not a record."""
    both = [orjson.loads(avro.resolved(each.value, each.types)) for each in (parsed, read)]
    if both[0] == both[1] or not all(avro.fields_of(each) for each in both):
        return None
    return resolve(*both, unread=True)


def _avro_decoder(
    parsed: AvroSchema, read: AvroSchema | None = None, as_written: bool = False
) -> Callable[[bytes, int], Any]:
    # Checked first: fastavro recurses in C as deep as the bytes require.
    root = parsed.root()
    check, endless = checker(root), counts_nothing(root)
    resolution = None if read is None else _resolved(parsed, read)
    shown = parsed.value if resolution is None else resolution.reader
    bare = _as_written if as_written else _times_as_numbers
    try:
        if resolution is None:
            types = [_as_written(each) for each in parsed.types] if as_written else parsed.types
            prepared, reader = _prepared(bare(parsed.value), types), None
        else:
            prepared, reader = _prepared(bare(resolution.writer)), _prepared(bare(resolution.reader))
    except _UNREADABLE as error:
        raise InvalidSchema(f"values cannot be read with the schema: {str(error)[:300]}") from None
    in_micros = [
        each["name"] for each in avro.fields_of(shown) if not as_written and _is_in_micros(each["type"])
    ]

    def decode(value: bytes, start: int) -> Any:
        end = check(value, start)
        if end != len(value):
            raise BrokenValue(f"{len(value) - end} bytes more than the schema has", end)
        if endless and (cut := render_json(root, value, start).broken) is not None:
            raise cut  # fastavro builds each item, and ten bytes can declare 2^63 of them
        try:
            found = fastavro.schemaless_reader(io.BytesIO(value[start:]), prepared, reader)
        except _UNREADABLE as error:
            raise BrokenValue(str(error)[:200] or type(error).__name__, start) from None
        for name in in_micros:
            if isinstance(found[name], int):
                found[name] //= 1000
        return found

    return decode


def _prepared(schema: Any, types: Sequence[Any] = ()) -> Any:
    """Prepare a schema of ``_times_as_numbers`` or ``_as_written`` for fastavro. ``types``: the types that
    it references.
    """
    known: dict[str, Any] = {}
    for each in types:
        fastavro.parse_schema(each, named_schemas=known, _ignore_default_error=True)
    return fastavro.parse_schema(schema, named_schemas=known, _ignore_default_error=True)


def _is_in_micros(kind: Any) -> bool:
    """Return True for a -micros logical type on ``long``; on another base type it is ignored."""
    branches = kind if isinstance(kind, list) else [kind]
    return any(
        isinstance(each, dict) and each["type"] == "long" and str(each.get("logicalType")).endswith("-micros")
        for each in branches
    )


def _as_written(schema: Any) -> Any:
    """Return a schema without logical types but decimals, and with null as the default of each field."""
    if isinstance(schema, list):
        return [_as_written(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {key: of for key, of in schema.items() if key != "logicalType" or of == "decimal"}
    for key in bare.keys() & {"type", "items", "values"}:
        bare[key] = _as_written(bare[key])
    if "fields" in bare:
        bare["fields"] = [
            {**each, "type": _as_written(each["type"]), **({"default": None} if "default" in each else {})}
            for each in bare["fields"]
        ]
    return bare


def _times_as_numbers(schema: Any) -> Any:
    if not isinstance(schema, dict) or "fields" not in schema:
        return schema

    def plain(kind: Any) -> Any:
        if isinstance(kind, list):
            return [plain(each) for each in kind]
        if isinstance(kind, dict) and kind.get("logicalType") in _TIMES:
            return kind["type"]
        return kind

    return {**schema, "fields": [{**each, "type": plain(each["type"])} for each in schema["fields"]]}


class JsonText:
    """Codec of JSON text described by a JSON Schema."""

    def __init__(self, schema: JsonSchema) -> None:
        beside = [(_BASE + name, each.raw) for name, each in schema.named.items()]
        try:
            self._validator = jsonschema_rs.validator_for(
                schema.raw,
                registry=jsonschema_rs.Registry(beside, draft=_DRAFTS[schema.draft]) if beside else None,
                base_uri=_BASE,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_MOST_BACKTRACKING),
            )
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise InvalidSchema(f"values cannot be held to the schema: {str(error)[:300]}") from None

    def body(self, value: Any, place: str = "value", most_steps: int = MOST_STEPS) -> bytes:
        """See Encoder."""
        try:
            wrong = next(self._validator.iter_errors(value), None)
            written = dumped(value) if wrong is None else b""
        except (
            TypeError,
            ValueError,
            RecursionError,
        ) as error:  # deeper than can be written; what is read may be
            raise Unfit(f"{place}: {str(error)[:300]}") from None
        if wrong is not None:
            path = place + "".join(
                f"[{each}]" if isinstance(each, int) else f".{each}" for each in wrong.instance_path
            )
            raise Unfit(f"{path}: {wrong.message[:300]}")
        return written

    def check(self, value: bytes, start: int) -> int:
        """See Check."""
        self.exact(value, start)
        return len(value)

    def value(self, value: bytes, start: int) -> Any:
        """See decoder_of."""
        found = self.exact(value, start)
        return orjson.loads(value[start:]) if may_be_long(value) else found

    def exact(self, value: bytes, start: int) -> Any:
        """``value()`` with integers of any size kept exact."""
        try:
            found = loaded(value[start:])
            self.body(found)
        except orjson.JSONDecodeError as error:
            raise BrokenValue(f"no JSON: {error}", start) from None
        except Unfit as error:
            raise BrokenValue(error.message, start) from None
        return found


class Protobuf:
    """Codec of the messages of a .proto file."""

    def __init__(self, schema: ProtobufSchema) -> None:
        pool = descriptor_pool.DescriptorPool()
        try:
            for each in schema.imports:
                pool.Add(each)
            self._file = pool.AddSerializedFile(schema.file.SerializeToString())
        except TypeError as error:
            raise InvalidSchema(f"values cannot be held to the schema: {str(error)[:300]}") from None
        if not schema.file.message_type:
            raise InvalidSchema("the schema has no message")
        self._messages = [self._file.message_types_by_name[each.name] for each in schema.file.message_type]
        self._pool = pool

    def body(self, value: Any, place: str = "value", most_steps: int = MOST_STEPS) -> bytes:
        """See Encoder. The JSON follows Protobuf's own mapping ("ProtoJSON")."""
        message: Message = message_factory.GetMessageClass(self._messages[0])()
        if not isinstance(value, dict):
            raise Unfit(f"{place}: a message is a JSON object")
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool, max_recursion_depth=_MOST_DEPTH)
        except _NO_MESSAGE as error:
            raise Unfit(f"{place}: {str(error)[:300]}") from None
        try:
            return b"\x00" + message.SerializeToString()
        except EncodeError as error:  # proto2's required fields
            raise Unfit(f"{place}: {error}") from None

    def check(self, value: bytes, start: int) -> int:
        """See Check."""
        self.message(value, start)
        return len(value)

    def value(self, value: bytes, start: int) -> Any:
        """See decoder_of."""
        return self._json(self.message(value, start), start)

    def value_of(self, writer: Protobuf) -> Callable[[bytes, int], Any]:
        """See decoder_as: messages are identified by the writer's file and decoded with this one, by name."""

        def decode(value: bytes, start: int) -> Any:
            wrote = writer.message(value, start)
            try:
                found = self.message_as(wrote, value[indexes_of(value, start)[1] :])
            except BrokenValue:
                return writer._json(wrote, start)
            return _with_defaults(self._json(found, start), found)

        return decode

    def _json(self, message: Message, start: int) -> Any:
        try:
            return json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._pool,
            )
        except (json_format.SerializeToJsonError, ValueError, TypeError, RecursionError) as error:
            raise BrokenValue(f"no JSON for it: {str(error)[:200]}", start) from None

    def message(self, value: bytes, start: int) -> Message:
        """Return the message after its message indexes. Raises BrokenValue."""
        indexes, at = indexes_of(value, start)
        try:
            found = self._messages[indexes[0]]
            for each in indexes[1:]:
                found = found.nested_types[each]
        except IndexError:
            raise BrokenValue(f"the file has no message {indexes}", start) from None
        return _decoded(found, value[at:], at)

    def message_as(self, of: Message, body: bytes) -> Message:
        """Decode another schema's message, without indexes, as this schema's message of the same name.

        Raises BrokenValue.
        """
        steps: list[str] = []
        their: Any = of.DESCRIPTOR
        while their is not None:
            steps.insert(0, their.name)
            their = their.containing_type
        found = self._file.message_types_by_name.get(steps[0])
        for step in steps[1:]:
            found = None if found is None else found.nested_types_by_name.get(step)
        if found is None:
            raise BrokenValue(f"the schema has no message {'.'.join(steps)}", 0)
        return _decoded(found, body, 0)


def _with_defaults(found: Any, message: Message) -> Any:
    """Add the defaults that the file declares (proto2, editions) to the JSON of a message."""
    if not isinstance(found, dict) or message.DESCRIPTOR.full_name.startswith("google.protobuf."):
        return found
    for each in message.DESCRIPTOR.fields:
        if each.has_default_value and not message.HasField(each.name):
            default = each.default_value
            if each.enum_type is not None:
                default = each.enum_type.values_by_number[default].name
            found[each.name] = default
        elif each.message_type is not None and not each.is_repeated and message.HasField(each.name):
            found[each.name] = _with_defaults(found.get(each.name), getattr(message, each.name))
    return found


def _decoded(descriptor: Any, body: bytes, at: int) -> Message:
    made: Message = message_factory.GetMessageClass(descriptor)()
    try:
        made.MergeFromString(body)
    except (DecodeError, RecursionError) as error:
        raise BrokenValue(f"no {descriptor.full_name}: {error}", at) from None
    return made


_DRAFTS = {
    4: jsonschema_rs.Draft4,
    6: jsonschema_rs.Draft6,
    7: jsonschema_rs.Draft7,
    2019: jsonschema_rs.Draft201909,
    2020: jsonschema_rs.Draft202012,
}


def indexes_of(value: bytes, start: int) -> tuple[list[int], int]:
    try:
        return message_indexes(value, start)
    except ValueError as error:
        raise BrokenValue(str(error), start) from None
