"""``hub sql``: the shell through prompt_toolkit's own input, scripts without a terminal,
what rows look like."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from hub.cli.query.sql import sql
from hub.cli.query.sql_completion import proposals
from hub.cli.query.sql_session import SqlSession, StatementRefused
from hub.cli.query.sql_shell import Shell, history_file
from hub.cli.terminal.rows import RowFormat, cell, footer, rendered, width
from hub.errors import CallerError
from hub.home_key import OWN, make_key, own_password

ANSWER: dict[str, Any] = {
    "columns": [
        {"name": "city", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "tags", "type": "json"},
    ],
    "rows": [{"city": "Oslo", "n": 5, "tags": [1, {"a": "é"}]}, {"city": None, "n": 12, "tags": None}],
    "more": False,
    "scanned": [],
    "elapsed_ms": 3,
}
TABLES = {
    "views": [
        {
            "view": "plant",
            "columns": [{"name": "key", "type": "string"}, {"name": "city", "type": "string"}],
            "hidden": [{"name": "_version", "type": "long"}],
            "indexes": ["city"],
        }
    ],
    "functions": ["count", "coalesce", "lower"],
}


class Server(SqlSession):
    """Answers without a server; records its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.fails: Exception | BaseException | None = None
        self.answer = ANSWER

    def ask(self, sql: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((sql, dict(parameters)))
        if self.fails is not None:
            fails, self.fails = self.fails, None
            raise fails
        return self.answer

    def tables(self) -> dict[str, Any]:
        return TABLES

    def topics(self) -> list[dict[str, Any]]:
        return [{"topic": "nyc.jfk.departures", "partitions": 2, "end_offsets": 40}]

    def topic(self, name: str) -> dict[str, Any]:
        assert name == "nyc.jfk.departures"
        return {
            "columns": [{"name": "delay", "type": "long"}],
            "hidden": [{"name": "_value", "type": "json"}],
        }

    def saved(self) -> list[dict[str, Any]]:
        return [{"query": "in_city", "parameters": ["city"], "doc": "Plants."}]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def typed(server: Server, keys: str, **more: Any) -> str:
    """Return the shell's output for these keys; it ends by itself."""
    out = io.StringIO()
    with create_pipe_input() as keyboard:
        keyboard.send_text(keys)
        Shell(server, out=out, err=out, **more).interactive(keyboard, DummyOutput())
    return out.getvalue()


def test_a_statement_goes_over_lines_until_its_semicolon(server: Server, state: Path) -> None:
    shown = typed(server, "SELECT city,\r n FROM plant\r;\r\\q\r")
    assert [sql for sql, _ in server.asked] == ["SELECT city,\n n FROM plant"]
    assert "Oslo" in shown and "(2 rows)" in shown
    assert "+SELECT city," in (state / "hub" / "sql_history").read_text()
    assert stat.S_IMODE(history_file().stat().st_mode) == 0o600


def test_an_error_shows_its_place_and_the_shell_goes_on(server: Server) -> None:
    shown = typed(server, "SELECT FROM FROM;\r\\nonsense\r\\tming\rSELECT 1;\r\x04")
    assert "SELECT FROM FROM\n" in shown and "^^^^" in shown and "Error HUB-1442" in shown
    assert "no command \\nonsense" in shown and "did you mean \\timing?" in shown
    assert [sql for sql, _ in server.asked] == ["SELECT 1"]


def test_ctrl_c_stops_the_query_and_not_the_shell(server: Server) -> None:
    server.fails = KeyboardInterrupt()
    shown = typed(server, "SELECT 1;\rSELECT 2;\r\\q\r")
    assert "Stopped." in shown and "(2 rows)" in shown
    assert len(server.asked) == 2


def test_ctrl_c_at_the_prompt_drops_the_line(server: Server) -> None:
    typed(server, "SELECT nonsense\x03SELECT 2;\r\\q\r")
    assert [sql for sql, _ in server.asked] == ["SELECT 2"]


def test_watch_asks_again_until_it_is_stopped(server: Server) -> None:
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    shown = typed(server, "SELECT 1; \\watch 0.5\r\\q\r", sleep=sleep)
    assert len(server.asked) == 4 and naps == [0.5] * 3
    assert "every 0.5 s" in shown and "Stopped." in shown
    assert "run a query first" in typed(Server(), "\\watch\r\\q\r")


def test_what_there_is(server: Server) -> None:
    shown = typed(server, "\\d\r\\d plant\r\\d nyc.jfk.departures\r\\dt\r\\dq\r\\d plnt\r\\?\r\\q\r")
    for part in (
        "plant",
        "index",
        "not in *",
        "delay",
        "_value",
        "40",
        "in_city",
        'did you mean "plant"?',
        "\\watch",
    ):
        assert part in shown


def test_toggles_parameters_and_files(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    shown = typed(
        server,
        f"\\x\r\\timing\r\\set city 'New York'\rSELECT :city;\r\\o {file}\rSELECT 2;\r\\o\r\\unset "
        "city\rSELECT 3;\r\\q\r",
    )
    assert "-[ RECORD 1 ]" in shown and "Time: " in shown
    assert server.asked[0] == ("SELECT :city", {"city": "New York"})
    assert file.read_text().startswith("-[ RECORD 1 ]") and file.read_text().count("Oslo") == 1
    assert shown.count("Oslo") == 2


def test_a_script_ends_at_its_first_error(server: Server, tmp_path: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    shell = Shell(server, form=RowFormat.csv, out=out, err=err)
    shell.script("SELECT 1;\n\\timing on\n-- a comment;\nSELECT 2; SELECT\n ';' AS x;\nSELECT 4")
    assert server.asked[0][0] == "SELECT 1" and len(server.asked) == 4
    assert out.getvalue().startswith('city,n,tags\nOslo,5,"[1, {""a"": ""é""}]"\n,12,\n')
    assert "Time:" in err.getvalue()
    with pytest.raises(StatementRefused, match="DROP TABLE is not supported"):
        shell.script("SELECT 5; DROP TABLE x; SELECT 6;")
    assert len(server.asked) == 5 and "DROP TABLE x\n^^^^" in err.getvalue()
    other = tmp_path / "more.sql"
    other.write_text("SELECT 7;\n")
    shell.script(f"\\i {other}\nSELECT 8;")
    assert [sql for sql, _ in server.asked][-2:] == ["SELECT 7", "SELECT 8"]


def test_json_is_one_array_and_remarks_are_elsewhere(server: Server) -> None:
    out, err = io.StringIO(), io.StringIO()
    Shell(server, form=RowFormat.json, out=out, err=err).script("SELECT 1;")
    assert json.loads(out.getvalue()) == ANSWER["rows"] and err.getvalue() == ""
    assert rendered({**ANSWER, "rows": []}, RowFormat.json) == "[]\n"


@pytest.mark.parametrize(
    ("before", "whole", "wanted"),
    [
        ("SELECT * FROM pl", "", ["plant"]),
        ("SELECT * FROM plant p JOIN ", "", ["plant", '"nyc.jfk.departures"']),
        ('SELECT * FROM "nyc', "", ['"nyc.jfk.departures"']),
        ("SELECT * FROM jfk", "", ['"nyc.jfk.departures"']),
        ("SELECT ci", "SELECT ci FROM plant", ["city"]),
        ("SELECT p.", "SELECT p. FROM plant AS p", ["key", "city"]),
        ("SELECT d.", 'SELECT d. FROM "nyc.jfk.departures" d', ["delay"]),
        ("SELECT co", "", ["count(", "coalesce("]),
        ("SELECT 1 LIM", "", ["LIMIT"]),
        ("\\d", "", ["\\d", "\\dt", "\\dq"]),
        ("\\d nyc", "", ["nyc.jfk.departures"]),
    ],
)
def test_completion(server: Server, before: str, whole: str, wanted: list[str]) -> None:
    found = proposals(server, before, whole or before)
    assert [word for word, _, _ in found] == wanted


class Screen(DummyOutput):
    """Terminal that keeps the characters written to it."""

    text = ""

    def write(self, data: str) -> None:
        self.text += data


def test_tab_completes_in_the_shell(server: Server) -> None:
    out, screen = io.StringIO(), Screen()
    with create_pipe_input() as keyboard:

        def end_statement() -> None:
            try:
                wait_until(lambda: "ant" in screen.text)  # the completion is on the screen
            finally:
                keyboard.send_text(";\r\\q\r")

        keyboard.send_text("SELECT lower(ci) FROM pl\t")
        rest = threading.Thread(target=end_statement)
        rest.start()
        Shell(server, out=out, err=out).interactive(keyboard, screen)
        rest.join()
    assert server.asked[0][0] == "SELECT lower(ci) FROM plant"


def test_a_table_is_aligned_whatever_is_in_it() -> None:
    assert rendered(ANSWER, RowFormat.table) == (
        " city | n  |       tags      \n------+----+-----------------\n".replace("tags      \n", "tags\n")
        + ' Oslo |  5 | [1, {"a": "é"}]\n      | 12 |\n'
    )
    wide = {"columns": [{"name": "x", "type": "string"}], "rows": [{"x": "日本"}, {"x": "a"}]}
    assert rendered(wide, RowFormat.table).splitlines()[1] == "------"
    assert (width("日本"), width("e\u0301")) == (4, 1)


def test_data_holds_no_terminal_commands() -> None:
    hostile = "a\x1b]0;title\x07\x1b[2Jb\nc\u202e"
    assert cell(hostile).isprintable() and "\x1b" not in cell(hostile)


def test_neither_do_json_and_csv_for_a_terminal() -> None:
    hostile = "\x9b2J\x7f\x1b[2J"
    answer = {**ANSWER, "columns": ANSWER["columns"][:1], "rows": [{"city": hostile}]}
    assert "\x9b" not in rendered(answer, RowFormat.json) and "\x7f" not in rendered(answer, RowFormat.json)
    assert json.loads(rendered(answer, RowFormat.json)) == answer["rows"]
    assert rendered(answer, RowFormat.csv) == f"city\n{hostile}\n"  # a pipe gets what there is

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    server, out = Server(), Terminal()
    server.answer = answer
    Shell(server, form=RowFormat.csv, out=out, err=out).script("SELECT 1;")
    assert out.getvalue() == "city\n\\x9b2J\\x7f\\x1b[2J\n"


def test_a_comment_hides_neither_the_semicolon_nor_the_command_behind_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.cli.query.sql.SqlSession", lambda **_: server)
    sql(command=["SELECT 1 -- one;", "SELECT 2;", "\\x"])
    assert [asked for asked, _ in server.asked] == ["SELECT 1 -- one;", "SELECT 2"]
    out = io.StringIO()
    Shell(server, out=out, err=out).script("-- views, then topics\n\\d\n/* and\n */ \n\\dt\nSELECT 3;")
    assert "plant" in out.getvalue() and "nyc.jfk.departures" in out.getvalue()
    assert server.asked[-1][0] == "SELECT 3"


def test_a_semicolon_and_a_backslash_in_a_text_are_a_text(server: Server) -> None:
    typed(server, "SELECT 'x; \\d' AS a\r, 1;\r\\q\r")
    assert [asked for asked, _ in server.asked] == ["SELECT 'x; \\d' AS a\n, 1"]


def test_a_file_that_is_run_writes_where_answers_go_and_shows_its_error_once(
    server: Server, tmp_path: Path
) -> None:
    out, good, wrong = tmp_path / "out.txt", tmp_path / "good.sql", tmp_path / "wrong.sql"
    good.write_text("SELECT 1;")
    wrong.write_text("SELECT FROM FROM;")
    shown = typed(server, f"\\o {out}\r\\i {good}\rSELECT 2;\r\\o\r\\i {wrong}\r\\q\r")
    assert out.read_text().count("Oslo") == 2 and "Oslo" not in shown
    assert shown.count("^^^^") == 1


def test_a_file_that_takes_no_more_is_said_and_the_shell_goes_on(server: Server) -> None:
    shown = typed(server, "\\o /dev/full\rSELECT 1;\rSELECT 2;\r\\q\r")
    assert 'file "/dev/full" cannot be written: No space left on device' in shown
    assert shown.count("Oslo") == 1


def test_a_script_that_is_too_long_is_refused_and_not_cut(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.cli.query.sql.SqlSession", lambda **_: server)
    file = tmp_path / "long.sql"
    file.write_text("SELECT 1;\n" + " " * 1_000_000 + "SELECT 2;")
    with pytest.raises(CallerError, match="1 000 000"):
        sql(file=file)
    assert server.asked == []


def test_the_footer_says_at_which_cut_the_views_are() -> None:
    assert footer({**ANSWER, "cut": {"name": "shop", "at": "in:0:7"}})[-1] == "Cut shop: all views at in:0:7"


def test_the_footer_names_views_that_are_not_up_to_date() -> None:
    last = footer({**ANSWER, "catching_up": ["orders", "stock"]})[-1]
    assert (
        last == "Not up to date: orders, stock still read a backlog, later events are missing; see: hub lag"
    )


def test_the_footer_says_what_was_scanned_and_that_there_is_more() -> None:
    partition = {
        "topic": "t",
        "partition": 0,
        "from": 5,
        "to": 9,
        "events": 4,
        "unreadable": 1,
        "earlier_left_out": True,
    }
    lines = footer(
        {**ANSWER, "rows": ANSWER["rows"][:1], "more": True, "scanned": [partition]}, timing_ms=7.2
    )
    assert lines[0] == "(1 row; there are more)"
    assert lines[1] == "Scanned t: 4 events, offsets 0:5-9; 1 could not be read; earlier ones are left out"
    assert lines[2].startswith("Time: 7 ms")


def test_the_command_takes_statements_files_and_pipes(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hub.cli.query.sql.SqlSession", lambda **_: server)
    sql(command=["SELECT 1 -- one", "SELECT :a"], parameter=["a=b=c"], output=RowFormat.csv)
    assert server.asked == [("SELECT 1 -- one", {}), ("SELECT :a", {"a": "b=c"})]
    file = tmp_path / "report.sql"
    file.write_text("SELECT 2;")
    sql(file=file)
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 3;"))
    sql()
    assert [asked for asked, _ in server.asked][2:] == ["SELECT 2", "SELECT 3"]
    assert "Oslo" in capsys.readouterr().out
    with pytest.raises(CallerError, match="do not go together"):
        sql(file=file, command=["SELECT 1"])
    with pytest.raises(CallerError) as refusal:
        sql(command=["SELECT 1"], parameter=["nonsense"])
    assert refusal.value.hint == "write name=value"
    with pytest.raises(CallerError, match="cannot be read"):
        sql(file=tmp_path / "none.sql")


@pytest.mark.processes
def test_other_commands_do_not_pay_for_the_shell() -> None:
    code = """
import sys
from hub.cli import main
try:
    main(["query", "--help"])
except SystemExit:
    pass
print([name for name in ("prompt_toolkit", "pygments", "sqlglot", "sqlalchemy") if name in sys.modules], file=sys.stderr)
"""  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"
    shell = code.replace('"query"', '"sql"')
    done = subprocess.run(
        [sys.executable, "-c", shell], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]" and "hub sql" in done.stdout


def test_it_asks_the_hubs_own_server_with_the_key_of_the_home_or_the_token_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str | None] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"queries": []}')

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUB_TOKEN", raising=False)
    with HTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        monkeypatch.setenv("HUB_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HUB_HTTP_PORT", str(hub.server_port))
        (tmp_path / "home").mkdir()
        own = ":".join((OWN, own_password(make_key(tmp_path / "home"))))
        SqlSession().saved()
        monkeypatch.setenv("HUB_TOKEN", "ana:secret")
        SqlSession().saved()
        hub.shutdown()
    first, told = heard
    assert [first, told] == [f"Basic {b64encode(each.encode()).decode()}" for each in (own, "ana:secret")]
