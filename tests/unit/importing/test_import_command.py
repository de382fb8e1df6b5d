"""`hub import ksql` as a user runs it: report, diff, files that exist, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hub.cli.view.import_sql import app
from hub.errors import CallerError, Conflict, NotFound
from hub.topics.tree.tree import load

DECLARED = (
    "CREATE STREAM orders (id VARCHAR, cents BIGINT)"
    " WITH (kafka_topic='shop.orders', value_format='JSON', partitions=2);\n"
)
COUNTED = "CREATE TABLE per_id AS SELECT id, COUNT(*) AS n FROM orders GROUP BY id;\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HUB_PROJECT", str(tmp_path))
    monkeypatch.setenv("HUB_HOME", str(tmp_path / ".hub"))
    return tmp_path


def imported(project: Path, text: str, *options: str) -> tuple[int, dict[str, object], BaseException | None]:
    (project / "shop.sql").write_text(text)
    done = CliRunner().invoke(app, ["ksql", str(project / "shop.sql"), "-o", "json", *options])
    body = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return done.exit_code, body, done.exception


def test_a_dry_run_shows_the_diff_and_writes_nothing(project: Path) -> None:
    code, body, _ = imported(project, DECLARED + COUNTED, "--dry-run")
    assert code == 0
    assert body["files"] == ["topics.yaml", "views/per_id.yaml"]
    assert "+view: per_id" in body["diff"]  # type: ignore[operator]
    assert not (project / "views").exists() and not (project / "topics.yaml").exists()


def test_a_refused_statement_leaves_the_others_and_gives_exit_code_1(project: Path) -> None:
    code, body, _ = imported(project, DECLARED + "CREATE STREAM x AS SELECT nothing FROM orders;\n" + COUNTED)
    assert code == 1
    statements = body["statements"]
    assert [(each["line"], each["outcome"]) for each in statements] == [  # type: ignore[attr-defined]
        (1, "same"),
        (2, "refused"),
        (3, "same"),
    ]
    assert (project / "views/per_id.yaml").exists() and not (project / "views/x.yaml").exists()


def test_the_empty_tree_of_a_new_project_is_filled_and_keeps_its_comments(project: Path) -> None:
    empty = Path(__file__).parents[3] / "examples" / "empty" / "topics.yaml"
    (project / "topics.yaml").write_text(empty.read_text())
    assert imported(project, DECLARED)[0] == 0
    text = (project / "topics.yaml").read_text()
    assert text.startswith(empty.read_text().removesuffix("topics: {}\n") + "topics:\n")
    assert [each.name for each in load(project / "topics.yaml").topics] == ["shop.orders"]


def test_files_that_exist_change_only_with_replace(project: Path) -> None:
    (project / "topics.yaml").write_text(
        "# ours\ntopics:\n  shop:\n    owner: shop\n    topics: {payments: {}}\n"
    )
    before = (project / "topics.yaml").read_text()
    _, _, error = imported(project, DECLARED + COUNTED)
    assert isinstance(error, Conflict) and "topics.yaml" in error.message
    assert (project / "topics.yaml").read_text() == before and not (project / "views").exists()
    assert imported(project, DECLARED + COUNTED, "--replace")[0] == 0
    assert [each.name for each in load(project / "topics.yaml").topics] == ["shop.orders", "shop.payments"]
    assert load(project / "topics.yaml").topics[0].owner == "shop"


def test_the_same_import_twice_changes_nothing(project: Path) -> None:
    assert imported(project, DECLARED + COUNTED)[0] == 0
    code, body, _ = imported(project, DECLARED + COUNTED)
    assert code == 0 and body["files"] == []


def test_a_topic_below_a_topic_and_a_topic_above_one(project: Path) -> None:
    below = DECLARED.replace("orders (", "late (").replace("shop.orders", "shop.orders.late")
    above = DECLARED.replace("orders (", "shop (").replace("shop.orders", "shop")
    assert imported(project, DECLARED + below + above)[0] == 0
    names = [each.name for each in load(project / "topics.yaml").topics]
    assert names == ["shop", "shop.orders", "shop.orders.late"]


def test_an_input_that_cannot_be_read_is_an_error(project: Path) -> None:
    done = CliRunner().invoke(app, ["ksql", str(project / "none.sql")])
    assert isinstance(done.exception, NotFound)
    assert isinstance(CliRunner().invoke(app, ["ksql", str(project)]).exception, CallerError)
    assert isinstance(imported(project, "-- nothing\n")[2], CallerError)


def test_odd_text_is_refused_and_harms_nothing(project: Path) -> None:
    text = "CREATE STREAM 'x;\nCREATE TABLE (((;\nSELECT ];" + "CREATE STREAM d AS SELECT " + "(" * 5000 + ";"
    code, body, _ = imported(project, text)
    assert code == 1 and all(each["outcome"] == "refused" for each in body["statements"])  # type: ignore[attr-defined]
