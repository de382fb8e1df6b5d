"""[edge] ``hub topic conformance``: what the auditor found, topic by topic,
as the running server knows it (GET /audit)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hub.cli.http import get
from hub.cli.terminal.output import Output, OutputOption, note, show

COLUMNS = ("topic", "audit", "checked", "violations", "quarantined", "reasons", "producers", "last")


def conformance(
    topic: Annotated[str | None, typer.Argument(help="Only this topic.")] = None,
    output: OutputOption = Output.table,
    fail: Annotated[
        bool,
        typer.Option("--fail", help="Exit code 1 if there are violations or unreadable records (for CI)"),
    ] = False,
) -> None:
    """Count the records that violate their topic's schema, by topic, reason and producer.

    Example: hub topic conformance shop.orders -o json
    """
    rows: list[dict[str, Any]] = get("/audit", {"topic": topic} if topic else {}, timeout_s=15.0)["topics"]
    if output is Output.json:
        show(rows, output)
    elif rows:
        show([line(row) for row in rows], output, COLUMNS)
        for row in rows:
            for why in row["unread"].values():
                note(f"! not checked from there on: {why}")
    else:
        note("no topic is audited yet (those with a registered schema are, a moment after: hub up)")
    if fail and any(row["violations"] or row["unread"] for row in rows):
        raise typer.Exit(1)


def line(row: Mapping[str, Any]) -> dict[str, object]:
    """Return a result as a table row."""
    last = row["last"]
    return {
        **{name: row[name] for name in ("topic", "audit", "checked", "violations", "quarantined")},
        "reasons": _counts(row["by_reason"]),
        "producers": _counts(row["by_producer"]),
        "last": "" if last is None else f"{last['partition']}:{last['offset']} {last['detail']}",
    }


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))
