"""Python functions of views, called by Spark: in every kind of view, with the error when one fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hub.errors import ConfigError
from hub.materializers.definition.load import load_view, view_files
from hub.materializers.golden.cases import Case, differences
from hub.materializers.golden.runner import GoldenRunner

FUNCTIONS = """
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

LIMIT = 100


def doubled(n: pa.Array) -> Annotated[pa.Array, "bigint"]:
    return _times(n, 2)


def _times(n, by):
    return pc.multiply(n, by)


def checked(n: int | None) -> int | None:
    if n is not None and n > LIMIT:
        raise ValueError("more than there can be")
    return n


class Steps:
    def __init__(self):
        self.seen, self.fired = [], []

    def on_event(self, event, timers):
        if event["n"] > LIMIT:
            raise ValueError("more than there can be")
        self.seen.append(event["n"])
        timers.set("idle", event["n"] + 5)

    def on_timer(self, name, at, timers):
        self.fired.append(at)

    def row(self) -> "struct<seen: array<bigint>, fired: array<bigint>>":
        return None if not self.fired else {"seen": self.seen, "fired": self.fired}


def short(n: pa.Array) -> Annotated[pa.Array, "bigint"]:
    return n.slice(1)
"""
VIEWS = {
    "entity": """
view: entity
transforms: functions.py
sources:
  s: {topic: t, format: json, schema: {id: bigint, n: bigint}, key: doubled(id), where: checked(n) < 50}
fields:
  last: doubled(s.n)
  total: sum(doubled(s.n))
""",
    "plain": """
view: plain
transforms: functions.py
sources: {s: {topic: t, format: json, schema: {id: bigint, n: bigint}}}
sql: SELECT s.id, doubled(checked(s.n)) AS n FROM s WHERE doubled(s.n) > 0
key: id
""",
    "kept": """
view: kept
transforms: functions.py
sources: {s: {topic: t, format: json, schema: {id: bigint, n: bigint}, table: {key: id, delete_when: doubled(n) = 0}}}
sql: SELECT s.n, count(DISTINCT doubled(s.id)) AS ids FROM s GROUP BY s.n HAVING max(checked(s.n)) > 0
key: n
""",  # noqa: E501
    "keyed": """
view: keyed
transforms: functions.py
sources: {s: {topic: t, format: json, schema: {id: bigint, n: bigint}}}
sql: |
  SELECT id, state.seen, state.fired FROM (
    SELECT s.id, steps(sort_array(collect_list(struct(s.n)))) AS state FROM s GROUP BY s.id)
  WHERE state IS NOT NULL
key: id
""",
    "bounded": """
view: bounded
transforms: functions.py
sources: {s: {topic: t, format: json, schema: {id: bigint, n: bigint}}}
sql: SELECT s.id, steps(sort_array(max_by(struct(s.n), s.n, 3))) AS state FROM s GROUP BY s.id
""",
    "odd": """
view: odd
transforms: functions.py
sources: {s: {topic: t, format: json, schema: {id: bigint, n: bigint}}}
sql: SELECT s.id, short(s.n) AS n FROM s
key: id
""",
}


@pytest.fixture(scope="module")
def runs(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> GoldenRunner:
    project: Path = tmp_path_factory.mktemp("transforms")
    (project / "views").mkdir()
    (project / "views" / "functions.py").write_text(FUNCTIONS)
    for name, text in VIEWS.items():
        (project / "views" / f"{name}.yaml").write_text(text)
    views = {path.stem: load_view(path) for path in view_files(project)}
    return GoldenRunner(spark_session, views, {name: {} for name in views}, project / "streams")


def case(rows: dict[str, Any], *events: tuple[int, int | None]) -> Case:
    given = [{"source": "s", "value": {"id": id_, "n": n}} for id_, n in events]
    return Case.model_validate({"events": given, "rows": rows})


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        ("entity", case({"2": {"last": 8, "total": 14}, "4": {"last": 10}}, (1, 3), (1, 4), (2, 5), (3, 60),
        (4, None))),
        ("plain", case({"1": {"n": 6}}, (1, 3), (2, 0), (3, None))),
        ("keyed", case({"1": {"seen": [1, 3, 9], "fired": [8]}}, (1, 9), (1, 1), (2, 4), (1, 3))),
        ("bounded", case({"1": {"state": {"seen": [3, 4, 10], "fired": [9]}}, "2": {"state": None}},
        (1, 10), (1, 1), (1, 2), (2, 4), (1, 3), (1, 4))),
        ("kept", case({"3": {"ids": 2}}, (1, 3), (2, 3), (3, 7), (3, 0))),
    ],
)  # fmt: skip
def test_functions_are_called_in_every_kind_of_view(runs: GoldenRunner, view: str, wanted: Case) -> None:
    assert differences(wanted, runs.run(view, wanted)) == []


def test_a_function_that_fails_is_named_with_line_and_values(runs: GoldenRunner) -> None:
    with pytest.raises(
        ConfigError, match=r'function "checked" failed, of \(101,\): ValueError: more'
    ) as raised:
        runs.run("plain", case({}, (1, 3), (2, 101)))
    line = FUNCTIONS[: FUNCTIONS.index("raise")].count("\n") + 1
    assert (raised.value.where, raised.value.code) == (f"functions.py:{line}", "HUB-2152")


def test_a_keyed_class_that_fails_is_named_with_line_and_event(runs: GoldenRunner) -> None:
    with pytest.raises(
        ConfigError,
        match=r'function "steps" failed.*ValueError: more than there can be; at event {\'n\': 101}',
    ) as raised:
        runs.run("keyed", case({}, (1, 3), (1, 101)))
    line = FUNCTIONS[: FUNCTIONS.rindex("raise")].count("\n") + 1
    assert raised.value.where == f"functions.py:{line}"


def test_a_function_must_give_a_value_a_row(runs: GoldenRunner) -> None:
    with pytest.raises(ConfigError, match=r"it gave 1 values of 2 rows"):
        runs.run("odd", case({}, (1, 3), (2, 4)))
