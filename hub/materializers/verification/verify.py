"""[shell] Verify once that a store of any kind equals the fold of a view's changelog: ``hub view verify``.

The continuous verification (continuous_check.py) compares in the same way; here the fold is a temporary file,
read from the log's beginning to a fixed end. The store continues meanwhile, so its snapshot is past that end;
the fold is then read on to exactly the snapshot's positions. Memory is bounded for any number of keys.

Limitation: compaction keeps a key's LAST record. When a zombie writer wrote an older version last and the
newer one is compacted away, the store is right and the log is not; the result then shows a difference.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path

from hub.errors import Conflict, NotFound, PeerError
from hub.log import Log
from hub.materializers.changelog.row_decoder import SchemaTexts
from hub.materializers.definition.declared import changelog_of
from hub.materializers.stores.store import KeptRow, StoreSnapshot, ViewStore
from hub.materializers.types.avro_types import AvroType
from hub.materializers.verification.fingerprint import MOST_NAMED, REGIONS, ComparisonResult
from hub.materializers.verification.followed_changelogs import ChangelogFolds
from hub.materializers.verification.snapshot_comparison import compare_rows
from hub.record import Positions, lag_records

_ROWS = 5_000
_PAUSE_S = 0.2

OnProgress = Callable[[int, int], None]


def verify(
    log: Log,
    schemas: SchemaTexts,
    view: str,
    store: ViewStore,
    *,
    changelog: str | None = None,
    timeout_s: float = 60.0,
    most: int = MOST_NAMED,
    progress: OnProgress = lambda _done, _all: None,
) -> ComparisonResult:
    """Compare a view's table in a store with its changelog; name the first ``most`` keys that differ.

    ``view``: the table's name in the store. ``progress`` is called with (records read, records in all).
    ``timeout_s``: how long the store may take to reach the log's end.

    Raises NotFound (no such changelog or view), PeerError (the store or the log makes no progress), Conflict
    (the view was rebuilt meanwhile).
    """
    topic = changelog or changelog_of(view)
    description = log.described([topic]).get(topic)
    if description is None:
        raise NotFound(f'view "{view}" has no changelog: topic "{topic}" does not exist', code="HUB-1410")
    begin, end = log.beginning_offsets([topic]), log.end_offsets([topic])
    total = lag_records(end, begin)
    with store.cut(view) as cut:
        types = cut.types
        _require_same(view, cut, description.topic_id, types)

    def progressed(_cpu_s: float, _sliced: bool) -> None:
        progress(total - lag_records(end, fold.fold.positions or begin), total)

    with (
        tempfile.TemporaryDirectory(prefix="hub-verify-") as folder,
        closing(ChangelogFolds(log, schemas, Path(folder), lambda: 0, lambda: False, progressed)) as folds,
    ):
        fold = folds.get(topic, description.topic_id, types)
        folds.read(fold, end, None)
        _wait(store, view, end, timeout_s)
        with store.cut(view) as cut:
            _require_same(view, cut, description.topic_id, types)
            folds.read(fold, cut.positions, None)
            return compare_rows(fold, cut, lambda: _chunks(cut.rows()), most, REGIONS)


def _require_same(view: str, cut: StoreSnapshot, topic_id: str, types: Mapping[str, AvroType]) -> None:
    if cut.topic_id != topic_id or (list(cut.types), cut.types) != (list(types), types):
        raise Conflict(
            f'view "{view}" is being recreated or changes its columns',
            hint="run it again when the store has caught up; hub view show shows its lag",
            code="HUB-1915",
        )


def _wait(store: ViewStore, view: str, end: Positions, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not (at := store.positions(view, "changelog")).covers(end):
        if time.monotonic() >= deadline:
            raise PeerError(
                f'view "{view}": the store is {lag_records(end, at)} records behind after {timeout_s:g} s',
                hint="is the applier running? hub view show; or give it longer: --timeout",
                code="HUB-3067",
            )
        time.sleep(_PAUSE_S)


def _chunks(rows: Iterator[KeptRow]) -> Iterator[list[KeptRow]]:
    while some := list(islice(rows, _ROWS)):
        yield some
