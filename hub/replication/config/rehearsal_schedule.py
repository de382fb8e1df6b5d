"""[core] Schedule of a mirror's rehearsals: ``rehearse: weekly``, or ``{every: weekly, at: "Tue 03:00"}``, in
UTC.

::

    daily     every day at the time
    weekly    on the day of the week, Monday unless named
    monthly   on the first such day of the month

A rehearsal is due from a scheduled time until one began at or after it. A time that was missed is made up
once, however many were missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from hub.replication.config.amounts import DurationMs

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_AT = re.compile(r"(?:([A-Za-z]{3})\s+)?([01]\d|2[0-3]):([0-5]\d)")
_SKEW_MS = 300_000
"""Difference of clocks between machines up to which a start in the future counts."""


class RehearsalSchedule(BaseModel, extra="forbid", frozen=True):
    """Times at which a mirror is rehearsed. ``at``: time of the day, UTC, with a day of the week before it;
    ``within``: the longest time of one rehearsal, milliseconds.
    """

    every: Literal["daily", "weekly", "monthly"]
    at: str = "03:00"
    within: DurationMs = Field(600_000, ge=10_000, le=86_400_000)

    @field_validator("at", mode="before")
    @classmethod
    def _clock(cls, value: object) -> object:
        if isinstance(value, int):  # YAML 1.1 reads 22:30 as a base-60 number
            value = f"{value // 60:02}:{value % 60:02}"
        found = _AT.fullmatch(str(value))
        if found is None or (found.group(1) or "mon").lower() not in _DAYS:
            raise ValueError(f'"{value}" is not a time such as "03:00" or "Tue 03:00"')
        return value

    @model_validator(mode="after")
    def _day_of_a_week(self) -> RehearsalSchedule:
        if self.every == "daily" and _AT.fullmatch(self.at).group(1):  # type: ignore[union-attr]
            raise ValueError(f'at: "{self.at}" names a day, and a daily rehearsal has none; say weekly')
        return self

    @property
    def text(self) -> str:
        """Return the schedule for people.

        >>> RehearsalSchedule(every="weekly", at="Tue 03:00").text
        'weekly, Tue 03:00 UTC'
        """
        day, clock = self._parts()
        return f"{self.every}, {'' if self.every == 'daily' else f'{_DAYS[day].title()} '}{clock:%H:%M} UTC"

    def _parts(self) -> tuple[int, datetime]:
        found = _AT.fullmatch(self.at)
        assert found is not None
        day = _DAYS.index((found.group(1) or "mon").lower())
        return day, datetime(1970, 1, 1, int(found.group(2)), int(found.group(3)), tzinfo=UTC)


def _named(value: object) -> object:
    return {"every": value} if isinstance(value, str) else value


Rehearse = Annotated[RehearsalSchedule | None, BeforeValidator(_named)]


def last_time(schedule: RehearsalSchedule, now_ms: int) -> int:
    """Return the latest scheduled time at or before ``now_ms``, epoch milliseconds."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    times = (_time_of(schedule, day) for day in (today, _begin(schedule, today) - timedelta(days=1)))
    return max(at for at in times if at <= now_ms)


def next_time(schedule: RehearsalSchedule, now_ms: int) -> int:
    """Return the earliest scheduled time after ``now_ms``, epoch milliseconds."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    later = _begin(schedule, today) + timedelta(days={"daily": 1, "weekly": 7, "monthly": 31}[schedule.every])
    return min(at for at in (_time_of(schedule, today), _time_of(schedule, later)) if at > now_ms)


def due(schedule: RehearsalSchedule, starts: Iterable[int], now_ms: int) -> int | None:
    """Return the scheduled time for which a rehearsal is due, epoch milliseconds; None: none is due.

    ``starts``: when complete rehearsals began. One in the future, by a clock that was wrong, does not count.
    """
    at = last_time(schedule, now_ms)
    return None if any(at <= start <= now_ms + _SKEW_MS for start in starts) else at


def _begin(schedule: RehearsalSchedule, day: date) -> date:
    """Return the first day of the day, week or month."""
    if schedule.every == "weekly":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if schedule.every == "monthly" else day


def _time_of(schedule: RehearsalSchedule, day: date) -> int:
    """Return the scheduled time of the day, week or month of ``day``."""
    weekday, clock = schedule._parts()
    first = _begin(schedule, day)
    if schedule.every != "daily":
        first += timedelta(days=(weekday - first.weekday()) % 7)
    return int(datetime.combine(first, clock.timetz()).timestamp() * 1000)
