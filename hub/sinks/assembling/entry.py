"""[edge] ``assemble:`` of a sink in sinks.yaml: the tables whose rows are put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator

from hub.materializers.types.avro_types import AvroType
from hub.materializers.types.ddl import UnknownType, of_ddl
from hub.topics.tree.tree_file import duration_ms

Change = Literal["created", "updated", "deleted"]
Topic = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
Column = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$")]


def _duration(text: str) -> str:
    duration_ms(text)
    return text


def _column_type(text: str) -> str:
    try:
        found = of_ddl(text)
    except UnknownType as error:
        raise ValueError(str(error)) from None
    if isinstance(found, Mapping) and found.get("type") == "record":
        raise ValueError(f"`{text}`: a column cannot be a struct; write string for JSON")
    return text


class AssemblyModel(BaseModel, extra="forbid", frozen=True):
    """A part of `assemble`; unknown keys are refused."""


class Table(AssemblyModel):
    """A table of the database, by the topic of its changes."""

    topic: Topic = Field(description="the topic to which Debezium writes the table's changes")
    columns: dict[Column, Annotated[str, AfterValidator(_column_type)]] = Field(
        alias="schema",
        min_length=1,
        max_length=400,
        description="the columns that the event has, with their types as in views; others are left out",
    )
    table: str = Field(
        "",
        max_length=200,
        description="the table's name in the transaction topic; unsaid: the last two parts of `topic`",
    )

    @property
    def collection(self) -> str:
        """Return the name that Debezium counts the table's changes under.

        >>> Table.model_validate({"topic": "shop.public.orders", "schema": {"id": "bigint"}}).collection
        'public.orders'
        """
        return self.table or ".".join(self.topic.split(".")[-2:])

    @property
    def types(self) -> Mapping[str, AvroType]:
        """Return the columns' types in Avro, by name."""
        return {name: of_ddl(text) for name, text in self.columns.items()}


class Root(Table):
    """The table whose rows become events."""

    key: Column = Field(description="the column that becomes the key of the event")


class Part(Table):
    """A table whose rows become a list in the event."""

    on: dict[Column, Column] = Field(
        min_length=1, max_length=10, description="its columns, each with the root's column that it equals"
    )


class Assemble(AssemblyModel):
    """Rows of one source transaction as one event. `from` of the sink is Debezium's transaction topic."""

    root: Root = Field(description="the table whose rows become events")
    parts: dict[Column, Part] = Field(
        default_factory=dict, max_length=20, description="lists of the event, by name"
    )
    when: list[Change] = Field(
        default=["created"],
        min_length=1,
        max_length=3,
        description="the changes of a root row that make an event: created, updated, deleted",
    )
    snapshot: Literal["skip", "dead-letter"] = Field(
        "skip", description="rows of a snapshot, which have no transaction: left out, or dead-letter records"
    )
    times: Literal["micros", "millis"] = Field(
        "micros", description="unit of timestamps that Debezium writes as numbers"
    )
    wait: Annotated[str, AfterValidator(_duration)] = Field(
        "30s",
        description="how long rows that END counts may be missing, once the log is read to its end; then the "
        "transaction is a dead-letter record. A missing END is waited for without an end",
    )
    most_rows: int = Field(
        10_000, ge=1, le=1_000_000, description="rows of a transaction; a larger one is a dead-letter record"
    )
    most_mb: float = Field(
        32.0, gt=0.0, le=1_024.0, description="size of a transaction's rows, in MB; likewise"
    )

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        root = self.root
        if root.key not in root.columns:
            raise ValueError(f"root: its schema lacks the column {root.key} of `key`")
        for name, part in self.parts.items():
            if name in root.columns:
                raise ValueError(f"parts: {name} is the name of a column of the root, too")
            if lacking := [column for column in part.on if column not in part.columns]:
                raise ValueError(f"parts: {name}: its schema lacks the column {lacking[0]} of `on`")
            if lacking := [column for column in part.on.values() if column not in root.columns]:
                raise ValueError(f"parts: {name}: the root lacks the column {lacking[0]} of `on`")
        if len({each.topic for each in self.tables.values()}) <= len(self.parts):
            raise ValueError("two tables have one topic")
        return self

    @property
    def tables(self) -> Mapping[str, Table]:
        """Return the root under "" and the parts by name."""
        return {"": self.root, **self.parts}

    @property
    def wait_s(self) -> float:
        return duration_ms(self.wait) / 1000
