"""[edge] DuckDB: changes of inputs applied to their tables, with the images of the rows that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from hub.materializers.planning.delta_plan import STREAM_KEY, DeltaPlan, Table
from hub.materializers.spark.delta.stage_query import no_rows
from hub.materializers.spark.delta.state import DeltaState, all_equal, deleted_table, quoted, stored_table

# Columns of a change besides the table's own columns and key.
DELETED, ORDER = "_deleted", "_order"


def derived_columns(made: DeltaPlan, table: str) -> list[Column]:
    """Return the expressions over a table's own columns that its changes must include."""
    return [F.expr(sql).alias(name) for name, sql in made.derived.get(table.lower(), {}).items()]


class InputTables:
    """The tables of a plan's inputs in the state: rows as they were, and as they are.

    ``reached``: by stream, the last offset of each partition in its table.
    """

    def __init__(self, session: SparkSession, made: DeltaPlan, state: DeltaState) -> None:
        self.session = session
        self.plan = made
        self.state = state
        self.reached: dict[str, dict[tuple[str, int], int]] = {}

    def take(self, table: Table, given: pa.Table | None, below: int = 0, *, images: bool = True) -> int:
        """Apply changes to the table of an input.

        Leaves ``old_<t>`` and ``new_<t>``, the images of the rows that changed. They are skipped without
        ``images``: before the first computation, everything is new.
        """
        name = stored_table(table.name)
        stored, old, new = quoted(name), quoted(f"old_{name}"), quoted(f"new_{name}")
        db = self.state.db
        if given is None or given.num_rows == 0:
            if self.state.has(name) and not below:
                for image in (old, new) if images else ():
                    db.execute(f"CREATE OR REPLACE TEMP TABLE {image} AS SELECT * FROM {stored} LIMIT 0")
                return 0
            given = self.empty(table)
        columns = [each for each in given.column_names if each not in (DELETED, ORDER)]
        kept = [*columns, ORDER] if table.versioned else columns
        listed = ", ".join(quoted(each) for each in kept)
        db.register("given_rows", given)
        try:
            if not self.state.has(name):
                db.execute(f"CREATE TABLE {stored} AS SELECT {listed} FROM given_rows LIMIT 0")
            rows = f"SELECT {listed} FROM given_rows"
            appends = self._appends(table, given)
            if not appends:
                db.execute(
                    f"CREATE OR REPLACE TEMP TABLE taken AS SELECT * FROM given_rows "
                    f"QUALIFY row_number() OVER (PARTITION BY {', '.join(map(quoted, table.key))} "
                    f"ORDER BY {ORDER} DESC) = 1"
                )
                if table.versioned:
                    self._outdated(table, below)
                if self.state.rows(name):
                    return self._merge(table, columns, listed, below)
                rows = f"SELECT {listed} FROM taken WHERE NOT {DELETED}"
            if images:
                db.execute(f"CREATE OR REPLACE TEMP TABLE {old} AS SELECT * FROM {stored} LIMIT 0")
                db.execute(f"CREATE OR REPLACE TEMP TABLE {new} AS {rows}")
                rows = f"SELECT * FROM {new}"
            db.execute(f"INSERT INTO {stored} {rows}")
            return int(given.num_rows)
        finally:
            db.unregister("given_rows")

    def _appends(self, table: Table, given: pa.Table) -> bool:
        """Return True if the changes are events of a stream behind all stored ones, each once, so that no row
        must be looked up.

        That holds for every batch unless a topic was recreated.
        """
        if table.key != STREAM_KEY or pc.any(given.column(DELETED)).as_py():
            return False
        reached = self.reached.get(table.name)
        if reached is None:
            sql = (
                f"SELECT _topic, _partition, max(_offset) FROM "
                f"{quoted(stored_table(table.name))} GROUP BY ALL"
            )
            reached = {(topic, number): most for topic, number, most in self.state.db.execute(sql).fetchall()}
        topics, offset = given.group_by(["_topic", "_partition"]), "_offset"
        found = topics.aggregate([(offset, each) for each in ("min", "max", "count", "count_distinct")])
        appends = True
        for each in found.to_pylist():
            at = each["_topic"], each["_partition"]
            once = each["_offset_count"] == each["_offset_count_distinct"]
            appends = appends and once and each["_offset_min"] > reached.get(at, -1)
            reached[at] = max(reached.get(at, -1), each["_offset_max"])
        # After a rollback these offsets are too high. Then the batch's events are looked up when they come
        # again.
        self.reached[table.name] = reached
        return appends

    def _outdated(self, table: Table, below: int) -> None:
        """Remove from ``taken`` what is older than the deletion of its row.

        After a crash, a real-time view writes again what it wrote since its last checkpoint. Key and version
        of each deleted row are kept, as in every store, until its generation is over.
        """
        db, gone = self.state.db, quoted(deleted_table(table.name))
        keys = ", ".join(quoted(each) for each in table.key)
        same = all_equal("g", "n", table.key)
        db.execute(f"CREATE TABLE IF NOT EXISTS {gone} AS SELECT {keys}, {ORDER} FROM taken LIMIT 0")
        db.execute(
            f"DELETE FROM taken n WHERE EXISTS (SELECT 1 FROM {gone} g WHERE {same} AND "
            f"g.{ORDER} > n.{ORDER})"
        )
        db.execute(
            f"DELETE FROM {gone} g WHERE EXISTS (SELECT 1 FROM taken n WHERE {same}) OR g.{ORDER} < {below}"
        )
        db.execute(
            f"INSERT INTO {gone} SELECT {keys}, {ORDER} FROM taken WHERE {DELETED} AND {ORDER} >= {below}"
        )

    def _merge(self, table: Table, columns: Sequence[str], listed: str, below: int) -> int:
        """Merge ``taken``, one row per key, into a table that has rows."""
        name = stored_table(table.name)
        stored, old, new = quoted(name), quoted(f"old_{name}"), quoted(f"new_{name}")
        db = self.state.db
        same = all_equal("t", "n", table.key)
        if table.versioned:
            db.execute(
                f"DELETE FROM taken n WHERE EXISTS (SELECT 1 FROM {stored} t WHERE {same} AND "
                f"t.{ORDER} > n.{ORDER})"
            )
            db.execute(
                f"INSERT INTO taken BY NAME SELECT t.*, true AS {DELETED} FROM {stored} t "
                f"ANTI JOIN taken n ON {same} WHERE t.{ORDER} < {below}"
            )
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE old_all AS SELECT t.*, t.rowid AS _rowid FROM {stored} t SEMI "
            f"JOIN taken n ON {same}"
        )
        # A row that is written again unchanged affects nothing.
        equal = " AND ".join(f"t.{quoted(each)} IS NOT DISTINCT FROM n.{quoted(each)}" for each in columns)
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE {new} AS SELECT {listed} FROM taken n "
            f"ANTI JOIN old_all t ON {equal} WHERE NOT {DELETED}"
        )
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE {old} AS SELECT t.* FROM old_all t ANTI JOIN (SELECT * FROM "
            f"taken WHERE NOT {DELETED}) n ON {equal}"
        )
        db.execute(f"DELETE FROM {stored} WHERE rowid IN (SELECT _rowid FROM {old})")
        db.execute(f"ALTER TABLE {old} DROP _rowid")
        db.execute(f"INSERT INTO {stored} SELECT {listed} FROM {new}")
        if table.versioned:  # but its version still counts
            db.execute(
                f"UPDATE {stored} AS t SET {ORDER} = n.{ORDER} FROM taken n WHERE {same} AND "
                f"t.{ORDER} < n.{ORDER}"
            )
        return self.state.rows(f"old_{name}") + self.state.rows(f"new_{name}")

    def empty(self, table: Table) -> pa.Table:
        """Return an empty table with the column types that Spark will give."""
        ddl = {**table.columns}
        for each in table.key:
            ddl.setdefault(each, _COORDINATES.get(each, "string"))
        frame = no_rows(self.session, {**ddl, DELETED: "boolean", ORDER: "bigint"})
        return frame.select("*", *derived_columns(self.plan, table.name)).toArrow()


_COORDINATES: Mapping[str, str] = {"_topic": "string", "_partition": "int", "_offset": "bigint"}
