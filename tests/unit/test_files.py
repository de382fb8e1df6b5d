"""Files that people name: anything but a regular file is refused at once, and stops no other file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hub.cli import app
from hub.cli.context import environment_of
from hub.config import Settings
from hub.errors import ConfigError
from hub.files import NotRegular, read_bytes, read_text
from hub.kafka.java_client import pem_text
from hub.materializers.definition.load import definition_text, files_of, load_view, load_views
from hub.materializers.queries.saved_queries import load_query
from hub.schema_registry.folder import load as folder
from hub.topics.tree.apply_plan import read_schemas
from hub.topics.tree.tree import load
from hub.yaml import load_mapping, load_model

VIEW = (
    "view: {name}\nsql: SELECT id, count(*) AS n FROM e GROUP BY id\nsources: {{e: {{topic: shop.orders}}}}\n"
)


def within_seconds(call: Callable[[], Any], fifo: Path) -> Any:
    """Call in a thread; fail when it blocks. The FIFO then gets a writer, so that the thread ends."""
    done: list[Any] = []

    def run() -> None:
        try:
            done.append(call())
        except (OSError, ConfigError) as error:
            done.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20.0)
    if thread.is_alive():
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
        pytest.fail("the reader waits for a writer of the FIFO")
    return done[0]


def tree_with_schema(path: Path) -> Any:
    (path.parent / "topics.yaml").write_text(f"topics: {{orders: {{schema: {path.name}}}}}\n")
    return read_schemas(load(path.parent / "topics.yaml"))


def view_with_functions(path: Path) -> Any:
    view = path.parent / "v.yaml"
    view.write_text(VIEW.format(name="v") + f"transforms: {path.name}\n")
    return load_view(view)


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "text": ("a.txt", read_text),
    "bytes": ("a.bin", read_bytes),
    "settings": ("hub.yaml", load_mapping),
    "model": ("mirrors.yaml", lambda path: load_model(path, Settings)),
    "view": ("v.yaml", load_view),
    "files of a view": ("v.yaml", files_of),
    "text of a view": ("v.yaml", definition_text),
    "functions of a view": ("f.py", view_with_functions),
    "saved query": ("q.sql", load_query),
    "schema of a topic": ("s.avsc", tree_with_schema),
    "PEM file": ("ca.pem", lambda path: pem_text(path, "ca")),
}


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, reader: str, kind: str) -> None:
    name, read = READERS[reader]
    path = tmp_path / name
    {"fifo": os.mkfifo, "folder": os.mkdir, "device": lambda at: os.symlink("/dev/zero", at)}[kind](path)
    refused = within_seconds(lambda: read(path), path)
    assert isinstance(refused, (ConfigError, NotRegular, IsADirectoryError)), refused
    assert str(path) in str(refused) or name in str(refused)


def test_a_fifo_among_schemas_is_the_problem_of_one_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "bad.avsc")
    (tmp_path / "good.avsc").write_text('{"type": "record", "name": "Good", "fields": []}')
    found = within_seconds(lambda: folder.load(tmp_path), tmp_path / "bad.avsc")
    problems = {Path(each.path).name: each.problem for each in found.files}
    assert problems["good.avsc"] is None and "not a regular file" in str(problems["bad.avsc"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a good view, one that does not load, and a FIFO."""
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "good.yaml").write_text(VIEW.format(name="good"))
    (tmp_path / "views" / "bad.yaml").write_text("view: bad\nsourcs: {}\n")
    os.mkfifo(tmp_path / "views" / "pipe.yaml")
    return tmp_path


def test_a_view_that_does_not_load_stops_no_other(project: Path) -> None:
    refused: list[str] = []
    views = load_views(project, lambda path, _error: refused.append(path.stem))
    assert ([each.name for each in views], refused) == (["good"], ["bad", "pipe"])
    with pytest.raises(ConfigError, match="bad.yaml"):
        load_views(project)


def hub(project: Path, *arguments: str) -> tuple[int, str]:
    settings = Settings(project=project, home=project / "home")
    done = CliRunner().invoke(app, list(arguments), env=environment_of(settings))
    return done.exit_code, done.output + str(done.exception or "")


def test_commands_leave_out_a_view_that_does_not_load_and_say_so(project: Path) -> None:
    code, said = hub(project, "alert", "rules", "-o", "prometheus")
    assert code == 0 and "alert: kafka-away" in said
    assert said.count("left out: ") == 2 and "bad.yaml" in said and "pipe.yaml" in said
    code, said = hub(project, "view", "validate", "--no-spark")
    assert code == 1 and "good.yaml: " in said and "pipe.yaml" in said and 'did you mean "sources"' in said
