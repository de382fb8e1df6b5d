"""[core] A Python file in the folder of a view's file, and its text."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator

MOST_CHARACTERS = 100_000


class PythonFile(BaseModel, extra="forbid", frozen=True):
    """A file that a view's file names. Its text is stored with the view, so that a version keeps the code
    that it was created with.
    """

    file: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*\.py$", max_length=200)
    text: str = Field("", max_length=MOST_CHARACTERS)

    @field_validator("file")
    @classmethod
    def _is_in_the_folder(cls, file: str) -> str:
        if ".." in file.split("/"):
            raise ValueError("the file must be in the folder of the views, or below it")
        return file
