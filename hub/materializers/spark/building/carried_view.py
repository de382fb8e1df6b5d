"""[edge] pyspark: call the function of a PySpark view, and return the view with the SQL of its data frame.

It runs in a process of its own (``build_process.py``): the function is a user's code, and calls that a view
cannot have are refused for all threads meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from hub.errors import ConfigError
from hub.materializers.dataframes.declared_build import WRONG, line_of
from hub.materializers.dataframes.plan_sql import sql_of
from hub.materializers.definition.declared import META
from hub.materializers.definition.entity_plan import SourcePlan
from hub.materializers.definition.sql_view import MOST_SQL, SqlSource, SqlView
from hub.materializers.spark.building.analyzed_plan import SOURCE, plan_of
from hub.materializers.spark.building.expressions import ExpressionReader, NotCarried
from hub.materializers.spark.building.local_modules import ViewModules
from hub.materializers.spark.building.refused_calls import RefusedCall, refusing_calls
from hub.materializers.spark.formats.decode import Input, SchemaAnswers, WriterSchema
from hub.materializers.spark.functions.policy import policy_of
from hub.materializers.spark.python_udfs import HINT_OF_RULE, register
from hub.materializers.spark.sql_rows import EVENTS, taken, typed
from hub.materializers.types.avro_types import AvroType, field_types
from hub.materializers.types.cdc import wire_schema
from hub.sandbox.refusals import rule_of
from hub.sandbox.rules import TEXT_OF_RULE


def carried_view(session: SparkSession, view: SqlView, schemas: Mapping[str, AvroType]) -> SqlView:
    """Return the view with the SQL of the data frame that its function returns.

    Raises ConfigError (HUB-2156) with file and line for a function that fails, or whose data frame no view
    can have.
    """
    assert view.python is not None
    own = register(session.newSession(), view)
    frames = {name: _frame(own, name, source, schemas[name]) for name, source in view.sources.items()}
    modules = ViewModules(view.python)
    try:
        with refusing_calls() as refused:
            returned = _returned(view, modules, frames, refused, policy_of(own).sandboxed)
    finally:
        modules.close()
    reader = ExpressionReader(own, [each.name for each in view.functions], modules.line_of)
    try:
        plan, columns = plan_of(returned, reader)
    except NotCarried as error:
        raise _wrong(view, error.what, error.hint, view.python.file, error.line) from None
    outputs = [column for column in columns if column.name not in META]
    lines = sql_of(plan, outputs)
    first = line_of(view.python)
    python = view.python.model_copy(update={"lines": [line.source or first for line in lines]})
    sql = "\n".join(line.text for line in lines)
    if len(sql) > MOST_SQL:
        raise _wrong(
            view, f"its SQL is longer than {MOST_SQL:,} characters", "make two views of it", "", first
        )
    _check_types(view, own, frames, returned, sql)
    return view.model_copy(update={"sql": sql, "python": python})


def _frame(session: SparkSession, name: str, source: SqlSource, schema: AvroType) -> DataFrame:
    """Return the data frame that the SQL of a view reads of a source, without rows. Its columns know the
    source."""
    columns = tuple(field_types(schema))
    plan = SourcePlan(name, source.topic, columns, "", None, False, None, None)
    writers = (WriterSchema(1, wire_schema(schema)),) if source.declared is None else ()
    given = Input(plan, (source.topic,), writers, schema)
    rows = taken(typed(session.createDataFrame([], EVENTS), given, source, SchemaAnswers()))
    marked = [
        StructField(each.name, each.dataType, each.nullable, {SOURCE: name}) for each in rows.schema.fields
    ]
    return session.createDataFrame([], StructType(marked)).alias(name)


def _returned(
    view: SqlView,
    modules: ViewModules,
    frames: Mapping[str, DataFrame],
    refused: list[RefusedCall],
    sandboxed: bool,
) -> DataFrame:
    """Run the view's files and call the function. Raises ConfigError."""
    assert view.python is not None
    try:
        function = getattr(modules.run(), view.python.function)
        returned = function(**frames)
    except RefusedCall as error:
        file, line = modules.place_of(error.__traceback__)
        raise _wrong(view, error.what, error.hint, file, line) from None
    except PySparkException as error:
        file, line = modules.place_of(error.__traceback__)
        reason = str(error).strip().split("\n")[0]
        hint = f"the sources have: {'; '.join(_columns_of(name, each) for name, each in frames.items())}"
        raise _wrong(view, f"Spark refuses it: {reason[:500]}", hint, file, line) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code does
        file, line = modules.place_of(error.__traceback__)
        reason = f"{type(error).__name__}: {str(error)[:500]}"
        hint = "correct the file; it is run where the hub runs, with the packages that the hub has"
        rule = rule_of(error) if sandboxed else None
        if rule is not None:
            reason = f"the sandbox stopped {view.python.function}, by its rule `{rule}`: {reason}"
            hint = HINT_OF_RULE.format(TEXT_OF_RULE[rule])
        raise _wrong(view, reason, hint, file, line) from None
    if refused:
        raise _wrong(view, refused[0].what, refused[0].hint, view.python.file, line_of(view.python))
    if not isinstance(returned, DataFrame):
        raise _wrong(
            view,
            f"{view.python.function} returns {type(returned).__name__}, not a data frame",
            "return the data frame of the view's rows",
            view.python.file,
            line_of(view.python),
        )
    return returned


def _columns_of(name: str, frame: DataFrame) -> str:
    return f"{name}: {', '.join(each for each in frame.columns if each not in META)}"[:300]


def _check_types(
    view: SqlView, session: SparkSession, frames: Mapping[str, DataFrame], returned: DataFrame, sql: str
) -> None:
    """Raise ConfigError if Spark types the SQL differently from the data frame."""
    assert view.python is not None
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    try:
        made = session.sql(sql).schema
    except PySparkException as error:
        reason = str(error).strip().split("\n")[0]
        raise _wrong(
            view,
            f"its plan has no form in SQL: {reason[:300]}",
            _REPORT,
            view.python.file,
            line_of(view.python),
        ) from error
    wanted = {each.name: each.dataType for each in returned.schema.fields if each.name not in META}
    types = {each.name: each.dataType for each in made.fields}
    if wanted != types:
        other = sorted(name for name in wanted if types.get(name) != wanted[name])
        raise _wrong(
            view,
            f"the columns {', '.join(other)} have other types in SQL",
            _REPORT,
            view.python.file,
            line_of(view.python),
        )


_REPORT = "write the expression in another way, or write the view in SQL; and please report it"


def _wrong(view: SqlView, what: str, hint: str, file: str, line: int) -> ConfigError:
    """Return the error about a place of the view's files; without a line, about the function."""
    assert view.python is not None
    if not file or not line:
        file, line = view.python.file, line_of(view.python)
    error = ConfigError(
        f'view "{view.name}": {what}', where=f"{file}:{line}" if line else file, hint=hint, code=WRONG
    )
    error.details = {"file": file, "line": str(line)}
    return error
