"""[shell] One text search of a caller: the fields that it may read, and its page of rows.

``_score`` and ``_highlights`` of a row are the search's. Highlights are lists of fragments, each with
``text`` and ``match``; they have no markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.caller import view_visibility
from hub.errors import CallerError
from hub.masking.shape import MaskRefused, Visibility
from hub.materializers.search.highlights import highlights
from hub.materializers.search.text_index import TextIndex
from hub.materializers.search.text_query import TextQueryError, parse_query
from hub.materializers.serving.pull_query import KEY, Order, cursor_of, parse_cursor
from hub.materializers.stores.columns import plain_type
from hub.materializers.stores.sql.queries import Filter
from hub.materializers.stores.sql.tables import ViewTable
from hub.materializers.stores.sql.text_search import FoundRow, TextSearchRequest, no_text_index
from hub.materializers.stores.sql_store import Store

QUERY = "q"
# Rows of a page of the web.
PAGE_ROWS = 20
# Form of a cursor: the place is a score and a key.
_ORDER = (Order("_score", True), Order(KEY, False))


def is_search(table: ViewTable, parameters: Mapping[str, str]) -> bool:
    """Return whether a request for rows is a search. A view without a text index may have a field ``q``."""
    return QUERY in parameters and (table.text is not None or QUERY not in table.indexes)


@dataclass(frozen=True, slots=True)
class Search:
    """A search that its caller may run. ``place``: score and key after which the page begins."""

    view: str
    index: TextIndex
    request: TextSearchRequest
    place: tuple[float, str] | None

    def highlights(self, values: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return the fragments of every searched field in which a word was found."""
        found = {}
        for field in self.request.fields:
            name = self.index.fields[field]
            value = values.get(name)
            if isinstance(value, str):
                parts = highlights(value, self.request.query.wanted, self.index.language)
                if parts:
                    found[name] = [{"text": text, "match": match} for text, match in parts]
        return found


_NOT_OF_A_SEARCH = {
    "order": "a search is sorted by its score, so it has no order",
    "as_of": "the words of a search are those of the rows as they are now",
}


def search_of(
    table: ViewTable, parameters: Mapping[str, str], cursor: str | None, shape: Visibility
) -> Search:
    """Return the search of a request. Raises TextQueryError, MaskRefused when no text field is shown, and
    CallerError (HUB-1484) for a view without a text index."""
    if table.text is None:
        raise no_text_index(table.name)
    for name, why in _NOT_OF_A_SEARCH.items():
        if name in parameters:
            raise TextQueryError(
                f'view "{table.name}": {why}',
                hint=f"leave out {name}; filters such as city=Oslo go together with q",
            )
    index = table.text.index
    fields = tuple(n for n, name in enumerate(index.fields) if shape.of_column(name).form == "shown")
    if not fields:
        raise MaskRefused(
            f"{shape.name}: all text fields ({', '.join(index.fields)}) are masked for you, "
            "so nothing can search them",
            hint="POST /query filters by the masked values",
        )
    query = parse_query(parameters[QUERY], index.language)
    place = parse_cursor(table.name, cursor, _ORDER)
    if place is not None and not (isinstance(place[0], float) and isinstance(place[1], str)):
        raise CallerError(
            f'view "{table.name}": the cursor is none of a search',
            hint="pass `next` of the page before, with the same q",
            code="HUB-1426",
        )
    request = TextSearchRequest(query, fields, whole=shape.is_open)
    return Search(table.name, index, request, None if place is None else (place[0], place[1]))


def run_search(
    store: Store, search: Search, filters: Sequence[Filter], limit: int, timeout_s: float
) -> tuple[list[FoundRow], str | None]:
    """Return a page of rows and the cursor of the next one; None: there is none. Blocks."""
    found_rows = store.text.search(search.view, search.request, filters, limit + 1, search.place, timeout_s)
    if len(found_rows) <= limit:
        return found_rows, None
    last = found_rows[limit - 1]
    return found_rows[:limit], cursor_of(_ORDER, (last.score, last.row.key))


def searched_keys(store: Store, view: str, words: str, cursor: str, timeout_s: float) -> dict[str, Any]:
    """Return a page of a search as the web page shows it: keys, scores and highlights, and the next
    cursor."""
    table, shape = store.view(view), view_visibility(view)
    shape.require("a text search")
    shape.refuse_columns([KEY], "list rows by")
    types = {name: plain_type(kind) for name, kind in table.types.items()}
    search = search_of(table, {QUERY: words}, cursor or None, shape)
    found_rows, after = run_search(store, search, shape.conditions(types), PAGE_ROWS, timeout_s)
    rows = [
        {"key": each.row.key, "score": each.score, "highlights": search.highlights(each.row.values or {})}
        for each in found_rows
    ]
    return {"rows": rows, "next": after}
