"""[core] The format of a source's events, as a view's file declares it.

::

    value ──▶ transform (SQL over the bytes) ──▶ format: json, csv, xml, raw, avro, protobuf ──▶ columns
                                             └─▶ no format: by the schema id in each event
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from hub.errors import nearest
from hub.materializers.types import cdc
from hub.materializers.types.avro_types import PROOF, AvroType
from hub.materializers.types.ddl import TYPE_NAMES, UnknownType, of_ddl
from hub.materializers.types.named_files import SUFFIX, EventSchemaFile
from hub.materializers.types.source_formats import DeclaredForm, declared, of_file

_RESERVED = {"_topic", "_partition", "_offset", "_timestamp", "_key", "_deleted", PROOF, "_broken"}
_NOT_IN_XML = re.compile(r"\b(?:map|binary)\b", re.IGNORECASE)


class Csv(BaseModel, extra="forbid", frozen=True):
    """Format of a line of CSV: the separator, and the text that means null."""

    separator: str = Field(",", min_length=1, max_length=1)
    null: str = Field("", max_length=20)


def _type(text: str) -> str:
    try:
        of_ddl(text)
    except UnknownType as error:
        guess = nearest(error.word, TYPE_NAMES)
        hint = f"did you mean {guess}?" if guess else f"types: {', '.join(TYPE_NAMES)}"
        raise ValueError(f"{error}; {hint}") from None
    return text


ColumnName = Annotated[str, Field(min_length=1, max_length=200)]


ColumnType = Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_type)]


class Xml(BaseModel, extra="forbid", frozen=True):
    """Format of an XML document: the name of its outermost element, without its namespace."""

    root: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=200)


class ChangeEvents(BaseModel, extra="forbid", frozen=True):
    """Change events of a database that a source reads as rows of their table.

    ``times``: unit of a time that an event without a schema has as a number: Debezium writes microseconds for
    Postgres' ``timestamp`` (``time.precision.mode: adaptive``), milliseconds with ``connect``.
    """

    format: Literal["debezium"]
    times: cdc.Times = "micros"


class EventFormat(BaseModel, extra="forbid", frozen=True):
    """Format of a source's events.

    Without ``format``, the registry defines it by the schema id in each event (Avro, JSON Schema, Protobuf).
    With ``format``, events have no schema id, and ``schema`` lists the columns with Spark's types, for CSV in
    the order of the line; ``raw`` has one column, the whole value. The schema of ``avro`` and ``protobuf`` is
    in ``schema_file``. ``transform`` is a SQL expression over the
    bytes of an event (``value``, ``key``), whose result is what is read. With ``cdc``, events are changes of
    a table's rows, and the view sees the rows; the ``schema`` of JSON then lists the columns of a row.
    """

    format: DeclaredForm | None = None
    cdc: ChangeEvents | None = None
    columns: dict[ColumnName, ColumnType] = Field(default_factory=dict, alias="schema", max_length=2_000)
    csv: Csv | None = None
    xml: Xml | None = None
    schema_file: EventSchemaFile | None = None
    transform: str | None = Field(None, min_length=1, max_length=10_000)

    @field_validator("cdc", mode="before")
    @classmethod
    def _short_cdc(cls, given: object) -> object:
        """``cdc: debezium`` is short for ``cdc: {format: debezium}``."""
        return {"format": given} if isinstance(given, str) else given

    @field_validator("schema_file", mode="before")
    @classmethod
    def _short_file(cls, given: object) -> object:
        """``schema_file: a.avsc`` is short for ``schema_file: {file: a.avsc}``."""
        return {"file": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _whole_format(self) -> Self:
        if self.cdc is not None and self.format not in (None, "json"):
            raise ValueError(f"`cdc` reads Avro, Protobuf and JSON: format {self.format} has no change event")
        if self.cdc is not None and self.transform is not None:
            raise ValueError("`transform` and `cdc` cannot be combined: a connector writes its events itself")
        if self.format is None:
            given = {
                "schema": self.columns,
                "csv": self.csv,
                "xml": self.xml,
                "schema_file": self.schema_file,
                "transform": self.transform,
            }
            for name in (name for name, value in given.items() if value):
                raise ValueError(
                    f"`{name}` belongs to events without a schema id: "
                    "write also format: json, csv, xml, raw, avro or protobuf"
                )
            return self
        self._check_schema(self.format)
        if self.csv is not None and self.format != "csv":
            raise ValueError("`csv` describes lines: it belongs to format: csv")
        if (self.xml is not None) != (self.format == "xml"):
            raise ValueError(
                "format: xml and the name of its outermost element belong together: xml: {root: NAME}"
            )
        return self

    def _check_schema(self, form: DeclaredForm) -> None:
        if form == "avro" or form == "protobuf":
            if self.columns or self.schema_file is None or not self.schema_file.file.endswith(SUFFIX[form]):
                raise ValueError(
                    f"format: {form} has its columns in a file: schema_file: formats/NAME{SUFFIX[form]}"
                )
            if form == "avro" and self.schema_file.message is not None:
                raise ValueError("`message` names a message of Protobuf: a file of Avro has one record")
            return
        if self.schema_file is not None:
            raise ValueError("`schema_file` belongs to format: avro or protobuf")
        if not self.columns:
            raise ValueError(f"format: {form} requires a schema: its columns and their types")
        self._check_columns(form)

    def _check_columns(self, form: DeclaredForm) -> None:
        lower = [name.lower() for name in self.columns]
        for name, text in self.columns.items():
            if lower.count(name.lower()) > 1:
                raise ValueError(f'two columns are called "{name.lower()}": SQL ignores the case of names')
            if name in _RESERVED:
                raise ValueError(f'a column "{name}" is the hub\'s own: every event has it, or must not')
            if form == "csv" and "<" in text:
                raise ValueError(f'column "{name}": a line of CSV holds plain values, not {text}')
            if form == "xml" and (unfit := _NOT_IN_XML.search(text)) is not None:
                raise ValueError(
                    f'column "{name}": XML holds no {unfit[0].lower()}: write struct<name: type, …> for '
                    "elements, and string for base64 (unbase64() makes binary of it)"
                )
        types = [text.lower() for text in self.columns.values()]
        if form == "raw" and types not in (["string"], ["binary"]):
            raise ValueError(
                "format: raw has one column, the whole value: write {text: string} or {bytes: binary}"
            )

    @property
    def declared(self) -> AvroType | None:
        """The schema of the source's events as declared in the file; None if the registry defines it."""
        if self.format is None:
            return None
        if self.cdc is not None:
            return cdc.declared_rows(self.columns, self.cdc.times)
        if self.format == "avro" or self.format == "protobuf":
            assert self.schema_file is not None
            return of_file(self.format, self.schema_file, self.transform or "")
        line = self.csv or Csv()
        return declared(
            self.format,
            self.columns,
            separator=line.separator,
            null=line.null,
            transform=self.transform or "",
            root=self.xml.root if self.xml is not None else "",
        )

    def read_schema(self, schema: AvroType) -> AvroType:
        """Return the schema that the view sees of a topic's registered schema. Raises NotAnEnvelope."""
        return schema if self.cdc is None else cdc.unwrapped(schema)
