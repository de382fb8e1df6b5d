"""[edge] pyspark: the types of a plan's tables and queries, from Spark's analyzer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from hub.errors import ConfigError
from hub.materializers.definition.declared import ViewDeclaration
from hub.materializers.planning.delta_plan import DeltaPlan, Table
from hub.materializers.planning.delta_planner import plan
from hub.materializers.spark.delta.stage_query import FIXED, no_rows
from hub.materializers.spark.python_udfs import register
from hub.materializers.types.avro_types import AvroType, changelog_schema


class SparkCatalog:
    """The planner's Catalog: empty tables in a session of their own that knows the view's Python
    functions."""

    def __init__(
        self, session: SparkSession, tables: Sequence[Table], functions: ViewDeclaration | None = None
    ) -> None:
        self.session = register(session.newSession(), functions)
        for key, value in FIXED.items():
            self.session.conf.set(key, value)
        for table in tables:
            no_rows(self.session, table.columns).createOrReplaceTempView(table.name)
        self._analyzed_frames: dict[str, DataFrame] = {}

    def columns(self, sql: str) -> Mapping[str, str]:
        fields = self.schema(sql).fields
        return {each.name: each.dataType.simpleString() for each in fields}

    def schema(self, sql: str) -> StructType:
        """Return the schema of a query as Spark types it. Raises ConfigError (HUB-2105) with
        Spark's message."""
        try:
            return self._analyzed(sql).schema
        except PySparkException as error:
            message = str(error).split("\n")[0].split("; line")[0]
            raise ConfigError(
                f"Spark refuses the SQL: {message}",
                hint="it is Spark SQL over the view's inputs",
                code="HUB-2105",
            ) from None

    def define(self, name: str, sql: str) -> None:
        self._analyzed(sql).createOrReplaceTempView(name)
        self._analyzed_frames = {
            known: frame for known, frame in self._analyzed_frames.items() if name not in known
        }

    def _analyzed(self, sql: str) -> DataFrame:
        """Return the analyzed query, cached: planning asks for one query several times, and an analysis costs
        a small batch."""
        if sql not in self._analyzed_frames:
            self._analyzed_frames[sql] = self.session.sql(sql)
        return self._analyzed_frames[sql]


def prepare(
    session: SparkSession,
    sql: str,
    tables: Sequence[Table],
    key: Sequence[str],
    *,
    view: str = "view",
    whole_rows: int = 0,
    functions: ViewDeclaration | None = None,
    catalog: SparkCatalog | None = None,
) -> DeltaPlan:
    """Make a plan with ``delta_planner.plan``, with the types from Spark. Runs nothing. Raises ConfigError as
    ``plan`` does.

    ``functions``: the view whose Python functions the SQL may call. ``catalog``: an existing catalog over
    these tables.
    """
    catalog = catalog or SparkCatalog(session, tables, functions)
    return plan(sql, tables, key, view=view, whole_rows=whole_rows, catalog=catalog)


def row_schema(
    session: SparkSession,
    made: DeltaPlan,
    view: str = "",
    *,
    functions: ViewDeclaration | None = None,
    catalog: SparkCatalog | None = None,
) -> AvroType:
    """Return the Avro schema of the view's changelog: the view's columns and ``_version``.

    ``view``: name of the view, if it differs from its stage's. ``catalog``: the one that ``prepare`` used.
    """
    if catalog is None:
        catalog = SparkCatalog(session, made.tables, functions)
        for stage in made.stages[:-1]:
            catalog.define(stage.name, stage.sql)
    fields = catalog.schema(made.view.sql).jsonValue()["fields"]
    fields.append({"name": "_version", "type": "long", "nullable": False, "metadata": {}})
    return changelog_schema(view or made.view.name, fields, required=("_version",))
