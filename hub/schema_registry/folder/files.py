"""[core] A folder of schemas: ``schemas.yaml``, its files, and the problem of a file that cannot be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, Field, field_validator, model_validator

from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.model.levels import LEVELS

SETTINGS_FILE = "schemas.yaml"
_DEEPEST = 16  # references of references


class ReferenceSetting(BaseModel, extra="forbid", frozen=True):
    """Reference of a schema. ``name`` is its name in the schema.

    Without ``version`` it is the latest of the folder or the registry.
    """

    name: str = Field(min_length=1)
    subject: str = Field(min_length=1)
    version: int | None = Field(None, ge=1)


class SchemaSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of any schema.

    ``tags`` apply to the whole schema, or by field: ``{customer.email: [pii]}``.
    """

    owner: str | None = None
    tags: list[str] | dict[str, list[str]] | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    compatibility: str | None = None

    @field_validator("compatibility")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value.upper() not in LEVELS:
            raise ValueError(f"no compatibility level: {', '.join(LEVELS)} are")
        return value if value is None else value.upper()


class FileSettings(SchemaSettings):
    """Settings of one file. A file may be the schema of several subjects."""

    subject: str | None = Field(None, min_length=1)
    subjects: list[str] | None = Field(None, min_length=1)
    references: list[ReferenceSetting] = Field(default_factory=list)

    @model_validator(mode="after")
    def _refuse_two_declarations(self) -> FileSettings:
        if self.subject is not None and self.subjects is not None:
            raise ValueError("subject and subjects say the same: keep one")
        return self


class FolderSettings(BaseModel, extra="forbid", frozen=True):
    """Content of schemas.yaml."""

    defaults: SchemaSettings = Field(default_factory=SchemaSettings)
    schemas: dict[str, FileSettings] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """Declaration of a schema file in another file of the project (topics.yaml)."""

    subject: str
    compatibility: str | None = None


@dataclass(frozen=True, slots=True)
class WantedReference:
    """A reference in the folder; ``version`` None follows the subject's latest."""

    name: str
    subject: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem of a file and its fix; ``line`` and ``column`` start at 1."""

    what: str
    fix: str
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A schema of the folder under one subject.

    ``path`` is relative to the folder, ``where`` opens the file; ``alias`` is the folder's name for the
    subject when the registry has it as an alias of another subject.
    """

    path: str
    where: str
    subject: str
    schema_type: str
    text: str
    references: tuple[WantedReference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    compatibility: str | None = None
    problem: FileProblem | None = None
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    """Every schema, dependencies first. ``ignored`` lists files of unknown kinds."""

    where: str
    files: tuple[SchemaFile, ...]
    ignored: tuple[str, ...] = ()

    def find(self, subject: str) -> SchemaFile | None:
        return next((each for each in self.files if each.subject == subject), None)

    def source(self, file: SchemaFile, depth: int = 0) -> SchemaSource:
        """Return a file's schema with the schemas of the folder that it references."""
        named = []
        for each in file.references if depth < _DEEPEST else ():
            other = self.find(each.subject)
            if other is not None:
                named.append((each.name, self.source(other, depth + 1)))
        source = SchemaSource.of(file.schema_type, file.text, tuple(named))
        return replace(source, metadata=file.metadata)


def place_of(text: str, name: str) -> tuple[int, int]:
    """Return (line, column) of the first occurrence of a name as a word, quoted if possible; else (1, 1)."""
    found = re.search(rf'"{re.escape(name)}"', text) or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    if found is None:
        return 1, 1
    before = text[: found.start()]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
