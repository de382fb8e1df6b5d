"""[edge] SQLAlchemy: the statements that read rows of views, as values. No function talks to a database.

``Conditions`` of a request become SQL here, the same for SQLite and Postgres: texts sort by code point, a
null is the greatest value of an order, and a decimal is compared as its column's text.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    FromClause,
    ScalarSelect,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    collate,
    false,
    func,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.dialects import postgresql

from hub.errors import CallerError
from hub.materializers.stores.sql.tables import OwnTables, ViewTable
from hub.materializers.stores.store import RowVersion
from hub.materializers.stores.stored_row import without_nul
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions

# Column, operator (eq gt gte lt lte; in, with a list), value in the column's stored form.
Filter = tuple[str, str, Any]
# Number of leading columns of ``row_by_key`` that identify the table it was made for.
MARKS = 5
# More digits than any Avro decimal of the hub has; rounding raises.
_EXACTLY = Context(prec=100, traps=[Inexact, InvalidOperation])
_COMPARE: Mapping[str, Callable[[ColumnElement[Any], Any], ColumnElement[bool]]] = {
    "eq": operator.eq,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows in (partition, offset) order, the changelog positions for the next call, and the source positions
    covered.
    """

    rows: list[RowVersion]
    positions: Positions
    sources: Positions


@dataclass(frozen=True, slots=True)
class RowQueries:
    """Statements over the rows of one view. ``postgres`` False: for SQLite. ``rows``: instead of the view's
    table, such as its rows as of a time."""

    view_table: ViewTable
    postgres: bool
    rows: FromClause | None = None

    @property
    def table(self) -> FromClause:
        return self.view_table.table if self.rows is None else self.rows

    def key(self, key: str) -> str:
        """Return a key or a text as this database has it."""
        return without_nul(key) if self.postgres else key

    def by_key(self, key: str) -> Select[Any]:
        return select(self.table).where(self.table.c.key == self.key(key))

    def live(self, conditions: Iterable[Filter], limit: int, after: str | None) -> Select[Any]:
        """Select live rows that meet the conditions and have keys past ``after``, in key order."""
        table = self.table
        where = [table.c._deleted.is_(False), *self.meeting(conditions)]
        if after is not None:
            where.append(table.c.key > self.key(after))
        return select(table).where(*where).order_by(table.c.key).limit(limit)

    def ordered(
        self,
        conditions: Iterable[Filter],
        limit: int,
        order: Sequence[tuple[str, bool]],
        after: Sequence[Any] | None,
    ) -> Select[Any]:
        """Select live rows by (column, descending), past the place ``after``."""
        table = self.table
        columns = [self._by_code_point(table.c[name]) for name, _ in order]
        where = [table.c._deleted.is_(False), *self.meeting(conditions)]
        if after is not None:
            behind = [self.key(value) if isinstance(value, str) else value for value in after]
            where.append(_behind(columns, [descending for _, descending in order], behind))
        sorting = [
            column.desc().nulls_first() if descending else column.asc().nulls_last()
            for column, (_, descending) in zip(columns, order, strict=True)
        ]
        return select(table).where(*where).order_by(*sorting).limit(limit)

    def changed(
        self, since: Positions, reached: Positions, limit: int, conditions: Iterable[Filter]
    ) -> Select[Any] | None:
        """Select rows of the changelog from ``since`` until ``reached``, and as ``_meets`` whether they meet
        the conditions; None when there can be none.

        Rows with keys that the conditions exclude are left out.
        """
        table, wanted = self.table, list(conditions)
        fresh = [
            and_(
                table.c._partition == tp.partition,
                table.c._offset >= since.get(tp),
                table.c._offset < offset,
            )
            for tp, offset in reached
            if offset > since.get(tp)
        ]
        if not fresh:
            return None
        # A row's key never changes, so a condition on it never starts or stops matching a row; any other
        # may.
        where = [or_(*fresh), *self.meeting(each for each in wanted if each[0] == "key")]
        meets = and_(true(), *self.meeting(each for each in wanted if each[0] != "key"))
        return (
            select(table, meets.label("_meets"))
            .where(*where)
            .order_by(table.c._partition, table.c._offset)
            .limit(limit)
        )

    def due(self, column: str, until_ms: int, limit: int) -> Select[Any]:
        """Select (key, time) of live rows whose time in ``column`` is at most ``until_ms``,
        earliest first."""
        table = self.table.c
        where = (table._deleted.is_(False), table[column] <= until_ms)
        query = select(table.key, table[column]).where(*where)
        return query.order_by(table[column], table.key).limit(limit)

    def meeting(self, conditions: Iterable[Filter]) -> list[ColumnElement[bool]]:
        """Return the SQL conditions. Raises CallerError for a column that the view no longer has."""
        view_table, found = self.view_table, list[ColumnElement[bool]]()
        for name, comparison, value in conditions:
            if name not in self.table.c:
                raise CallerError(f'view "{view_table.name}" has no field "{name}"', code="HUB-1422")
            if comparison == "in":
                found.append(
                    self.table.c[name].in_([self.key(v) if isinstance(v, str) else v for v in value])
                )
                continue
            wanted = _decimal_text(value, view_table.types[name]) if isinstance(value, Decimal) else value
            wanted = self.key(wanted) if isinstance(wanted, str) else _bound(wanted)
            found.append(_COMPARE[comparison](self.table.c[name], wanted))
        return found

    def _by_code_point(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return collate(column, "C") if self.postgres and isinstance(column.type, Text) else column


def first_changes(
    found: Sequence[RowVersion], limit: int, since: Positions, reached: Positions, sources: Positions
) -> ChangedRows:
    """Return the first ``limit`` of the changed rows, in (partition, offset) order, and the next positions.

    If there are more, the positions are those after the last returned row, so that the next call skips
    nothing.
    """
    if len(found) <= limit:
        return ChangedRows(list(found), reached, sources)
    row_versions = list(found[:limit])
    at = dict(since.offsets)
    for tp, offset in reached:
        if tp.partition < row_versions[-1].partition:
            at[tp] = offset
        elif tp.partition == row_versions[-1].partition:
            at[tp] = row_versions[-1].offset + 1
    return ChangedRows(row_versions, Positions(at), sources)


def row_by_key(own: OwnTables, view_table: ViewTable, view: str, postgres: bool) -> Select[Any]:
    """Return the statement that reads the key ``wanted`` of ``view``, served from the table ``view_table``.

    The statement returns a row in any case: MARKS columns that identify the table and its definition, the
    covered positions, then the table's own columns, or nulls. In Postgres ``wanted`` is a list of keys, with
    one row for each in its order; only the first row has the shared columns, because a round trip costs more
    than a row.
    """
    positions, views, row = own.positions, own.views, view_table.table
    of_view = positions.c.view == view_table.name
    texts = [cast(column, Text) for column in (positions.c.partition, positions.c.next_offset)]
    place = positions.c.topic + ":" + texts[0] + ":" + texts[1]
    joined = func.string_agg if postgres else func.group_concat

    def one(column: ColumnElement[Any], *where: ColumnElement[bool]) -> ScalarSelect[Any]:
        return select(column).where(*where).scalar_subquery()

    shared = (
        one(positions.c.next_offset, positions.c.view == f"{view}@", positions.c.kind == "served"),
        one(positions.c.next_offset, of_view, positions.c.kind == "swept"),
        one(views.c.topic_id, views.c.view == view_table.name),
        one(cast(views.c.schema, Text), views.c.view == view_table.name),
        one(cast(views.c.indexes, Text), views.c.view == view_table.name),
        one(joined(place, ","), of_view, positions.c.kind == "source"),
    )
    if postgres:
        listed = func.unnest(bindparam("wanted", type_=postgresql.ARRAY(Text)))
        wanted = listed.table_valued("key", with_ordinality="place").render_derived("wanted")
        joined_row = wanted.outerjoin(row, row.c.key == wanted.c.key)
        once = (case((wanted.c.place == 1, column)) for column in shared)
        return select(*once, *row.columns).select_from(joined_row).order_by(wanted.c.place)
    anchor = select(literal(1).label("one")).subquery("anchor")
    found = row.c.key == bindparam("wanted", type_=row.c.key.type)
    return select(*shared, *row.columns).select_from(anchor.outerjoin(row, found))


def _bound(value: Any) -> Any:
    """Return a boolean as a parameter: SQLAlchemy compares the constants TRUE and FALSE for equality only."""
    return literal(value, Boolean) if isinstance(value, bool) else value


def _decimal_text(value: Decimal, avro_type: AvroType) -> str:
    """Return a decimal as its column's text, with the digits of its type's scale.

    A decimal that no row can have gives its own text, which no row has either.
    """
    branches = avro_type if isinstance(avro_type, list) else [avro_type]
    scale = next((each.get("scale", 0) for each in branches if isinstance(each, dict)), 0)
    with suppress(DecimalException):
        # Zero has no sign in Avro.
        value = (value or Decimal()).quantize(Decimal(1).scaleb(-scale), context=_EXACTLY)
    return str(value)


def _behind(
    columns: Sequence[ColumnElement[Any]], descending: Sequence[bool], place: Sequence[Any]
) -> ColumnElement[bool]:
    """Match rows after a place in an order where null is the greatest: equal up to a column, and past it
    there.
    """
    ways: list[ColumnElement[bool]] = []
    equal: list[ColumnElement[bool]] = []
    for column, down, value in zip(columns, descending, place, strict=True):
        if value is None:
            if down:  # nulls came first
                ways.append(and_(*equal, column.is_not(None)))
            equal.append(column.is_(None))
            continue
        value = _bound(value)
        past = column < value if down else or_(column > value, column.is_(None))
        ways.append(and_(*equal, past))
        equal.append(column == value)
    return or_(false(), *ways)
