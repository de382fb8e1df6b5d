"""The command line's own rules: lazy, data apart from remarks, exit codes, settings with the way out."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import psutil
import pytest

from hub.cli import COMMANDS, LazyGroup, app, fail, load_command, main
from hub.cli.context import environment_of, load_settings, where_to_find
from hub.cli.http import answer_body
from hub.cli.platform.up import answers_health
from hub.cli.query.watch import print_change
from hub.cli.terminal.output import Output, note, show, show_one, text_of
from hub.cli.topic.commands import draw
from hub.config import Settings
from hub.errors import ConfigError, HubError, PeerError
from hub.observability import format
from hub.topics.tree.tree import load

HEAVY = ("fastapi", "pyspark", "confluent_kafka", "sqlalchemy", "pydantic", "rich", "psutil")


@pytest.mark.processes
def test_help_imports_nothing_heavy() -> None:
    """This is what keeps `hub --help` under 300 ms, without a test that depends on the clock."""
    code = f"""
import sys
from hub.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"
    assert all(
        noun in done.stdout
        for noun in ["demo", "up", "down", "doctor", "schema", "topic", "view", "query", "watch", "lag"]
    )
    assert "apply-changelogs" not in done.stdout


def test_every_listed_command_has_a_module_that_loads() -> None:
    for name in COMMANDS:
        assert load_command(name) is not None


def test_wrong_usage_is_2_and_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topics"])
    assert ended.value.code == 2
    assert "topic" in capsys.readouterr().err


def test_a_hub_error_is_one_message_its_hint_and_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_KAFKA_PORT", "ninety")
    with pytest.raises(SystemExit) as ended:
        main(["down"])
    captured = capsys.readouterr()
    assert ended.value.code == 1
    assert captured.out == ""
    assert captured.err.startswith('Error HUB-1101: setting "kafka_port"')
    assert "HUB_KAFKA_PORT" in captured.err
    assert "Traceback" not in captured.err


def test_an_unknown_setting_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "hub.yaml").write_text("kafka_prot: 9092\n")
    with pytest.raises(ConfigError, match='setting "kafka_prot" is not known') as refusal:
        load_settings(project=tmp_path)
    assert refusal.value.hint == 'did you mean "kafka_port"?'


def test_files_that_are_not_read_for_the_end_of_their_names_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A view in views/orders.yml was missing without a message."""
    (tmp_path / "views").mkdir()
    for name in ("hub.yml", "views/orders.yml", "views/both.yml", "views/both.yaml", "views/.orders.yml"):
        (tmp_path / name).touch()
    for _ in range(2):
        load_settings(project=tmp_path)
    told = capsys.readouterr().err
    assert (
        told.count("not read") == 1
        and ": hub.yml, views/orders.yml. Rename the files that it should read to .yaml" in told
    )


def test_flag_beats_environment_beats_file_beats_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hub.yaml").write_text("http_port: 1001\nkafka_port: 1002\nspark_heap_mb: 700\n")
    monkeypatch.setenv("HUB_PROJECT", str(tmp_path))
    monkeypatch.setenv("HUB_KAFKA_PORT", "2002")
    monkeypatch.setenv("HUB_HTTP_PORT", "2001")
    settings = load_settings(http_port=3001, kafka_port=None)
    assert (settings.http_port, settings.kafka_port, settings.spark_heap_mb) == (3001, 2002, 700)
    assert settings.bootstrap == "127.0.0.1:2002"


def _runs(home: Path, **found_by: object) -> None:
    """This very process is the hub of that home."""
    me = psutil.Process()
    content = {"healthy": True, "processes": {"supervisor": [me.pid, me.create_time()]}}
    home.mkdir(exist_ok=True)
    (home / "hub.pid").write_text(
        json.dumps(content | {"found_by": {k: str(v) for k, v in found_by.items()}})
    )


def test_a_running_hub_is_found_by_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, elsewhere, folder = tmp_path / "example", tmp_path / "elsewhere", tmp_path / "shell"
    for each in (example, elsewhere, folder):
        each.mkdir()
    (example / "hub.yaml").write_text("http_port: 1001\nspark_heap_mb: 700\n")
    (elsewhere / "hub.yaml").write_text("http_port: 4001\n")
    for name in ("PROJECT", "HOME", "HTTP_PORT", "KAFKA_PORT"):  # --project and --home leave theirs behind
        monkeypatch.delenv(f"HUB_{name}", raising=False)
    monkeypatch.chdir(folder)
    assert (load_settings().project, load_settings().http_port) == (Path("."), 8088)  # none runs

    started = Settings(project=example, http_port=3001, kafka_port=3002)
    _runs(folder / ".hub", **where_to_find(started))
    found = load_settings()
    assert (found.project, found.http_port, found.spark_heap_mb) == (example, 3001, 700)
    assert found.bootstrap == "127.0.0.1:3002"
    assert load_settings(http_port=5001).http_port == 5001
    monkeypatch.setenv("HUB_HTTP_PORT", "2001")
    assert load_settings().http_port == 2001
    monkeypatch.delenv("HUB_HTTP_PORT")

    assert load_settings(project=example).http_port == 3001  # it is this one that runs
    assert load_settings(project=elsewhere).http_port == 4001  # another is meant, whatever runs here
    (folder / "views").mkdir()
    assert (load_settings().project, load_settings().http_port) == (Path("."), 8088)


def test_a_child_gets_the_very_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(
        project=tmp_path,
        home=tmp_path / "home",
        cache=tmp_path,
        embedded_kafka=False,
        bootstrap="k:1",
        java=Path("/j"),
    )
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)
    assert load_settings().model_dump() == settings.model_dump()


def test_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "crm.customers", "lag": 3, "late": None}, {"topic": "[web]", "lag": 12, "late": True}]
    show(rows, Output.json)
    assert json.loads(capsys.readouterr().out) == rows
    show(rows)
    lines = capsys.readouterr().out.splitlines()
    assert any("crm.customers" in line and "3" in line for line in lines)
    assert any("[web]" in line and "yes" in line for line in lines)
    show([], Output.json)
    assert json.loads(capsys.readouterr().out) == []
    show_one({"key": "c-1"}, Output.json)
    assert json.loads(capsys.readouterr().out) == {"key": "c-1"}
    assert text_of({"a": [1, None]}) == '{"a":[1,null]}'


def test_what_is_between_colons_is_no_emoji(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A dead-letter record of partition 100 was shown as from "shop.orders💯7"."""
    words = ("shop.orders:100:7", "urn:id:5", "a:m:b")
    show([dict.fromkeys(words, 1), {word: word for word in words}])
    show_one({word: word for word in words})
    (tmp_path / "topics.yaml").write_text("topics:\n  a:\n    doc: 'urn:id:5'\n    owner: 'a:m:b'\n")
    draw(load(tmp_path / "topics.yaml"))
    said = capsys.readouterr().out
    assert [said.count(word) for word in words] == [4, 5, 5]


def test_spaces_of_any_width_are_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    """Counts have thin ones, names of people have wide ones."""
    thousands = format.count(18_204)
    show([{"records": thousands, "name": "山田\u3000太郎", "line": "a\u2028b"}])
    note("10\u00a0kB")
    said = capsys.readouterr()
    assert thousands in said.out and "山田\u3000太郎" in said.out and "10\u00a0kB" in said.err
    assert "a\\u2028b" in said.out


def test_the_group_is_lazy() -> None:
    assert app.info.cls is LazyGroup


def test_a_process_makes_its_home_folder_or_says_why_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[object] = []
    monkeypatch.setattr("hub.api.create_app", served.append)
    monkeypatch.setattr("uvicorn.Server.run", lambda _self: None)
    home = tmp_path / "not" / "there"
    monkeypatch.setenv("HUB_HOME", str(home))
    with pytest.raises(SystemExit) as ended:
        main(["serve"])
    assert (ended.value.code or 0) == 0 and home.is_dir() and len(served) == 1
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HUB_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(SystemExit) as ended:
        main(["serve"])
    said = capsys.readouterr().err
    assert ended.value.code == 1 and len(served) == 1
    assert "HUB-1113" in said and "cannot be made" in said and "HUB_HOME" in said and "Traceback" not in said


def test_what_is_printed_of_data_holds_no_terminal_commands(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[2J\x9b2Jb\u202e"
    show([{"name": hostile, "at": 1}])
    note(hostile)
    fail(HubError(hostile, hint=hostile))
    print_change(hostile, {}, {"name": hostile, "lines": "a\nb"}, Output.table)
    said = "".join(capsys.readouterr())
    assert said.count("a\\x1b[2J\\x9b2Jb\\u202e") == 6 and "+lines=a↵b" in said
    assert not {"\x1b", "\x9b", "\u202e"} & set(said)
    show_one({"x": hostile}, Output.json)
    said = capsys.readouterr().out
    assert not {"\x1b", "\x9b"} & set(said) and json.loads(said) == {"x": hostile}


def test_a_tree_shows_its_words_as_they_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "topics.yaml").write_text(
        "topics:\n  a:\n    doc: 'ids are [/A/], [red]'\n    owner: '[bold]'\n"
    )
    draw(load(tmp_path / "topics.yaml"))
    said = capsys.readouterr().out
    assert "ids are [/A/], [red]" in said and "[bold]" in said


def test_another_program_at_the_hubs_port_is_said_to_be_that() -> None:
    answer = httpx2.Response(
        200, text="<html>", request=httpx2.Request("GET", "http://127.0.0.1:8088/lag?x=1")
    )
    with pytest.raises(PeerError, match='the server at "http://127.0.0.1:8088/" is not a hub'):
        answer_body(answer)


def test_a_program_that_speaks_no_http_is_no_healthy_hub() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as line:
                line.recv(4096)
                line.sendall(b"220 mail\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        assert answers_health(f"http://127.0.0.1:{listening.getsockname()[1]}") is False
