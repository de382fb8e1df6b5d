"""[edge] ``hub sql``: SQL over views and recent events:
a shell, a statement, a file, or what a pipe brings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TextIO

import typer

from hub.cli.query.sql_session import SqlSession
from hub.cli.terminal.rows import RowFormat
from hub.errors import CallerError

_MOST_CHARACTERS = 1_000_000
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Of CREATE and DROP: show the file's change, write nothing")
]
_MOST_EVENTS = 100_000
Parameters = Annotated[list[str] | None, typer.Option("--parameter", help="name=value for :name; repeatable")]
Events = Annotated[
    str | None,
    typer.Option(
        help="Of a topic: the last events of each partition; or all, with those of its Iceberg table"
    ),
]
Before = Annotated[
    str | None, typer.Option(help="Of a topic, all before a position: TOPIC:PARTITION:OFFSET,…")
]
AfterWrite = Annotated[
    str | None, typer.Option(help="The position a write returned: the answer includes that write")
]
Cut = Annotated[
    bool, typer.Option("--cut", help="All views at one position of the log (a snapshot group), or an error")
]
Commands = Annotated[list[str] | None, typer.Option("--command", "-c", help="A statement; repeatable")]


def sql(
    file: Annotated[Path | None, typer.Argument(help="Statements to run; - is standard input")] = None,
    command: Commands = None,
    parameter: Parameters = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10_000, help="Rows of an answer at most")
    ] = 1_000,
    timeout_ms: Annotated[int | None, typer.Option(min=1, max=60_000, help="Time of a query at most")] = None,
    events: Events = None,
    since: Annotated[str | None, typer.Option(help="Of a topic: events since this time (ISO 8601)")] = None,
    before: Before = None,
    after_write: AfterWrite = None,
    cut: Cut = False,
    dry_run: DryRun = False,
    output: Annotated[RowFormat | None, typer.Option("--output", "-o", help="table, json or csv")] = None,
) -> None:
    """SQL over views, and over recent events of topics ("in.double.quotes"). Without a statement: a shell.

    Examples: hub sql      hub sql -c "SELECT city, count(*) FROM customer_360 GROUP BY 1"
    hub sql -c "SELECT city, points FROM customer_360 WHERE points > 100 EMIT CHANGES"
    hub sql --events all -c 'SELECT carrier, count(*) FROM "nyc.jfk.departures" GROUP BY 1'
    hub sql report.sql --parameter city=Oslo -o csv      echo "SELECT 1;" | hub sql -o json
    """
    from hub.cli.query.sql_shell import Shell

    session = SqlSession(
        limit=limit,
        timeout_ms=timeout_ms,
        events=_count(events),
        since=since,
        before=before,
        after=after_write,
        cut=cut,
    )
    shell = Shell(
        session, form=output or RowFormat.table, parameters=_given(parameter or ()), dry_run=dry_run
    )
    if command:
        if file is not None:
            raise CallerError("FILE and --command do not go together", hint="say one of them")
        shell.script("\n".join(_ended(each) for each in command))
    elif file is not None and str(file) != "-":
        shell.script(_read(file))
    elif file is not None or not sys.stdin.isatty():
        shell.script(_whole(sys.stdin, "standard input"))
    else:
        shell.interactive()


def _count(events: str | None) -> int | str | None:
    """Return --events as the server takes it. Raises CallerError."""
    if events is None or events == "all":
        return events
    if not events.isdecimal() or not 1 <= int(events) <= _MOST_EVENTS:
        raise CallerError(f'--events "{events}"', hint=f"a number from 1 to {_MOST_EVENTS}, or all")
    return int(events)


def _ended(statement: str) -> str:
    # A trailing comment would swallow the semicolon, or has its own. An extra semicolon is harmless.
    return statement if statement.lstrip().startswith("\\") else f"{statement}\n;"


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return _whole(opened, f'file "{file}"')
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f'file "{file}" cannot be read: {error}', hint="a file of SQL, as UTF-8") from None


def _whole(source: TextIO, name: str) -> str:
    """Return the text of the file. Raises CallerError for one that is too long: a part of it could mean
    something else.
    """
    text = source.read(_MOST_CHARACTERS + 1)
    if len(text) > _MOST_CHARACTERS:
        most = f"{_MOST_CHARACTERS:,}".replace(",", " ")
        raise CallerError(f"{name} has more than {most} characters", hint="run it in parts")
    return text


def _given(parameters: list[str] | tuple[()]) -> dict[str, str]:
    found = {}
    for each in parameters:
        name, sign, value = each.partition("=")
        if not sign or not name.isidentifier():
            raise CallerError(f'--parameter "{each}" is not a parameter', hint="write name=value")
        found[name] = value
    return found


app = sql
