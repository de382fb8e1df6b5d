"""[edge] pyspark: refuse calls within ``build`` that run a job, write, or make rows that no view can keep.

``build`` describes a view and runs before any event is read, so a call that asks for rows has no answer. Each
refusal names the call's own line; a function that catches the exception is refused nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from pyspark.sql import GroupedData, SparkSession
from pyspark.sql.classic.dataframe import DataFrame

_ROWS = "build describes the view and sees no rows: return a data frame, and read rows with `hub query`"
_WRITES = "the hub writes what build returns; further copies are sinks: docs/how-to/send-to-sinks.md"
_PARTITIONS = "leave it out: the hub sets the partitions of a view"
_PYTHON = "call a function or keyed class of `transforms` in an expression: F.call_function('name', p.x)"
_SOURCES = "declare what it reads as a source of the view: build gets its data frame"
_LEVELS = "group by one level, or make a view of each"

# What to write instead, by name of the method.
FRAME: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "collect", "count", "toPandas", "toArrow", "take", "head", "first", "tail", "show", "foreach",
            "foreachPartition", "toLocalIterator", "isEmpty", "rdd", "approxQuantile", "corr", "cov",
            "crosstab", "freqItems", "describe", "summary", "toJSON", "checkpoint", "localCheckpoint",
            "cache", "persist",
        ),
        _ROWS,
    ),
    **dict.fromkeys(
        (
            "write", "writeTo", "writeStream", "mergeInto", "createTempView", "createOrReplaceTempView",
            "createGlobalTempView", "createOrReplaceGlobalTempView",
        ),
        _WRITES,
    ),
    **dict.fromkeys(
        ("repartition", "repartitionByRange", "coalesce", "sortWithinPartitions"),
        _PARTITIONS,
    ),
    **dict.fromkeys(("mapInPandas", "mapInArrow"), _PYTHON),
    **dict.fromkeys(("rollup", "cube", "groupingSets"), _LEVELS),
    "withWatermark": "declare it at the source in the view's file: event_time: …, watermark: 10 minutes",
    "dropDuplicatesWithinWatermark": "say which row stays: groupBy('id').agg(F.max_by('x', 'time'))",
    "sample": "choose by value: where(F.pmod(F.hash('id'), F.lit(100)) < 10)",
    "sampleBy": "choose by value: where(F.pmod(F.hash('id'), F.lit(100)) < 10)",
    "randomSplit": "choose by value: where(F.pmod(F.hash('id'), F.lit(100)) < 10)",
    "offset": "a view has no order: page when you read it",
    "unpivot": "F.explode of an array of structs",
    "melt": "F.explode of an array of structs",
    "intersect": "left.join(right, on, 'left_semi').distinct()",
    "intersectAll": "left.join(right, on, 'left_semi')",
    "subtract": "left.join(right, on, 'left_anti').distinct()",
    "exceptAll": "left.join(right, on, 'left_anti')",
}  # fmt: skip
GROUPED: Mapping[str, str] = {
    "pivot": "name the columns: F.sum(F.when(p.kind == 'a', p.amount)).alias('a')",
    **dict.fromkeys(
        (
            "apply", "applyInPandas", "applyInArrow", "applyInPandasWithState", "transformWithState",
            "transformWithStateInPandas", "cogroup",
        ),
        _PYTHON,
    ),
}  # fmt: skip
SESSION: Mapping[str, str] = {
    **dict.fromkeys(("read", "readStream", "table", "createDataFrame", "range", "sql", "tvf"), _SOURCES),
    **dict.fromkeys(("stop", "newSession", "addArtifacts", "streams"), _ROWS),
}


class RefusedCall(Exception):
    """A call within ``build`` that a view cannot have."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


@contextmanager
def refusing_calls() -> Iterator[list[RefusedCall]]:
    """Let the calls raise RefusedCall in this process, for all threads. Yields the raised errors."""
    raised: list[RefusedCall] = []
    former: list[tuple[type, str, Any]] = []
    owners: tuple[tuple[type, Mapping[str, str]], ...] = (
        (DataFrame, FRAME),
        (GroupedData, GROUPED),
        (SparkSession, SESSION),
    )
    for owner, names in owners:
        for name, hint in names.items():
            if name in vars(owner):
                former.append((owner, name, vars(owner)[name]))
                setattr(owner, name, _Refusing(name, hint, raised))
    try:
        yield raised
    finally:
        for changed, name, method in former:
            setattr(changed, name, method)


class _Refusing:
    """An attribute that raises RefusedCall when it is read."""

    def __init__(self, name: str, hint: str, raised: list[RefusedCall]) -> None:
        self._name, self._hint, self._raised = name, hint, raised

    def __get__(self, owner: Any, _kind: type) -> NoReturn:
        error = RefusedCall(f"`{self._name}` is refused in build", self._hint)
        self._raised.append(error)
        raise error
