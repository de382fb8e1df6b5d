"""Statements of Flink SQL, each with its outcome; taken ones load and pass the checks of the hub."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from hub.cli.view.schemas_source import schemas_of
from hub.importing.checking import project_copy
from hub.importing.flink.importer import FlinkImport
from hub.importing.project_files import ProjectFiles
from hub.importing.report import StatementReport

CASES = yaml.safe_load((Path(__file__).parent / "flink_cases.yaml").read_text())


def run(text: str) -> tuple[list[StatementReport], ProjectFiles]:
    files = ProjectFiles.over({})
    with project_copy({}, ["main"], schemas_of) as copy:
        return FlinkImport(files, copy).take(text), files


def test_the_declarations_are_taken() -> None:
    reports, files = run(CASES["declarations"])
    assert [each.outcome for each in reports] == ["differs", "differs", "same", "same"]
    assert files.changes() == ["topics.yaml"]


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: str(case["sql"])[:80])
def test_a_statement_has_its_outcome(case: dict[str, Any]) -> None:
    reports, files = run(CASES["declarations"] + case["sql"])
    last = reports[-1]
    assert last.outcome == case["outcome"], last
    said = " ".join([*last.differs, *last.notes, last.why, last.instead])
    assert case.get("says", "") in said
    assert "made" not in case or case["made"] in last.made
    texts = " ".join(files.made[path] for path in last.made if path in files.made)
    assert case.get("has", "") in texts, texts
    if last.outcome == "refused":
        assert last.why and last.instead and not last.made


def test_there_are_forty_cases() -> None:
    outcomes = Counter(case["outcome"] for case in CASES["cases"])
    assert sum(outcomes.values()) >= 40 and outcomes["differs"] >= 15


def test_all_statements_of_a_set_are_taken() -> None:
    target = (
        "CREATE TABLE {0} (order_id STRING) WITH ('connector'='kafka', 'topic'='{0}', 'format'='json');\n"
    )
    fill = "INSERT INTO {0} SELECT order_id FROM orders;\n"
    text = target.format("a") + target.format("b")
    text += "EXECUTE STATEMENT SET\nBEGIN\n" + fill.format("a") + fill.format("b") + "END;\n"
    reports, files = run(CASES["declarations"] + text)
    assert [each.outcome for each in reports[-2:]] == ["differs", "differs"]
    assert {"views/a.yaml", "views/b.yaml"} <= set(files.changes())
