"""Output of ``hub topic`` during an apply: a progress bar at a terminal, and a summary of done and remaining
steps.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import orjson
import pytest

from hub.cli import main
from hub.cli.terminal.output import Output
from hub.cli.topic.apply import carry_out_plan, steps_bar
from hub.cli.topic.tree_file import write_file
from hub.errors import CallerError, HubError, PeerError
from hub.kafka import KafkaCluster
from hub.log import MemoryCluster, NewTopic
from hub.record import Positions
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.tree.plan import TreePlan
from hub.topics.tree.steps import CreateTopic, DeleteTopic
from hub.topics.tree.tree import TopicSpec


class Away(MemoryCluster):
    def create_topics(self, topics: Sequence[NewTopic]) -> Mapping[str, HubError]:
        taken = [each for each in topics if each.name != "b"]
        return {**super().create_topics(taken), "b": PeerError("Kafka is away")}


def test_a_bar_is_for_many_steps_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with steps_bar(1_000) as advance:
        assert advance is None  # a pipe gets lines
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with steps_bar(3) as advance:
        assert advance is None
    with steps_bar(1_000) as advance:
        assert advance is not None
        advance(1_000)
    assert "1000/1000" in capsys.readouterr().err


def test_an_apply_that_stops_says_what_is_done_and_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    specs = [TopicSpec(name, "", "", 1, 1, {}, None, None, (), {}) for name in ("a", "b")]
    made = TreePlan((*(CreateTopic(each) for each in specs), DeleteTopic("old")))
    cluster, registry = cast(KafkaCluster, Away()), cast(RegistryClient, None)
    with pytest.raises(PeerError, match="away"):
        carry_out_plan(made, cluster, registry, Output.json, lambda: None)
    said = capsys.readouterr()
    assert orjson.loads(said.out) == {
        "done": ["+ topic a  partitions=1"],
        "left": ["+ topic b  partitions=1", "- topic old  with all its events"],
    }
    assert "Done: 1 (these steps stay). Left: 2" in said.err
    assert "+ topic b" in said.err


def test_the_read_that_waits_for_an_event_is_a_command_for_any_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Published:
        def __init__(self, *_: object, **__: object) -> None: ...

        def publish(self, topic: str, *_: object) -> Positions:
            return Positions.of([(topic, 0, 7)])

    monkeypatch.setattr("hub.topics.gateway.producer.Publisher", Published)
    monkeypatch.setattr("hub.cli.topic.commands.connect", lambda _settings: (None, None))
    with pytest.raises(SystemExit) as ended:
        main(["topic", "publish", "t", "-k", "O'Hara/a b?#", "-j", "{}"])
    assert not ended.value.code
    (command,) = (line for line in capsys.readouterr().err.splitlines() if line.strip().startswith("curl"))
    said, url = shlex.split(command)
    path = urlsplit(url).path
    assert said == "curl" and path.startswith("/views/VIEW/") and path.count("/") == 3
    assert unquote(path.rpartition("/")[2]) == "O'Hara/a b?#" and url.endswith("?after=t:0:7")


def test_two_names_of_one_metric_are_told_when_the_tree_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("topics: {a: {topics: {b: {}}}, a_b: {}}\n")
    with pytest.raises(SystemExit):
        main(["topic", "tree", "-f", str(file), "-o", "json"])
    said = capsys.readouterr()
    assert [each["topic"] for each in orjson.loads(said.out)] == ["a.b", "a_b"]
    assert "a.b and a_b are one name in Kafka's metrics" in said.err


def test_a_file_that_cannot_be_written_leaves_the_one_that_was_there(tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    write_file(file, "one")
    write_file(file, "two")
    assert (file.read_text(), [each.name for each in tmp_path.iterdir()]) == ("two", ["topics.yaml"])
    with pytest.raises(CallerError, match="cannot be written"):
        write_file(tmp_path / "none" / "topics.yaml", "three")
