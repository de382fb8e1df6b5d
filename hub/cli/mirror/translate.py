"""[edge] ``hub mirror translate``: positions outside of Kafka, translated to the other side of a mirror."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.mirror.context import FileOption, NameArgument, open_world
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import CallerError
from hub.record import Positions, TopicPartition

if TYPE_CHECKING:
    from hub.cli.mirror.context import World
    from hub.replication.ownership.links import Link
    from hub.replication.positions.mirror_maps import MirrorMaps
    from hub.replication.positions.spark_logs import InFlight
    from hub.replication.positions.translation import TranslatedPosition

_EXIT_UNKNOWN = 1


PositionsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="POSITION", help="topic:partition:offset, or an offset of --topic; - for stdin"),
]
TopicOption = Annotated[str, typer.Option("--topic", "-t", help="Topic of positions that name none")]
PartitionOption = Annotated[
    int, typer.Option("--partition", "-p", min=0, help="Partition of a single offset")
]
LinesOption = Annotated[
    Path | None, typer.Option("--lines", metavar="FILE", help="Positions in lines of a file; - for stdin")
]
CheckpointOption = Annotated[
    Path | None, typer.Option("--spark-checkpoint", metavar="DIR", help="A checkpoint of Spark")
]
ToOption = Annotated[
    Path | None, typer.Option("--to", metavar="NEWDIR", help="Folder of the translated checkpoint")
]
InFlightOption = Annotated[
    str, typer.Option(help="Of a batch that was begun and not committed: refuse, or repeat it over there")
]
ConnectOption = Annotated[
    str, typer.Option("--connect-offsets", metavar="TOPIC", help="offset.storage.topic of Kafka Connect")
]
SqlOption = Annotated[
    tuple[str, str] | None,
    typer.Option("--sql", metavar="URL TABLE", help="A table with the columns topic, partition, offset"),
]
ApplyOption = Annotated[
    str, typer.Option("--apply", metavar="DIGEST", help="Carry out the plan of --sql or --connect-offsets")
]
BackOption = Annotated[bool, typer.Option("--back", help="From the target to the source")]


def translate(
    name: NameArgument,
    positions: PositionsArgument = None,
    file: FileOption = None,
    topic: TopicOption = "",
    partition: PartitionOption = 0,
    lines: LinesOption = None,
    checkpoint: CheckpointOption = None,
    to: ToOption = None,
    in_flight: InFlightOption = "refuse",
    connect_offsets: ConnectOption = "",
    sql: SqlOption = None,
    apply: ApplyOption = "",
    back: BackOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Translate positions of the source to the target, exactly, by the mirror's offset map.

    A position is the next offset to read. The result is `exact`; `next`, where the target has no record at
    that offset; `bounded`, where some records are read again; or `unknown`: before the map or past its end.

    --lines: tokens of the hub, JSON, or positions as the tools of Flink print them. --spark-checkpoint writes
    a checkpoint for the other region. --sql and --connect-offsets show a plan first, and carry it out with
    its digest.

    Exit code 0: everything is translated. 1: something is unknown.

    Example: hub mirror translate nyc-lon nyc.orders:0:4711
    """
    if sum(bool(each) for each in (positions, lines, checkpoint, connect_offsets, sql)) != 1:
        raise CallerError(
            "say what to translate: positions, --lines, --spark-checkpoint, --connect-offsets or --sql",
            hint="one of them a call; hub mirror translate nyc-lon nyc.orders:0:4711",
        )
    world = open_world(file)
    link = world.link(name)
    with _maps(world, link) as maps:
        if checkpoint is not None:
            _checkpoint(maps, checkpoint, to, in_flight, back, output)
        elif sql is not None:
            _table(maps, sql, apply, back, output)
        elif connect_offsets:
            _connect(world, link, maps, connect_offsets, apply, back, output)
        elif lines is not None or positions == ["-"]:
            _lines(maps, lines, topic, back)
        else:
            _positions(maps, [*_places(positions or (), topic, partition)], back, output)


@contextmanager
def _maps(world: World, link: Link) -> Iterator[MirrorMaps]:
    from hub.replication.ownership.links import check_not_renamed
    from hub.replication.positions.mirror_maps import MirrorMaps

    check_not_renamed(link, "translated positions")
    with closing(MirrorMaps(world.file, link, world.clusters)) as maps:
        maps.refresh()
        yield maps


def _places(given: Sequence[str], topic: str, partition: int) -> Iterator[tuple[TopicPartition, int]]:
    for text in given:
        if text.isdecimal():
            if not topic:
                raise CallerError(f"offset {text}: of which topic?", hint=f"--topic TOPIC, or TOPIC:0:{text}")
            yield TopicPartition(topic, partition), int(text)
        else:
            yield from sorted(Positions.parse(text))


def _positions(
    maps: MirrorMaps, places: Sequence[tuple[TopicPartition, int]], back: bool, output: Output
) -> None:
    _show([maps.translate(place, offset, back=back) for place, offset in places], output)


def _show(translated_positions: Sequence[TranslatedPosition], output: Output) -> None:
    show([each.as_json() for each in translated_positions], output)
    _end(translated_positions)


def _end(translated_positions: Iterable[TranslatedPosition]) -> None:
    if any(each.translated is None for each in translated_positions):
        raise typer.Exit(_EXIT_UNKNOWN)


def _lines(maps: MirrorMaps, path: Path | None, topic: str, back: bool) -> None:
    from hub.replication.positions.lines import translated_line
    from hub.replication.positions.translation import summary

    counts: dict[str, int] = {}

    def translated(place: TopicPartition, offset: int) -> TranslatedPosition:
        return maps.translate(place, offset, back=back)

    for number, line in enumerate(_read(path), 1):
        if not line.strip():
            print()
            continue
        found = translated_line(line, number, translated, topic)
        print(found.text, flush=True)
        for precision, count in summary(found.positions).items():
            counts[precision] = counts.get(precision, 0) + count
    note(", ".join(f"{count:,} {precision}" for precision, count in counts.items() if count) or "no position")
    if counts.get("unknown"):
        raise typer.Exit(_EXIT_UNKNOWN)


def _read(path: Path | None) -> Iterator[str]:
    if path is None or str(path) == "-":
        yield from sys.stdin
        return
    try:
        with path.open() as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f'file "{path}" cannot be read: {error}') from None


def _checkpoint(
    maps: MirrorMaps, folder: Path, to: Path | None, in_flight: str, back: bool, output: Output
) -> None:
    from hub.replication.positions.spark_checkpoint import read_logs, write_moved
    from hub.replication.positions.spark_logs import moved

    choices: dict[str, InFlight] = {"refuse": "refuse", "repeat": "repeat"}
    if in_flight not in choices:
        raise CallerError(f'--in-flight: "{in_flight}" is not known', hint="one of: refuse, repeat")
    plan = moved(read_logs(folder), maps, back=back, in_flight=choices[in_flight])
    if to is not None:
        write_moved(folder, to, plan)
    body = {
        "checkpoint": str(folder),
        "to": str(to) if to is not None else None,
        "batch": max(plan.offsets),
        "repeated": plan.repeated,
        "batches": len(plan.offsets),
        "left_out": list(plan.left_out),
        "positions": [each.as_json() for each in plan.positions],
    }
    if output is Output.json:
        show_one(body, output)
    else:
        show([each.as_json() for each in plan.positions])
    if plan.repeated is not None:
        note(f"Batch {plan.repeated} was in flight: Spark runs it again, with the same records.")
    if to is None:
        note("Nothing was written: add --to NEWDIR.")
    else:
        side = maps.link.source if back else maps.link.target
        note(
            f"{to} is written. Start the query there with this checkpointLocation and the brokers of {side}."
        )


def _table(maps: MirrorMaps, sql: tuple[str, str], digest: str, back: bool, output: Output) -> None:
    from hub.replication.positions.sql_table import apply_plan, read_plan

    url, table = sql
    plan = (
        apply_plan(url, table, maps, digest, back=back) if digest else read_plan(url, table, maps, back=back)
    )
    if output is Output.json:
        rows = [each.as_json() for each in plan.positions]
        show_one(
            {"table": plan.table, "digest": plan.digest, "applied": bool(digest), "positions": rows}, output
        )
    else:
        show([each.as_json() for each in plan.positions])
    if digest:
        note(f"{len(plan.positions):,} positions of {table} are translated.")
    else:
        note(f"Nothing was changed. Stop the table's reader, then: --apply {plan.digest}")
    _end(plan.positions)


def _connect(
    world: World, link: Link, maps: MirrorMaps, topic: str, digest: str, back: bool, output: Output
) -> None:
    from hub.replication.positions.connect_offsets import digest_of, plan_offsets
    from hub.replication.positions.connect_topic import read_offsets, write_offsets

    old, new = (link.target, link.source) if back else (link.source, link.target)
    planned = plan_offsets(read_offsets(world.clusters[old], topic), old, maps, back=back)
    now = digest_of(planned)
    if digest and digest != now:
        raise CallerError(
            f'topic "{topic}": its plan has the digest {now}, not {digest}: nothing was written',
            hint="its positions moved since the plan was shown: stop the connectors, and look at a new plan",
            code="HUB-1978",
        )
    written = None
    if digest:
        partitions = world.clusters[old].kafka.topics()[topic].partitions
        written = write_offsets(world.clusters[new], topic, planned, partitions)
    rows = [each.as_json() for each in planned]
    if output is Output.json:
        show_one({"topic": topic, "digest": now, "written": written, "offsets": rows}, output)
    else:
        show(rows)
    if written is not None:
        note(f"{written:,} positions are written to {topic} at {new}.")
    else:
        note(f"Nothing was written. Stop the connectors at {old}, then: --apply {now}")
    note("Positions of sink connectors are consumer groups (connect-NAME), which the mirror carries.")
    if any(each.outcome == "refused" for each in planned):
        raise typer.Exit(_EXIT_UNKNOWN)
