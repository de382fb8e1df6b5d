"""[core] Outcomes of statements: taken the same, taken with differences, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["same", "differs", "refused"]
_WIDEST = 100


class NotTranslated(Exception):
    """A statement that the hub cannot take. ``instead``: what to write or do."""

    def __init__(self, why: str, instead: str) -> None:
        super().__init__(why)
        self.why, self.instead = why, instead


@dataclass
class StatementTranslation:
    """Files and differences of one statement while it is translated. ``made``: paths in the project."""

    made: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def differ(self, text: str) -> None:
        if text not in self.differs:
            self.differs.append(text)


@dataclass(frozen=True, slots=True)
class StatementReport:
    """The outcome of one statement. ``line``: where it begins in the file, from 1. ``made``: the files that
    have it."""

    line: int
    statement: str
    outcome: Outcome
    made: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    why: str = ""
    instead: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "line": self.line,
            "statement": self.statement,
            "outcome": self.outcome,
            "made": list(self.made),
            "differs": list(self.differs),
            "notes": list(self.notes),
            "why": self.why,
            "instead": self.instead,
        }


def translated_report(line: int, text: str, made: StatementTranslation) -> StatementReport:
    outcome: Outcome = "differs" if made.differs else "same"
    return StatementReport(
        line, shortened(text), outcome, tuple(made.made), tuple(made.differs), tuple(made.notes)
    )


def refused_report(line: int, text: str, error: NotTranslated) -> StatementReport:
    return StatementReport(line, shortened(text), "refused", why=error.why, instead=error.instead)


def all_taken(reports: Sequence[StatementReport]) -> bool:
    return all(each.outcome != "refused" for each in reports)


def shortened(text: str) -> str:
    """Return a statement on one line, without comments, at most 100 characters."""
    lines = [line.partition("--")[0] for line in text.splitlines()]
    flat = " ".join(" ".join(lines).split())
    return flat if len(flat) <= _WIDEST else flat[: _WIDEST - 1] + "…"
