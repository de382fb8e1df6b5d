"""Golden tests as a user runs them: the examples' pass, and a view that is changed fails with what changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hub.cli.view import schemas_of
from hub.errors import ConfigError
from hub.materializers.golden import Case, differences, golden_files, load_golden
from hub.materializers.golden_run import GoldenRunner
from hub.materializers.view import load_views

EXAMPLES = Path(__file__).parents[2] / "examples"


def runner(session: SparkSession, project: Path, folder: Path) -> GoldenRunner:
    views = {view.name: view for view in load_views(project)}
    return GoldenRunner(
        session, views, {name: schemas_of(project, view)[0] for name, view in views.items()}, folder
    )


@pytest.mark.parametrize("example", ["customer-360", "flights", "sql-views", "formats"])
def test_the_examples_pass(spark_session: SparkSession, tmp_path: Path, example: str) -> None:
    project = EXAMPLES / example
    runs = runner(spark_session, project, tmp_path)
    views = {view.name: view for view in load_views(project)}
    files = [load_golden(path, views) for path in golden_files(project)]
    assert files
    for file in files:
        for name, case in file.tests.items():
            assert differences(case, runs.run(file.view, case)) == [], name


def test_what_a_case_gets_wrong_is_said(spark_session: SparkSession, tmp_path: Path) -> None:
    runs = runner(spark_session, EXAMPLES / "sql-views", tmp_path)

    def run(**event: Any) -> Any:
        return runs.run("regular_customers", Case.model_validate({"events": [event], "rows": {}}))

    with pytest.raises(ConfigError, match=r"event 1: value\.product"):
        run(source="o", value={"order_id": 1, "customer_id": 1, "product": 5, "amount_cents": 1})
    assert run(source="o", text="{}").dead[0][0] == 1
    assert run(source="o", value=None).dead[0][1].startswith("a tombstone's record key")


def test_a_view_that_is_changed_fails_with_what_changed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES / "sql-views", project)
    view = project / "views" / "regular_customers.yaml"
    cases = "view: regular_customers\ntests:\n"
    order = "{{source: o, key: {0}, value: {{order_id: {0}, customer_id: 7, product: tea, amount_cents: 5, status: open, placed_at: 2024-01-01T00:00:00Z}}}}"
    for name, orders in (("three are enough", 3), ("two are not", 2)):
        events = "".join(f"      - {order.format(number)}\n" for number in range(orders))
        rows = "{7: {orders: 3, products: 1}}" if orders == 3 else "{}"
        cases += f"  {name}:\n    events:\n{events}    rows: {rows}\n"
    (project / "views" / "tests" / "regular_customers.yaml").write_text(cases)
    view.write_text(view.read_text().replace(">= 3", ">= 2"))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "hub.cli",
            "view",
            "test",
            "regular_customers",
            "--project",
            str(project),
            "-o",
            "json",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    told = {each["test"]: each for each in json.loads(done.stdout)}
    assert told["three are enough"]["passed"]
    assert told["two are not"]["differences"] == [
        'row "7": must not be there: {"customer_id": 7, "orders": 2, "products": 1, "amount_cents": 10}'
    ]
    assert "1 passed, 1 failed" in done.stderr
