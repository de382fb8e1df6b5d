"""``hub sql`` with push queries and statements: a line for each row, remarks apart, dry runs."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hub.cli.query.push_rows import lines
from hub.cli.query.sql_session import SqlSession, StatementRefused
from hub.cli.query.sql_shell import Shell, parsed_statement
from hub.cli.terminal.rows import RowFormat
from hub.errors import PeerError

COLUMNS = {
    "event": "columns",
    "data": {"columns": [{"name": "city", "type": "string"}, {"name": "n", "type": "long"}]},
}
EVENTS: list[dict[str, Any]] = [
    COLUMNS,
    {"event": "snapshot", "data": {"key": "a", "row": {"city": "Oslo", "n": 1}}},
    {"event": "synced", "data": {"positions": ""}},
    {"event": "upsert", "data": {"key": "b", "row": {"city": None, "n": 2}}},
    {"event": "delete", "data": {"key": "a", "row": None}},
    {"event": "skipped", "data": {"unreadable": 3}},
    {"event": "alive", "data": {}},
    {"event": "complete", "data": {"rows": 2}},
]


@pytest.mark.parametrize(
    ("form", "data"),
    [
        (RowFormat.csv, ["city,n", "Oslo,1", ",2"]),
        (RowFormat.json, ['{"city": "Oslo", "n": 1}', '{"city": null, "n": 2}', '{"_deleted": "a"}']),
        (RowFormat.table, ["city         | n", "Oslo         | 1", "             | 2"]),
    ],
)
def test_a_row_is_a_line_and_all_else_a_remark(form: RowFormat, data: list[str]) -> None:
    found = list(lines(EVENTS, form))
    assert [line for line, is_data in found if is_data] == data
    remarks = " ".join(line for line, is_data in found if not is_data)
    assert "waiting for changes" in remarks and "3 events cannot be decoded" in remarks


def test_the_reason_of_an_end_is_an_error() -> None:
    with pytest.raises(PeerError, match="nothing was read for 30 s"):
        list(
            lines(
                [COLUMNS, {"event": "closing", "data": {"reason": "nothing was read for 30 s"}}],
                RowFormat.csv,
            )
        )


class Asked(SqlSession):
    """Answers without a server; records its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    def ask(self, sql: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(sql)
        return {"columns": [{"name": "item", "type": "string"}], "rows": [{"item": "x"}], "more": False}

    def follow(self, sql: str, parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        self.sent.append(f"{sql} {dict(parameters)}")
        yield from EVENTS


def test_the_shell_follows_push_queries_and_explains_changes_of_a_dry_run() -> None:
    asked, out, err = Asked(), io.StringIO(), io.StringIO()
    shell = Shell(asked, form=RowFormat.csv, parameters={"least": "1"}, out=out, err=err, dry_run=True)
    shell.script(
        "SELECT city, n FROM plant WHERE n > :least EMIT CHANGES; SHOW VIEWS; "
        "CREATE MATERIALIZED VIEW v AS SELECT 1;"
    )
    assert asked.sent == [
        "SELECT city, n FROM plant WHERE n > :least EMIT CHANGES {'least': '1'}",
        "SHOW VIEWS",
        "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1",
    ]
    assert out.getvalue().startswith("city,n\nOslo,1\n,2\n") and "waiting" in err.getvalue()


def test_statements_are_told_apart_before_they_are_sent() -> None:
    assert parsed_statement("SELECT :a, :b") == ("query", ["a", "b"])
    assert parsed_statement("SELECT n FROM t WHERE n = :a EMIT CHANGES") == ("push", ["a"])
    assert parsed_statement("DROP VIEW v")[0] == "change" and parsed_statement("SHOW VIEWS")[0] == "other"
    with pytest.raises(StatementRefused) as refused:
        parsed_statement("SELECT n FROM t GROUP BY n EMIT CHANGES")
    assert refused.value.caret is not None
