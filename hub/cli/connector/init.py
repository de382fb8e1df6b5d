"""[edge] ``hub connector init postgres-cdc``: check a database, and write the files for its changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hub.cli.connector.context import EXIT_CHANGES
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.errors import ConfigError, Conflict

if TYPE_CHECKING:
    from hub.connectors.postgres.facts import PostgresFacts, PostgresTable


SourceOption = Annotated[
    str,
    typer.Option(
        "--from",
        envvar="HUB_CONNECTOR_FROM",
        metavar="URL",
        help="postgresql://USER:PASSWORD@HOST:5432/DATABASE, as the connector will sign in",
    ),
]
TablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="PATTERN",
        help="Tables, such as public.*; may stand several times. Default: all",
    ),
]


def init(
    kind: Annotated[
        Literal["postgres-cdc"], typer.Argument(metavar="postgres-cdc", help="The kind of connector")
    ],
    source: SourceOption,
    name: Annotated[
        str | None,
        typer.Option(help="Of the connector, and the first label of its topics. Default: the database's"),
    ] = None,
    table: TablesOption = None,
    owner: Annotated[str, typer.Option(help="Who answers for the connector and its topics")] = "",
    check: Annotated[bool, typer.Option("--check", help="Only check; write no file")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Check a Postgres database for change data capture, with the exact SQL for each fix, and declare its
    connector.

    It reads the database and changes nothing there. It adds the connector to connectors.yaml and a topic per
    table to topics.yaml; the password is not written. Exit code 0: all is well. 2: something is to be fixed
    first.
    Example: hub connector init postgres-cdc --from postgresql://hub:secret@db/crm --owner crm-team
    """
    from hub.connectors.kinds import slot_of
    from hub.connectors.postgres.checks import chosen, findings
    from hub.connectors.postgres.facts import read_facts
    from hub.connectors.postgres.new_files import label, variable_of

    facts = read_facts(source)
    named = label(name or facts.database)
    tables = chosen(facts, table or ())
    postgres_findings = findings(facts, tables, slot_of(named))
    rows = [{**asdict(each), "fix": "" if each.ok else each.fix} for each in postgres_findings]
    show(rows, output, ("check", "ok", "found", "fix"))
    if not check:
        _declare(load_settings().project.expanduser(), facts, tables, named, owner)
        note(
            f"Set {variable_of(named)}=… (the password) where the hub is started. Then: hub "
            "up; hub connector plan"
        )
    wrong = [each for each in postgres_findings if not each.ok]
    for each in wrong:
        note(f"Fix: {each.fix}")
    raise typer.Exit(EXIT_CHANGES if wrong else 0)


def _declare(project: Path, facts: PostgresFacts, tables: list[PostgresTable], name: str, owner: str) -> None:
    from hub.connectors.connectors_file import CONNECTORS_FILE, load_connectors
    from hub.connectors.postgres.new_files import connector_entry, topic_of, topics_entry
    from hub.topics.tree.tree import load

    if name in load_connectors(project).by_name:
        raise Conflict(
            f'connector "{name}" is in {project / CONNECTORS_FILE} already',
            hint="choose another one: --name; or only check: --check",
            code="HUB-1921",
        )
    tree = project / "topics.yaml"
    declared = {each.name for each in load(tree).topics} if tree.exists() else set()
    topics = [topic_of(name, each) for each in tables]
    if not any(each == name or each.startswith(f"{name}.") for each in declared):
        _extend(tree, "topics", name, topics_entry(tables, name, owner), load)
        note(f"{tree}: {len(topics)} topics below {name}.")
    elif missing := [each for each in topics if each not in declared]:
        note(f"{tree} has the node {name} already: add {', '.join(missing[:5])} there.")
    path = project / CONNECTORS_FILE
    entry = connector_entry(facts, tables, name, owner)
    _extend(path, "connectors", name, entry, lambda made: load_connectors(project, made))
    note(f"{path}: connector {name}, {len(tables)} tables.")


def _extend(
    path: Path, section: str, name: str, entry: dict[str, object], load: Callable[[Path], object]
) -> None:
    """Write the file with one more entry, after the result was loaded. Raises ConfigError (HUB-1462)."""
    from hub.connectors.postgres.new_files import extended

    before = path.read_text(encoding="utf-8") if path.exists() else ""
    trial = path.with_name(f".{path.stem}.trial.yaml")
    try:
        trial.write_text(extended(before, section, name, entry), encoding="utf-8")
        load(trial)
    except OSError as error:
        raise ConfigError(f'file "{path}" cannot be written: {error.strerror}', code="HUB-1462") from None
    except ConfigError as error:
        raise ConfigError(
            f"{path}: the entry of {name} cannot be added at the end of the file ({error.message})",
            hint=f"make `{section}:` the last key of the file, and try again",
            code="HUB-1462",
        ) from None
    else:
        trial.replace(path)
    finally:
        trial.unlink(missing_ok=True)
