"""[core] Cases of golden tests: timed events, and exactly the rows that the view must produce.

The files are ``views/tests/<anything>.yaml``, beside the views. The models below are their grammar;
``docs/how-to/test-a-view.md`` explains it. ``golden/runner.py`` runs a case. This module reads the files and
compares results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Base64Bytes, BaseModel, Field, model_validator

from hub.errors import ConfigError, did_you_mean, nearest
from hub.materializers.definition.declared import EXPIRY, Name
from hub.materializers.definition.entity_view import View
from hub.yaml import load_model, place

if TYPE_CHECKING:
    from hub.materializers.definition.sql_view import SqlView

# Times of events without a time: the first one's, and one second from each to the next.
FIRST_AT = datetime(2024, 1, 1, tzinfo=UTC)
_STEP = timedelta(seconds=1)


class GivenEvent(BaseModel, extra="forbid", frozen=True):
    """One event: its source, the time at which its broker received it, its record key, and its value as JSON.

    ``value: null`` is a tombstone. ``text`` or ``base64`` instead of ``value`` gives the bytes themselves.
    ``topic`` names the topic if the source has a pattern. For a view with a ttl, the source ``_expiry``
    expires a row: ``{source: _expiry, key: C-1, value: {cutoff: 2024-03-01T11:00:00Z}}``.
    """

    source: Annotated[str, Field(pattern=rf"^({EXPIRY}|[a-z][a-z0-9_]{{0,62}})$")]
    at: datetime | None = None
    key: str | int | None = None
    value: dict[str, Any] | None = None
    text: str | None = None
    base64: Base64Bytes | None = None
    topic: str | None = Field(None, min_length=1, max_length=249)
    partition: int = Field(0, ge=0, le=10_000)

    @model_validator(mode="after")
    def _one_content(self) -> GivenEvent:
        contents = {"value", "text", "base64"} & self.model_fields_set
        if len(contents) != 1:
            raise ValueError("an event has a value (null: a tombstone), a text, or base64")
        return self

    @property
    def whole(self) -> bytes | None:
        """The bytes of ``text`` or ``base64``; None if the event has a ``value``."""
        return self.text.encode() if self.text is not None else self.base64


class RefusedEvent(BaseModel, extra="forbid", frozen=True):
    """An event that the view must refuse: its number in the case, from 1, and a part of the reason."""

    event: int = Field(ge=1)
    reason: str = ""


class Case(BaseModel, extra="forbid", frozen=True):
    """One case. ``rows``: by key, every expected row with the columns that matter. ``late``: number of late
    events."""

    events: list[GivenEvent | Literal["next batch"]] = Field(min_length=1, max_length=10_000)
    rows: dict[str, dict[str, Any]]
    dead: list[RefusedEvent] = Field(default_factory=list)
    late: int = Field(0, ge=0)


class GoldenFile(BaseModel, extra="forbid", frozen=True):
    """The cases of one view."""

    view: Name
    tests: dict[str, Case] = Field(min_length=1)


def golden_files(project: Path) -> list[Path]:
    """Return the files of a project's golden tests, by name."""
    return sorted((project / "views" / "tests").glob("*.yaml"))


def load_golden(path: Path, views: Mapping[str, View | SqlView]) -> GoldenFile:
    """Load a file and check the names in it. Raises ConfigError with file, line and column."""
    found = load_model(path, GoldenFile, nul=True)
    view = views.get(found.view)
    if view is None:
        raise ConfigError(
            f'view "{found.view}" has no file',
            where=place(path, "view"),
            hint=did_you_mean(found.view, views, f"create views/{found.view}.yaml"),
            code="HUB-2145",
        )
    for name, case in found.tests.items():
        for number, event in enumerate(case.events):
            if isinstance(event, str) or event.source in view.all_sources:
                continue
            if event.source == EXPIRY:
                raise ConfigError(
                    f'view "{view.name}" has no ttl: none of its rows is ever over',
                    where=place(path, "tests", name, "events", number, "source"),
                    hint="write ttl: 30d into the view's file",
                    code="HUB-2145",
                )
            raise ConfigError(
                f'view "{view.name}" has no source "{event.source}"',
                where=place(path, "tests", name, "events", number, "source"),
                hint=did_you_mean(event.source, view.sources, f"its sources: {', '.join(view.sources)}"),
                code="HUB-2145",
            )
    return found


# ---- events


@dataclass(frozen=True, slots=True)
class CaseEvent:
    """An event in its log. ``number`` counts the case's events from 1, ``batch`` from 0; offsets count per
    partition."""

    number: int
    batch: int
    source: str
    topic: str
    partition: int
    offset: int
    at: datetime
    key: bytes | None
    given: GivenEvent


def events_of(case: Case, topics: Mapping[str, str]) -> list[CaseEvent]:
    """Return the case's events in order. ``topics``: the topic of each source that has no pattern.

    Raises ConfigError for an event without a topic.
    """
    found: list[CaseEvent] = []
    offsets: dict[tuple[str, int], int] = {}
    batch, at = 0, FIRST_AT - _STEP
    for each in case.events:
        if isinstance(each, str):
            batch += 1
            continue
        topic = each.topic or topics.get(each.source)
        if topic is None:
            raise ConfigError(
                f'event {len(found) + 1}: source "{each.source}" reads a pattern of topics',
                hint="say which one: topic: nyc.jfk.departures",
                code="HUB-2146",
            )
        at = _utc(each.at) if each.at is not None else at + _STEP
        offset = offsets[topic, each.partition] = offsets.get((topic, each.partition), -1) + 1
        key = None if each.key is None else str(each.key).encode()
        found.append(
            CaseEvent(len(found) + 1, batch, each.source, topic, each.partition, offset, at, key, each)
        )
    return found


def as_json(value: Any) -> Any:
    """Return a value of a YAML file as JSON has it. YAML parses times; in JSON they are text."""
    match value:
        case datetime():
            return _utc(value).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case dict():
            return {name: as_json(each) for name, each in value.items()}
        case list():
            return [as_json(each) for each in value]
        case _:
            return value


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


# ---- what came out


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """Result of a view for a case's events. ``rows``: JSON by key; ``dead``: (number of the event,
    reason)."""

    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Any]]
    dead: Sequence[tuple[int, str]] = ()
    late: int = 0


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of a case. ``differences`` is empty if the case has passed."""

    view: str
    case: str
    differences: Sequence[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.differences


def differences(case: Case, found: CaseOutcome) -> list[str]:
    """Return the differences between the outcome and the case; [] if there are none."""
    lines = list(_of_rows(case, found))
    dead = dict(found.dead)
    for each in case.dead:
        reason = dead.pop(each.event, None)
        if reason is None:
            lines.append(f"event {each.event}: taken, must be refused")
        elif each.reason not in reason:
            lines.append(f'event {each.event}: refused as "{reason}", must be as "{each.reason}"')
    lines += [f"event {number}: refused: {reason}" for number, reason in sorted(dead.items())]
    if case.late != found.late:
        lines.append(f"late: {found.late} events, must be {case.late}")
    return lines


def _of_rows(case: Case, found: CaseOutcome) -> Iterator[str]:
    for key in sorted(case.rows.keys() - found.rows.keys()):
        there = ", ".join(sorted(found.rows)[:10]) or "none"
        yield f'row "{key}": missing (rows there: {there})'
    for key in sorted(found.rows.keys() - case.rows.keys()):
        yield f'row "{key}": must not be there: {_shown(found.rows[key])}'
    for key in sorted(found.rows.keys() & case.rows.keys()):
        row = found.rows[key]
        for name, wanted in case.rows[key].items():
            if name not in found.columns:
                guess = nearest(name, found.columns)
                hint = f"did you mean {guess}?" if guess else f"columns: {', '.join(found.columns)}"
                yield f'row "{key}": no column {name} ({hint})'
            elif not same(as_json(wanted), row.get(name)):
                yield f'row "{key}": {name} is {_shown(row.get(name))}, must be {_shown(as_json(wanted))}'


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:500]


def same(wanted: Any, found: Any) -> bool:
    """Return True if two JSON values are equal: numbers by value (a double to 9 digits), times in any
    notation."""
    match wanted, found:
        case (bool(), _) | (_, bool()):
            return wanted is found
        case (int() | float(), int() | float()):
            return wanted == found or math.isclose(wanted, found, rel_tol=1e-9)
        case (int() | float(), str()) | (str(), int() | float()):
            return str(wanted) == str(found)  # NaN and Infinity are text, because JSON has no such numbers
        case str(), str():
            return wanted == found or ((at := _time(wanted)) is not None and at == _time(found))
        case dict(), dict():
            return wanted.keys() == found.keys() and all(same(wanted[name], found[name]) for name in wanted)
        case list(), list():
            return len(wanted) == len(found) and all(map(same, wanted, found))
        case _:
            return bool(wanted == found)


def _time(text: str) -> datetime | None:
    if len(text) < 19 or text[10] not in "T ":
        return None
    try:
        return _utc(datetime.fromisoformat(text))
    except ValueError:
        return None
