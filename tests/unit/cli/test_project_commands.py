"""``hub init``, ``config``, ``logs`` and ``status``: their output and files, without a running hub."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from oidc_provider import oidc_provider

from hub.cli import main
from hub.cli.platform import status
from hub.cli.platform.demo import EXAMPLES
from hub.cli.platform.doctor import CHECKS
from hub.cli.platform.init import PROJECTS
from hub.config import Settings
from hub.errors import ConfigError, PeerError
from hub.materializers.definition.load import load_views
from hub.supervisor import RunningHub
from hub.topics.tree.tree import load


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HUB_HOME", "HUB_PROJECT"):
        monkeypatch.setenv(name, "")  # restored after the test, also when the command sets it
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_every_example_that_is_a_project_is_offered() -> None:
    whole = {folder.name for folder in EXAMPLES.iterdir() if (folder / "topics.yaml").exists()}
    assert whole == set(PROJECTS)


def test_init_prints_commands_that_exist_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`./run hub` was printed in every folder, and exists in the checkout alone."""
    assert run("init", "mine") == 0
    assert "  hub --project mine view test" in capsys.readouterr().out
    monkeypatch.chdir(EXAMPLES.parent)
    assert run("init", str(tmp_path / "other")) == 0
    assert "  ./run hub --project " in capsys.readouterr().out


@pytest.mark.parametrize("example", PROJECTS)
def test_each_example_makes_a_project_that_loads(example: str, tmp_path: Path) -> None:
    assert run("init", "mine", "--from", example) == 0
    project = tmp_path / "mine"
    assert bool(load(project / "topics.yaml").topics) == (example != "empty")
    assert bool(list(load_views(project))) == (example not in ("empty", "fan-out", "domain-events"))
    assert ".hub/" in (project / ".gitignore").read_text()
    assert run("--project", str(project), "config", "show") == 0  # its hub.yaml is read


def test_a_folder_with_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "topics.yaml").write_text("topics: {}")
    assert run("init", "mine") == 1
    assert "HUB-1130" in capsys.readouterr().err
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["topics.yaml"]


def test_an_unknown_example_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init", "mine", "--from", "customer360") == 2
    assert "did you mean customer-360?" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert run(*arguments, "-o", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_config_says_where_each_value_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hub.yaml").write_text("http_port: 9001\nlag_objective_s: 5\n")
    monkeypatch.setenv("HUB_HTTP_PORT", "9002")
    rows = {row["setting"]: row for row in shown(capsys, "config", "show")}
    assert (rows["http_port"]["value"], rows["http_port"]["from"]) == (9002, "environment")
    assert (rows["lag_objective_s"]["value"], rows["lag_objective_s"]["from"]) == (5.0, "hub.yaml")
    assert rows["spark_heap_mb"]["from"] == "default"
    assert "running hub" not in {row["from"] for row in rows.values()}, "none runs"
    changed = {row["setting"] for row in shown(capsys, "config", "show", "--changed")}
    assert {"http_port", "lag_objective_s"} <= changed
    assert "spark_heap_mb" not in changed


def test_config_shows_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hub.yaml").write_text(
        "embedded_kafka: false\nstore_url: postgresql+psycopg://hub:planted1@db/hub\n"
        "connect_urls: ['http://ana:planted2@connect:8083']\n"
        "sasl: {mechanism: PLAIN, username: hub, password: '${PASSWORD_OF_KAFKA}'}\n"
        "spark_conf: {spark.ssl.keyPassword: planted3, spark.authenticate.secret: planted4}\n"
    )
    monkeypatch.setenv("PASSWORD_OF_KAFKA", "planted5")
    monkeypatch.setenv("HUB_TOKEN", "planted6")
    said = json.dumps(shown(capsys, "config", "show")) + json.dumps(
        shown(capsys, "config", "explain", "sasl")
    )
    assert "planted" not in said
    assert "postgresql+psycopg://db/hub" in said


def test_config_explains_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, "config", "explain", "lag_objective_s")
    assert told["variable"] == "HUB_LAG_OBJECTIVE_S"
    assert told["default"] == 10.0
    assert told["meaning"]
    assert run("config", "explain", "lag_objektive_s") == 2
    assert "lag_objective_s" in capsys.readouterr().err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home" / "logs").mkdir(parents=True)
    monkeypatch.setenv("HUB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_logs_are_merged_by_time_and_keep_what_follows_a_line_beside_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "logs/server.log").write_text(
        "2026-01-01 10:00:00,000 INFO hub: one\n2026-01-01 10:00:02,000 ERROR hub: "
        "three\nTraceback: in three\n"
    )
    (home / "logs/kafka.log").write_text("[2026-01-01 10:00:01,500] INFO two\nhalf a line")
    assert run("logs") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["server", "kafka", "server", "server"]
    assert [line.split()[-1] for line in lines] == ["one", "two", "three", "three"]
    assert run("logs", "server", "--errors", "-n", "1") == 0
    assert capsys.readouterr().out == "server  Traceback: in three\n"


def test_logs_hold_no_terminal_commands(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "logs/server.log").write_text("\x1b[2Jgone\n")
    assert run("logs") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_logs_of_no_such_process_name_those_there_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("logs") == 1
    assert "HUB-1418" in capsys.readouterr().err
    (home / "logs/server.log").write_text("x\n")
    assert run("logs", "sever") == 1
    assert "known are: server" in capsys.readouterr().err


OVERVIEW: dict[str, Any] = {
    "kafka": {"state": "up", "bootstrap": "k:9092", "error": None},
    "connect": None,
    "cut_off": [],
    "totals": {"events": 12, "events_per_second": 1.0, "views_live": 1, "undecodable": 0, "alerts_firing": 0},
    "topics": [{"name": "shop.orders", "kind": "events", "undecodable": 0}],
    "views": [{"name": "totals", "state": "live"}],
}
LAG: list[dict[str, Any]] = [{"name": "totals", "state": "OK", "cause": "everything is read"}]


def states(overview: dict[str, Any], lag: list[dict[str, Any]]) -> dict[str, str]:
    return {each.part: each.state.value for each in status.parts(overview, lag)}


def test_a_hub_that_is_well_is_ok_in_every_part() -> None:
    assert set(states(OVERVIEW, LAG).values()) == {"OK"}


@pytest.mark.parametrize(
    ("change", "part", "state"),
    [
        ({"kafka": {"state": "down", "bootstrap": "k", "error": "no answer"}}, "kafka", "BAD"),
        ({"kafka": {"state": "connecting", "bootstrap": "k", "error": None}}, "kafka", "UNKNOWN"),
        ({"cut_off": [{"process": "applier"}]}, "kafka", "BAD"),
        ({"connect": {"failed": None}}, "connect", "UNKNOWN"),
        ({"connect": {"failed": 2}}, "connect", "BAD"),
        ({"views": [{"name": "totals", "state": "retrying"}]}, "views", "WARN"),
        ({"views": [{"name": "totals", "state": "unknown"}]}, "views", "UNKNOWN"),
        ({"totals": {**OVERVIEW["totals"], "views_live": None}}, "views", "UNKNOWN"),
        ({"totals": {**OVERVIEW["totals"], "events": None}}, "topics", "UNKNOWN"),
        ({"totals": {**OVERVIEW["totals"], "undecodable": None}}, "dead letters", "UNKNOWN"),
        ({"totals": {**OVERVIEW["totals"], "undecodable": 3}}, "dead letters", "WARN"),
        ({"totals": {**OVERVIEW["totals"], "alerts_firing": 1}}, "alerts", "BAD"),
        ({"totals": {**OVERVIEW["totals"], "alerts_firing": None}}, "alerts", "off"),
    ],
)
def test_what_is_wrong_or_unknown_is_said_of_its_part(change: dict[str, Any], part: str, state: str) -> None:
    assert states({**OVERVIEW, **change}, LAG)[part] == state


def test_views_that_the_server_does_not_know_yet_are_unknown_and_not_none() -> None:
    """Seconds after `hub up`, a project with a view had "the project has none"."""
    overview = {**OVERVIEW, "views": []}
    (line,) = [each for each in status.parts(overview, [], 2) if each.part == "views"]
    assert (line.state, line.found) == ("UNKNOWN", "2 in views/, not reported yet")
    assert states(overview, [])["views"] == "off"


def test_the_worst_lag_gives_its_line_the_state_and_the_cause() -> None:
    rows = [{"name": "slow", "state": "STALLED", "cause": "nothing moved for 41 s"}, *LAG]
    (line,) = [each for each in status.parts(OVERVIEW, rows) if each.part == "lag"]
    assert line.state == "BAD"
    assert line.found == "1 STALLED, 1 OK: slow, nothing moved for 41 s"


def test_processes_that_are_missing_are_named() -> None:
    assert status.processes(None).state == "off"
    told = status.processes(RunningHub(False, {}, {}, ("materializer",)))
    assert (told.state, told.more) == ("BAD", "hub logs materializer")


def test_a_hub_that_does_not_run_is_exit_code_1(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status") == 1
    assert "hub up" in capsys.readouterr().out


def test_a_drafted_view_is_valid_and_never_written_over_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", "tea") == 0
    command = ("--project", "tea", "view", "new", "members", "--from", "tea.members", "--from", "tea.orders")
    assert run(*command, "--dry-run") == 0
    assert not (tmp_path / "tea/views/members.yaml").exists()
    assert run(*command) == 0
    assert run("--project", "tea", "view", "validate", "--no-spark") == 0
    capsys.readouterr()
    assert run(*command) == 1
    assert "HUB-1130" in capsys.readouterr().err
    assert run("--project", "tea", "view", "new", "x", "--from", "tea.nothing") == 1
    assert "HUB-1419" in capsys.readouterr().err


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Yield the port of a server that answers every request with this status."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"message": "who asks?"}'
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(10)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "who asks?"),
        (404, "nor in a hub that runs"),
        (503, "no hub could be asked: who asks?"),
        (0, "no hub could be asked: hub server"),
    ],
)
def test_a_draft_names_why_a_topic_has_no_schema(
    status: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(status or 404) as port:
        monkeypatch.setenv("HUB_HTTP_PORT", str(port if status else 1))
        assert run("view", "new", "mine", "--from", "shop.orders", "--key", "id") == 1
    told = capsys.readouterr().err
    assert said in " ".join(told.split())
    assert ("no schema" in told) == (status != 401)


def test_the_doctor_asks_the_identity_provider(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path / "home", project=tmp_path)

    def found() -> tuple[str, str]:
        finding = CHECKS["identity"](settings)
        return finding.verdict, finding.found

    assert found()[0] == "off"
    with oidc_provider() as provider:
        (tmp_path / "access.yaml").write_text(
            f"oidc: {{issuer: {provider.issuer}, audience: event-hub, client_id: hub,"
            " client_secret: '${NO_SECRET}'}\n"
        )
        with pytest.raises(ConfigError, match="NO_SECRET is not set"):
            found()
        monkeypatch.setenv("NO_SECRET", "x")
        assert found() == ("OK", f"{provider.issuer} answers with its keys")
        provider.away = True
        with pytest.raises(PeerError, match="does not answer: status 503"):
            found()
