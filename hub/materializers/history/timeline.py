"""[core] Changes of one row, newest first, from the versions of a period and the state before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from hub.errors import CallerError
from hub.materializers.history.causes import BatchRange, Causes, causes
from hub.materializers.history.changes import field_changes
from hub.materializers.history.periods import HistoryPeriod

# ``swapped``: another version of the view is served from then on. ``known``: nothing earlier is kept.
ChangeKind = Literal["created", "changed", "deleted", "swapped", "known"]


class StoredRow(Protocol):
    """A version of a row as a store reads it; ``values`` None: deleted."""

    @property
    def version(self) -> int: ...
    @property
    def values(self) -> Any: ...
    @property
    def sources(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version of a row: when it was published and applied, and the batches that published it."""

    row: StoredRow
    at_ms: int
    applied_at_ms: int
    batch: BatchRange


@dataclass(frozen=True, slots=True)
class TimelineChange:
    """A change of a row at a time. ``before`` None: there was no row, or with the kind ``known`` none that is
    kept. ``period_ms``: begin of the period.
    """

    kind: ChangeKind
    at_ms: int
    after: StoredVersion | None
    before: StoredVersion | None
    period_ms: int

    @property
    def causes(self) -> Causes | None:
        """The events of the change; None where no event made it: another version of the view was served."""
        if self.kind == "swapped" or self.after is None:
            return None
        before = None if self.before is None else (self.before.row.version, self.before.row.sources)
        first = before is None and self.kind != "known"
        now = (self.after.row.version, self.after.row.sources)
        return causes(before, now, self.after.batch, first=first)

    @property
    def cursor(self) -> str:
        return str(Cursor(self.period_ms, 0 if self.after is None else self.after.row.version, self.is_edge))

    @property
    def is_edge(self) -> bool:
        """Return True for the begin of a period, False for a version within it."""
        return self.kind in ("swapped", "known")


class Cursor(NamedTuple):
    """Place in a timeline: the page after it begins with older changes."""

    period_ms: int
    version: int
    is_edge: bool

    def __str__(self) -> str:
        return f"{self.period_ms}.{self.version}.{int(self.is_edge)}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse a cursor. Raises CallerError."""
        parts = text.split(".")
        if len(parts) != 3 or not all(each.isdecimal() and len(each) < 20 for each in parts):
            raise CallerError(
                f'the cursor "{text[:40]}" is none of a timeline',
                hint="pass `next` of the page before",
                code="HUB-1426",
            )
        return cls(int(parts[0]), int(parts[1]), parts[2] == "1")


def changes_within(
    period: HistoryPeriod, versions: Sequence[StoredVersion], begins_ms: int, *, is_whole: bool
) -> tuple[list[TimelineChange], StoredVersion | None]:
    """Return the changes within a period, and the version that was valid at its begin.

    ``versions``: the newest first, each followed by the one that it replaced. ``is_whole`` False: there are
    older ones, so the last is only known as the one before.
    """
    row_changes: list[TimelineChange] = []
    for place, version in enumerate(versions):
        if version.at_ms <= begins_ms:
            return row_changes, version
        older = versions[place + 1] if place + 1 < len(versions) else None
        if older is None and not is_whole:
            break
        if (kind := _kind(version, older)) is not None:
            row_changes.append(TimelineChange(kind, version.at_ms, version, older, period.from_ms))
    return row_changes, None


def _kind(version: StoredVersion, older: StoredVersion | None) -> ChangeKind | None:
    """Return what happened; None for a delete of a row that was not there."""
    was_there = older is not None and older.row.values is not None
    if version.row.values is None:
        return "deleted" if was_there else None
    return "changed" if was_there else "created"


def change_at_begin(
    period: HistoryPeriod, base: StoredVersion | None, before: StoredVersion | None, *, is_known: bool
) -> TimelineChange | None:
    """Return the change at the begin of a period; None if the row is the same as before.

    ``base``: the version valid then. ``before``: that of the period before. ``is_known`` False: no period
    before it is kept.
    """
    now = None if base is None else base.row.values
    if not is_known:
        return (
            TimelineChange("known", base.at_ms, base, None, period.from_ms)
            if base and now is not None
            else None
        )
    was = None if before is None else before.row.values
    if (now is None and was is None) or (now is not None and was is not None and not field_changes(was, now)):
        return None
    return TimelineChange("swapped", period.from_ms, base, before, period.from_ms)
