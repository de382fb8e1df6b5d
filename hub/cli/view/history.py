"""[edge] ``hub view get|history|diff``: a row as of a time, its changes, and two times compared."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hub.cli.http import get
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.client.requests import below_row_path, no_such_row, row_path, view_path


def get_row(
    view: str,
    key: str,
    as_of: Annotated[
        str | None, typer.Option(help="A time in ISO 8601, or a position token of a write")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Read one row, as it is now or as of a time.

    Example: hub view get customer_360 C-00001 --as-of 2026-01-31T14:03:00Z
    """
    parameters = _given(as_of=as_of)
    if (path := row_path(view, key)) is not None:
        show_one(get(path, parameters), output)
        return
    rows = get(view_path(view), {"key": key, "limit": "1", **parameters})["rows"]
    if not rows:
        raise no_such_row(view, key)
    show_one(rows[0], output)


def history_of_row(
    view: str,
    key: str,
    since: Annotated[str | None, typer.Option("--from", help="ISO 8601: changes from then on")] = None,
    until: Annotated[str | None, typer.Option("--to", help="ISO 8601: changes until then")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100)] = 20,
    start_after: Annotated[str | None, typer.Option(help="`next` of the page before")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show the changes of a row, the newest first, with the events that made each.

    Example: hub view history customer_360 C-00001 --from 2026-01-31T14:00:00Z
    """
    parameters = {"from": since, "to": until, "limit": str(limit), "after": start_after}
    found = _answer_of(view, key, "history", **parameters)
    if output is not Output.table:
        show_one(found, output)
        return
    show([_line(each) for each in found["changes"]], output, ("at", "kind", "changes", "events"))
    if found["next"] is not None:
        note(f"More: --start-after {found['next']}")


def diff_row(
    view: str,
    key: str,
    since: Annotated[str, typer.Option("--from", help="A time in ISO 8601, or a position token")],
    until: Annotated[str | None, typer.Option("--to", help="The same; now, if it is left out")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show the fields of a row that differ between two times.

    Example: hub view diff customer_360 C-00001 --from 2026-01-31T14:00:00Z --to 2026-01-31T15:00:00Z
    """
    found = _answer_of(view, key, "diff", **{"from": since, "to": until})
    show(found["changes"], output, ("field", "old", "new"))


def _answer_of(view: str, key: str, route: str, **parameters: str | None) -> Any:
    """Return the answer of a route below a row."""
    return get(below_row_path(view, key, route), _given(**parameters))


def _given(**parameters: str | None) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value is not None}


def _line(change: dict[str, Any]) -> dict[str, str]:
    fields = change["changes"]
    fields_text = "; ".join(f"{each['field']}: {each['old']} → {each['new']}" for each in fields or ())
    events = change["events"] or {"events": [], "precision": ""}
    places = ", ".join(
        f"{each['topic']}:{each['partition']}:{each['offset']}"
        + ("" if each["state"] == "shown" else f" ({each['state']})")
        for each in events["events"]
    )
    precision = events["precision"]
    if precision == "within":
        places = f"{events['after']} to {events['up_to']}" + (f"; {places}" if places else "")
    return {
        "at": change["at"],
        "kind": change["kind"],
        "changes": fields_text,
        "events": f"{precision}: {places}" if precision else "",
    }
