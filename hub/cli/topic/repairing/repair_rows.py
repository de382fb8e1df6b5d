"""[edge] Rows of ``hub topic repair``: a plan with its samples, a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from hub.cli.terminal.output import Output, note, show, show_one

if TYPE_CHECKING:
    from hub.record import Record
    from hub.repairs.plan import RepairPlan
    from hub.repairs.switching import RepairReport
    from hub.schema_registry.compat.resolved_schema import SchemaSource

_COLUMNS = ("outcome", "partition", "offset", "key", "detail")
_MOST_DETAIL = 300


def plan_rows(
    plan: RepairPlan, source_of: Callable[[int], SchemaSource | None]
) -> Sequence[Mapping[str, object]]:
    """Return one row for each sampled event: what the repair does with it."""
    return [
        {
            "outcome": kind,
            "partition": each.record.partition,
            "offset": each.record.offset,
            "key": _text(each.record.key),
            "detail": each.outcome.reason or _differences(each.record, each.outcome.values, source_of),
        }
        for kind, found in plan.samples.items()
        for each in found
    ]


def show_plan(plan: RepairPlan, rows: Sequence[Mapping[str, object]], output: Output) -> None:
    """Print the counts and the samples."""
    from hub.repairs.outcomes import KINDS

    counts: dict[str, object] = {kind: plan.counts[kind] for kind in KINDS}
    if output is Output.json:
        show_one({"topic": plan.topic, "plan": plan.digest, **counts, "samples": rows}, output)
        return
    show_one({"topic": plan.topic, "plan": plan.digest, **counts})
    if rows:
        note(f"Some of these events, at most {len(rows)}:")
        show([dict(each) for each in rows], output, _COLUMNS)


def report_row(topic: str, report: RepairReport) -> dict[str, Any]:
    """Return the result of a repair."""
    return {
        "topic": topic,
        "generation": report.generation,
        **report.counts,
        "groups": {group: str(at) for group, at in report.moved.items()},
        "left_groups": list(report.left),
        "made_again": report.rounds + 1,
    }


def _differences(
    record: Record, values: Sequence[bytes | None], source_of: Callable[[int], SchemaSource | None]
) -> str:
    from hub.topics.dead_letters.repair import difference, dumped, sight

    before = sight(record.value, source_of).value
    if not values:
        return _short(dumped(before).decode())
    after = [sight(each, source_of).value for each in values]
    if len(after) > 1:
        return _short(dumped(after).decode())
    parts = [
        f"{row['field']}: {_json(row['before'])} → {_json(row['after'])}"
        for row in difference(before, after[0])
    ]
    return _short("; ".join(parts))


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


def _short(text: str) -> str:
    return text if len(text) <= _MOST_DETAIL else text[:_MOST_DETAIL] + "…"


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode(errors="backslashreplace")
