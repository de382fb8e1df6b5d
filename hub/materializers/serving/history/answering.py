"""[shell] Answers about the past of one row, as the caller sees it: for routes and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hub.caller import reads_all, view_visibility
from hub.masking.shape import Visibility
from hub.materializers.history.changes import field_changes
from hub.materializers.history.periods import answerable
from hub.materializers.history.timeline import Cursor
from hub.materializers.progress.view_states import Newest
from hub.materializers.serving.history.answers import change_body, visible_row
from hub.materializers.serving.history.as_of import require_reached, row_as_of
from hub.materializers.serving.history.events import EventReader, Messages
from hub.materializers.stores.sql_store import Store
from hub.times import epoch_ms, iso

# Events that one answer reads from the log.
_MOST_EVENTS = 100
# Changes of a row on its page.
PAGE_CHANGES = 20


@dataclass(frozen=True, slots=True)
class RowsOfThePast:
    """Histories of one store. ``messages`` reads events as the caller sees them. Every method blocks."""

    store: Store
    newest: Newest
    messages: Messages

    def history(
        self, view: str, key: str, span: tuple[int, int], after: Cursor | None, limit: int, *, reads: bool
    ) -> dict[str, Any]:
        """Return a page of the changes of a row within a span, the newest first. ``reads``: with their events
        from the log. Raises CallerError, NotFound, PeerError, MaskRefused.
        """
        shape = shape_by_key(view)
        now = epoch_ms()
        require_reached(self.store, view, span[1] if span[1] < now - 1_000 else 0, self.newest)
        changes = self.store.history.timeline(view, key, span[1], now, after, limit + 1)
        changes = [each for each in changes if each.at_ms >= span[0] or each.kind == "known"]
        reader = EventReader(self.messages, _MOST_EVENTS if reads else 0)
        page = changes[:limit]
        bodies = [change_body(each, key, shape, lambda at: reader.shown(at).as_json()) for each in page]
        kept_from = self.kept_from(view)
        return {
            "view": view,
            "key": key,
            "kept_from": None if kept_from is None else iso(kept_from),
            "changes": [each for each in bodies if each is not None],
            "next": page[-1].cursor if len(changes) > limit else None,
        }

    def diff(self, view: str, key: str, begin: str, end: str) -> dict[str, Any]:
        """Return the fields of a row that differ between two times, or position tokens."""
        old, new = (self._row(view, key, text) for text in (begin, end))
        return {
            "view": view,
            "key": key,
            "from": begin,
            "to": end,
            "existed": old is not None,
            "exists": new is not None,
            "changes": [each.as_json() for each in field_changes(old, new)],
        }

    # ---- pages

    def kept_from(self, view: str) -> int | None:
        """Return the earliest time that the view's history answers for, epoch milliseconds; None without a
        history.
        """
        now = epoch_ms()
        history_periods = answerable(self.store.history.periods(view), now)
        return min((each.begins_ms(now) for each in history_periods), default=None)

    def changes(self, view: str, key: str, cursor: str) -> Mapping[str, Any]:
        """Return a page of a row's changes without reading their events. ``cursor`` "": the newest."""
        reads_all(views=[view])
        after = Cursor.parse(cursor) if cursor else None
        return self.history(view, key, (0, epoch_ms()), after, PAGE_CHANGES, reads=False)

    def row_as_of(self, view: str, key: str, as_of: str) -> Mapping[str, Any] | None:
        """Return a row as of a time or a position token; None if it did not exist."""
        reads_all(views=[view])
        return self._row(view, key, as_of)

    def _row(self, view: str, key: str, as_of: str) -> dict[str, Any] | None:
        shape = shape_by_key(view)
        return visible_row(key, row_as_of(self.store, view, key, as_of, self.newest), shape)


def shape_by_key(view: str) -> Visibility:
    """Return what the caller sees of a view whose rows are read by their keys. Raises MaskRefused."""
    shape = view_visibility(view)
    shape.require("GET by key")
    shape.refuse_columns(["key"], "look up by")
    return shape
