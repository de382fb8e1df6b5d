"""[core] Store port: the operations that the applier and ``hub view verify`` need from any kind of store.

Contract, tested for every kind by ``tests/unit/materializers/test_contract.py``: a row is replaced only by
one with a higher version; a deleted row stays as a tombstone with its version; rows and positions of a view
change atomically, through a kill at any moment; a reader sees rows and positions of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from hub.errors import PeerError
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions

RowKind = Literal["changelog", "source"]


class StoreRefused(PeerError):
    """The database answers and refuses these rows or this table; a retry fails again."""

    code = "HUB-3041"
    retriable = False


class RowVersion(NamedTuple):
    """A key's row at one version, to be written or as read; ``values`` None: deleted.

    ``partition`` and ``offset`` are those of its changelog record. ``sources``: the latest event of each
    source in the row, or of those that deleted it. ``at_ms``: time of the record, for a history.
    """

    key: str
    version: int
    partition: int
    offset: int
    values: Mapping[str, Any] | None
    sources: Mapping[str, Any] | None = None
    at_ms: int | None = None


class BatchMark(NamedTuple):
    """A committed batch: rows up to ``changelog`` have the events up to ``sources``. ``at_ms``: when it was
    committed.
    """

    changelog: Positions
    sources: Positions
    at_ms: int


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """Changes of one view in one transaction.

    ``expire_below`` deletes rows of versions below it: rows missing from a later generation that has caught
    up. ``marks``: the batches that it completes, for a history.
    """

    view: str
    changes: Sequence[RowVersion]
    changelog: Positions
    sources: Positions = field(default_factory=Positions)
    expire_below: int = 0
    marks: Sequence[BatchMark] = ()


# Key, version, the columns' stored values and ``_sources`` as text.
KeptRow = tuple[str, int, Sequence[Any]]
# Work to do while a database works.
Meanwhile = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Batch sizes of a store: at most ``records`` in one, and a pause of ``pause_s`` while there are fewer
    than ``few``.

    Every batch pays for a transaction before its rows, most of all in a columnar store.
    """

    records: int
    few: int = 0
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """A view at one moment. ``swept``: rows of versions below it were deleted without a record of their own.

    ``rows`` reads the live rows in any order, on every call while the snapshot is open.
    """

    topic_id: str
    types: Mapping[str, AvroType]
    positions: Positions
    swept: int
    rows: Callable[[], Iterator[KeptRow]]


class ViewStore(Protocol):
    """Port of a store. One writer at a time. Every call raises PeerError (unavailable) or StoreRefused
    (refused).
    """

    @property
    def rhythm(self) -> Rhythm: ...

    def ensure_view(self, name: str, schema: AvroType, indexes: Sequence[str], topic_id: str) -> bool:
        """Make the view's table fit a changelog schema. Returns True when it must be filled from the start.

        That is for another topic, or a changed column type. Columns and indexes are added and removed without
        that.
        """

    def drop_view(self, name: str) -> None:
        """Remove a view: rows, positions and progress."""

    def views(self) -> list[str]: ...

    def apply(
        self,
        batches: Sequence[ViewBatch],
        progress: Mapping[str, Any] | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """Write rows and positions of each view in one transaction; progress records (None: removed) after
        them.

        ``meanwhile`` is called at most once, while a server works on the rows of a large batch; a store that
        works in this process ignores it.
        """

    def positions(self, view: str, kind: RowKind) -> Positions: ...

    def newest_version(self, view: str) -> int:
        """Return the highest version of any row, deleted ones included; 0 without rows."""

    def progress(self) -> dict[str, Any]: ...

    def cut(self, view: str) -> AbstractContextManager[StoreSnapshot]: ...

    def close(self) -> None: ...
