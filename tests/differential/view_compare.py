"""Run random views by the incremental engine over random changes; compare them with Spark's own answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from delta_world import TABLES, World, arrow, fold, ordered, recomputed
from pyspark.sql import SparkSession

from differential.view_grammar import ViewGrammar
from hub.errors import HubError
from hub.materializers.planning.exact_numbers import exact, of_plan
from hub.materializers.spark.delta.catalog import prepare
from hub.materializers.spark.delta.state import DeltaState
from hub.materializers.spark.delta_engine import DeltaRun

BATCHES = (12, 1, 3, 2)
"""The most changes of each table in each batch."""


@dataclass
class FoundViews:
    """What a run of views came upon. ``refused``: by the planner, with how often each message was met."""

    asked: int = 0
    equal: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)


def run_view(session: SparkSession, seed: str, folder: Path, found: FoundViews) -> None:
    """Count what becomes of one view. Its rows are compared after every second batch."""
    key, sql = ViewGrammar(seed).view()
    found.asked += 1
    try:
        plan = of_plan(prepare(session, sql, TABLES, key, whole_rows=1_000))
    except HubError as error:
        found.refused[f"{error.code} {error.message[:120]}"] += 1
        return
    state = DeltaState(folder)
    try:
        found.different += _differences(session, DeltaRun(session, plan, state, 1), sql, seed)
    except Exception as error:  # noqa: BLE001 (a failure of the engine is what is looked for)
        found.different.append(f"{seed}: {sql}\n  failed: {type(error).__name__}: {str(error)[:500]}")
    else:
        found.equal += not any(each.startswith(f"{seed}: ") for each in found.different)
    finally:
        state.close()


def _differences(session: SparkSession, run: DeltaRun, sql: str, seed: str) -> list[str]:
    world, view = World(Random(seed)), dict[str, Any]()
    used = {table.name for table in run.plan.tables}
    for number, most in enumerate(BATCHES):
        changes = world.batch(most)
        tables = [table for table in TABLES if table.name in changes and table.name in used]
        given = {each.name: arrow(session, run, each, changes[each.name]) for each in tables}
        fold(view, run.step(number, given))
        if number % 2:
            rows, expected = ordered(list(view.values())), ordered(recomputed(session, world, exact(sql)))
            if rows != expected:
                here, there = _only(rows, expected), _only(expected, rows)
                return [f"{seed}: {sql}\n  after batch {number}\n  view     {here}\n  expected {there}"]
    return []


def _only(rows: list[str], others: list[str]) -> str:
    left = list((Counter(rows) - Counter(others)).elements())
    return f"{len(rows)} rows; only here: {left[:3]}"
