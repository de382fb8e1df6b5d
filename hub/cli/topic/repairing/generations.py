"""[edge] ``hub topic generations`` and ``hub topic consume``: generations of a topic, and their events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.cli.topic.tree_file import connect
from hub.errors import NotFound
from hub.times import epoch_ms, iso

if TYPE_CHECKING:
    from hub.log import Cluster
    from hub.record import Record
    from hub.repairs.model import TopicGenerations

_COLUMNS = ("generation", "state", "records", "at", "by", "plan", "command")


def generations(topic: str, output: OutputOption = Output.table) -> None:
    """List the generations of a topic: who made each, by which repair; and the change that is under way.

    Example: hub topic generations shop.orders
    """
    from hub.repairs.journal import read_state

    cluster, _ = connect(load_settings())
    state = read_state(cluster, topic)
    rows = [
        _row(cluster, state, each.number, each.command, each.by, each.at_ms, each.plan)
        for each in state.generations
    ]
    if output is Output.json:
        for row, each in zip(rows, state.generations, strict=True):
            row["counts"] = dict(each.counts)
    if (change := state.change) is not None:
        row = _row(cluster, state, change.target, change.command, change.by, change.at_ms, change.plan)
        rows.append({**row, "state": f"under way: {change.step}"})
    if rows:
        show(rows, output, (*_COLUMNS, "counts") if output is Output.json else _COLUMNS)
    else:
        note(f"Topic {topic} was never repaired: it has one generation, in the topic.")


def consume(
    topic: str,
    generation: Annotated[
        int | None, typer.Option("--generation", "-g", help="Of this generation. Default: the topic itself")
    ] = None,
    since: Annotated[
        str,
        typer.Option("--from", metavar="PLACE", help="Begin here: an offset, a time, or how long ago (15m)"),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Events at most")] = 20,
    output: OutputOption = Output.table,
) -> None:
    """Print events of a topic or of one of its generations, decoded. Offsets are those that the events had in
    the topic.

    Example: hub topic consume shop.orders --generation 1 --from 2026-01-31T12:00 -o json
    """
    from hub.repairs.copying import pages
    from hub.repairs.journal import read_state
    from hub.repairs.model import generation_topic
    from hub.repairs.plan import described_topic
    from hub.repairs.selection import range_of
    from hub.topics.dead_letters.encoder import RepairedEventEncoder

    cluster, registry = connect(load_settings())
    name = topic
    if generation is not None and generation != read_state(cluster, topic).current:
        name = generation_topic(topic, generation)
        if not cluster.partition_counts([name]):
            raise NotFound(
                f'topic "{topic}" has no generation {generation}', hint=f"hub topic generations {topic}"
            )
    else:
        described_topic(cluster, topic)
    source = RepairedEventEncoder(registry).source
    start = range_of(cluster, name, since, "", epoch_ms()).start
    begins = cluster.beginning_offsets([name])
    rows: list[dict[str, Any]] = []
    for records, _ in pages(cluster, begins.advanced(start), cluster.end_offsets([name])):
        rows += (_event_row(each, source) for each in records[: limit - len(rows)])
        if len(rows) >= limit:
            break
    show(rows, output, ("partition", "offset", "time", "key", "event"))


def _row(
    cluster: Cluster, state: TopicGenerations, number: int, command: str, by: str, at_ms: int, plan: str
) -> dict[str, Any]:
    from hub.repairs.model import generation_topic

    name = state.topic if number == state.current else generation_topic(state.topic, number)
    records = None
    if cluster.partition_counts([name]):
        begins = cluster.beginning_offsets([name])
        records = sum(end - begins.get(tp) for tp, end in cluster.end_offsets([name]))
    current = "current" if number == state.current else "archived"
    return {
        "generation": number,
        "state": current,
        "records": records,
        "at": iso(at_ms),
        "by": by,
        "plan": plan,
        "command": command,
    }


def _event_row(record: Record, source_of: Any) -> dict[str, Any]:
    from hub.repairs.model import source_of as source_offset
    from hub.topics.dead_letters.repair import sight

    at = source_offset(record)
    return {
        "partition": record.partition,
        "offset": at if at >= 0 else record.offset,
        "time": iso(record.timestamp_ms),
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
        "event": sight(record.value, source_of).value,
    }
