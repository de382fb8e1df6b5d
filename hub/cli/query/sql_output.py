"""[edge] Output of the shell of ``hub sql``: data to the terminal or a file, and remarks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from hub.errors import CallerError


@dataclass
class ShellOutput:
    """``interactive``: remarks go to the terminal, else to standard error."""

    out: TextIO
    err: TextIO
    file: TextIO | None = None
    interactive: bool = False

    @property
    def is_at_terminal(self) -> bool:
        return self.file is None and self.out.isatty()

    def into(self, arguments: list[str]) -> None:
        """Write data into a file from now on; without a word to the terminal again. Raises CallerError."""
        self.close()
        if arguments:
            try:
                self.file = Path(arguments[0]).expanduser().open("w", encoding="utf-8")
            except OSError as error:
                raise CallerError(f'file "{arguments[0]}" cannot be written: {error.strerror}') from None

    def write(self, text: str) -> None:
        """Write data. Raises CallerError if the file cannot be written."""
        stream = self.file or self.out
        try:
            stream.write(text)
            stream.flush()
        except OSError as error:
            if self.file is None:
                raise
            self.close()
            raise CallerError(f'file "{stream.name}" cannot be written: {error.strerror}') from None

    def print_text(self, text: str) -> None:
        self.out.write(f"{text}\n")
        self.out.flush()

    def remark(self, text: str) -> None:
        stream = self.out if self.interactive else self.err
        stream.write(f"{text}\n")
        stream.flush()

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            with suppress(OSError):
                self.file.close()
            self.file = None
