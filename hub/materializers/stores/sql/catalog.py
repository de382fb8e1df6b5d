"""[edge] SQLAlchemy: a store's metadata, each method in the caller's transaction.

A view may have several tables, one per version (``customer_360@2``). Methods with ``view`` take the view's
name and use the table that ``serve`` set last; methods with ``name`` take a table's name.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Engine, Select, and_, bindparam, delete, inspect, select

from hub.errors import NotFound
from hub.formats.stamps import STORE_KEY, Stamp, stamp_of
from hub.materializers.definition.declared import table_of
from hub.materializers.snapshot_groups.in_store import (
    CommonSnapshot,
    StoredMember,
    common_snapshot,
    keys_of,
    label_of,
)
from hub.materializers.stores.sql import queries
from hub.materializers.stores.sql.tables import OwnTables, ViewTable, make_view_table
from hub.materializers.stores.store import RowKind
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions, TopicPartition


class Catalog:
    """Definitions of views and their served versions, positions and progress records. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self.tables = OwnTables(engine)
        self.postgres = engine.dialect.name == "postgresql"
        self.place = f'store "{engine.url.render_as_string()}"'  # without its password
        self._defining, self._placed = self._of_views(), self._of_positions()
        self._tables_read: dict[str, ViewTable] = {}
        self._lock = threading.Lock()

    def _of_views(self) -> Select[Any]:
        """Return the statement that reads the definition of the table ``name``."""
        views, positions = self.tables.views, self.tables.positions
        swept = and_(positions.c.view == views.c.view, positions.c.kind == "swept")
        return (
            select(views.c.topic_id, views.c.schema, views.c.indexes, positions.c.next_offset)
            .select_from(views.outerjoin(positions, swept))
            .where(views.c.view == bindparam("name", type_=views.c.view.type))
        )

    def _of_positions(self) -> Select[Any]:
        """Return the statement that reads the positions of the kind ``kind`` of the table ``view``."""
        table = self.tables.positions
        wanted = (table.c[name] == bindparam(name, type_=table.c[name].type) for name in ("view", "kind"))
        return select(table.c.topic, table.c.partition, table.c.next_offset).where(*wanted)

    # ---- definitions

    def table_names(self, connection: Connection) -> list[str]:
        """Return the names of the tables: a view's own, and those of its versions."""
        return sorted(connection.execute(select(self.tables.views.c.view)).scalars())

    def view_names(self, connection: Connection) -> list[str]:
        """Return the names of the views that can be read."""
        tables = set(self.table_names(connection))
        served = self.served_tables(connection)
        views = {name.partition("@")[0] for name in tables}
        return sorted(view for view in views if served.get(view, view) in tables)

    def definition(self, connection: Connection, view: str) -> ViewTable:
        """Return the view's served table under the view's name. Raises NotFound."""
        view_table = self.table(connection, self.served(connection, view), view)
        return view_table if view_table.name == view else replace(view_table, name=view)

    def table(self, connection: Connection, name: str, view: str | None = None) -> ViewTable:
        """Return a table by its own name. Raises NotFound, which names ``view`` if that is given."""
        found = connection.execute(self._defining, {"name": name}).first()
        if found is None:
            raise NotFound(
                f'view "{view or name}" does not exist', hint="hub view ls lists the views", code="HUB-1410"
            )
        topic_id, types, indexes, mark = found
        incarnation = topic_id if mark is None else f"{topic_id}.{mark}"
        with self._lock:
            cached = self._tables_read.get(name)
        # Compared as lists too: JSON objects are equal in any order, columns have one.
        if cached is not None and (cached.incarnation, cached.noted, cached.types, list(cached.types)) == (
            incarnation,
            tuple(indexes),
            types,
            list(types),
        ):
            return cached
        view_table = make_view_table(connection, name, topic_id, incarnation, types, indexes)
        with self._lock:
            self._tables_read[name] = view_table
        return view_table

    def stored_definition(
        self, connection: Connection, name: str
    ) -> tuple[str, Mapping[str, AvroType], Sequence[str]] | None:
        """Return (topic id, types, indexes) of a table; None without one."""
        found = connection.execute(self._defining, {"name": name}).first()
        return None if found is None else (found.topic_id, found.schema, found.indexes)

    def define(self, connection: Connection, view_table: ViewTable) -> None:
        """Store the definition of a table."""
        body = {
            "view": view_table.name,
            "topic_id": view_table.topic_id,
            "schema": dict(view_table.types),
            "indexes": list(view_table.noted),
        }
        self.tables.upsert(connection, self.tables.views, [body])

    def forget(self, connection: Connection, name: str) -> None:
        """Remove the definition, the positions and the progress of a table."""
        self.forget_positions(connection, name)
        connection.execute(delete(self.tables.views).where(self.tables.views.c.view == name))
        keys = [f"{kind}:{name}" for kind in ("progress", "state", "seen", "whole")]
        self.put_progress(connection, dict.fromkeys(keys))

    # ---- served versions

    def served(self, connection: Connection, view: str) -> str:
        """Return the name of the table that readers of ``view`` get."""
        found = connection.execute(self._placed, {"view": f"{view}@", "kind": "served"}).first()
        return table_of(view, None if found is None else found.next_offset or None)

    def served_tables(self, connection: Connection) -> dict[str, str]:
        """Return the served table of every view whose served table has another name than the view."""
        table = self.tables.positions
        query = select(table.c.view, table.c.next_offset).where(table.c.kind == "served")
        return {
            view[:-1]: table_of(view[:-1], number) for view, number in connection.execute(query) if number
        }

    # ---- positions

    def positions(self, connection: Connection, name: str, kind: RowKind) -> Positions:
        found = connection.execute(self._placed, {"view": name, "kind": kind})
        return Positions({TopicPartition(topic, partition): offset for topic, partition, offset in found})

    def covered(self, connection: Connection, view: str) -> Positions:
        """Return the source positions that the view's rows cover."""
        return self.positions(connection, self.served(connection, view), "source")

    def swept(self, connection: Connection, name: str) -> int:
        """Return the version below which rows were expired; 0: none was."""
        table = self.tables.positions
        where = (table.c.view == name, table.c.kind == "swept")
        return int(connection.execute(select(table.c.next_offset).where(*where)).scalar() or 0)

    def put_positions(self, connection: Connection, name: str, reached: Mapping[RowKind, Positions]) -> None:
        rows = [
            {
                "view": name,
                "kind": kind,
                "topic": tp.topic,
                "partition": tp.partition,
                "next_offset": offset,
            }
            for kind, positions in reached.items()
            for tp, offset in positions
        ]
        self.tables.upsert(connection, self.tables.positions, rows)

    def forget_positions(self, connection: Connection, name: str) -> None:
        connection.execute(delete(self.tables.positions).where(self.tables.positions.c.view == name))

    # ---- progress records

    def progress(self, connection: Connection, keys: Collection[str] | None = None) -> dict[str, Any]:
        """Return the progress records with these keys; None: all."""
        table = self.tables.progress
        query = select(table.c.key, table.c.value)
        found = connection.execute(query if keys is None else query.where(table.c.key.in_(keys)))
        return {key: value for key, value in found}  # noqa: C416 - rows are not pairs to the type checker

    def put_progress(self, connection: Connection, records: Mapping[str, Any]) -> None:
        """Write progress records; None: remove it."""
        table = self.tables.progress
        gone = [key for key, value in records.items() if value is None]
        if gone:
            connection.execute(delete(table).where(table.c.key.in_(gone)))
        rows = [{"key": key, "value": value} for key, value in records.items() if value is not None]
        self.tables.upsert(connection, table, rows)

    def noted_version(self, connection: Connection) -> Stamp | None:
        """Return the version of the store's format; None without a store. Raises ConfigError (HUB-1151)."""
        if not inspect(connection).has_table(self.tables.progress.name):
            return None
        return stamp_of(self.progress(connection, [STORE_KEY]).get(STORE_KEY), self.place)

    def common_snapshot(self, connection: Connection, views: Iterable[str]) -> CommonSnapshot:
        """Return the common snapshot of all these views, or why they have none."""
        tables = {view: self.served(connection, view) for view in views}
        records = self.progress(connection, [f"state:{table}" for table in tables.values()])
        records |= self.progress(connection, keys_of(label_of(records, table) for table in tables.values()))
        members = {
            view: StoredMember(table, self.positions(connection, table, "changelog"))
            for view, table in tables.items()
        }
        return common_snapshot(members, records)

    def group(self, connection: Connection, view: str) -> tuple[list[str], CommonSnapshot] | None:
        """Return the views of this one's group in this store, and their common snapshot; None without a
        group.
        """
        tables = {name: self.served(connection, name) for name in self.view_names(connection)}
        records = self.progress(connection, [f"state:{table}" for table in tables.values()])
        label = label_of(records, tables.get(view, view))
        if label is None:
            return None
        views = [name for name, table in tables.items() if label_of(records, table) == label]
        return views, self.common_snapshot(connection, views)

    def row_query(self, connection: Connection, view: str) -> tuple[Select[Any], ViewTable]:
        """Return the statement that reads the key ``wanted``, and the view's table. Raises NotFound.

        See ``queries.row_by_key``.
        """
        view_table = self.table(connection, self.served(connection, view), view)
        query = queries.row_by_key(self.tables, view_table, view, connection.dialect.name == "postgresql")
        return query, view_table


def as_read(records: Mapping[str, Any], served: Mapping[str, str]) -> dict[str, Any]:
    """Return progress records under the names of readers: see ``Store.progress``."""
    found: dict[str, Any] = {}
    for key, value in records.items():
        kind, _, table = key.partition(":")
        view = table.partition("@")[0]
        if kind not in ("progress", "state", "seen") or (table == view and view not in served):
            found[key] = value
        elif served.get(view, view) == table:
            found[f"{kind}:{view}"] = value
        else:
            found[f"version.{key}"] = value
    return found
