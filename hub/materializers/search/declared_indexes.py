"""[core] Indexes of a view in its file: fields to filter and sort by, and the fields of a text search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field, field_validator

from hub.materializers.search.text_index import MOST_FIELDS, TextIndex
from hub.materializers.search.words import Language

_Field = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class DeclaredTextIndex(BaseModel, extra="forbid", frozen=True):
    """The text fields of the view that ``q=`` searches, the most important first. ``language``: ``english``
    finds other forms of a word (run, running) too; ``simple`` finds words as they are."""

    text: tuple[_Field, ...] = Field(min_length=1, max_length=MOST_FIELDS)
    language: Language = "simple"

    @field_validator("text", mode="before")
    @classmethod
    def _one(cls, given: object) -> object:
        """``text: title`` is short for ``text: [title]``."""
        return [given] if isinstance(given, str) else given

    @field_validator("text")
    @classmethod
    def _distinct(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))


Index = str | DeclaredTextIndex


def one_text_index(indexes: list[Index]) -> list[Index]:
    """Return the indexes without repetitions. Raises ValueError for a second text index."""
    found = list(dict.fromkeys(indexes))
    if sum(isinstance(each, DeclaredTextIndex) for each in found) > 1:
        raise ValueError("a view has one text index: name all its fields in one `text: [title, body]`")
    return found


def named_fields(indexes: Sequence[Index]) -> list[str]:
    """Return the fields with an index of their own."""
    return [each for each in indexes if isinstance(each, str)]


def text_index_in(indexes: Sequence[Index]) -> DeclaredTextIndex | None:
    """Return the index that text searches read."""
    return next((each for each in indexes if isinstance(each, DeclaredTextIndex)), None)


def fields_in(indexes: Sequence[Index]) -> list[str]:
    """Return all fields that the indexes name."""
    text = text_index_in(indexes)
    return [*named_fields(indexes), *(() if text is None else text.text)]


def noted_text_index(indexes: Sequence[Index], columns: set[str]) -> list[str]:
    """Return the text index as stores note it, over those of its fields that are ``columns``; [] without
    any."""
    declared = text_index_in(indexes)
    fields = () if declared is None else tuple(name for name in declared.text if name in columns)
    return [] if declared is None or not fields else [TextIndex(fields, declared.language).spec]
