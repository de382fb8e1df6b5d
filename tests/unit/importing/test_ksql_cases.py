"""Statements of ksqlDB, each with its outcome; what is taken loads and passes the checks of the hub."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from hub.cli.view.schemas_source import schemas_of
from hub.importing.checking import project_copy
from hub.importing.ksql.importer import KsqlImport
from hub.importing.project_files import ProjectFiles
from hub.importing.report import StatementReport

HERE = Path(__file__).parent
CASES = yaml.safe_load((HERE / "ksql_cases.yaml").read_text())


def run(text: str, before: dict[str, str] | None = None) -> tuple[list[StatementReport], ProjectFiles]:
    files = ProjectFiles.over(before or {})
    with project_copy(files.before, ["main"], schemas_of) as copy:
        return KsqlImport(files, copy).take(text), files


def test_the_declarations_are_taken() -> None:
    reports, files = run(CASES["declarations"])
    assert [each.outcome for each in reports] == ["same"] * 5 + ["differs", "same"]
    assert set(files.changes()) == {"topics.yaml", "schemas/readings-value.avsc"}


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


def test_there_are_a_hundred_cases() -> None:
    outcomes = Counter(case["outcome"] for case in CASES["cases"])
    assert sum(outcomes.values()) >= 100 and min(outcomes.values()) >= 15
