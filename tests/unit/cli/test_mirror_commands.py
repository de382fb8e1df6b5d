"""``hub mirror`` without Kafka: messages about the file, and refusals before any request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hub.cli.mirror.commands import app
from hub.cli.platform.up import children
from hub.config import Settings
from hub.errors import CallerError, ConfigError, NotFound, PeerError
from hub.replication.clusters.clusters import ClusterHandle

EXAMPLE = Path(__file__).parents[3] / "examples/mirrors/mirrors.yaml"
runner = CliRunner()


def test_the_example_is_valid_and_listed_without_its_secrets() -> None:
    done = runner.invoke(app, ["ls", "-f", str(EXAMPLE), "-o", "json"])
    assert done.exit_code == 0
    assert [row["mirror"] for row in json.loads(done.stdout)] == ["nyc-lon", "lon-nyc"]


@pytest.mark.parametrize("command", ["plan", "apply", "status", "drill", "failover", "verify", "run"])
def test_every_command_says_where_it_looked_for_the_file(command: str, tmp_path: Path) -> None:
    name = [] if command == "run" else ["nyc-lon"]
    done = runner.invoke(app, [command, *name, "-f", str(tmp_path / "none.yaml")])
    assert isinstance(done.exception, NotFound) and "none.yaml" in done.exception.message


def test_an_import_says_whose_copies_they_are(tmp_path: Path) -> None:
    done = runner.invoke(app, ["import", "nyc-lon", "-f", str(EXAMPLE)])
    assert isinstance(done.exception, CallerError) and "--from-mm2" in (done.exception.hint or "")
    gone = runner.invoke(app, ["import", "nyc-lon", "--from-mm2", "-f", str(tmp_path / "none.yaml")])
    assert isinstance(gone.exception, NotFound) and "none.yaml" in gone.exception.message


def test_a_secret_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LON_PASSWORD", raising=False)
    done = runner.invoke(app, ["plan", "-f", str(EXAMPLE)])
    assert isinstance(done.exception, ConfigError) and "LON_PASSWORD" in done.exception.message


def test_a_wrong_name_gets_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LON_PASSWORD", "x")
    done = runner.invoke(app, ["pause", "nyc-lonn", "-f", str(EXAMPLE)])
    assert isinstance(done.exception, NotFound) and "nyc-lon" in (done.exception.hint or "")


def test_mirrors_that_go_round_are_listed_and_refused(tmp_path: Path) -> None:
    file = tmp_path / "mirrors.yaml"
    file.write_text(
        "clusters: {nyc: {bootstrap: 'h:1'}, lon: {bootstrap: 'h:2'}}\n"
        "mirrors:\n"
        "  there: {source: nyc, target: lon, topics: ['chat.**']}\n"
        "  back: {source: lon, target: nyc, topics: ['chat.**']}\n"
    )
    done = runner.invoke(app, ["ls", "-f", str(file)])
    assert done.exit_code == 1 and "travel in a cycle" in done.stderr
    refused = runner.invoke(app, ["plan", "-f", str(file)])
    assert isinstance(refused.exception, ConfigError) and "owns" in (refused.exception.hint or "")


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(reached: ClusterHandle, **more: object) -> None:
        raise PeerError(f'Kafka at "{reached.kafka.bootstrap}" does not answer', code="HUB-3010")

    monkeypatch.setattr("hub.replication.clusters.readers.read_control_state", away)
    file = tmp_path / "mirrors.yaml"
    file.write_text(
        "clusters: {nyc: {bootstrap: 'h:1'}, lon: {bootstrap: 'h:2'}}\n"
        "mirrors: {m: {source: nyc, target: lon, topics: ['a.**']}}\n"
    )
    error = runner.invoke(app, ["plan", "-f", str(file)]).exception
    assert isinstance(error, PeerError) and error.message.startswith('cluster "lon": Kafka at "h:2"')
    assert error.code == "HUB-3010" and "h:2" in (error.hint or "")


def test_every_command_has_an_example() -> None:
    for command in app.registered_commands:
        assert command.callback is not None and "Example: hub mirror" in (command.callback.__doc__ or "")


def test_hub_up_starts_a_worker_where_the_project_has_mirrors(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", project=tmp_path)
    assert "mirror" not in [child.name for child in children(settings)]
    (tmp_path / "mirrors.yaml").write_text("clusters: {a: {bootstrap: 'h:1'}}")
    (worker,) = [child for child in children(settings) if child.name == "mirror"]
    assert list(worker.command())[-2:] == ["mirror", "run"]
    assert worker.environment["HUB_PROJECT"] == str(tmp_path)
