"""[edge] ``hub dlq``: events that a view or the auditor could not take:
counted, shown, repaired, replayed, dismissed."""

from __future__ import annotations

import getpass
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.topic.dlq_rows import (
    COLUMNS,
    DEAD_LETTER_COLUMNS,
    letter_row,
    note_incomplete,
    note_repaired,
    show_replayed,
    topic_row,
)
from hub.cli.topic.python_script import script_function
from hub.errors import CallerError, NotFound

if TYPE_CHECKING:
    from hub.topics.dead_letters.event_builder import Change
    from hub.topics.dead_letters.model import RecordPlace
    from hub.topics.dead_letters.queue import DeadLetters


_MOST_LISTED_BYTES = 64 << 20
app = typer.Typer(
    help="Dead-letter records: events that were rejected, as they were written.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples: hub dlq ls; hub dlq show shop.orders.dlq 0; "
    "hub dlq repair shop.orders.dlq 0 --set cents=100 --dry-run; hub dlq replay shop.orders.dlq 0",
)
TopicArgument = Annotated[
    str, typer.Argument(help="A dead-letter topic, or a topic or view with dead-letter records")
]
PartitionOption = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        help="Partition of the dead-letter topic. Default: the one with a record at the "
        "offset; without offsets, all",
    ),
]
ByOption = Annotated[str | None, typer.Option(help="Who does this, for the record. Default: the user")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing")]
ReasonOption = Annotated[str | None, typer.Option(help="Records with this reason, as hub dlq ls names it")]
OffsetsArgument = Annotated[
    list[int] | None, typer.Argument(metavar="[OFFSET…]", help="Offsets of dead-letter records")
]


def _show_counts(rows: list[dict[str, Any]], complete: bool, output: Output) -> None:
    note_incomplete(complete)
    if output is Output.json:
        show(rows, output)
    elif rows:
        show([topic_row(row) for row in rows], output, COLUMNS)
    else:
        note("no dead-letter records")


@app.command("ls")
def list_letters(
    topic: Annotated[str | None, typer.Argument(help="Only of this topic or view")] = None,
    letters: Annotated[
        bool,
        typer.Option("--letters", "-l", help="One line per open record; also with --reason"),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="One line per record, including closed ones")] = False,
    reason: ReasonOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Lines at most")] = 100,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help="Continue after this record; the previous list prints the value at its end"
        ),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Count dead-letter records by topic, state, reason, producer and age; or list them.

    Examples: hub dlq ls; hub dlq ls shop.orders -l --reason undecodable
    """
    from hub.topics.dead_letters.listing import page
    from hub.topics.dead_letters.model import RecordPlace

    behind = None if after is None else RecordPlace.parse(after)
    found = _open()
    if not (letters or every or reason or behind):
        _show_counts(*found.heaps(topic), output)
        return
    there = found.reader.topics()
    names = found.resolved(topic) if topic is not None else list(there)
    read = found.letters(names)
    note_incomplete(read.complete)
    wanted = (each for each in read.letters if every or not each.is_closed)
    chosen = [each for each in wanted if reason in (None, each.letter.reason)]
    now_ms = found.now_ms()
    made = page(chosen, lambda each: letter_row(each, now_ms), limit, _MOST_LISTED_BYTES, behind)
    columns = (
        *(("topic",) if len(names) > 1 else ()),
        *(("partition",) if any(there[name].partitions > 1 for name in names) else ()),
        *DEAD_LETTER_COLUMNS,
    )
    show(made.rows, output, columns)
    if made.after is not None:
        note(f"{made.more} more: --after {made.after}")


@app.command("show")
def show_letter(
    topic: TopicArgument, offset: int, partition: PartitionOption = None, output: OutputOption = Output.table
) -> None:
    """Show one dead-letter record: the reason, the invalid bytes and their field, the readable part as JSON.

    Example: hub dlq show shop.orders.dlq 0 -o json
    """
    found = _open()
    (place,) = _places(found, _one(found, topic), partition, [offset])
    show_one(found.show(place), output)


@app.command()
def repair(
    topic: TopicArgument,
    offsets: OffsetsArgument = None,
    partition: PartitionOption = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Set a field (repeatable)")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="The whole event, as JSON in this file")
    ] = None,
    schema_id: Annotated[
        int | None, typer.Option(help="The bytes are right and belong to this schema")
    ] = None,
    with_: Annotated[
        Path | None,
        typer.Option("--with", metavar="SCRIPT.py", help="Its repair(event, record) returns the event"),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The record's key; its partition stays")] = None,
    reason: ReasonOption = None,
    why: Annotated[str | None, typer.Option(help="A remark, for the record")] = None,
    replay_too: Annotated[bool, typer.Option("--replay", help="Replay the repaired events")] = False,
    dry_run: DryOption = False,
    by: ByOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Repair events. All are built, and checked against the topic's schema and tree, before the first is
    written.

    Examples: hub dlq repair shop.orders.dlq 0 --set cents=100 --dry-run
    hub dlq repair shop.orders.dlq --reason framing --with fix.py
    """
    from hub.topics.dead_letters.event_builder import Repair

    change = _change(set_ or [], json_file, with_)
    if change is None and schema_id is None and key is None:
        raise CallerError("the repair is missing", hint="--set, --json, --schema-id, --with or --key")
    found = _open()
    places = _chosen(found, topic, partition, offsets, reason, {"open", "repaired"})
    how = Repair(change, schema_id, key)
    if with_ is not None:  # a script that fails fails on a few, before it is let loose on all
        found.repair(places[:5], how, _by(by), dry_run=True)
    rows = found.repair(places, how, _by(by), why=why, dry_run=dry_run)
    note_repaired(rows, output, dry_run)
    right = [place for place, row in zip(places, rows, strict=True) if row["state"] == "repaired"]
    replayed = found.replay(right, _by(by)) if replay_too and right and not dry_run else []
    if output is Output.json:
        went = {row["letter"]: row for row in replayed}
        show([{**row, "replay": went.get(row["letter"])} for row in rows], output)
    elif replayed:
        show_replayed(replayed, output, dry_run=False)


@app.command()
def replay(
    topic: TopicArgument,
    offsets: OffsetsArgument = None,
    partition: PartitionOption = None,
    reason: ReasonOption = None,
    as_is: Annotated[
        bool,
        typer.Option(
            "--as-is",
            help="Include unrepaired events: the view was changed, and retention has deleted the event",
        ),
    ] = False,
    dry_run: DryOption = False,
    by: ByOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Append events to their original topic with the same partition, key and time. Idempotent.

    Without offsets: every repaired one, or with --reason every one of that reason that is not closed.
    Example: hub dlq replay shop.orders.dlq --dry-run && hub dlq replay shop.orders.dlq
    """
    found = _open()
    states = {"repaired"} if not offsets and reason is None else {"open", "repaired", "replayed"}
    places = _chosen(found, topic, partition, offsets, reason, states, every=not offsets)
    show_replayed(found.replay(places, _by(by), as_is=as_is, dry_run=dry_run), output, dry_run)


@app.command()
def dismiss(
    topic: TopicArgument,
    offsets: OffsetsArgument = None,
    partition: PartitionOption = None,
    reason: ReasonOption = None,
    why: Annotated[str | None, typer.Option(help="A remark, for the record")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Reopen dismissed records")] = False,
    by: ByOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Close dead-letter records without a replay. Their bytes are kept.

    Example: hub dlq dismiss shop.orders.dlq 3 4 --why "test events"
    """
    found = _open()
    states = {"dismissed"} if undo else {"open", "repaired"}
    places = _chosen(found, topic, partition, offsets, reason, states)
    show(found.dismiss(places, _by(by), why=why, undo=undo), output)


def _open() -> DeadLetters:
    from hub.cli.mirror.write_guard import write_refusals
    from hub.kafka import own_cluster
    from hub.schema_registry.client.registry_client import RegistryClient
    from hub.schema_registry.encryption.serving import use_remote_keys
    from hub.topics.dead_letters.queue import DeadLetters
    from hub.topics.tree.erasable import seal_by_tree
    from hub.topics.tree.tree import LiveTree

    settings = load_settings()
    cluster = own_cluster(settings)
    use_remote_keys(settings)
    seal_by_tree(settings.project, settings.erase_kek)
    tree = LiveTree(settings.project / "topics.yaml")

    def declared(topic: str) -> str | None:
        spec = tree.find(topic)
        return None if spec is None else spec.key

    return DeadLetters(
        cluster,
        RegistryClient(settings.registry),
        declared,
        settings.replication_factor,
        refuses=write_refusals(settings, cluster),
    )


def _one(found: DeadLetters, topic: str) -> str:
    names = found.resolved(topic)
    if len(names) > 1:
        raise CallerError(
            f'"{topic}" has dead-letter records in {" and ".join(names)}', hint="name one of these"
        )
    return names[0]


def _places(found: DeadLetters, topic: str, partition: int | None, offsets: list[int]) -> list[RecordPlace]:
    """Return the dead-letter records at these offsets. Raises CallerError where several partitions have one
    and no partition is given.
    """
    from hub.topics.dead_letters.model import RecordPlace

    if partition is not None or found.reader.topics()[topic].partitions == 1:
        return [RecordPlace(topic, partition or 0, offset) for offset in offsets]
    there = found.at_offsets(topic, offsets)
    places = []
    for offset in offsets:
        here = there.get(offset) or [RecordPlace(topic, 0, offset)]
        if len(here) > 1:
            partitions = " and ".join(str(place.partition) for place in here)
            raise CallerError(
                f'topic "{topic}" has a dead-letter record at offset {offset} in each of the '
                f"partitions {partitions}",
                hint=f"say which: -p {here[0].partition}",
            )
        places += here
    return places


def _chosen(
    found: DeadLetters,
    topic: str,
    partition: int | None,
    offsets: list[int] | None,
    reason: str | None,
    states: set[str],
    *,
    every: bool = False,
) -> list[RecordPlace]:
    """Return the selected dead-letter records: by offset, or by reason (``every``: all in those states), of
    one partition if given.
    """
    name = _one(found, topic)
    if offsets:
        if reason is not None:
            raise CallerError("offsets and --reason exclude each other", hint="say one of them")
        return _places(found, name, partition, list(dict.fromkeys(offsets)))
    if reason is None and not every:
        raise CallerError("no dead-letter records are selected", hint="name offsets, or --reason")
    read = found.letters([name])
    note_incomplete(read.complete)
    there = [
        each.letter
        for each in read.letters
        if each.state in states and partition in (None, each.letter.at.partition)
    ]
    places = [letter.at for letter in there if reason in (None, letter.reason)]
    if not places:
        known = sorted({letter.reason for letter in there})
        where = f'topic "{name}"' + ("" if partition is None else f" partition {partition}")
        raise NotFound(
            f"{where} has no such dead-letter records ({' or '.join(sorted(states))}"
            + (f', reason "{reason}")' if reason else ")"),
            hint=f"there are those of reason {', '.join(known)}" if known else "hub dlq ls lists them",
        )
    return places


def _change(assignments: list[str], json_file: Path | None, script: Path | None) -> Change | None:
    from hub.topics.dead_letters.event_builder import sets, whole
    from hub.topics.dead_letters.repair import assignment, loaded

    if sum((bool(assignments), json_file is not None, script is not None)) > 1:
        raise CallerError("--set, --json and --with each say what the event is to be", hint="say one of them")
    if assignments:
        return sets([assignment(each) for each in assignments])
    if json_file is not None:
        try:
            return whole(loaded(json_file.read_bytes()))
        except (OSError, orjson.JSONDecodeError) as error:
            raise CallerError(f'file "{json_file}" is not read as JSON: {error}') from None
    return None if script is None else _scripted(script)


def _scripted(script: Path) -> Change:
    """Load ``repair(event, record)`` from the user's file. Its errors name the dead-letter record."""
    function = script_function(script, "repair")

    def change(value: Any, letter: Any) -> Any:
        try:
            return function(deepcopy(value), letter)
        except Exception as error:
            raise CallerError(
                f'script "{script}": dead-letter record {letter.at}: {type(error).__name__}: {error}',
                hint="nothing was written; return None to leave a record unchanged",
            ) from error

    return change


def _by(by: str | None) -> str:
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
