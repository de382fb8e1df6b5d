"""[shell] Facts about views from the store of the server, for the pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hub.materializers.definition.column_lineage import made_of
from hub.materializers.definition.declared import changelog_of
from hub.materializers.progress.store_reports import stores_of
from hub.materializers.serving.descriptions import stored
from hub.materializers.serving.searching.search import searched_keys
from hub.materializers.stores.sql_store import Store
from hub.materializers.versions.routes import view_versions
from hub.materializers.versions.versions import PREFIX
from hub.observability.lineage.live_graph import ViewStorage
from hub.observability.lineage.open_lineage import Columns


@dataclass(frozen=True)
class StoreFacts:
    """Facts about views; see hub.observability.web.pages.estate.HasViews."""

    store: Store
    newest: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    search_timeout_s: float = 10.0

    def describe(self, view: str) -> Mapping[str, Any]:
        return stored(self.store, view, self.newest(self.store.progress()))

    def versions(self, view: str) -> Mapping[str, Any]:
        return view_versions(self.store, view, self.newest)

    def search(self, view: str, words: str, after: str) -> Mapping[str, Any]:
        return searched_keys(self.store, view, words, after, self.search_timeout_s)

    def storage(self) -> Mapping[str, ViewStorage]:
        progress, tables = self.newest(self.store.progress()), self.store.served_tables()
        found = {}
        for view in sorted({key.partition(":")[2] for key in progress if key.startswith("state:")}):
            table = tables.get(view, view)
            found[view] = ViewStorage(changelog_of(table), stores_of(progress, table))
        return found

    def made_of(self, views: Collection[str]) -> Mapping[str, Columns]:
        progress = self.store.progress()
        return {
            view: made_of(each["body"])
            for view in views
            for each in progress.get(f"{PREFIX}{view}", {}).get("versions", ())
            if each["state"] == "served"
        }
