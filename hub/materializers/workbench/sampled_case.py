"""[core] Sampled events as a case of a golden test, and the case with its rows as a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml

from hub.errors import CallerError
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.golden.cases import Case, CaseOutcome, GivenEvent, as_json
from hub.materializers.golden.values import encoder_of
from hub.materializers.types.avro_types import AvroType, field_types
from hub.materializers.types.cdc import wire_schema
from hub.materializers.workbench.samples import SampledEvent, TopicSample
from hub.schema_registry.codecs.misfit import Unfit


@dataclass(frozen=True, slots=True)
class SampledCase:
    """A case without rows. ``taken`` and ``left_out``: events by source; those that are left out cannot be
    read, or do not fit the newest schema."""

    case: Case
    taken: Mapping[str, int]
    left_out: Mapping[str, int]


def sampled_case(
    view: SqlView, schemas: Mapping[str, AvroType], samples: Mapping[str, TopicSample]
) -> SampledCase:
    """Return the samples of a view's sources as one case, by time. Raises CallerError (HUB-1473) where no
    event can be taken.
    """
    found: list[tuple[SampledEvent, GivenEvent]] = []
    taken, left_out = dict[str, int](), dict[str, int]()
    for name, sampled in samples.items():
        given = [(each, _given(view, name, schemas[name], each)) for each in sampled.events]
        good = [(each, event) for each, event in given if event is not None]
        taken[name], left_out[name] = len(good), len(given) - len(good) + sampled.unreadable
        found += good
    if not found:
        raise CallerError(
            "there is no event to compute rows of: " + _none_of(samples, left_out),
            hint="write events first, or choose other topics",
            code="HUB-1473",
        )
    found.sort(key=lambda each: (each[0].at_ms, each[0].topic, each[0].partition, each[0].offset))
    return SampledCase(Case(events=[event for _, event in found], rows={}), taken, left_out)


def _none_of(samples: Mapping[str, TopicSample], left_out: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} has {left_out[name]} that do not fit its newest schema"
        if left_out[name]
        else f"{name} has none"
        for name in samples
    )


def _given(view: SqlView, source: str, schema: AvroType, event: SampledEvent) -> GivenEvent | None:
    """Return an event of a case, in the newest schema as views read it; None if it does not fit."""
    of_view = view.sources[source].view is not None
    value = event.value
    if value is None and event.key is None:
        return None
    if value is not None:
        if not isinstance(value, dict):
            return None
        wire = wire_schema(schema)
        known = field_types(wire)
        value = {
            name: part
            for name, part in value.items()
            if name in known and not (of_view and name.startswith("_"))
        }
        try:
            if not of_view:
                encoder_of(wire)(value)
        except (Unfit, TypeError):
            return None
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC)
    return GivenEvent(source=source, at=at, key=event.key, value=value, partition=event.partition)


def golden_text(view: str, name: str, case: Case, outcome: CaseOutcome) -> str:
    """Return the text of a golden test whose rows are those of ``outcome``. ``name``: of the test."""
    body: dict[str, Any] = {
        "events": [_written(each) for each in case.events if isinstance(each, GivenEvent)],
        "rows": {key: dict(row) for key, row in outcome.rows.items()},
    }
    if outcome.dead:
        body["dead"] = [{"event": number, "reason": reason[:200]} for number, reason in outcome.dead]
    if outcome.late:
        body["late"] = outcome.late
    content = {"view": view, "tests": {name: body}}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)


def _written(event: GivenEvent) -> dict[str, Any]:
    assert event.at is not None
    entry: dict[str, Any] = {"source": event.source, "at": as_json(event.at)}
    if event.key is not None:
        entry["key"] = event.key
    if event.partition:
        entry["partition"] = event.partition
    return {**entry, "value": event.value}
