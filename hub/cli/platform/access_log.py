"""[edge] ``hub access audit``: read the access log, follow it, check its chains, and write it out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.access_log.actions import LoggedAction, Outcome
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import CallerError, did_you_mean

if TYPE_CHECKING:
    from hub.access_log.search import LogFilter
    from hub.access_log.verifying import LogCheck
    from hub.kafka import KafkaCluster

EXIT_CHANGED, EXIT_UNKNOWN = 1, 2
_COLUMNS = ("offset", "time", "who", "from", "action", "on", "result", "detail")

app = typer.Typer(
    help="Access log: who did what, from where, with which result (docs/how-to/audit-who-did-what.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub access audit ls --by ana --since 7d; hub access audit verify",
)
ByOption = Annotated[str, typer.Option("--by", help="Name of the user, token or account; patterns: an*")]
ActionOption = Annotated[str, typer.Option("--action", help="An action, or a pattern: topic.*")]
OnOption = Annotated[
    str, typer.Option("--on", help="Name of the object: shop.orders, view:customers, shop.*")
]
ResultOption = Annotated[Outcome | None, typer.Option("--result", help="The result.")]
SinceOption = Annotated[
    str, typer.Option("--since", help="A time (2026-01-31T12:00), or a span: 30m, 24h, 7d")
]


@app.command("ls")
def ls(
    by: ByOption = "",
    action: ActionOption = "",
    on: OnOption = "",
    result: ResultOption = None,
    since: SinceOption = "24h",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Show the newest N.")] = 200,
    output: OutputOption = Output.table,
) -> None:
    """List the newest entries, oldest first.

    Example: hub access audit ls --action "topic.*" --result denied --since 7d
    """
    from hub.access_log.search import find, parse_since

    found = find(_cluster(), _filter(by, action, on, result), limit, parse_since(since, time.time()))
    rows = [each.row() for each in found.entries]
    show(rows if output is Output.json else [_shown(each) for each in rows], output, _COLUMNS)
    if not found.from_start:
        note(f"Only the newest {found.scanned} records were searched. Name a shorter time: --since 1h")


@app.command("tail")
def tail(
    by: ByOption = "",
    action: ActionOption = "",
    on: OnOption = "",
    result: ResultOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Print entries as they are written, until Ctrl-C. As JSON: one object a line.

    Example: hub access audit tail --result denied
    """
    import orjson

    from hub.access_log.search import PLACE, bounds, entry_of
    from hub.record import Positions

    cluster, wanted = _cluster(), _filter(by, action, on, result)
    _, end = bounds(cluster)
    reader = cluster.follower()
    try:
        reader.assign(Positions({PLACE: end}))
        while True:
            for record in reader.poll(500, 1.0):
                stored = entry_of(record)
                if stored is None or not wanted.admits(stored):
                    continue
                shown = stored.row() if output is Output.json else _shown(stored.row())
                text = orjson.dumps(shown).decode() if output is Output.json else _line(shown)
                print(text, flush=True)
    finally:
        reader.close()


@app.command("verify")
def verify(
    trust: Annotated[
        list[str] | None,
        typer.Option("--trust", metavar="KEY", help="Public key of another home; may stand several times."),
    ] = None,
    holds: Annotated[
        str | None,
        typer.Option("--holds", metavar="OFFSET:HASH", help="A record that an earlier check printed."),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Check that no record was removed, changed or moved, and name the offsets of those that were.

    Exit code 0: the log is whole. 1: it is not. 2: unknown, because a chain is signed by a key that is not
    trusted. Example: hub access audit verify --trust 5f0c…
    """
    from hub.access_log.chain import LogSigner, place_of
    from hub.access_log.search import verify as checked
    from hub.home_key import read_key

    settings = load_settings()
    key = read_key(settings.home)
    own = [] if key is None else [LogSigner(key).public]
    check = checked(_cluster(), {*own, *(trust or ())})
    if holds is not None:
        if (place := place_of(holds)) is None:
            raise CallerError(
                f'--holds "{holds[:100]}" is not OFFSET:HASH', hint="as an earlier check printed it"
            )
        check.require(place)
    _show_check(check, output)
    if own:
        note(f"Key of this home, for --trust elsewhere: {own[0]}")
    if check.is_whole is not True:
        raise typer.Exit(EXIT_UNKNOWN if check.is_whole is None else EXIT_CHANGED)


@app.command("export")
def export(
    file: Annotated[Path | None, typer.Argument(help="File. Default: standard output.")] = None,
    by: ByOption = "",
    action: ActionOption = "",
    on: OnOption = "",
    result: ResultOption = None,
    since: SinceOption = "",
) -> None:
    """Write the records as they are in the topic: a CloudEvent a line, oldest first.

    Example: hub access audit export log.ndjson --since 2026-01-01
    """
    import sys

    from hub.access_log.entry import TOPIC
    from hub.access_log.search import PLACE, bounds, entry_of, parse_since, records

    cluster, wanted = _cluster(), _filter(by, action, on, result)
    first, end = bounds(cluster)
    if (at_ms := parse_since(since, time.time())) is not None:
        first = cluster.offsets_at([TOPIC], at_ms).offsets.get(PLACE, end)
    count, every = 0, not (by or action or on or result)
    try:
        with file.open("wb") if file is not None else open(sys.stdout.fileno(), "wb", closefd=False) as out:
            for record in records(cluster, first, end):
                stored = entry_of(record)
                if every or (stored is not None and wanted.admits(stored)):
                    out.write((record.value or b"") + b"\n")
                    count += 1
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise CallerError(f'file "{file}" cannot be written: {error.strerror}') from None
    note(f"{count} records.")


def _filter(by: str, action: str, on: str, result: Outcome | None) -> LogFilter:
    from hub.access_log.search import LogFilter

    if action and not any(each in action for each in "*?[") and action not in list(LoggedAction):
        raise CallerError(
            f'action "{action[:100]}" is not known',
            hint=did_you_mean(action, list(LoggedAction), f"one of {', '.join(LoggedAction)}"),
            code="HUB-1725",
        )
    return LogFilter(by, action, on, result)


def _cluster() -> KafkaCluster:
    from hub.kafka import own_cluster

    return own_cluster(load_settings())


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as a line of the table."""
    way = f" ({row['way']})" if row["way"] not in ("nobody", "") else ""
    about = {
        name: value for name, value in row["detail"].items() if value and name not in ("method", "signature")
    }
    if row["count"] > 1:
        about["times"] = row["count"]
    return {
        "offset": row["offset"],
        "time": row["time"],
        "who": f"{row['who'] or 'nobody'}{way}",
        "from": row["address"],
        "action": row["action"],
        "on": f"{row['kind']} {row['name']}".strip(),
        "result": row["result"],
        "detail": "; ".join(f"{name}: {_flat(value)}" for name, value in about.items()),
    }


def _flat(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _line(shown: dict[str, Any]) -> str:
    from hub.cli.terminal.rows import printable

    return printable("  ".join(str(shown[each]) for each in _COLUMNS))


def _show_check(check: LogCheck, output: Output) -> None:
    problems = [{"offset": p.offset, "kind": p.kind, "problem": p.message} for p in check.problems]
    chains = list(check.chains.values())
    summary = {
        "whole": {True: "yes", False: "no", None: "unknown"}[check.is_whole],
        "records": check.records,
        "chains": len(chains),
        "begins_at": check.begin,
        "cut_by_retention": sum(each.cut for each in chains),
        "not_signed_yet": sum(each.unsigned for each in chains),
        "head": "" if check.head is None else str(check.head),
    }
    if output is Output.json:
        show_one({**summary, "problems": problems}, output)
        return
    if problems:
        show(problems)
    show_one(summary)
    note("Keep the head elsewhere; a later check proves that the log still has it: --holds OFFSET:HASH")
