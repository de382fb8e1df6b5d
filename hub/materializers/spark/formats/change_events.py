"""[edge] pyspark: decoded change events as rows of their table.

A decoded event has its envelope in ``e_<source>``. ``as_rows`` puts the row there instead, the row before an
update into ``b_<source>``, makes ``_deleted`` true for deletions, and says why an event is no change of a
row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hub.materializers.definition.entity_plan import SourcePlan
from hub.materializers.types import cdc
from hub.materializers.types.avro_types import AvroType

_FORMER = "_former"


def decoded_source(source: SourcePlan, schema: AvroType) -> SourcePlan:
    """Return the source with the columns of the envelope. A tombstone never comes, so it needs no order."""
    envelope = cdc.wire_schema(schema)
    names = [field["name"] for field in envelope["fields"] if field["name"] in cdc.ENVELOPE]
    return replace(source, columns=tuple(sorted(names)), order=None)


def as_rows(events: DataFrame, source: SourcePlan, schema: AvroType, mine: str) -> DataFrame:
    """Return the events of a source as rows; see the module. ``mine``: the condition that an event is one."""
    event, op = source.event, cdc.part(schema, source.event)("op")
    refused = cdc.refusal_sql(schema, source.whole, event, source.columns)
    before = cdc.row_sql(schema, source.columns, event, "before")
    row = cdc.row_sql(schema, source.columns, event, "row")
    change = f"{mine} AND _why IS NULL AND NOT _deleted"
    return events.withColumns(
        {
            "_why": F.expr(f"IF({change}, {refused}, _why)"),
            "_deleted": F.expr(f"_deleted OR ({change} AND coalesce({op} = 'd', FALSE))"),
            _before(source): F.expr(f"IF({change} AND {cdc.moved_sql(schema, event)}, {before}, NULL)"),
            event: F.expr(f"IF({change}, {row}, NULL)"),
        }
    )


def left_out(source: SourcePlan, mine: str) -> str:
    """Return ``_deleted`` with the rows that the source's ``where`` leaves out."""
    return f"_deleted OR ({mine} AND _why IS NULL AND NOT coalesce({source.where}, FALSE))"


def with_former_keys(events: DataFrame, sources: Iterable[tuple[SourcePlan, str]], entity: str) -> DataFrame:
    """Return the events, and for each update that gives a row another key a deletion under the former one.

    ``sources``: those of changes, with their condition. ``entity``: the expression of an event's key.
    """
    sources = list(sources)
    moved = " OR ".join(
        f"({mine} AND _why IS NULL AND {_before(source)} IS NOT NULL)" for source, mine in sources
    )
    both = events.select(
        "*", F.explode(F.expr(f"IF({moved}, array(FALSE, TRUE), array(FALSE))")).alias(_FORMER)
    )
    rows = {
        source.event: F.expr(f"IF({_FORMER} AND {mine}, {_before(source)}, {source.event})")
        for source, mine in sources
    }
    images = both.withColumns({**rows, "_deleted": F.expr(f"_deleted OR {_FORMER}")})
    keyed = images.withColumn("_was", F.expr(entity))
    kept = keyed.where(f"NOT {_FORMER} OR (_was IS NOT NULL AND NOT (_was <=> _entity))")
    return kept.withColumn("_entity", F.expr(f"IF({_FORMER}, _was, _entity)"))


def _before(source: SourcePlan) -> str:
    return f"b_{source.name}"
