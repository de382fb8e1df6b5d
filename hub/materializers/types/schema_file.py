"""[core] A schema of Avro or Protobuf in a file of the project, for events without a schema id."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, field_validator

BinaryForm = Literal["avro", "protobuf"]
SUFFIX: dict[BinaryForm, str] = {"avro": ".avsc", "protobuf": ".proto"}
MOST_SCHEMA_CHARACTERS = 1_000_000


class EventSchemaFile(BaseModel, extra="forbid", frozen=True):
    """A schema file that a source names, relative to the project folder. Its text is stored with the view, so
    that a version keeps the schema that it was created with. ``message``: of Protobuf, the full name of the
    message that is read; None: the file's first.
    """

    file: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*\.(avsc|proto)$", max_length=200)
    message: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$", max_length=200)
    text: str = Field("", max_length=MOST_SCHEMA_CHARACTERS)

    @field_validator("file")
    @classmethod
    def _is_in_the_project(cls, file: str) -> str:
        if ".." in file.split("/"):
            raise ValueError("the file must be in the project folder, or below it")
        return file
