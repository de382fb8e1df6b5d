"""[shell] Tables of one store: create and extend them to fit their changelogs,
and find those to be refilled."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import orjson

from hub.errors import CallerError, HubError, NotFound, PeerError
from hub.log import Cluster, tombstones_kept_ms
from hub.materializers.applying.followed_view import AppliedView, stop_view
from hub.materializers.changelog.record import GENERATION_SHIFT
from hub.materializers.changelog.row_decoder import unreadable
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.history.spec import noted_history
from hub.materializers.search.declared_indexes import noted_text_index
from hub.materializers.stores.store import StoreRefused, ViewStore
from hub.record import Record
from hub.schema_registry.client.port import RegisteredSchema
from hub.times import epoch_ms

log = logging.getLogger(__name__)

# ``whole:<table>`` in a store: when it last had everything in a view's changelog, to an hour.
WHOLE = "whole:"
_WHOLE_EVERY_MS = 3_600_000


class ApplierSchemas(Protocol):
    """Interface of the schema registry for the applier."""

    def schema(self, schema_id: int) -> str: ...

    def latest(self, subject: str) -> RegisteredSchema: ...


class ViewTables:
    """Tables of the views in one store."""

    def __init__(self, log_: Cluster, schemas: ApplierSchemas, store: ViewStore) -> None:
        self.log = log_
        self.schemas = schemas
        self.store = store

    def begin(self, view: View | SqlView, topic_id: str) -> AppliedView | None:
        """Return the store's state of a view, its table created or extended; None while its schema is not
        registered. A view whose table is impossible is stopped.
        """
        try:
            latest = self.schemas.latest(f"{view.changelog}-value")
        except NotFound:
            return None
        start = self.log.beginning_offsets([view.changelog])
        try:
            fresh = self._fit(view, topic_id, latest)
            whole = self.store.progress().get(f"{WHOLE}{view.table}")
            if not fresh and self._missed_deletes(view, whole):
                self.store.drop_view(view.table)
                fresh = self._fit(view, topic_id, latest)
            if fresh and whole:
                self.store.apply([], {f"{WHOLE}{view.table}": None})
        except (StoreRefused, CallerError) as error:  # only this view's table is impossible
            followed = AppliedView(view, start, topic_id, set())
            self.store.apply([], {f"state:{view.table}": stop_view(followed, error.message)})
            return followed
        at = start if fresh else start.advanced(self.store.positions(view.table, "changelog"))
        log.info("view %s: applied from %s%s", view.table, at, "(table recreated)" if fresh else "")
        generation = 0 if fresh else self.store.newest_version(view.table) >> GENERATION_SHIFT
        return AppliedView(view, at, topic_id, {latest.id}, generation)

    def know_schemas(self, followed: AppliedView, records: Sequence[Record]) -> None:
        """Add the columns of an unknown schema to the table before its rows are applied.

        Raises HubFault when the table cannot have them, PeerError (HUB-3051) when it must be refilled.
        """
        ids = {int.from_bytes(record.value[1:5], "big") for record in records if record.value is not None}
        if ids <= followed.schema_ids:
            return
        view = followed.view
        try:
            fresh = self._fit(view, followed.topic_id, self.schemas.latest(f"{view.changelog}-value"))
        except (StoreRefused, CallerError) as error:
            raise unreadable(records[0], f"its table cannot be made for it: {error.message}") from None
        if fresh:
            raise PeerError(
                f"view {view.name}: a column changed its type; its table is filled again", code="HUB-3051"
            )
        followed.schema_ids |= ids

    def note_whole(self, followed: AppliedView, records: dict[str, Any]) -> None:
        """Note from time to time that the store has everything, in the store's ``records``."""
        now_ms = epoch_ms()
        if now_ms - followed.whole_noted_ms < _WHOLE_EVERY_MS:
            return
        followed.whole_noted_ms = now_ms
        with suppress(HubError):  # the topic may be gone by now
            if followed.position.covers(self.log.end_offsets([followed.view.changelog])):
                records[f"{WHOLE}{followed.view.table}"] = {"at_ms": now_ms}

    def _fit(self, view: View | SqlView, topic_id: str, latest: RegisteredSchema) -> bool:
        """Make the table fit the changelog's latest schema. True when it must be filled from the start."""
        schema = orjson.loads(latest.schema)
        columns = {each["name"] for each in schema["fields"]}
        # A file may name an index whose field the engine has not published yet.
        indexes = [index for index in view.kept_indexes if index in columns]
        indexes += [*noted_text_index(view.indexes, columns), *noted_history(view.history_ms)]
        return self.store.ensure_view(view.table, schema, indexes, topic_id)

    def _missed_deletes(self, view: View | SqlView, whole: Mapping[str, Any] | None) -> bool:
        """Return whether compaction may have removed deletes that the store has not read.

        Such rows would stay in the store for ever, so the table is then refilled. ``whole``: when the store
        last had everything.
        """
        end = self.log.end_offsets([view.changelog])
        if not whole or self.store.positions(view.table, "changelog").covers(end):
            return False
        away_ms = epoch_ms() - int(whole["at_ms"])
        kept_ms = tombstones_kept_ms(self.log, view.changelog)
        if kept_ms is None or away_ms <= kept_ms // 2:
            return False
        hours = away_ms // 3_600_000
        log.warning(
            "view %s: last complete here %d h ago: deletes may be gone from its changelog", view.table, hours
        )
        return True
