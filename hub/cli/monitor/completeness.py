"""[edge] ``hub completeness``: completeness. Count written and arrived events, show the counts, name what is
missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.terminal.progress import counted
from hub.cli.terminal.watch_option import IntervalOption, WatchOption, looked
from hub.errors import HubError
from hub.observability import format
from hub.observability.web.pages.monitor.completeness_times import at_of
from hub.observability.web.pages.monitor.completeness_times import minute as minute_of
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.completeness.balances import TopicCompleteness
    from hub.completeness.counting import MirrorCopy, TopicCounter
    from hub.completeness.counts import CountEntry
    from hub.config import Settings
    from hub.kafka import KafkaCluster

EXIT_DIFFERS = 1
BAD = ("SHORT", "MISMATCH", "EXCESS", "UNEXPLAINED")
COLUMNS = ("topic", "tier", "state", "records", "compared", "missing", "excess", "waiting", "cause")

app = typer.Typer(
    help="Compare counts and sums of ids at producers, in the log, in mirrors and in stores.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub completeness run shop.orders; hub completeness show; hub completeness missing "
    "shop.orders 2026-01-31T12:30Z",
)

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Its name; views.NAME is a view's changelog")
]


@app.command("run")
def run(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="views.NAME is a view's changelog")],
    mirrors: Annotated[bool, typer.Option(help="Read the copies of mirrors.yaml as well")] = True,
    output: OutputOption = Output.table,
    watch: WatchOption = False,
    interval: IntervalOption = 60.0,
) -> None:
    """Read new records of a topic and its copies, count them, and write the counts to the ledger. Reads
    each record once.

    Topics that cannot be read to their end are reported; the others are audited.

    Exit code 0: nothing is known to be missing; 1: records are missing, or a topic was not read.

    Example: hub completeness run shop.orders views.customer_360
    """
    audits = looked(
        lambda: run_each(topics, mirrors=mirrors),
        lambda audits: _print([_row(each) for each in audits], output),
        watch,
        output,
        interval,
    )
    if len(audits) < len(topics) or any(each.state in BAD or each.unread for each in audits):
        raise typer.Exit(EXIT_DIFFERS)


@app.command("show")
def show_(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Only this one, with its minutes")
    ] = None,
    output: OutputOption = Output.table,
    watch: WatchOption = False,
) -> None:
    """Show the ledger by topic, the worst first, as the running server knows it (GET /api/audit).

    Example: hub completeness show shop.orders -o json
    """
    looked(
        lambda: http.get("/api/audit", {"topic": topic} if topic else {}, timeout_s=15.0),
        lambda found: _show_topics(found, topic, output),
        watch,
        output,
    )


def _show_topics(answer: dict[str, Any], topic: str | None, output: Output) -> None:
    if answer["error"]:
        note(f"! not up to date: {answer['error']}")
    if topic is not None and output is Output.json:
        show_one(answer["topics"][0], output)
        return
    _print(answer["topics"], output)
    if topic is not None:
        row = answer["topics"][0]
        holes = ", ".join(f"{number:,} {name}" for name, number in row["holes"].items() if number) or "none"
        note(f"{row['offsets']:,} offsets, {row['records']:,} records; without a record: {holes}")
        note(f"{row['repeated']:,} records were there before")
        for gap in row["unaudited"]:
            note(f"not audited: partition {gap['partition']} offsets [{gap['first']}, {gap['end']})")
        differing = [
            {"tier": _tier(tier), "minute": minute_of(each["bucket_ms"]), **_counts(each)}
            for tier in row["tiers"]
            for each in tier["differences"]
        ]
        if differing:
            show(differing, output)
            note(f"which records: hub completeness missing {topic} {differing[0]['minute']}")


@app.command("missing")
def missing(
    topic: TopicArgument,
    minute: Annotated[
        str,
        typer.Argument(help="2026-01-31T12:30Z, or epoch milliseconds; 1790000000000000ms beyond all dates"),
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Records at most")] = 100,
    output: OutputOption = Output.table,
) -> None:
    """List the records of a minute that one side lacks or has twice. Reads both sides again; changes nothing.

    Example: hub completeness missing shop.orders 2026-01-31T12:30Z
    """
    from dataclasses import asdict

    at_ms = bucket(minute)
    with closing(_audit(load_settings(), topic, mirrors=True)) as audit:
        missing_records = audit.missing(at_ms, limit)
    if missing_records or output is Output.json:
        show([asdict(each) for each in missing_records], output)
    else:
        note(f"nothing differs in the minute of {minute_of(at_ms)}")


def bucket(text: str) -> int:
    """The minute that a person names, in epoch ms. Raises CallerError."""
    return at_of(text) // 60_000 * 60_000


def run_each(topics: Sequence[str], *, mirrors: bool) -> list[TopicCompleteness]:
    """Return the results of the topics that could be counted, and note why the others could not. Raises the
    first error when all failed.
    """
    audits: list[TopicCompleteness] = []
    failed: HubError | None = None
    for topic in topics:
        try:
            audits.append(_run(topic, mirrors=mirrors))
        except HubError as error:
            if len(topics) > 1:
                note(f"! {topic}: not audited: {error}")
            failed = failed or error
    if failed is not None and not audits:
        raise failed
    return audits


def _run(topic: str, *, mirrors: bool) -> TopicCompleteness:
    from hub.completeness.balances import audit_of
    from hub.completeness.counting import read_counts, write_entries

    settings = load_settings()
    with closing(_audit(settings, topic, mirrors=mirrors)) as audit, counted(f"audit {topic}") as progress:
        audit.run(progress)
        verdicts = _of_stores(settings, topic)
        if verdicts:
            write_entries(audit.kafka, verdicts, settings.replication_factor)
        names = [copy.name for copy in audit.copies]
        return audit_of(topic, read_counts(audit.kafka).of(topic), names)


def _audit(settings: Settings, topic: str, *, mirrors: bool) -> TopicCounter:
    from hub.completeness.counting import TopicCounter
    from hub.kafka import bounds_of, own_cluster, own_connection
    from hub.replication.clusters.clusters import access_of

    kafka = own_cluster(settings)
    access = access_of(own_connection(settings), "hub-audit", bounds_of(settings))
    copies = _copies(settings, kafka, topic) if mirrors else []
    return TopicCounter(kafka, access, topic, copies, settings.replication_factor)


def _copies(settings: Settings, kafka: KafkaCluster, topic: str) -> list[MirrorCopy]:
    """Return the mirrors of mirrors.yaml whose source is this cluster and that have
    begun to copy the topic."""
    from hub.completeness.counting import MirrorCopy
    from hub.replication.clusters.clusters import own_environ, reach_all
    from hub.replication.clusters.control_state import joined
    from hub.replication.clusters.readers import read_control_state
    from hub.replication.clusters.renaming.link_view import seen_by
    from hub.replication.config.load_mirrors import load
    from hub.replication.config.mirrors import MIRRORS_FILE
    from hub.replication.ownership.links import links
    from hub.replication.verification.comparable import compared

    path = settings.project / MIRRORS_FILE
    if not path.exists():
        return []
    file = load(path)
    clusters = reach_all(file, own_environ(settings), path.parent, settings.kafka_timeout_s)
    mine, found = kafka.cluster_id(), []
    for name, link in links(file).items():
        try:
            if clusters[link.source].kafka.cluster_id() != mine:
                continue
            boards = [
                read_control_state(clusters[end], status=False).control for end in (link.source, link.target)
            ]
            seen = seen_by(link, clusters)
            every = compared(file, link, seen, joined(boards), [topic])
        except HubError as error:  # a copy that cannot be read is not compared; all else can be
            note(f"! mirror {name}: not compared: {error.message}")
            continue
        places = {each.place: each for each in every if each.place.topic == topic}
        made = {
            str(one.rules) for each in places.values() for one in each.ruled if one.rules.shape is not None
        }
        if rules := "; or ".join(sorted(made)):
            note(f"! mirror {name}: its copy differs as it should ({rules}): see hub mirror verify {name}")
        elif places:
            found.append(MirrorCopy(name, seen[link.target], places))
    return found


def _of_stores(settings: Settings, topic: str) -> list[CountEntry]:
    """Return count entries for a view's changelog: its fold and the rows in each of its stores."""
    from hub.cli.view.verify import _stores, _verdict
    from hub.completeness.counts import Cell, Cells, CountEntry
    from hub.materializers.definition.declared import CHANGELOG_PREFIX

    view = topic.removeprefix(CHANGELOG_PREFIX)
    if view == topic:
        return []
    declared = (settings.project / "views" / f"{view}.yaml").exists()
    found, now_ms = [], epoch_ms()
    for store in _stores(settings, view, None):
        try:
            verdict = _verdict(settings, store, view, 60.0, 20)
        except HubError as error:
            if declared:
                raise
            # It may be a topic of anybody's that is only called like a changelog; or this is not the view's
            # project.
            note(
                f'! {topic}: no rows are compared: view "{view}" does not exist in '
                f"{settings.project} ({error.message})"
            )
            return []
        end = max(1, sum(offset for _, offset in verdict.positions))
        fold = Cells({0: Cell(verdict.changelog.rows, verdict.changelog.total, 0)})
        rows = Cells({0: Cell(verdict.store.rows, verdict.store.total, 0)})
        place = (f"{view}@{store}", topic, 0, 0, end, now_ms)
        found += [CountEntry("view", *place, fold), CountEntry("store", *place, rows)]
    return found


def _row(audit: TopicCompleteness) -> dict[str, Any]:
    from hub.completeness.counts_follower import row_of

    return row_of(audit, buckets=True)


def _print(rows: Sequence[dict[str, Any]], output: Output) -> None:
    if output is Output.json:
        show(rows, output)
    elif rows:
        show([line for row in rows for line in lines(row)], output, COLUMNS)
    else:
        note("nothing was audited yet: hub completeness run TOPIC")


def lines(row: dict[str, Any]) -> list[dict[str, object]]:
    """Return a topic as table rows: the log, then a row for each copy compared with it."""
    first = {
        "topic": row["topic"],
        "tier": "log",
        "state": row["state"],
        "records": format.count(row["records"]),
        "cause": row["cause"],
    }
    more = [
        {
            "topic": "",
            "tier": _tier(tier),
            "state": tier["state"],
            **{
                name: format.count(tier[name])
                for name in ("records", "compared", "missing", "excess", "waiting")
            },
            "cause": tier["cause"],
        }
        for tier in row["tiers"]
    ]
    return [first, *more]


def _tier(tier: dict[str, Any]) -> str:
    return f"{tier['kind']} {tier['instance']}"


def _counts(each: dict[str, Any]) -> dict[str, object]:
    return {"state": each["state"], "expected": each["expected"], "actual": each["actual"]}
