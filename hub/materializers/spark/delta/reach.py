"""[edge] DuckDB: the handles that changed rows reach, and the rows that these handles need."""

from __future__ import annotations

from hub.materializers.planning.delta_plan import Bound, Leaf, Stage
from hub.materializers.spark.delta.state import DeltaState, quoted, stored_table


def find_affected(state: DeltaState, stage: Stage) -> None:
    """Find the handles that a changed row of any leaf reaches through its chain of parents, with old and
    new rows."""
    parts = []
    for leaf in stage.leaves:
        changed = stored_table(leaf.table)
        rows = (
            f"(SELECT * FROM {quoted(f'old_{changed}')} UNION ALL SELECT * FROM {quoted(f'new_{changed}')})"
        )
        at: Leaf = leaf
        while True:
            bound = at.bound
            assert bound is not None
            if bound.hopping is not None:
                rows = _each_hop(rows, bound, bound.hopping, "-")
            if bound.parent is None:
                listed = ", ".join(
                    f"{quoted(column)} AS {quoted(of)}"
                    for of, column in sorted(zip(bound.of, bound.columns, strict=True))
                )
                parts.append(f"SELECT {listed} FROM {rows}")
                break
            parent = stage.leaves[bound.parent]
            above = stored_table(parent.table)
            both = f"(SELECT * FROM {quoted(above)} UNION ALL SELECT * FROM {quoted(f'old_{above}')})"
            on = " AND ".join(
                f"p.{quoted(of)} = c.{quoted(column)}"
                for column, of in zip(bound.columns, bound.of, strict=True)
            )
            rows = f"(SELECT p.* FROM {both} p SEMI JOIN {rows} c ON {on})"
            at = parent
    state.db.execute(f"CREATE OR REPLACE TEMP TABLE affected AS {' UNION '.join(parts)}")


def fetch_rows(state: DeltaState, stage: Stage, whole: bool) -> dict[str, str]:
    """Return, by table, the temporary or stored table with the rows that the affected handles need."""
    if whole:
        return {table: stored_table(table) for table in stage.tables}
    db = state.db
    by_table: dict[str, list[str]] = {}
    for number, leaf in enumerate(stage.leaves):
        bound = leaf.bound
        assert bound is not None
        source = "affected" if bound.parent is None else f"fetched_{bound.parent}"
        if bound.hopping is not None:
            source = _each_hop(source, bound, bound.hopping_of, "+")
        on = " AND ".join(
            f"t.{quoted(column)} {'IS NOT DISTINCT FROM' if bound.parent is None else '='} s.{quoted(of)}"
            for column, of in zip(bound.columns, bound.of, strict=True)
        )
        db.execute(
            f"CREATE OR REPLACE TEMP TABLE fetched_{number} AS "
            f"SELECT t.*, t.rowid AS _rowid FROM {quoted(stored_table(leaf.table))} t SEMI "
            f"JOIN {source} s ON {on}"
        )
        by_table.setdefault(leaf.table, []).append(f"fetched_{number}")
    found = {}
    for table, parts in by_table.items():
        found[table] = parts[0]
        if len(parts) > 1:  # each occurrence sees the rows of all: more rows than needed are also correct
            found[table] = f"all_{parts[0]}"
            union = " UNION ".join(f"SELECT _rowid FROM {part}" for part in parts)
            db.execute(
                f"CREATE OR REPLACE TEMP TABLE all_{parts[0]} AS "
                f"SELECT t.* FROM {quoted(stored_table(table))} t WHERE t.rowid IN ({union})"
            )
    return found


def _each_hop(rows: str, bound: Bound, column: str, sign: str) -> str:
    """Repeat each row for all hops of a window column.

    ``-``: every time that the column's time stands for. ``+``: every time that stands for it.
    """
    hops, name = bound.hops, quoted(column)
    assert hops is not None
    # An impossible time is null: Spark makes no such window either.
    shifted = f"TRY(r.{name} {sign} to_microseconds(h.n * {hops.step_us}))"
    return f"(SELECT r.* REPLACE ({shifted} AS {name}) FROM {rows} r, range({hops.count}) h(n))"
