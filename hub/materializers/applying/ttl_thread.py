"""[shell] Thread that finds rows older than their view's ttl and writes their expiry to the log.

Each look queries one store per view, the first available one: by the index of ``last_event_at`` in SQLite and
Postgres; DuckDB and Iceberg tables have no index and are scanned, for at most a twentieth of the time. It
writes one page per second and view, acknowledged, and does not repeat an expiry while the store follows. It
keeps no state: the store and the log suffice to continue.

Only the served version of a view is looked at. The other versions read the same topic of expiries.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import HubError
from hub.log import Log, Writer
from hub.materializers.applying.ttl import ExpiredRow, PendingDeletes, among, record
from hub.materializers.definition.declared import LAST_EVENT_AT
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import ViewStore
from hub.times import epoch_ms

log = logging.getLogger(__name__)

# A look of one second is followed by a pause of this many seconds.
_PAUSE_PER_LOOK = 20
_FULL_PAGE_S = 1.0


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view in a store. ``table``: name of the served version's table there."""

    view: View | SqlView
    table: str
    store: ViewStore


class TtlStoreThread(Protocol):
    """Thread of one store."""

    def active_views(self) -> Sequence[StoredView]: ...


@dataclass
class Expirer:
    """``every_s``: pause between two looks at a view. ``page``: rows per second and view."""

    cluster: Log
    keepers: Sequence[TtlStoreThread]
    every_s: float
    page: int
    writer: Writer | None = None
    pending: dict[str, PendingDeletes] = field(default_factory=dict)
    look_at_s: dict[str, float] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(min(self.every_s, _FULL_PAGE_S)):
                try:
                    self.step(epoch_ms())
                except HubError as error:
                    log.warning("the check for expired rows failed and is repeated: %s", error.message)
                except Exception:  # an internal error must not end the thread
                    log.exception("expired rows")
        finally:
            if self.writer is not None:
                self.writer.close()

    def step(self, now_ms: int) -> int:
        """Look at the views that are due. Returns the number of expiries written."""
        views = {each.view.name: each for each in self._kept()}
        self.pending = {name: self.pending.get(name, PendingDeletes()) for name in views}
        self.look_at_s = {name: self.look_at_s.get(name, 0.0) for name in views}
        written = 0
        for name, kept in views.items():
            if time.monotonic() < self.look_at_s[name]:
                continue
            began_s = time.monotonic()
            self.look_at_s[name] = began_s + self.every_s  # also when it fails
            due = self._due(kept, now_ms)
            looked_s = time.monotonic() - began_s
            count = self._write_expiries(kept, due)
            pause_s = _FULL_PAGE_S if count and len(due) == self.page else self.every_s
            self.look_at_s[name] = time.monotonic() + max(pause_s, _PAUSE_PER_LOOK * looked_s)
            written += count
        return written

    def _kept(self) -> Iterator[StoredView]:
        """Yield each view with a ttl, in the first store that has it."""
        names: set[str] = set()
        for keeper in self.keepers:
            for kept in keeper.active_views():
                if kept.view.ttl_ms is not None and kept.view.name not in names:
                    names.add(kept.view.name)
                    yield kept

    def _due(self, stored_view: StoredView, now_ms: int) -> list[ExpiredRow]:
        until_ms = now_ms - (stored_view.view.ttl_ms or 0)
        if isinstance(stored_view.store, Store):
            found = stored_view.store.due(stored_view.table, LAST_EVENT_AT, until_ms, self.page)
            return [ExpiredRow(key, last_ms) for key, last_ms in found]
        with stored_view.store.cut(stored_view.table) as cut:
            return among(cut, until_ms, self.page)

    def _write_expiries(self, stored_view: StoredView, due: Sequence[ExpiredRow]) -> int:
        pending, topic = self.pending[stored_view.view.name], stored_view.view.expiry_topic
        fresh = pending.unwritten(due, time.monotonic())
        # The materializer creates the topic; before it reads that topic, an expiry has no effect.
        if not fresh or topic is None or not self.cluster.partition_counts([topic]):
            return 0
        if self.writer is None:
            self.writer = self.cluster.writer()
        self.writer.append([record(topic, each) for each in fresh])
        pending.note_written(fresh, time.monotonic())
        log.info(
            "view %s: %d rows have had no event for %s",
            stored_view.view.name,
            len(fresh),
            stored_view.view.ttl,
        )
        return len(fresh)
