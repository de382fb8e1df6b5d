"""[edge] ``hub lake``: Iceberg tables of topics (docs/how-to/topics-as-iceberg-tables.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings, open_home
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.config import Settings
from hub.errors import NotFound
from hub.times import epoch_ms, iso

if TYPE_CHECKING:
    from hub.lake.note import LakeNote
    from hub.lake.table import LakeTable

app = typer.Typer(
    help="Iceberg tables of topics: list, write, verify, maintain.",
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog="Example: hub lake ls; hub lake verify 'nyc.**'",
)
PatternsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[PATTERN]...", help="Only these topics, such as 'shop.**'")
]
_COLUMNS = ("topic", "table", "state", "rows", "behind", "committed_at", "dead_letters", "lost", "trouble")


@app.command("ls")
def ls(patterns: PatternsArgument = None, output: OutputOption = Output.table) -> None:
    """List the tables of topics: rows, records that are not in them yet, dead letters, troubles.

    The state is UNKNOWN while no writer reports. Exit code 1 while a table is FAILING or UNKNOWN.

    Example: hub lake ls 'shop.**'
    """
    from hub.lake.note import read_note

    settings = load_settings()
    lake_note = read_note(settings.home, epoch_ms())
    rows = [_row(settings, topic, lake_note) for topic in _topics(settings, patterns)]
    show(rows, output, _COLUMNS)
    bad = [row for row in rows if row["state"] in ("FAILING", "UNKNOWN")]
    raise typer.Exit(1 if bad else 0)


@app.command("run")
def run() -> None:
    """Write topics with `lake: true` into their tables until a stop signal comes; `hub up` does it, too.

    Run one for each catalog. Of two, one commits and the other begins its work again: no row is there twice.

    Example: hub lake run
    """
    from hub.formats.admission import admit
    from hub.kafka.contact.notes import note_for_ever
    from hub.lake.writer import run as write
    from hub.runtime import install_stop_signals, log_to_stderr

    log_to_stderr()
    settings = load_settings()
    open_home(settings)
    note_for_ever(settings.home, "lake")
    admit(settings, "lake")
    write(settings, install_stop_signals())


@app.command("verify")
def verify(patterns: PatternsArgument = None, output: OutputOption = Output.table) -> None:
    """Compare tables with their topics, record by record: missing, extra and different rows.

    Compares what the log still has. Exit code 1 if a table differs.

    Example: hub lake verify nyc.jfk.departures
    """
    from hub.kafka import own_cluster
    from hub.lake.schemas import LakeSchemas
    from hub.lake.verify import compare
    from hub.schema_registry.client.registry_client import RegistryClient

    settings = load_settings()
    cluster, registry = own_cluster(settings), RegistryClient(settings.registry)
    found = []
    for topic, table in _tables(settings, patterns):
        schemas = LakeSchemas(registry, topic)
        schemas.refresh()
        begins = {place.partition: at for place, at in cluster.beginning_offsets([topic])}
        found.append(compare(cluster, table, schemas, begins))
    registry.close()
    show([each.as_json() for each in found], output)
    raise typer.Exit(0 if all(each.equal for each in found) else 1)


@app.command("maintain")
def maintain(
    patterns: PatternsArgument = None,
    least_files: Annotated[
        int, typer.Option(min=2, help="Merge the small files of a day from this number on")
    ] = 4,
    keep_h: Annotated[
        float | None, typer.Option(min=0.0, help="Hours of old snapshots. Default: lake_keep_h of hub.yaml")
    ] = None,
    sweep_after_h: Annotated[
        float, typer.Option(min=1.0, help="Delete files that no snapshot has from this age on, in hours")
    ] = 24.0,
    output: OutputOption = Output.table,
) -> None:
    """Merge small files, expire old snapshots, delete unused files; the writer does it every lake_maintain_h.

    Example: hub lake maintain 'nyc.**' --keep-h 48
    """
    from hub.lake.maintenance import maintain as keep

    settings = load_settings()
    done = [
        keep(
            *(table, settings, time.time()),
            least_files=least_files,
            keep_h=keep_h,
            sweep_after_h=sweep_after_h,
        )
        for _, table in _tables(settings, patterns)
    ]
    show([each.as_json() for each in done], output)


def _topics(settings: Settings, patterns: list[str] | None) -> list[str]:
    """Return the topics with a table that match. Raises NotFound (HUB-1812) if there are none."""
    from hub.lake.writer import lake_topics
    from hub.topics.tree.tree import LiveTree, matches

    tree = LiveTree(settings.project / "topics.yaml")
    found = lake_topics(tree)
    if tree.error is not None:
        raise tree.error
    chosen = [each for each in found if not patterns or any(matches(one, each) for one in patterns)]
    if not chosen:
        named = f" that matches {' or '.join(patterns)}" if patterns else ""
        raise NotFound(
            f"topics.yaml has no topic with `lake: true`{named}",
            hint="set lake: true at a topic, or at a node above it",
            code="HUB-1812",
        )
    return chosen


def _tables(settings: Settings, patterns: list[str] | None) -> Iterator[tuple[str, LakeTable]]:
    """Yield the tables that exist; the others are named on standard error."""
    from hub.iceberg.catalog import identifier_of, open_catalog
    from hub.lake.table import open_table

    topics = _topics(settings, patterns)
    with open_catalog(settings) as catalog:
        for topic in topics:
            try:
                table = open_table(catalog, identifier_of(settings, topic))
            except NotFound as error:
                note(f"{topic}: {error.message}; the writer makes it: hub lake run")
                continue
            yield topic, table


def _row(settings: Settings, topic: str, lake_note: LakeNote | None) -> dict[str, Any]:
    from hub.iceberg.catalog import identifier_of

    lake_topic = None if lake_note is None else lake_note.topics.get(topic)
    if lake_topic is None:
        trouble = "no writer reports: hub up, or hub lake run" if lake_note is None else "not begun yet"
        table = ".".join(identifier_of(settings, topic))
        empty = dict.fromkeys(_COLUMNS)
        return {**empty, "topic": topic, "table": table, "state": "UNKNOWN", "trouble": trouble}
    row = {key: value for key, value in lake_topic.as_json().items() if key != "committed_at_ms"}
    at_ms = lake_topic.committed_at_ms
    committed_at = None if at_ms is None else iso(at_ms)
    return {**row, "committed_at": committed_at, "trouble": lake_topic.trouble or None}
