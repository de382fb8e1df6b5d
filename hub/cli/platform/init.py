"""[edge] ``hub init``: a new project folder, as a copy of an example that works."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from hub.cli.platform.demo import EXAMPLES, command_here
from hub.cli.terminal.output import note, show
from hub.errors import ConfigError, nearest
from hub.files import not_written, write_new

# Examples that are projects of their own, and what each shows.
PROJECTS = {
    "first-view": "two topics, one view over both, and its golden test (default)",
    "customer-360": "seven systems of a shop become one row per customer; alerts, saved queries",
    "sql-views": "views as SQL statements over tables: joins, windows, the best of each group",
    "formats": "JSON, Protobuf and XML events; Python functions in a view",
    "fraud": "a Python class with state and a timer for each card, in a view",
    "pyspark": "views written in PySpark: functions that return data frames",
    "real-time": "views that answer within milliseconds",
    "fan-out": "one log sent by content to a webhook, a database, files and another topic",
    "domain-events": "rows of one database transaction as one event: an order with its lines",
    "flights": "a tree of topics with a schema each, and two views",
    "empty": "an empty tree of topics, nothing else",
}

_SETTINGS = """\
# Settings of this hub. Each has a default; a variable HUB_<NAME> and a flag of a command win over this file.
# `hub config show` prints the values in use and where each comes from; `hub config explain NAME` explains one.

# A Kafka of your own, instead of the one that `hub up` starts:
# embedded_kafka: false
# bootstrap: kafka-1:9092,kafka-2:9092
# replication_factor: 3

# Who may do what is in access.yaml. Without that file everybody who reaches the server may do everything:
# require_access: true
"""  # noqa: E501

_IGNORED = """\
# State of the hub that runs on this project: Kafka's log, checkpoints, stores, logs.
.hub/
"""


def init(
    folder: Annotated[Path, typer.Argument(help="The new project's folder; it may exist when it is empty")],
    example: Annotated[
        str, typer.Option("--from", help="The example to start from; --list shows them")
    ] = "first-view",
    _listed: Annotated[
        bool,
        typer.Option(
            "--list", is_eager=True, callback=lambda wanted: _list(wanted), help="List the examples"
        ),
    ] = False,
) -> None:
    """Make a project: a folder with topics.yaml, schemas, views and tests, to keep in git.

    Examples: hub init my-hub; hub init shop --from customer-360; hub init --list
    """
    if example not in PROJECTS:
        near = nearest(example, PROJECTS)
        more = f"did you mean {near}?" if near else "hub init --list shows them."
        raise typer.BadParameter(f'there is no example "{example}": {more}', param_hint="--from")
    files = {
        "hub.yaml": _SETTINGS,
        ".gitignore": _IGNORED,
    } | {
        path.relative_to(EXAMPLES / example).as_posix(): path.read_text()
        for path in sorted((EXAMPLES / example).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    write_project(folder, files)
    _explain(folder, files)


def write_project(folder: Path, files: dict[str, str]) -> None:
    """Write ``files`` (name below the folder -> text). Raises ConfigError: HUB-1130 when the folder is in
    use, HUB-1131 when it cannot be written. Nothing that exists is changed.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(
                f'folder "{folder}" is not empty',
                hint="name a new folder; `hub view new` adds a view to a project",
                code="HUB-1130",
            )
        for name in ("views", "schemas"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(folder, error) from None
    write_new({folder / name: text for name, text in files.items()})


def _list(wanted: bool) -> None:
    if wanted:
        show([{"example": name, "shows": text} for name, text in PROJECTS.items()])
        raise typer.Exit


def _explain(folder: Path, files: dict[str, str]) -> None:
    run = command_here()
    where = shlex.quote(os.path.relpath(folder))
    steps = [f"{run} --project {where} up --detach", f"{run} --project {where} topic apply"]
    if any(name.startswith("views/tests/") for name in files):
        steps.insert(0, f"{run} --project {where} view test")
    note(f"Wrote {len(files)} files to {folder}. Next:\n")
    print("\n".join(f"  {step}" for step in steps))
