"""[core] What the applier and ``hub view verify`` ask of a store, whatever kind it is.

The contract, held to every kind by ``tests/unit/materializers/test_contract.py``: a row is replaced only by one with a
higher version; a deleted row stays as a tombstone with its version; rows and positions of a view move in one step that
is there wholly or not at all, through a kill at any moment; a reader sees rows and positions of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from hub.materializers.types.avro_types import AvroType
from hub.record import Positions

RowKind = Literal["changelog", "source"]


class RowChange(NamedTuple):
    """A key's latest row in a batch. ``row`` None: deleted, by the events that ``deleted_by`` names as ``_sources`` would."""

    key: str
    version: int
    partition: int
    offset: int
    row: Mapping[str, Any] | None
    deleted_by: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """What one transaction does to one view.

    ``expire_below`` deletes rows of versions below it: what a later generation, now caught up, does not have.
    """

    view: str
    changes: Sequence[RowChange]
    changelog: Positions
    sources: Positions = field(default_factory=Positions)
    expire_below: int = 0


# Key, version, the columns' values as they are kept and ``_sources`` as text.
KeptRow = tuple[str, int, Sequence[Any]]
# What can be done while a database works.
Meanwhile = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How a store likes its batches: at most ``records`` in one, and ``pause_s`` from one to the next while there are fewer
    than ``few``: each pays for a transaction before it pays for a row, a columnar one most of all."""

    records: int
    few: int = 0
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """A view at one moment. ``swept``: rows of versions below it were deleted without a record of their own.

    ``rows`` reads the live rows in any order, as often as it is called while the cut is open."""

    topic_id: str
    types: Mapping[str, AvroType]
    positions: Positions
    swept: int
    rows: Callable[[], Iterator[KeptRow]]


class ViewStore(Protocol):
    """One writer at a time. Every call raises PeerError when the store is away, StoreRefused when it does not take it."""

    @property
    def rhythm(self) -> Rhythm: ...

    def ensure_view(self, name: str, schema: AvroType, indexes: Sequence[str], topic_id: str) -> bool:
        """Make the view's table fit a changelog schema. True when it must be filled from the start: the topic is
        another one, or a column changed its type. Columns and indexes come and go without that."""

    def drop_view(self, name: str) -> None:
        """Forget a view: rows, positions and progress."""

    def views(self) -> list[str]: ...

    def apply(
        self,
        batches: Sequence[ViewBatch],
        progress: Mapping[str, Any] | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """Rows and positions of each view in one transaction; progress records (None: gone) after them.

        ``meanwhile`` is called at most once, while a server works at the rows of a large batch; a store whose work is done in
        this process has no use for it."""

    def positions(self, view: str, kind: RowKind) -> Positions: ...

    def newest_version(self, view: str) -> int:
        """The highest version of any row, deleted ones included; 0 without rows."""

    def progress(self) -> dict[str, Any]: ...

    def count(self, view: str) -> int:
        """How many live rows."""

    def cut(self, view: str) -> AbstractContextManager[StoreSnapshot]: ...

    def close(self) -> None: ...
