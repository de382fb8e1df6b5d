"""The imports of ksqlDB and Flink SQL in Spark: views are analyzed, rows are those of both systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from hub.cli.view.schemas_source import schemas_of
from hub.errors import HubError
from hub.files import write_text
from hub.importing.checking import project_copy
from hub.importing.flink.importer import FlinkImport
from hub.importing.ksql.importer import KsqlImport
from hub.importing.project_files import ProjectFiles
from hub.materializers.definition.load import load_views
from hub.materializers.golden.cases import Case, differences
from hub.materializers.golden.runner import GoldenRunner

HERE = Path(__file__).parent
UNIT = HERE.parent / "unit/importing"
IMPORTS: dict[str, type[KsqlImport | FlinkImport]] = {"ksql": KsqlImport, "flink": FlinkImport}
ROWS = {name: yaml.safe_load((HERE / f"{name}_rows.yaml").read_text()) for name in IMPORTS}
HELD = {name: yaml.safe_load((UNIT / f"{name}_cases.yaml").read_text()) for name in IMPORTS}
CASES = [(name, case) for name, rows in ROWS.items() for case in rows["cases"]]


def imported(project: Path, system: str, text: str) -> None:
    files = ProjectFiles.over({})
    with project_copy({}, ["main"], schemas_of) as copy:
        reports = IMPORTS[system](files, copy).take(text)
    assert all(each.outcome != "refused" for each in reports), reports
    for path in files.changes():
        write_text(project / path, files.made[path])


def runner(session: SparkSession, project: Path, folder: Path) -> GoldenRunner:
    views = {view.name: view for view in load_views(project)}
    schemas = {name: schemas_of(project, view)[0] for name, view in views.items()}
    return GoldenRunner(session, views, schemas, folder)


@pytest.mark.parametrize(("system", "case"), CASES, ids=lambda each: str(each)[:60])
def test_rows_are_those_of_the_system(
    spark_session: SparkSession, tmp_path: Path, system: str, case: dict[str, Any]
) -> None:
    project = tmp_path / "project"
    imported(project, system, ROWS[system]["declarations"] + case["sql"])
    wanted = Case.model_validate({each: case[each] for each in ("events", "rows", "late") if each in case})
    assert differences(wanted, runner(spark_session, project, tmp_path).run("d", wanted)) == []


@pytest.mark.parametrize(("system", "least"), [("ksql", 60), ("flink", 20)])
def test_spark_analyzes_every_view_of_the_held_cases(
    spark_session: SparkSession, tmp_path: Path, system: str, least: int
) -> None:
    analyzed, wrong = 0, []
    for number, case in enumerate(HELD[system]["cases"]):
        if case["outcome"] == "refused":
            continue
        project = tmp_path / str(number)
        imported(project, system, HELD[system]["declarations"] + case["sql"])
        for view in load_views(project):
            if schemas_of(project, view)[1]:
                continue  # a view that reads a view has its types when that runs
            try:
                runner(spark_session, project, tmp_path).analyze(view.name)
            except HubError as error:
                wrong.append((case["sql"], str(error)[:300]))
            analyzed += 1
    assert wrong == []
    assert analyzed >= least
