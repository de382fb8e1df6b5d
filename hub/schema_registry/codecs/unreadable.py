"""[core] Exceptions that decoding an event raises when its bytes are not a value of its schema."""

from __future__ import annotations

from hub.errors import NotFound
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.wire_format import Undecodable
from hub.schema_registry.formats import InvalidSchema

UNREADABLE = (
    BrokenValue,
    Undecodable,
    InvalidSchema,
    NotFound,
    TypeError,
    ValueError,
    ArithmeticError,
)
