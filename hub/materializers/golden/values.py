"""[core] Encode the values of golden events in their source's format: Avro, JSON, CSV, XML, Protobuf.

A value is written as JSON, whatever format the source has. For Protobuf it is Protobuf's own JSON mapping;
for CSV an object by column, which becomes a line. For JSON it is written as it is even if it does not fit the
schema, so that this can be tested. XML, raw values and what a ``transform`` reads have no such value.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import orjson
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from hub.errors import nearest
from hub.materializers.types.avro_types import AvroType, field_types
from hub.materializers.types.source_formats import ValueReading, reading_of
from hub.schema_registry.codecs.avro_encoder import JsonEncoder
from hub.schema_registry.codecs.misfit import Unfit

Encode = Callable[[Any], bytes]


def encoder_of(schema: AvroType) -> Encode:
    """Return the function that encodes a JSON value as the body of an event, without the schema id.

    The encoder raises Unfit with what is wrong with the value.
    """
    reading = reading_of(schema)
    if reading is None:
        return JsonEncoder(schema).body
    if reading.transform:
        return _whole
    match reading.form:
        case "xml" | "raw":
            return _whole
        case "avro":
            return JsonEncoder(schema).body
        case "json":
            return orjson.dumps
        case "csv":
            return _line(list(field_types(schema)), reading)
        case "protobuf":
            return _message(reading)


def _whole(value: Any) -> bytes:
    raise Unfit(
        "value: the source reads text or bytes, not the value of an object",
        hint="write text: TEXT, or base64: TEXT for bytes",
    )


def _line(columns: list[str], reading: ValueReading) -> Encode:
    def encode(value: Any) -> bytes:
        for name in value:
            if name not in columns:
                guess = nearest(name, columns)
                raise Unfit(
                    f"value.{name}: the line has no such column",
                    hint=f"did you mean {guess}?" if guess else f"columns: {', '.join(columns)}",
                )
        out = io.StringIO()
        writer = csv.writer(out, delimiter=reading.separator, lineterminator="")
        writer.writerow([_text(value.get(name), reading.null) for name in columns])
        return out.getvalue().encode()

    return encode


def _text(value: Any, null: str) -> str:
    match value:
        case None:
            return null
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def _message(reading: ValueReading) -> Encode:
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(reading.files).file:
        pool.Add(file)
    make = message_factory.GetMessageClass(pool.FindMessageTypeByName(reading.message))
    place = b"\x00" if reading.framed else b""  # of the message in its file

    def encode(value: Any) -> bytes:
        message = make()
        try:
            json_format.ParseDict(value, message, descriptor_pool=pool, max_recursion_depth=100)
            return place + message.SerializeToString()
        except (json_format.ParseError, ValueError, TypeError, RecursionError) as error:
            raise Unfit(f"value: {str(error)[:300]}") from None

    return encode
