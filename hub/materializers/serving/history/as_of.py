"""[shell] Rows of a view as of a time, or as they were right after a write.

The store answers for a time only if it has all changes of that time: those of the view's last batch by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hub.errors import CallerError
from hub.materializers.history.periods import StoreReach, time_of
from hub.materializers.progress.view_states import Newest
from hub.materializers.serving.read_your_writes import is_token, row_covers
from hub.materializers.stores.sql.queries import Filter
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion
from hub.record import Positions, TopicPartition
from hub.times import epoch_ms

# Versions of a row that are searched for a write.
_MOST_VERSIONS = 1_000


def as_of_time(store: Store, view: str, text: str, newest: Newest) -> int:
    """Return the epoch milliseconds of ``as_of``, for which the store has all changes. Raises CallerError,
    Gone, PeerError.
    """
    if is_token(text):
        raise CallerError(
            f'view "{view}": rows as of a position are read by key',
            hint=f"GET /views/{view}/KEY?as_of={text[:80]}, or give a time",
            code="HUB-1493",
        )
    at_ms = time_of("as_of", text)
    require_reached(store, view, at_ms, newest)
    return at_ms


def require_reached(store: Store, view: str, at_ms: int, newest: Newest) -> None:
    """Raise PeerError if the store may lack changes of a view at a time that is not in the future. A view
    without a history has another error.
    """
    if at_ms <= epoch_ms() and store.history.periods(view):
        stored = store.progress()
        reached = store.positions(store.served(view), "changelog")
        reach_of(stored, newest(stored), view, reached).require(view, at_ms)


def reach_of(
    stored: Mapping[str, Any], newest: Mapping[str, Any], view: str, reached: Positions
) -> StoreReach:
    """Return how far a store has a view's changes. ``reached``: its positions of the changelog."""
    mine, latest = stored.get(f"progress:{view}"), newest.get(f"progress:{view}")
    until_ms = None if mine is None else int(mine["committed_at_ms"])
    if latest is None:
        return StoreReach(until_ms, None)
    has = {place.partition: offset for place, offset in reached}
    behind = any(has.get(int(number), 0) < offset for number, offset in latest["changelog"].items())
    return StoreReach(until_ms, behind)


def row_as_of(store: Store, view: str, key: str, text: str, newest: Newest) -> RowVersion | None:
    """Return a row as of a time, or of a position token: the first version that has the write. None: it did
    not exist. Blocks. Raises CallerError, Gone, PeerError.
    """
    if is_token(text):
        return _row_after(store, view, key, Positions.parse(text))
    at_ms = as_of_time(store, view, text, newest)
    return store.history.row_at(view, key, at_ms, epoch_ms())


def _row_after(store: Store, view: str, key: str, token: Positions) -> RowVersion:
    """Return the version of a row that a write made. Raises CallerError unless a version ends exactly at
    it."""
    now = epoch_ms()
    changes = store.history.timeline(view, key, now, now, None, _MOST_VERSIONS)
    having = [
        each for each in changes if each.after is not None and row_covers(each.after.row.sources, token)
    ]
    first = having[-1].after if having else None
    if first is None or not _ends_at(first.row.sources, token):
        near = "" if first is None else f"; version {first.row.version} has it, and later events"
        raise CallerError(
            f'view "{view}": key "{key}" has no version exactly at {token}{near}',
            hint=f"GET /views/{view}/{key}/history lists its versions; as_of takes a time, too",
            code="HUB-1493",
        )
    row = first.row
    assert isinstance(row, RowVersion)
    return row


def _ends_at(sources: Mapping[str, Any] | None, token: Positions) -> bool:
    """Return whether the latest events of a row are the last ones before the token's positions."""
    newest: dict[TopicPartition, int] = {}
    for each in (sources or {}).values():
        if each is not None:
            place = TopicPartition(each["topic"], each["partition"])
            newest[place] = max(newest.get(place, 0), each["offset"] + 1)
    return all(newest.get(place) == offset for place, offset in token)


def rows_as_of(
    store: Store,
    view: str,
    at_ms: int,
    conditions: Sequence[Filter],
    limit: int,
    order: Sequence[tuple[str, bool]],
    after: Any,
) -> list[tuple[RowVersion, tuple[Any, ...]]]:
    """Return rows as of a time, each with its place in the order; without an order by key, past the key
    ``after``. Blocks."""
    history = store.history
    if order:
        return history.ordered_at(view, at_ms, epoch_ms(), conditions, limit, order, after)
    row_versions = history.select_at(view, at_ms, epoch_ms(), conditions, limit, after)
    return [(row, (row.key,)) for row in row_versions]


def no_row(view: str, key: str, row: RowVersion | None, as_of: str | None) -> dict[str, Any]:
    """Return the body of the answer about a row that does not exist, or did not as of a time."""
    was = "was deleted" if row is not None else "does not exist"
    hint = "deleted rows come back with their next event" if row is not None else None
    if as_of is not None:
        was = f"was deleted by {as_of}" if row is not None else f"did not exist at {as_of}"
        hint = f"GET /views/{view}/{key}/history lists its changes"
    return {"error_code": "HUB-1411", "message": f'view "{view}": key "{key}" {was}', "hint": hint}
