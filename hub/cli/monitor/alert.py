"""[edge] ``hub alert``: what breaks its promise, as the running server knows it; silences; rules;
tests of channels."""

from __future__ import annotations

import getpass
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.terminal.watch_option import WatchOption, looked
from hub.errors import CallerError, ConfigError, NotFound
from hub.observability import format
from hub.times import epoch_ms

TIMEOUT_S = 15.0
COLUMNS = ("alert", "severity", "state", "object", "since", "owner", "summary")

app = typer.Typer(
    help="Alerts: objectives (slo) of topics and views, and queries in alerts/, evaluated by the server.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub alert ls --watch; hub alert silence topic=shop.** --for 2h --reason deploy",
)


class RulesFormat(StrEnum):
    """Output formats of rules."""

    table = "table"
    json = "json"
    prometheus = "prometheus"
    grafana = "grafana"


@app.command("ls")
def ls(
    severity: Annotated[str | None, typer.Option("--severity", help="page, warning or info.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only objects of this owner.")] = None,
    rule: Annotated[str | None, typer.Option("--rule", "-r", help="Only of this rule.")] = None,
    past: Annotated[bool, typer.Option("--past", help="Past alerts instead of open ones")] = False,
    silences: Annotated[bool, typer.Option("--silences", help="Silences, instead of alerts")] = False,
    output: OutputOption = Output.table,
    watch: WatchOption = False,
) -> None:
    """List firing and pending alerts, the worst first.

    Example: hub alert ls --severity page --watch
    """
    filters = [
        (key, value) for key, value in (("severity", severity), ("owner", owner), ("name", rule)) if value
    ]
    looked(
        lambda: http.get("/api/alerts", filters, timeout_s=TIMEOUT_S),
        lambda body: _print(body, output, dict(filters), past=past, silences=silences),
        watch,
        output,
    )


@app.command("show")
def show_(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Its key or the beginning of it, or a rule's name.")
    ],
    output: OutputOption = Output.table,
    watch: WatchOption = False,
) -> None:
    """Show one alert: labels, start, cause, solution.

    Example: hub alert show 3fa1 --watch
    """

    def look() -> list[dict[str, Any]]:
        body: dict[str, Any] = http.get("/api/alerts", timeout_s=TIMEOUT_S)
        every = [*body["alerts"], *body["past"]]
        found = [row for row in every if row["key"].startswith(key) or row["alert"] == key]
        if not found and not watch:
            raise NotFound(
                f'no alert "{key[:60]}" is open or was lately', hint="hub alert ls -o json has the keys"
            )
        return found

    looked(look, lambda found: _closely(found, key, output), watch, output)


def _closely(found: list[dict[str, Any]], key: str, output: Output) -> None:
    if output is Output.json:
        show(found, output)
        return
    for row in found:
        times = {name: _moment(row[f"{name}_ms"]) for name in ("since", "fired_at", "ended_at")}
        rest = {name: value for name, value in row.items() if not name.endswith("_ms") and name != "labels"}
        labels = ", ".join(f"{name}={value}" for name, value in row["labels"].items())
        show_one({**rest, **{name: at for name, at in times.items() if at}, "labels": labels})
    if not found:
        note(f'no alert "{key[:60]}" is open or was lately')


@app.command("test")
def try_channel(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="As alerts.yaml names it.")],
    output: OutputOption = Output.table,
) -> None:
    """Send one test notification over a channel, and print the result.

    Example: hub alert test ops
    """
    body = http.post(f"/api/alerts/channels/{quote(channel, safe='')}/test", {})
    if output is Output.json:
        show_one(body, output)
    else:
        note(f'channel "{channel}" took it')


@app.command("silence")
def silence(
    matchers: Annotated[
        list[str],
        typer.Argument(metavar="LABEL=VALUE...", help="topic=shop.**, severity=info|warning; all must fit."),
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why, for those who find it.")],
    lasts: Annotated[str | None, typer.Option("--for", help="How long: 30m, 2h, 1d.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Or until when: 2026-01-31T12:00Z.")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who; the user of this machine by default.")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Suppress notifications of these alerts for a time. They are still evaluated and shown.

    Example: hub alert silence alertname=lag consumer=billing --for 2h --reason "moves to new machines"
    """
    from hub.alerts.alerts_json import matchers_from

    try:
        labels = {name: list(values) for name, values in matchers_from(matchers)}
    except ValueError as error:
        raise CallerError(
            str(error), hint="for example: hub alert silence topic=shop.** --for 2h --reason …"
        ) from None
    ends = {"for": lasts} if lasts is not None else {"until": until} if until is not None else {"for": "2h"}
    body = {"matchers": labels, "reason": reason, "by": by or _user(), **ends}
    _show_silence(http.post("/api/alerts/silences", body, timeout_s=TIMEOUT_S), output)


@app.command("unsilence")
def unsilence(
    id: Annotated[str, typer.Argument(metavar="ID", help="As hub alert ls --silences shows it.")],
    output: OutputOption = Output.table,
) -> None:
    """End a silence now.

    Example: hub alert unsilence 4f2a90c1b7de
    """
    _show_silence(http.delete(f"/api/alerts/silences/{quote(id, safe='')}", timeout_s=TIMEOUT_S), output)


@app.command("rules")
def rules(
    output: Annotated[
        RulesFormat,
        typer.Option(
            "--output", "-o", help="table, json; prometheus and grafana are made from the files alone."
        ),
    ] = RulesFormat.table,
    watch: WatchOption = False,
) -> None:
    """List the rules with their observations; or print them for Prometheus, or a dashboard for Grafana.

    Example: hub alert rules --watch; hub alert rules -o prometheus > rules.yaml; hub alert rules -o grafana >
    hub.json
    """
    if watch and output in (RulesFormat.prometheus, RulesFormat.grafana):
        raise CallerError(
            f"-o {output} is made from files: there is nothing to watch", hint="leave out --watch"
        )
    if output is RulesFormat.prometheus:
        from hub.yaml import written

        print(written(exported()), end="")
        return
    if output is RulesFormat.grafana:
        import json

        from hub.alerts.export.grafana_dashboard import grafana_dashboard

        print(json.dumps(grafana_dashboard(), indent=2))
        return
    form = Output.json if output is RulesFormat.json else Output.table
    looked(
        lambda: http.get("/api/alerts/rules", timeout_s=TIMEOUT_S),
        lambda found: _rules(found, form),
        watch,
        form,
    )


def _rules(found: list[dict[str, Any]], output: Output) -> None:
    if output is Output.json:
        show(found, output)
        return
    rows = [
        {
            "alert": row["alert"],
            "severity": row["severity"] if row["on"] else "off",
            "for": format.seconds(row["for_s"]),
            **{name: format.count(row[name]) for name in ("good", "bad", "unknown", "firing")},
            "about": ("reaches nobody: " if row.get("nobody") else "") + (row["error"] or row["doc"]),
        }
        for row in found
    ]
    if rows:
        show(rows)
    else:
        note("nothing was looked at yet: ask again in a moment")


def exported() -> dict[str, Any]:
    """The rules of this project's files for Prometheus. Raises ConfigError."""
    from hub.alerts.config.alerts_yaml import ALERTS_FILE, load_query_alert, query_files
    from hub.alerts.config.read_entries import read_alerts, text_of
    from hub.alerts.export.prometheus_rules import prometheus_rules
    from hub.materializers.definition.load import load_views
    from hub.observability.export.objectives import promise_of
    from hub.topics.tree.tree import load

    settings = load_settings()
    project = settings.project
    reading = read_alerts(project / ALERTS_FILE)
    for error in reading.faults.values():
        note(f"left out: {text_of(error)}")
    file = reading.file
    tree_file = project / "topics.yaml"
    topics = {spec.name: spec for spec in load(tree_file).topics} if tree_file.exists() else {}
    promises = [
        promise_of(
            view.name,
            view.owner,
            [source.topic for source in view.sources.values()],
            topics,
            latency_ms=view.slo.latency_ms,
            latency_share=view.slo.latency_share,
            freshness_ms=view.slo.freshness_ms,
        )
        for view in load_views(project, lambda _path, error: note(f"left out: {text_of(error)}"))
    ]
    queries = []
    for path in query_files(project):
        try:
            queries.append(load_query_alert(path).rule)
        except ConfigError as error:
            note(f"left out: {text_of(error)}")
    link = (file.link or "").rstrip("/")
    return prometheus_rules(
        topics.values(), promises, queries, file.changes(), link, settings.kafka_cut_off_s
    )


def line(row: dict[str, Any]) -> dict[str, object]:
    """Return an alert as a table row."""
    state = "silenced" if row["silenced_by"] and row["state"] == "firing" else row["state"]
    return {
        **{name: row[name] for name in ("alert", "severity", "object", "owner", "summary")},
        "state": state
        + (", not seen now" if row["unknown"] else "")
        + (", reaches nobody" if row.get("nobody") else ""),
        "since": _moment(row["fired_at_ms"] or row["since_ms"]),
        "until": _moment(row["ended_at_ms"]),
        "why": row["ended"],
    }


def _print(
    body: dict[str, Any], output: Output, filters: dict[str, str], *, past: bool, silences: bool
) -> None:
    if not body.get("on", True):
        body = {"alerts": [], "past": [], "silences": [], "error": None, "troubles": [], **body}
        note("this server evaluates no alerts (alerts: false); another server of the hub may")
    if silences:
        rows = body["silences"]
        if output is Output.json:
            show(rows, output)
        elif rows:
            times = ("starts_ms", "ends_ms")
            shown = [
                {**{k: v for k, v in row.items() if k not in times}, "ends": _moment(row["ends_ms"])}
                for row in rows
            ]
            show(shown, output, ("id", "holds", "matchers", "reason", "by", "ends"))
        else:
            note("nothing is silenced")
        return
    rows = body["past"] if past else body["alerts"]
    keys = {"severity": "severity", "owner": "owner", "name": "alert"}
    rows = [row for row in rows if all(row[keys[name]] == value for name, value in filters.items())]
    if output is Output.json:
        show(rows, output)
    elif rows:
        more = ("until", "why") if past else ()
        show([line(row) for row in rows], output, (*COLUMNS[:5], *more, *COLUMNS[5:]))
    else:
        note("no past alerts" if past else "nothing fires" + (" that fits" if filters else ""))
    if body["error"]:
        note(f"nothing is watched now: {body['error']}")
    for trouble in body["troubles"]:
        note(trouble)


def _show_silence(row: dict[str, Any], output: Output) -> None:
    if output is Output.json:
        show_one(row, output)
    else:
        ends = _moment(row["ends_ms"])
        note(f"silence {row['id']}: {row['matchers']} {'until' if row['holds'] else 'ended'} {ends}")


def _moment(at_ms: int | None) -> str:
    return "" if at_ms is None else format.moment(at_ms, epoch_ms())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
