"""[edge] ``hub view``: the views that run, and the files that declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.governing.flow_gate import refuse_flows
from hub.cli.http import get
from hub.cli.platform.upgrade import warn_of_deprecations
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.view.golden import run_tests
from hub.cli.view.history import diff_row, get_row, history_of_row
from hub.cli.view.new import new_view
from hub.cli.view.schemas_source import declared_view, schemas_of
from hub.cli.view.search import search_view
from hub.cli.view.show import in_rows, show_view, snapshot_group_summary, stores_in_short, versions_in_short
from hub.cli.view.verify import verify_view
from hub.cli.view.versions import apply_version, drop_version, plan_view, recompute, rewind, rollback
from hub.errors import CallerError, ConfigError, HubError, NotFound

if TYPE_CHECKING:
    from hub.config import Settings
    from hub.materializers.definition.entity_view import View
    from hub.materializers.definition.sql_view import SqlView
    from hub.materializers.planning.classified import Classified
    from hub.materializers.progress.late_events import LateEvent

app = typer.Typer(
    help="Views: draft, list, show, search, validate, explain and test their files, verify their "
    "stores, swap their versions.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples: hub view ls; hub view new orders_360 --from shop.orders; hub view show customer_360; "
    "hub view validate; hub view test; hub view explain late_departures; hub view plan customer_360; hub "
    "view rollback customer_360",
)

app.command("new")(new_view)
app.command("show")(show_view)
app.command("search")(search_view)
app.command("get")(get_row)
app.command("history")(history_of_row)
app.command("diff")(diff_row)
app.command("verify")(verify_view)
app.command("test")(run_tests)
app.command("plan")(plan_view)
app.command("apply")(apply_version)
app.command("rollback")(rollback)
app.command("drop")(drop_version)
app.command("rewind")(rewind)
app.command("recompute")(recompute)


@app.command("ls")
def list_views(output: OutputOption = Output.table) -> None:
    """List the views: engine state, served rows, stores, and why a view does not run.

    Example: hub view ls -o json
    """
    views = get("/views")["views"]
    if output is Output.table:
        views = [
            {
                **each,
                "stores": stores_in_short(each.get("stores", [])),
                "version": versions_in_short(each.get("versions", [])),
                "cut": snapshot_group_summary(each.get("cut")),
            }
            for each in views
        ]
    lasting = ("ttl",) if any(each.get("ttl") for each in views) else ()
    grouped = ("cut",) if any(each.get("cut") for each in views) else ()
    show(views, output, ("view", "state", "rows", *lasting, *grouped, "version", "stores", "owner", "reason"))


@app.command()
def validate(
    project: Annotated[
        Path | None, typer.Argument(help="The project folder. Default: the current project")
    ] = None,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help="Have Spark analyze each view, too, which takes some seconds. Default: "
            "where its jars are fetched",
        ),
    ] = None,
) -> None:
    """Check the files of a project's views, and their fields against the schemas that topics.yaml names.
    Needs no Kafka.

    Example: hub view validate examples/sql-views
    """
    from hub.materializers.definition.load import load_views, view_files
    from hub.materializers.planning.validation import CheckedView, ViewProject, checked_view
    from hub.materializers.spark.building.builder import ViewBuilder

    settings = load_settings(project=project)
    folder = project or settings.project
    warn_of_deprecations(folder)
    if not view_files(folder):
        raise NotFound(f'folder "{folder / "views"}" has no views', hint="a view is a file views/NAME.yaml")
    wrong: list[ConfigError] = []
    asks = _has_spark(settings) if spark is None else spark
    built = ViewBuilder(settings).built if asks else None
    within = ViewProject(folder, settings.store_urls, partial(schemas_of, folder), built, settings.transforms)
    views = {folder / "views" / f"{v.name}.yaml": v for v in load_views(folder, lambda _, e: wrong.append(e))}
    checked: dict[Path, CheckedView] = {}
    for file, view in views.items():
        try:
            checked[file] = checked_view(within, file, view)
        except ConfigError as error:
            wrong.append(error)
    analyzed, refused = _analyzed(folder, settings, [views[f] for f in checked]) if asks else ({}, {})
    wrong += refused.values()
    for file, found in checked.items():
        for warning in found.warnings:
            note(f"! {file}: {warning}")
        if (name := views[file].name) not in refused:
            note(f"{file}: {found.summary}{analyzed.get(name, '')}")
    for other in wrong[1:]:
        note(f"Error: {other.message}" + (f" ({other.hint})" if other.hint else ""))
    if wrong:
        raise wrong[0]
    refuse_flows(settings, "view")


def _has_spark(settings: Settings) -> bool:
    from hub.embedded import find_java
    from hub.embedded.jars import missing_jars

    try:
        find_java(settings)
        return not missing_jars(settings, ("spark",))
    except HubError:
        return False


def _analyzed(
    folder: Path, settings: Settings, views: list[View | SqlView]
) -> tuple[dict[str, str], dict[str, ConfigError]]:
    """Return additions by Spark's analyzer to the summaries of views, and its errors, by name. Python
    functions do not run here, so views that use them are not analyzed.
    """
    from hub.cli.view.golden import golden_runner
    from hub.materializers.golden.runner import UNKNOWN_SOURCE

    plain = {view.name: view for view in views if view.transforms is None}
    notes = {
        view.name: "; not analyzed: its functions run in Spark only" for view in views if view.transforms
    }
    refused: dict[str, ConfigError] = {}
    with golden_runner(settings, folder, plain) as runner:
        for name in plain:
            try:
                runner.analyze(name)
            except ConfigError as error:
                refused[name] = error
            except NotFound as error:
                if error.code != UNKNOWN_SOURCE:
                    raise
            else:
                notes[name] = ", by Spark's analyzer"
    return notes, refused


def _entity_report(folder: Path, view: View) -> dict[str, Any]:
    from hub.materializers.definition.schema_impact import columns_read

    reads = {name: sorted({path[0] for path in paths}) for name, paths in columns_read(view).items()}
    within = view.counted_within
    return {
        "view": view.name,
        "kind": "entity",
        "why": "folds the events of its sources by key: one native aggregation, one row of state a key",
        "mode": "update",
        "key": list(dict.fromkeys(source.key for source in view.sources.values())),
        "columns": list(view.columns),
        **{
            f"source {name}": {
                "topic": source.topic,
                **({"format": source.format} if source.format is not None else {}),
                "reads": reads[name],
                **({"counts": within[name]} if name in within else {}),
            }
            for name, source in view.sources.items()
        },
        **_lasts(view),
        **_grouped(folder, view),
        "changelog": view.changelog,
    }


@app.command()
def explain(
    view: Annotated[str, typer.Argument(help="The view's name")],
    project: Annotated[
        Path | None, typer.Option(help="The project folder. Default: the current project")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Explain how a view is maintained: its kind, its sources, its key. Needs no Kafka.

    Example: hub view explain late_departures
    """
    from hub.materializers.definition.sql_view import SqlView
    from hub.materializers.planning.validation import unchecked
    from hub.materializers.spark.building.builder import ViewBuilder

    settings = load_settings()
    folder = project or settings.project
    found = declared_view(folder, view)
    schemas, unknown = schemas_of(folder, found)
    if isinstance(found, SqlView):
        if not unknown:
            found = ViewBuilder(settings).built(found, schemas)
        report = _view_report(found, schemas) | _grouped(folder, found)
    else:
        report = _entity_report(folder, found)
    if found.proof.recompute is not None:
        report["recomputed"] = (
            f"every {found.proof.recompute} from its sources as a check, and all rows are compared"
        )
    if unknown:
        report["not checked"] = unchecked(folder, found, unknown)
    show_one(in_rows(report) if output is Output.table else report, output)


@app.command("replay-late")
def replay_late(
    view: Annotated[str, typer.Argument(help="The SQL view's name")],
    project: Annotated[
        Path | None, typer.Option(help="The project folder. Default: the current project")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Count late events of a view by window, and show how to include them. Writes nothing.

    Example: hub view replay-late departures_by_hour
    """
    from hub.kafka import own_cluster
    from hub.materializers.definition.sql_view import SqlView
    from hub.materializers.progress.late_events import by_window, late_event, window_ms
    from hub.schema_registry.client.registry_client import RegistryClient
    from hub.topics.dead_letters.queue import DeadLetters

    settings = load_settings()
    found = declared_view(project or settings.project, view)
    if not isinstance(found, SqlView):
        raise CallerError(
            f'view "{view}" is an entity view: no event is late for it',
            hint="its `order` decides, not arrival; hub dlq ls has what could not be taken",
        )
    cluster = own_cluster(settings)
    if found.late_topic not in cluster.topics():
        note(f'view "{view}" has no late events: it keeps no watermark, or has not run yet')
        show([], output)
        return
    letters = DeadLetters(cluster, RegistryClient(settings.registry))
    records, complete = letters.records([found.late_topic])
    events = [event for event in map(late_event, records) if event is not None]
    show(by_window(events, window_ms(found.sql)), output, ("window", "until", "topic", "late", "behind_ms"))
    if not complete:
        note("! there are more than were read: the counts are too small")
    if not events:
        return
    _note_watermarks(found, events)
    begins = [
        tp.topic for tp, offset in cluster.beginning_offsets(sorted({e.topic for e in events})) if offset
    ]
    if begins:
        note(
            f"! retention has taken the beginning of {', '.join(sorted(set(begins)))}: rows "
            "of that time would go"
        )


def _note_watermarks(view: SqlView, events: Sequence[LateEvent]) -> None:
    from hub.materializers.definition.sql_view import duration_ms
    from hub.materializers.progress.late_events import needed_ms
    from hub.topics.tree.tree import matches

    for name, source in view.sources.items():
        mine = [event for event in events if matches(source.topic, event.topic)]
        if mine and source.watermark is not None:
            minutes = needed_ms(mine, duration_ms(source.watermark)) // 60_000
            note(
                f"source {name}: watermark {source.watermark}; {minutes} minutes would have "
                f"taken these {len(mine)}"
            )
    note(
        "To accept them, write that watermark into the view's file. The hub then computes the view again "
        "from the start of its log, and its rows replace these."
    )


def _lasts(view: View) -> dict[str, object]:
    """Return the explanation of a view's ttl; {} without one."""
    if view.ttl is None:
        return {}
    return {
        "ttl": f"{view.ttl} after last_event_at, the newest event of the row's sources; then "
        "its key gets a tombstone",
        "expiries": view.expiry_topic,
    }


def _grouped(folder: Path, view: View | SqlView) -> dict[str, object]:
    """The views that it moves in step with; {} of one without a `cut`."""
    from contextlib import suppress

    from hub.errors import HubError
    from hub.materializers.definition.load import load_view, view_files

    if view.consistent_with is not None:
        topic = view.consistent_with.topic(each.topic for each in view.sources.values())
        return {"consistent with": f"transactions of the source database, by {topic}"}
    if view.cut is None:
        return {}
    others = []
    for file in view_files(folder):
        with suppress(HubError):
            if file.stem != view.name and load_view(file).cut == view.cut:
                others.append(file.stem)
    return {"cut": f"{view.cut}: in step with {', '.join(others) or 'no other view yet'}"}


def _view_report(view: SqlView, schemas: Mapping[str, Any]) -> dict[str, object]:
    """Return the ``explain`` report of a SQL view."""
    from hub.materializers.definition.sql_checks import checked
    from hub.materializers.planning.classify import classify

    found = classify(checked(view, schemas))
    report: dict[str, object] = {"view": view.name, "kind": found.name, "why": found.reason}
    if found.nearest:
        report["nearest native form" if not found.native else "note"] = found.nearest
    if not found.native:
        report |= _delta(found, schemas)
    report |= {
        "engine": f"Spark, {found.mode} mode" if found.native else "the incremental engine",
        "real time": _in_real_time(found),
        "key": list(found.key),
        "key from": found.key_from,
        "columns": list(found.query.columns),
    }
    for name, source in view.sources.items():
        report[f"source {name}"] = {
            "topic": source.topic,
            "as": source.read_as,
            **({"table": source.table.model_dump(exclude_defaults=True)} if source.table is not None else {}),
            **({"format": source.format} if source.format is not None else {}),
            "reads": sorted(found.query.used[name]),
            **({"event_time": source.event_time, "watermark": source.watermark} if source.event_time else {}),
        }
    if view.python is not None:
        report["function"] = f"{view.python.file}:{view.python.function}"
        report["sql"] = view.sql.splitlines()
    report["changelog"] = view.changelog
    if found.late:
        report["late events"] = view.late_topic
    return report


def _in_real_time(found: Classified) -> str:
    """Return whether `mode: realtime` supports the view, whatever mode its file has now."""
    from hub.materializers.planning.real_time import refused

    if found.query.view.python is not None:
        return "no: a PySpark view runs in batches"
    if found.query.view.mode == "realtime":
        return "yes, by its file"
    no = refused(found.query, found.name, found.reason, found.nearest)
    return "possible: mode: realtime" if no is None else f"no: {no[0]}"


def _delta(found: Classified, schemas: Mapping[str, Any]) -> dict[str, object]:
    """Return how the incremental engine maintains a view: its plan and its state."""
    from hub.materializers.planning.delta_inputs import planned

    sources = found.query.view.sources
    unknown = [name for name in sources if name not in schemas]
    streams = [name for name, source in sources.items() if source.read_as == "stream"]
    report: dict[str, object] = {}
    if unknown:
        report["plan"] = (
            f"depends on the types of {', '.join(unknown)}: the hub checks this when it starts the view"
        )
    else:
        report["plan"] = planned(found, schemas).explain()
    report["keeps"] = "the current rows of every input and of the view" + (
        f", and every event of {', '.join(streams)}" if streams else ""
    )
    return report
