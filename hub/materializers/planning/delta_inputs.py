"""[core] Sources of an incremental view as tables of the incremental engine: columns, key, and order of
changes.

A *stream* keeps every event, keyed by its coordinates. A *table* keeps the latest event of each key: the
columns of ``table: {key: …}``, or else the record's own key (``_key``), which is also the key of another
view's rows. The order of the log decides which event is the latest; for a view's rows their ``hub.version``
does, as in every store, and for change events of a database their place in its log (``_lsn``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from hub.errors import ConfigError
from hub.materializers.definition.declared import META
from hub.materializers.definition.sql_query import Query
from hub.materializers.definition.sql_view import SqlSource
from hub.materializers.planning.classified import Classified
from hub.materializers.planning.delta_plan import STREAM_KEY, DeltaPlan, Table
from hub.materializers.planning.delta_planner import plan
from hub.materializers.types.avro_types import AvroType, spark_types

_META_TYPES: Mapping[str, str] = {
    "_topic": "string",
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    "_key": "string",
}


def key_of(source: SqlSource) -> tuple[str, ...]:
    """Return the columns that identify a source's row."""
    if source.read_as == "stream":
        return STREAM_KEY
    named = source.table.key if source.table is not None else []
    return tuple(each.lower() for each in named) or ("_key",)


def tables(query: Query, types: Mapping[str, Mapping[str, str]]) -> list[Table]:
    """Return the tables by source, in the view's order. ``types``: Spark types of event columns, by source.

    Raises ConfigError for a column that a stored row does not have.
    """
    found = []
    for name, source in query.view.sources.items():
        if "_deleted" in query.columns_read[name]:
            raise ConfigError(
                f'view "{query.view.name}": source "{name}": a row that is kept is never `_deleted`',
                hint="remove the condition: tombstones delete rows, or make none",
                code="HUB-2114",
            )
        key = key_of(source)
        of = {column.lower(): kind for column, kind in types[name].items()}
        of |= _META_TYPES
        columns_read = [column.lower() for column in query.columns_read[name]]
        columns_read += [column for column in key if column not in META]
        columns = {column: of[column] for column in dict.fromkeys(columns_read or key)}
        found.append(
            Table(
                name,
                columns,
                key,
                "stream" if source.read_as == "stream" else "table",
                versioned=(source.view is not None or source.cdc is not None) and source.read_as != "stream",
            )
        )
    return found


def stage_name(query: Query) -> str:
    """Return the plan's name for the view's own stage: the view's name, unless a source has it."""
    name = query.view.name
    while name in query.view.sources:
        name += "_rows"
    return name


def planned(found: Classified, schemas: Mapping[str, AvroType]) -> DeltaPlan:
    """Return the delta plan of a classified view from its sources' schemas, without Spark.

    ``explain`` and ``validate`` show it. Raises ConfigError (HUB-2130 … HUB-2134) as the operator would.
    """
    query = found.query
    types = {name: spark_types(schemas[name]) for name in query.view.sources}
    return plan(
        query.view.sql,
        tables(query, types),
        found.key,
        view=stage_name(query),
        whole_rows=query.view.whole_rows,
    )


def shares(most: int, unread: Mapping[str, int]) -> dict[str, int]:
    """Return how many events of each source a batch of ``most`` takes, in proportion to its unread events.

    All sources are then read after the same number of batches. A tenth is shared equally, because each source
    may get more events meanwhile.
    """
    even, total = most // len(unread) // 10, sum(unread.values())
    left = most - even * len(unread)
    return {
        name: max(1, even + (left * each // total if total else left // len(unread)))
        for name, each in unread.items()
    }


def fingerprint(made: DeltaPlan) -> str:
    """Return a hash that is equal for two plans when a state of one can be used by the other.

    It contains the names of the plan's classes and fields: a rename would rebuild every such view.
    """
    return hashlib.sha256(repr(replace(made, whole_rows=0)).encode()).hexdigest()
