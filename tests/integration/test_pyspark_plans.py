"""Plans of data frames as SQL, by Spark: the same rows and types, the engine of SQL views, and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from hub.errors import ConfigError
from hub.materializers.dataframes.plan_sql import sql_of
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.classify import classify
from hub.materializers.spark.building.analyzed_plan import SOURCE, plan_of
from hub.materializers.spark.building.expressions import ExpressionReader, NotCarried
from hub.materializers.spark.building.refused_calls import RefusedCall, refusing_calls

COLUMNS = {
    "id": "bigint",
    "card": "string",
    "amount": "double",
    "cents": "decimal(10,2)",
    "at": "timestamp",
    "tags": "array<string>",
    "place": "struct<country: string, zip: string>",
    "limits": "map<string, bigint>",
}
Build = Callable[[DataFrame, DataFrame], DataFrame]


def _ranked(p: DataFrame, _q: DataFrame) -> DataFrame:
    latest = Window.partitionBy("card").orderBy(F.desc("at"), F.desc("id"))
    return p.withColumn("rank", F.row_number().over(latest)).where("rank <= 2").select("id", "card", "rank")


def _chained(p: DataFrame, _q: DataFrame) -> DataFrame:
    by_card = p.groupBy("card").agg(F.sum("amount").alias("total")).where(F.col("total") > 5)
    return by_card.groupBy((F.col("total") > 20).alias("large")).agg(F.count("*").alias("cards"))


CASES: dict[str, tuple[str, Build]] = {
    "filters and columns": (
        "stateless",
        lambda p, _q: (
            p.where((p.amount > 2) & p.card.startswith("c") & ~p.card.like("%9"))
            .withColumn("double", p.amount * 2)
            .withColumn("more", F.col("double") + 1)
            .select("id", "double", (F.col("more") * F.col("more")).alias("square"), "place.country")
        ),
    ),
    "values of every kind": (
        "stateless",
        lambda p, _q: p.select(
            "id",
            F.when(p.amount > 3, "it's \\ 'more'\n").otherwise(None).alias("said"),
            F.nvl("card", F.lit("?")).alias("card"),
            F.transform("tags", lambda x: F.upper(x)).alias("upper"),
            F.aggregate("tags", F.lit(""), lambda a, x: F.concat(a, x)).alias("joined"),
            F.filter("tags", lambda x: F.length(x) > 1).alias("long"),
            (p.at + F.expr("interval 90 minutes")).alias("later"),
            (p.at.cast("date") == F.to_date(F.lit("2024-03-01"))).alias("first_day"),
            p.id.between(1, 5).alias("few"),
            p.card.isin("c1", "c2").alias("known"),
            (p.cents * 3 / 7).alias("share"),
            p.tags[0].alias("tag"),
            p.limits["day"].alias("day_limit"),
            F.to_timestamp(F.lit("2024-03-01 10:00"), "yyyy-MM-dd HH:mm").alias("start"),
            F.struct("id", p.card.alias("c")).alias("both"),
            F.concat_ws("-", "tags").alias("text"),
            F.lit(1.5).alias("half"),
            F.lit(3).alias("three"),
            F.expr("CASE WHEN amount IS NULL THEN 'none' ELSE card END").alias("chosen"),
            F.round("amount", 1).alias("rounded"),
            (-p.id).alias("negative"),
            F.regexp_replace("card", "c", "card ").alias("renamed"),
            (p.card.like("c1%") == F.lit(True)).alias("like"),
        ),
    ),
    "an aggregate by key": (
        "aggregate",
        lambda p, _q: p.groupBy("card").agg(
            F.sum("cents").alias("cents"),
            F.count("*").alias("n"),
            (F.sum("amount") / F.count("amount")).alias("mean"),
            F.max_by("id", "at").alias("latest"),
        ),
    ),
    "an aggregate by expression": (
        "aggregate",
        lambda p, _q: (
            p.groupBy(F.upper("card").alias("name"), F.date_trunc("day", "at").alias("day"))
            .agg(F.sum("amount").alias("total"))
            .withColumn("twice", F.col("total") * 2)
        ),
    ),
    "a tumbling window": (
        "aggregate",
        lambda p, _q: (
            p.groupBy("card", F.window("at", "1 hour").alias("hour"))
            .count()
            .select("card", F.col("hour.start").alias("start"), F.col("count").alias("n"))
        ),
    ),
    "a hopping window": (
        "aggregate",
        lambda p, _q: (
            p.groupBy(F.window("at", "1 hour", "15 minutes", "5 minutes").alias("w"))
            .agg(F.sum("amount").alias("total"))
            .select("w.start", "w.end", "total")
        ),
    ),
    "distinct rows": ("aggregate", lambda p, _q: p.select("card", "place.country").distinct()),
    "a union": (
        "stateless",
        lambda p, q: (
            p.select("id", F.lower("card").alias("card"))
            .unionByName(q.where("amount > 3").select("card", "id"))
            .where("id IS NOT NULL")
        ),
    ),
    "an aggregate over a union": (
        "aggregate",
        lambda p, q: (
            p.select("card", "amount")
            .union(q.select("card", -F.col("amount")))
            .groupBy("card")
            .agg(F.sum("amount").alias("balance"))
        ),
    ),
    "exploded arrays": (
        "stateless",
        lambda p, _q: p.select("id", F.explode("tags").alias("tag")).where("tag <> 'x'"),
    ),
    "exploded outer maps": (
        "stateless",
        lambda p, _q: p.where("id > 1").select("id", F.explode_outer("limits").alias("name", "most")),
    ),
    "a left join": (
        "incremental",
        lambda p, q: (
            p.where("amount > 1")
            .alias("a")
            .join(q.alias("b"), (F.col("a.card") == F.col("b.card")) & (F.col("b.amount") > 2), "left")
            .select("a.id", F.col("b.id").alias("other"), F.coalesce("b.amount", F.lit(0.0)).alias("amount"))
        ),
    ),
    "a left join of constants": (
        "incremental",
        lambda p, q: p.join(q.where("id > 4").select("card", F.lit(1).alias("known")), "card", "left").select(
            "id", F.coalesce("known", F.lit(0)).alias("known")
        ),
    ),
    "a full join": (
        "incremental",
        lambda p, q: (
            p.select("card", "amount")
            .join(q.select("card", "id"), "card", "full")
            .select("card", "amount", "id")
        ),
    ),
    "a join with itself": (
        "incremental",
        lambda p, _q: (
            p.alias("a")
            .join(p.alias("b"), (F.col("a.card") == F.col("b.card")) & (F.col("a.id") < F.col("b.id")))
            .select(F.col("a.id").alias("one"), F.col("b.id").alias("two"))
        ),
    ),
    "rows with and without a partner": (
        "incremental",
        lambda p, q: (
            p.join(q, "card", "left_semi")
            .select("id")
            .union(p.join(q.where("id > 3"), "card", "left_anti").select(-F.col("id")))
        ),
    ),
    "a join of aggregates": (
        "incremental",
        lambda p, q: (
            p.groupBy("card")
            .agg(F.sum("amount").alias("paid"))
            .join(q.groupBy("card").agg(F.count("*").alias("n")), "card", "left")
        ),
    ),
    "groups that pass": (
        "incremental",
        lambda p, _q: p.groupBy("card").agg(F.countDistinct("id").alias("ids")).where("ids > 1"),
    ),
    "an aggregate of aggregates": ("incremental", _chained),
    "ranks": ("incremental", _ranked),
    "the first rows": (
        "incremental",
        lambda p, _q: p.orderBy(F.desc("amount"), "id").limit(3).select("id", "amount"),
    ),
}


@pytest.fixture(scope="module")
def frames(spark_session: SparkSession) -> dict[str, DataFrame]:
    own = spark_session.newSession()
    made = {}
    for name, shift in (("p", 0), ("q", 2)):
        rows = [
            (
                f"{n}L", f"'c{(n + shift) % 4}'" if n % 7 else "NULL", f"{n * 1.25}D" if n % 5 else "NULL",
                f"{n * 1.1:.2f}BD", f"timestamp'2024-03-01 1{n % 3}:{n % 6}5:00'",
                f"array('x', 't{n}', 'it''s')" if n % 4 else "NULL",
                f"struct('F{n % 2}', '0{n}')", f"map('day', {n}L, 'week', {7 * n}L)" if n % 3 else "NULL",
            )
            for n in range(1, 15)
        ]  # fmt: skip
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        read = own.sql(f"SELECT * FROM VALUES {values} AS v({', '.join(COLUMNS)})")
        types = StructType.fromDDL(", ".join(f"{column} {kind}" for column, kind in COLUMNS.items()))
        typed = StructType(
            [StructField(each.name, each.dataType, True, {SOURCE: name}) for each in types.fields]
        )
        cast = read.select(*(F.col(each.name).cast(each.dataType) for each in types.fields))
        made[name] = own.createDataFrame(cast.collect(), typed).alias(name)
        made[name].createOrReplaceTempView(name)
    return made


def sql_of_frame(frame: DataFrame) -> str:
    reader = ExpressionReader(frame.sparkSession, (), lambda _place: 0)
    plan, columns = plan_of(frame, reader)
    return "\n".join(line.text for line in sql_of(plan, columns))


def of_rows(frame: DataFrame) -> Counter[str]:
    return Counter(map(repr, frame.collect()))


@pytest.mark.parametrize("name", CASES)
def test_sql_has_the_rows_and_types_of_the_frame(frames: dict[str, DataFrame], name: str) -> None:
    build = CASES[name][1]
    frame = build(frames["p"], frames["q"])
    sql = sql_of_frame(frame)
    made = frame.sparkSession.sql(sql)
    assert [(each.name, each.dataType) for each in made.schema] == [
        (each.name, each.dataType) for each in frame.schema
    ], sql
    assert of_rows(made) == of_rows(frame), sql
    assert of_rows(frame), "a case without rows compares nothing"
    assert sql_of_frame(build(frames["p"], frames["q"])) == sql, "Spark's numbers must not be in the text"


@pytest.mark.parametrize("name", CASES)
def test_the_engine_is_that_of_sql_views(frames: dict[str, DataFrame], name: str) -> None:
    kind, build = CASES[name]
    frame = build(frames["p"], frames["q"])
    sql = sql_of_frame(frame)
    fields = {column: of for column, of in COLUMNS.items() if column != "limits"}
    read = [each for each in ("p", "q") if f"FROM {each}" in sql or f"JOIN {each}" in sql]
    source = {"format": "json", "schema": fields | {"limits": "map<string, bigint>"}}
    view = SqlView.model_validate(
        {
            "view": "v",
            "sql": sql,
            "key": [frame.columns[0]] if kind in ("stateless", "incremental") else [],
            "sources": {each: {"topic": f"t.{each}", **source} for each in read},
        }
    )
    schemas = {each: of.declared for each, of in view.sources.items()}
    try:
        found = classify(checked(view, schemas))
    except ConfigError as error:
        raise AssertionError(f"{error}\n{sql}") from None
    assert found.name == kind, (found.reason, sql)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda p, _q: p.select("id", F.rand().alias("r")), "gives another value on every replay"),
        (lambda p, _q: p.dropDuplicates(["card"]), "keeps another row on every replay"),
        (lambda p, _q: p.orderBy("id"), "without an order"),
        (lambda p, _q: p.limit(3), "limit without orderBy"),
        (lambda p, _q: p.agg(F.sum("amount")), "one row and no key"),
        (
            lambda p, _q: p.select("id", F.udf(lambda text: text)("card").alias("x")),
            "calls a Python function",
        ),
        (lambda p, _q: p.select("id").intersect(p.select("id")), "cannot be kept up to date"),
        (
            lambda p, _q: p.join(p.sparkSession.range(3), "id").select("id"),
            "is not the data frame of a source",
        ),
    ],
)
def test_a_construct_that_no_view_has_is_refused(
    frames: dict[str, DataFrame], build: Build, said: str
) -> None:
    with pytest.raises(NotCarried, match=said) as raised:
        sql_of_frame(build(frames["p"], frames["q"]))
    assert raised.value.hint


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.collect(),
        lambda p: p.count(),
        lambda p: p.toPandas(),
        lambda p: p.write,
        lambda p: p.writeStream,
        lambda p: p.sparkSession.readStream,
        lambda p: p.sparkSession.createDataFrame([], "id bigint"),
        lambda p: p.groupBy("card").pivot("id"),
        lambda p: p.withWatermark("at", "1 hour"),
    ],
)
def test_a_call_that_asks_for_rows_is_refused(
    frames: dict[str, DataFrame], call: Callable[[DataFrame], Any]
) -> None:
    with refusing_calls() as raised, pytest.raises(RefusedCall, match="is refused in build"):
        call(frames["p"])
    assert len(raised) == 1
    assert frames["p"].count() > 0, "afterwards calls work again"
