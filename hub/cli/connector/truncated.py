"""[edge] ``hub connector truncated``: deletions for the rows that a TRUNCATE removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.errors import NotFound

if TYPE_CHECKING:
    from hub.connectors.truncations import TruncatedRows
    from hub.kafka import KafkaCluster
    from hub.record import NewRecord

_AT_ONCE = 2_000
_SILENT_S = 30.0


def truncated(
    topic: Annotated[str, typer.Argument(help="The topic of the table, such as crm.public.orders")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the rows; write nothing")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Write a deletion for each row that a TRUNCATE removed from the table of a CDC topic.

    Debezium writes a truncation as one event without keys, which views refuse to the dead-letter queue. Rows
    that were inserted after it stay. A second call writes nothing.

    Example: hub connector truncated crm.public.orders --dry-run
    """
    from hub.cli.mirror.write_guard import write_refusals
    from hub.kafka import own_cluster

    settings = load_settings()
    cluster = own_cluster(settings)
    if (refused := write_refusals(settings, cluster)(topic)) is not None:
        raise refused
    if topic not in cluster.described([topic]):
        raise NotFound(f'topic "{topic}" does not exist', hint="hub topic ls shows what there is")
    table = _read(cluster, topic)
    records = table.deletions()
    if records and not dry_run:
        _write(cluster, topic, records)
    counts = {"truncations": table.truncations, "rows": len(table.rows), "deletions": len(records) // 2}
    show_one({"topic": topic, **counts, "written": bool(records) and not dry_run}, output)
    if not table.truncations:
        kind = "connectors of kind postgres-cdc pass them on (skipped.operations: none)"
        note(f"The topic has no truncation; {kind}.")


def _read(cluster: KafkaCluster, topic: str) -> TruncatedRows:
    from hub.connectors.truncations import TruncatedRows
    from hub.log import whole

    table = TruncatedRows(topic)
    for record in whole(cluster, topic, _SILENT_S):
        table.apply(record)
    return table


def _write(cluster: KafkaCluster, topic: str, records: Sequence[NewRecord]) -> None:
    writer = cluster.writer(f"hub.truncated.{topic}")
    try:
        for first in range(0, len(records), _AT_ONCE):
            writer.append(records[first : first + _AT_ONCE])
    finally:
        writer.close()
