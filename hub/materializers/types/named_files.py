"""[core] Files that a view's file names: Python code, and schemas of events without a schema id.

Their text is stored with the view, so that a version keeps the text that it was created with.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

BinaryForm = Literal["avro", "protobuf"]
SUFFIX: dict[BinaryForm, str] = {"avro": ".avsc", "protobuf": ".proto"}
MOST_CODE_CHARACTERS = 100_000
MOST_SCHEMA_CHARACTERS = 1_000_000


def _stays_below(file: str) -> str:
    if ".." in file.split("/"):
        raise ValueError("the path must not contain `..`: name a file in the same folder, or below it")
    return file


_Below = AfterValidator(_stays_below)


class PythonFile(BaseModel, extra="forbid", frozen=True):
    """A Python file, relative to the folder of the view's file."""

    file: Annotated[str, _Below] = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*\.py$", max_length=200)
    text: str = Field("", max_length=MOST_CODE_CHARACTERS)


class EventSchemaFile(BaseModel, extra="forbid", frozen=True):
    """A schema file of a source, relative to the project folder. ``message``: of Protobuf, the full name of
    the message that is read; None: the file's first.
    """

    file: Annotated[str, _Below] = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*\.(avsc|proto)$", max_length=200
    )
    message: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$", max_length=200)
    text: str = Field("", max_length=MOST_SCHEMA_CHARACTERS)
