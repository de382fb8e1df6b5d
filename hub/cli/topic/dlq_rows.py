"""[edge] Rows of ``hub dlq``: counts, lists, repairs and replays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hub.cli.terminal.output import Output, note, show

if TYPE_CHECKING:
    from hub.topics.dead_letters.model import TrackedDeadLetter


COLUMNS = (
    "topic",
    "open",
    "repaired",
    "replayed",
    "dismissed",
    "reasons",
    "producers",
    "by",
    "oldest",
    "newest",
)
DEAD_LETTER_COLUMNS = ("offset", "state", "reason", "by", "from", "key", "producer", "age", "detail")


def letter_row(dead_letter: TrackedDeadLetter, now_ms: int) -> dict[str, Any]:
    from hub.topics.dead_letters.listing import dead_letter_row

    return {**dead_letter_row(dead_letter), "age": _age(now_ms - dead_letter.letter.written_at_ms)}


def note_incomplete(complete: bool) -> None:
    if not complete:
        note("! not all records were read within the limits of time and number: the counts are too small")


def topic_row(row: Mapping[str, Any]) -> dict[str, object]:
    def counts(of: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in of.items())

    return {
        **{name: row[name] for name in ("topic", "open", "repaired", "replayed", "dismissed")},
        "reasons": counts(row["by_reason"]),
        "producers": counts(row["by_producer"]),
        "by": counts(row["by"]),
        "oldest": _age(row["oldest_age_ms"]),
        "newest": _age(row["newest_age_ms"]),
    }


def _age(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    seconds = max(0, milliseconds) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def change_rows(rows: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, object]]:
    for row in rows:
        changes = row["changes"]
        if not changes and row.get("hex_before") != row.get("hex_after"):
            changes = [{"field": "(bytes)", "before": row["hex_before"], "after": row["hex_after"]}]
        for each in changes or [{"field": "(nothing)", "before": None, "after": None}]:
            yield {"letter": row["letter"], **each}


def show_replayed(rows: list[dict[str, Any]], output: Output, dry_run: bool) -> None:
    if output is Output.json:
        show(rows, output)
    else:
        show(
            [_replayed_line(row) for row in rows],
            output,
            ("letter", "to", "key", "for", "later events of its key"),
        )
    before = sum(row.get("done") == "before" for row in rows)
    done = len(rows) - before
    note(
        f"{done} {'would be replayed; nothing was written' if dry_run else 'replayed'}"
        + (f", {before} had been before" if before else "")
    )
    if any(row.get("later", {}).get("events") for row in rows):
        note(
            "Entity views fold a replayed event at the position of its original. For everything else "
            "it is the newest event "
            'of its key: see docs/how-to/repair-dead-letters.md, "Order".'
        )


def _replayed_line(row: Mapping[str, Any]) -> dict[str, object]:
    later = row.get("later")
    later_events = ""
    if later is not None:
        later_events = f"{later['events']}" + (
            "" if later["complete"] else f" in the next {later['scanned']} records"
        )
    return {**row, "to": row.get("to", "replayed before"), "later events of its key": later_events}


def note_repaired(rows: Sequence[Mapping[str, Any]], output: Output, dry_run: bool) -> None:
    """Print the number of repaired events, and their changes in a table."""
    left = sum("after" not in row for row in rows)
    note(
        f"{len(rows) - left} {'would be repaired; nothing was written' if dry_run else 'repaired'}"
        + (f", {left} left as they are" if left else "")
    )
    if output is Output.table:
        show(list(change_rows(rows)), output, ("letter", "field", "before", "after"))
