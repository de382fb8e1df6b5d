"""[edge] SQLAlchemy: rows of a view that match a text query, the best first.

A caller who sees everything gets SQLite's ``bm25``. It depends on all rows and on the lengths of all
fields, so for any other caller SQLite ranks by the weighted number of places in the searched fields;
Postgres' ``ts_rank`` depends on the row and the searched words alone. So neither a masked field nor a
hidden row changes what a caller gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    FromClause,
    Select,
    Subquery,
    and_,
    bindparam,
    cast,
    column,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from hub.errors import CallerError
from hub.materializers.search.compiled import fts_query, ts_query, ts_rank_query, weight_of
from hub.materializers.search.text_query import TextQuery
from hub.materializers.search.times import SearchTimes
from hub.materializers.stores.sql.catalog import Catalog
from hub.materializers.stores.sql.queries import Filter, RowQueries
from hub.materializers.stores.sql.text_tables import TextTables
from hub.materializers.stores.store import RowVersion

# Steps of SQLite between two looks at the clock.
_STEPS = 10_000


class SearchTooLong(CallerError):
    """A search was stopped at its time limit."""

    code = "HUB-1482"


@dataclass(frozen=True, slots=True)
class TextSearchRequest:
    """A query over the fields with these numbers. ``whole``: the caller sees all fields of all rows."""

    query: TextQuery
    fields: tuple[int, ...]
    whole: bool


class FoundRow(NamedTuple):
    row: RowVersion
    score: float


class TextSearch:
    """Searches in a store's views. ``reading`` opens a transaction that sees one moment."""

    def __init__(self, catalog: Catalog, reading: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._catalog, self._reading = catalog, reading
        self.times = SearchTimes()

    def search(
        self,
        view: str,
        wanted: TextSearchRequest,
        conditions: Iterable[Filter],
        limit: int,
        after: tuple[float, str] | None,
        timeout_s: float,
    ) -> list[FoundRow]:
        """Return live rows that match and meet the conditions, by score downwards, then by key, past the
        place ``after``.

        Raises SearchTooLong, NotFound, and CallerError (HUB-1484) for a view without a text index.
        """
        with self.times.measured(view), self._reading() as connection:
            view_table = self._catalog.definition(connection, view)
            if view_table.text is None:
                raise no_text_index(view)
            postgres = view_table.text.postgres
            found = _on_postgres(view_table.text, wanted) if postgres else _on_sqlite(view_table.text, wanted)
            where = RowQueries(view_table, postgres).meeting(conditions)
            query = _page(view_table.table, _ranked(view_table.table, found, where, limit, after))
            with _limited(connection, timeout_s, view, postgres):
                rows = connection.execute(query).mappings().all()
            return [FoundRow(view_table.read(each), float(each["_score"])) for each in rows]


def no_text_index(view: str) -> CallerError:
    return CallerError(
        f'view "{view}" has no text index',
        hint="add `- text: [FIELD]` to `indexes` in the view's file: docs/how-to/search-a-view.md",
        code="HUB-1484",
    )


def _on_sqlite(tables: TextTables, wanted: TextSearchRequest) -> FromClause:
    """Return (key, score) of the matching rows."""
    fts = '"' + tables.fts.replace('"', '""') + '"'
    if wanted.whole:
        weights = ", ".join(str(weight_of(field)) for field in range(len(tables.index.fields)))
        score = f"-bm25({fts}, {weights})"
    else:
        # highlight() adds one character before each place of the query in the searched columns.
        score = " + ".join(
            f"{weight_of(field)} * (length(highlight({fts}, {field}, char(1), '')) - length(f{field}))"
            for field in wanted.fields
        )
    found = (
        text(f"SELECT rowid AS id, {score} AS score FROM {fts} WHERE {fts} MATCH :wanted_text")
        .bindparams(wanted_text=fts_query(wanted.query, wanted.fields))
        .columns(column("id"), column("score", Double))
        .cte("found")
        # FTS5's functions need its own cursor, which a merged query would not have.
        .prefix_with("MATERIALIZED")
    )
    words = tables.words.c
    return select(words.key, found.c.score).join_from(found, tables.words, words.id == found.c.id).subquery()


def _on_postgres(tables: TextTables, wanted: TextSearchRequest) -> FromClause:
    """Return (key, score) of the matching rows."""
    words = tables.words.c

    def tsquery(name: str, body: str) -> ColumnElement[Any]:
        return cast(bindparam(name, body), postgresql.TSQUERY)

    rank = tsquery("ranked_text", ts_rank_query(wanted.query, wanted.fields))
    matches = words.words.op("@@")(tsquery("wanted_text", ts_query(wanted.query, wanted.fields)))
    score = cast(func.ts_rank(words.words, rank), Double).label("score")
    return select(words.key, score).where(matches).subquery()


def _ranked(
    rows: FromClause,
    found: FromClause,
    where: list[ColumnElement[bool]],
    limit: int,
    after: tuple[float, str] | None,
) -> Subquery:
    """Return the keys and scores of one page. The rows are read for their conditions only."""
    key, score = found.c.key, found.c.score
    query: Select[Any] = select(key, score)
    if where:
        query = query.join_from(found, rows, and_(rows.c.key == key, rows.c._deleted.is_(False))).where(
            *where
        )
    if after is not None:
        query = query.where(or_(score < after[0], and_(score == after[0], key > after[1])))
    return query.order_by(score.desc(), key).limit(limit).subquery("ranked")


def _page(rows: FromClause, ranked: Subquery) -> Select[Any]:
    query = select(rows, ranked.c.score.label("_score")).join_from(ranked, rows, rows.c.key == ranked.c.key)
    return query.where(rows.c._deleted.is_(False)).order_by(ranked.c.score.desc(), ranked.c.key)


@contextmanager
def _limited(connection: Connection, timeout_s: float, view: str, postgres: bool) -> Iterator[None]:
    """Stop what the connection does at the time limit. Raises SearchTooLong."""
    raw: Any = connection.connection.driver_connection
    deadline = time.monotonic() + timeout_s
    if postgres:
        connection.execute(select(func.set_config("statement_timeout", str(round(timeout_s * 1000)), True)))
    else:
        raw.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != "57014" and str(error.orig) != "interrupted":
            raise
        raise SearchTooLong(
            f'view "{view}": the search took longer than {timeout_s:g} s and was stopped',
            hint="add a rarer word or a filter, or a longer prefix; or raise search_timeout_s in hub.yaml",
        ) from None
    finally:
        if not postgres:
            raw.set_progress_handler(None, 0)
