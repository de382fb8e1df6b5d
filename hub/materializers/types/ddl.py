"""[core] Spark's DDL of columns, read into Avro types and written from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hub.materializers.types.avro_types import AvroType, spark_types

# Types nested deeper are not read.
DEEPEST = 16


def optional_field(name: str, avro_type: AvroType) -> dict[str, Any]:
    return {"name": name, "type": ["null", avro_type], "default": None}


_WORD = re.compile(r"\s*([A-Za-z_]\w*|`(?:[^`]|``)+`|\d+|[<>(),:])")
SCALARS: Mapping[str, AvroType] = {
    "string": "string",
    "boolean": "boolean",
    "tinyint": "int",
    "byte": "int",
    "smallint": "int",
    "short": "int",
    "int": "int",
    "integer": "int",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
TYPE_NAMES = (*SCALARS, "decimal", "array", "map", "struct")


class UnknownType(ValueError):
    """An invalid type. ``word``: the word in the place of a type."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word = word


def of_ddl(text: str) -> AvroType:
    """Parse a type in Spark's DDL to Avro, such as ``array<struct<sku: string, qty: int>>``. Raises
    UnknownType.

    >>> of_ddl("map<string, bigint>")
    {'type': 'map', 'values': ['null', 'long']}
    """
    tokens, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _WORD.match(stripped, at)
        if match is None:
            raise UnknownType(
                stripped[at:], f"`{text}` is not a type: `{stripped[at:].strip()}` is not read here"
            )
        tokens.append(match[1])
        at = match.end()
    reader = _Ddl(text, tokens)
    made = reader.type(0)
    if reader.left():
        raise UnknownType(text, f"`{text}` is not a type: `{' '.join(reader.left())}` is too much")
    return made


class _Ddl:
    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text, self._tokens, self._at, self._records = text, tokens, 0, 0

    def left(self) -> list[str]:
        return self._tokens[self._at :]

    def type(self, depth: int) -> AvroType:
        word = self._next("a type").lower()
        if depth > DEEPEST:
            raise UnknownType(word, f"`{self._text[:60]}` is nested deeper than {DEEPEST}")
        if word in SCALARS:
            return SCALARS[word]
        match word:
            case "decimal" | "numeric" | "dec":
                return self._decimal()
            case "array":
                self._expect("<")
                items = self.type(depth + 1)
                self._expect(">")
                return {"type": "array", "items": ["null", items]}
            case "map":
                self._expect("<")
                key = self._next("string")
                if key.lower() != "string":
                    raise UnknownType(key, f"`{self._text}`: a map's keys are text: map<string, …>")
                self._expect(",")
                values = self.type(depth + 1)
                self._expect(">")
                return {"type": "map", "values": ["null", values]}
            case "struct":
                return self._struct(depth)
        raise UnknownType(word, f"`{self._text}`: type `{word}` does not exist")

    def _decimal(self) -> AvroType:
        precision, scale = 10, 0
        if self._tokens[self._at : self._at + 1] == ["("]:
            self._expect("(")
            precision = self._number()
            if self._tokens[self._at : self._at + 1] == [","]:
                self._expect(",")
                scale = self._number()
            self._expect(")")
        if not (0 < precision <= 38 and scale <= precision):
            raise UnknownType(
                "decimal", f"`{self._text}`: a decimal has up to 38 digits, and not more behind the point"
            )
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    def _struct(self, depth: int) -> AvroType:
        self._records += 1
        name = f"struct{self._records}"
        fields = []
        self._expect("<")
        while True:
            field = self._next("a name").strip("`").replace("``", "`")
            if self._tokens[self._at : self._at + 1] == [":"]:
                self._expect(":")
            fields.append(optional_field(field, self.type(depth + 1)))
            if self._tokens[self._at : self._at + 1] != [","]:
                break
            self._expect(",")
        self._expect(">")
        return {"type": "record", "name": name, "fields": fields}

    def _next(self, what: str) -> str:
        if self._at >= len(self._tokens):
            raise UnknownType("", f"`{self._text}` is not a type: {what} is missing at its end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, word: str) -> None:
        found = self._next(f"`{word}`")
        if found != word:
            raise UnknownType(
                found, f"`{self._text}` is not a type: `{word}` is required in place of `{found}`"
            )

    def _number(self) -> int:
        found = self._next("a number")
        if not found.isdecimal():
            raise UnknownType(found, f"`{self._text}` is not a type: `{found}` is not a number")
        return int(found)


def columns_ddl(schema: AvroType, columns: Iterable[str]) -> list[str]:
    """Return the given columns of a record as DDL, each ```name`:type``."""
    types = {field["name"]: field["type"] for field in schema["fields"]}
    return [f"{_quoted(name)}:{ddl_of(types[name])}" for name in columns]


def ddl_of(avro_type: AvroType) -> str:
    """Return a type in Spark's DDL.

    >>> ddl_of(of_ddl("struct<sku: string, qty: int>"))
    'struct<`sku`:string,`qty`:int>'
    """
    if isinstance(avro_type, list):
        return ddl_of(next(branch for branch in avro_type if branch != "null"))
    if isinstance(avro_type, Mapping):
        match avro_type["type"]:
            case "array":
                return f"array<{ddl_of(avro_type['items'])}>"
            case "map":
                return f"map<string,{ddl_of(avro_type['values'])}>"
            case "record":
                parts = (f"{_quoted(field['name'])}:{ddl_of(field['type'])}" for field in avro_type["fields"])
                return f"struct<{','.join(parts)}>"
    return spark_types({"type": "record", "name": "one", "fields": [{"name": "v", "type": avro_type}]})["v"]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
