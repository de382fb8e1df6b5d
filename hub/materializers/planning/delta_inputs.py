"""[core] The sources of a view of class D as the delta operator's tables: which columns, by which key, in which order.

A *stream* keeps every event, keyed by its coordinates. A *table* keeps the latest event of each key: columns that
``table: {key: …}`` names, or else the record's own key (``_key``), which is also the key of another view's rows. What is
the latest, the log's order decides; of a view's rows their ``hub.version`` does, as in every store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from hub.errors import ConfigError
from hub.materializers.definition.declared import META
from hub.materializers.definition.sql_view import Query, SqlSource
from hub.materializers.planning.classify import Classified
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
    """The columns that tell a source's rows apart."""
    if source.read_as == "stream":
        return STREAM_KEY
    named = source.table.key if source.table is not None else []
    return tuple(each.lower() for each in named) or ("_key",)


def tables(query: Query, types: Mapping[str, Mapping[str, str]]) -> list[Table]:
    """By source, in the view's order. ``types``: by source, Spark's type of each of its events' columns.

    Raises ConfigError for what a kept row does not have.
    """
    found = []
    for name, source in query.view.sources.items():
        if "_deleted" in query.seen[name]:
            raise ConfigError(
                f'view "{query.view.name}": source "{name}": a row that is kept is never `_deleted`',
                hint="leave the condition out: tombstones take rows away, or make none",
                code="HUB-2114",
            )
        key = key_of(source)
        of = {column.lower(): kind for column, kind in types[name].items()}
        of |= _META_TYPES
        seen = [column.lower() for column in query.seen[name]]
        seen += [column for column in key if column not in META]
        columns = {column: of[column] for column in dict.fromkeys(seen or key)}
        found.append(
            Table(
                name,
                columns,
                key,
                "stream" if source.read_as == "stream" else "table",
                versioned=source.view is not None and source.read_as != "stream",
            )
        )
    return found


def stage_name(query: Query) -> str:
    """What the plan calls the view's own stage: the view, unless a source has that name."""
    name = query.view.name
    while name in query.view.sources:
        name += "_rows"
    return name


def planned(found: Classified, schemas: Mapping[str, AvroType]) -> DeltaPlan:
    """The delta plan of a classified view from the schemas of its sources' events, without Spark: what ``explain`` and
    ``validate`` show. Raises ConfigError (HUB-2130 … HUB-2134) as the operator would."""
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
    """How many events of each source a batch of ``most`` takes: in proportion to what is unread of it, so that all are read
    after the same number of batches. A tenth is shared equally: of each source more may come meanwhile."""
    even, total = most // len(unread) // 10, sum(unread.values())
    left = most - even * len(unread)
    return {
        name: max(1, even + (left * each // total if total else left // len(unread)))
        for name, each in unread.items()
    }


def fingerprint(made: DeltaPlan) -> str:
    """Equal when a state of the one plan can go on as the other."""
    return hashlib.sha256(repr(replace(made, whole_rows=0)).encode()).hexdigest()
