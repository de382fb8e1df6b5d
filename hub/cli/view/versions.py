"""[edge] ``hub view plan|apply|rollback|drop|rewind``: a view's versions, and which one is served."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from hub.cli.context import load_settings
from hub.cli.http import get, post
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import Conflict, PeerError

_ASK_S = 0.2
_COLUMNS = ("version", "state", "engine", "swap", "why", "changelog", "behind", "compared", "waits_for")

ViewName = Annotated[str, typer.Argument(help="The view's name")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0, help="Seconds to wait for the materializer's answer")
]


def plan_view(view: ViewName, output: OutputOption = Output.table) -> None:
    """Show the effect of a change of the view's file: the difference from the served version, the version
    that is built, its progress, and the comparison of rows. Changes nothing.

    Example: hub view plan customer_360
    """
    from hub.materializers.definition.load import definition_text, load_view
    from hub.materializers.planning.validation import check_python

    settings = load_settings()
    file = settings.project / "views" / f"{view}.yaml"
    if file.exists() and settings.transforms == "off":
        check_python(load_view(file), settings.transforms, file)
    answer = _versions(view)
    served = next(each for each in answer["versions"] if each["state"] == "served")
    text = definition_text(file) if file.exists() else None
    coming = next((each for each in answer["versions"] if each["state"] in ("building", "ready")), None)
    diff = [] if text is None else _diff(served["text"], text, view, served["number"])
    body = {
        "view": view,
        "served": served["number"],
        "file": _of_file(text, answer, served),
        "next": _next(coming, served),
        "diff": diff,
        "comparison": (coming or {}).get("comparison"),
        "versions": [_line(each) for each in answer["versions"]],
    }
    if output is Output.json:
        show_one(body, output)
        return
    show_one({name: body[name] for name in ("view", "served", "file", "next")}, output)
    for line in diff:
        print(line)
    show([_line(each) for each in answer["versions"]], output, _COLUMNS)
    if coming is not None and coming["comparison"]:
        show_comparison(coming["number"], coming["comparison"])


def apply_version(view: ViewName, timeout_s: Timeout = 30.0, output: OutputOption = Output.table) -> None:
    """Serve the newest version, which is complete and waits because of ``swap: manual``, a failed
    comparison, or a rollback.

    Example: hub view apply customer_360
    """
    _command(view, "apply", None, timeout_s, output)


def rollback(view: ViewName, timeout_s: Timeout = 30.0, output: OutputOption = Output.table) -> None:
    """Serve the previous version again at once; it was kept up to date. A newer version that is being
    built is dropped. The file starts the other version again only when it is changed, or by ``hub view
    apply``.

    Example: hub view rollback customer_360
    """
    _command(view, "rollback", None, timeout_s, output)


def drop_version(
    view: ViewName,
    version: Annotated[
        int | None,
        typer.Option("--version", help="Which one. Default: the one being built, else the former one"),
    ] = None,
    timeout_s: Timeout = 30.0,
    output: OutputOption = Output.table,
) -> None:
    """Remove a version that is not served: its topic, its tables, its checkpoint.

    Example: hub view drop customer_360 --version 3
    """
    _command(view, "drop", version, timeout_s, output)


def rewind(view: ViewName, timeout_s: Timeout = 30.0, output: OutputOption = Output.table) -> None:
    """Compute the view again from the start of its log, as a new version, while the current one serves.

    Example: hub view rewind customer_360
    """
    _command(view, "rewind", None, timeout_s, output)


def recompute(
    view: ViewName,
    timeout_s: Timeout = 30.0,
    output: OutputOption = Output.table,
) -> None:
    """Verify a view: compute it again from its sources, compare all rows with the served version, and
    store the result, which `hub view show` prints. The computed version is never served. `proof:
    {recompute: 24h}` in the view's file repeats this automatically.

    Example: hub view recompute customer_360
    """
    _command(view, "recompute", None, timeout_s, output)


def show_comparison(number: int, found: dict[str, Any]) -> None:
    """Print a comparison as notes and a table of the first differences."""
    if "error" in found:
        note(f"version {number} could not be compared: {found['error']}")
        return
    note(
        f"version {number}: {found['rows_after']} rows, {found['rows_before']} before; {found['differing']} "
        f"differ in the columns of both, {found['only_after']} are new, {found['only_before']} are gone"
        + (f"; {found['moving']} left out, which changed just then" if found["moving"] else "")
    )
    note(f"hash of the columns of both: {found['hash_before']} before, {found['hash_after']} after")
    for what, columns in (("new", found["added"]), ("gone or of another type", found["removed"])):
        if columns:
            note(f"columns that are {what}: {', '.join(columns)}")
    if not found["same_positions"]:
        note("! the two were not equally far at that moment: differences may be news")
    if found["samples"]:
        rows = [
            {
                "key": each["key"],
                "why": each["why"],
                "columns": ", ".join(
                    f"{name}: {of['before']} → {of['after']}" for name, of in each.get("columns", {}).items()
                ),
            }
            for each in found["samples"]
        ]
        show(rows, Output.table, ("key", "why", "columns"))


def _versions(view: str) -> dict[str, Any]:
    found: dict[str, Any] = get(f"/view-versions/{quote(view, safe='')}")
    return found


def _command(view: str, action: str, version: int | None, timeout_s: float, output: Output) -> None:
    path = f"/view-versions/{quote(view, safe='')}"
    requested = post(path, {"action": action, "version": version})["id"]
    deadline = time.monotonic() + timeout_s
    while (answer := _versions(view))["answered"] != requested:
        if time.monotonic() >= deadline:
            raise PeerError(
                f'view "{view}": {action} was not answered within {timeout_s:g} s',
                hint="the materializer carries it out when it runs; check with hub view plan",
            )
        time.sleep(_ASK_S)
    if answer["refusal"] is not None:
        raise Conflict(f'view "{view}": {answer["refusal"]}', hint=f"hub view plan {view} shows its versions")
    # The log has it; readers have it once the store does, which is a moment later.
    while action in ("apply", "rollback") and not _read_here(answer):
        if time.monotonic() >= deadline:
            note("! the store does not have it yet")
            break
        time.sleep(_ASK_S)
        answer = _versions(view)
    show([_line(each) for each in answer["versions"]], output, _COLUMNS)


def _read_here(answer: dict[str, Any]) -> bool:
    served = next(each for each in answer["versions"] if each["state"] == "served")
    return bool(served["changelog"] == answer["served_changelog"])


def _line(version: dict[str, Any]) -> dict[str, Any]:
    comparison = version["comparison"]
    return {
        "version": version["number"],
        "state": version["state"],
        "engine": version["engine"],
        "swap": version["swap"],
        "why": version["why"],
        "changelog": version["changelog"],
        "behind": version["behind"],
        "compared": (comparison or {}).get("error")
        if comparison is None or "error" in comparison
        else f"{comparison['rows_after']} rows of {comparison['rows_before']}, "
        f"{comparison['differing']} differ",
        "waits_for": _waits_for(version),
        "reason": version["reason"],
    }


def _waits_for(version: dict[str, Any]) -> str | None:
    if version["state"] == "building":
        return "its events"
    if version["state"] == "ready":
        return f"hub view apply ({version['held']})" if version["held"] else "the comparison"
    if version["state"] == "former":
        return "hub view rollback, until " + time.strftime(
            "%Y-%m-%d %H:%M UTC", time.gmtime((version["until_ms"] or 0) / 1000)
        )
    return None


def _of_file(text: str | None, answer: dict[str, Any], served: dict[str, Any]) -> str:
    if text is None:
        return "there is none"
    if text == served["text"]:
        return "as it is served"
    return "differs from the served version" if text == answer["judged"] else "changed, not looked at yet"


def _next(coming: dict[str, Any] | None, served: dict[str, Any]) -> str:
    if coming is None:
        return f"nothing: version {served['number']} is served"
    if coming["state"] == "building":
        return f"version {coming['number']} is served when it has caught up" + (
            "" if coming["swap"] == "auto" else " and hub view apply is called"
        )
    if coming["held"]:
        return f"hub view apply serves version {coming['number']}; it waits because of: {coming['held']}"
    return f"version {coming['number']} is compared, then served"


def _diff(served: str, text: str, view: str, number: int) -> list[str]:
    from difflib import unified_diff

    return list(
        unified_diff(
            served.splitlines(), text.splitlines(), f"version {number}", f"views/{view}.yaml", lineterm=""
        )
    )
