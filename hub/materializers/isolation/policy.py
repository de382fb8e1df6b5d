"""[core] Which view ended Spark, and which views therefore run in a process of their own (docs/adr/0025-isolated-views.md).

All views share one JVM, so a view that fills its memory ends the queries of all. What is decided here, from evidence on disk::

    the JVM dies ──▶ suspects: versions that were planning or in a batch
                     │  several: in the next process they start one after the other, so that its death has one suspect
                     ▼
       the same batch at the next death ──▶ isolated: a process of its own, so that its next death is its own
                                               │  it commits the batch          its file changes
                                               ▼                                     ▼
                                           back in the shared process        barred: tried again there, once

A mistake costs little because it is reversible: an innocent view commits its batch in its own process and returns. A process that
somebody killed accuses less than one that ran out of memory: it takes three of them with the same batch under way.

Values in, values out; times are passed in. The files and processes are in processes.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Phase = Literal["planning", "running"]
Weight = Literal["certain", "crash", "killed"]

START = "start"
# A version that was isolated while it was planned returns after it has run for this long.
_SETTLED_S = 30.0
# Versions that returned this often within this time stay isolated until their file changes.
_RETURNS, _RETURNS_MS = 2, 3_600_000
# What a death adds to its suspects; from ``_SUSPECT`` on they start one after the other, from ``_GUILTY`` on they are isolated.
_POINTS: Mapping[Weight, int] = {"certain": 3, "crash": 3, "killed": 2}
_SUSPECT, _GUILTY = 3, 6
# How long the next suspect waits for the one before it, which may have nothing to commit.
_NEXT_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class ProcessDeath:
    """How a process ended: ``cause`` for people ("Spark ran out of memory"), ``weight`` says how much it accuses a view."""

    cause: str
    weight: Weight


@dataclass(frozen=True, slots=True)
class DiskState:
    """What the disk says of one version of a view: what its thread does (None: nothing) and since when, the generation of its
    checkpoint, the last batch that was begun and the last that was committed (-1: none). ``realtime``: it runs in real time,
    where a batch is begun in the log only when it ends."""

    phase: Phase | None
    phase_s: float = 0.0
    generation: int = 0
    begun: int = -1
    done: int = -1
    realtime: bool = False
    started_s: float = 0.0  # how long ago its thread was started

    @property
    def at(self) -> str | None:
        """What is under way, the same text at the next death when nothing was committed meanwhile; None: nothing."""
        if self.phase is None:
            return None
        if self.phase == "planning":
            return START
        if self.begun > self.done:
            return f"{self.generation}/{self.begun}"
        return f"{self.generation}/{self.done + 1}" if self.realtime else None


@dataclass(frozen=True, slots=True)
class DeathStreak:
    """How many deaths in a row met a version at the same place, and how much they accuse it."""

    at: str
    times: int
    points: int


@dataclass(frozen=True, slots=True)
class IsolatedVersion:
    """A version that runs in a process of its own: where it was, and why, as half a sentence with "it" for the view."""

    at: str
    cause: str
    since_ms: int
    stamp: tuple[int, ...] = ()  # of its files: a change is a new try


@dataclass(frozen=True, slots=True)
class Journal:
    """What is remembered over deaths, by version. ``barred``: isolated until its file changed; it runs in the shared process
    as long as it is the newest version of its view."""

    strikes: Mapping[str, DeathStreak] = field(default_factory=dict)
    isolated: Mapping[str, IsolatedVersion] = field(default_factory=dict)
    barred: Mapping[str, IsolatedVersion] = field(default_factory=dict)
    returned_ms: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def death_of(code: int, out_of_memory_kills: int = 0) -> ProcessDeath:
    """What the exit code of Spark's JVM says. ``out_of_memory_kills``: processes that the kernel ended since it started,
    because the machine's memory was full."""
    if code in (3, 52):  # -XX:+ExitOnOutOfMemoryError; SparkExitCode.OOM
        return ProcessDeath("ended Spark with OutOfMemoryError", "certain")
    if code == 50:  # SparkExitCode.UNCAUGHT_EXCEPTION: of a task, such as StackOverflowError
        return ProcessDeath(
            "ended Spark with an error that no process survives, such as StackOverflowError", "certain"
        )
    if code == -signal.SIGKILL and out_of_memory_kills > 0:
        return ProcessDeath("ended Spark: the machine had no memory left", "certain")
    if code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL):
        return ProcessDeath(f"ended Spark with {signal.Signals(-code).name}", "crash")
    return ProcessDeath("was under way when Spark was killed", "killed")


def after_death(
    journal: Journal,
    death: ProcessDeath,
    seen: Mapping[str, DiskState],
    stamps: Mapping[str, tuple[int, ...]],
    now_ms: int,
) -> Journal:
    """Return the journal after the shared process died. ``seen``: its versions. At most one of them is isolated, the one that was
    started last: a view that is isolated by mistake is worse off than with one more death."""
    suspects = {table: each.at for table, each in seen.items() if each.at is not None}
    suspects = {table: at for table, at in suspects.items() if table not in journal.isolated}
    strikes: dict[str, DeathStreak] = {}
    for table, at in suspects.items():
        before = journal.strikes.get(table)
        times, points = (before.times, before.points) if before is not None and before.at == at else (0, 0)
        strikes[table] = DeathStreak(at, times + 1, points + _POINTS[death.weight])
    alone = death.weight == "certain" and len(suspects) == 1
    guilty = [table for table, strike in strikes.items() if alone or strike.points >= _GUILTY]
    # Of those that started one after the other, the earlier ones had their time without harm.
    guilty.sort(
        key=lambda table: (suspects[table] == START, seen[table].started_s, -strikes[table].points, table)
    )
    journal = replace(journal, strikes=strikes)
    for table in guilty[:1]:
        at = strikes[table].at
        often = f" {strikes[table].times} times" if strikes[table].times > 1 else ""
        entry = IsolatedVersion(at, f"{_named(at)} {death.cause}{often}", now_ms, stamps.get(table, ()))
        journal = _isolate(journal, table, entry)
    return journal


def after_stall(
    journal: Journal, table: str, at: str, cause: str, stamp: tuple[int, ...], now_ms: int
) -> Journal:
    """The journal once a version's batch did not move for too long. Nothing else is suspect."""
    return _isolate(journal, table, IsolatedVersion(at, f"{_named(at)} {cause}", now_ms, stamp))


def after_change(journal: Journal, table: str) -> Journal:
    """The journal once the file of an isolated version's view has changed: it is tried in the shared process."""
    isolated = dict(journal.isolated)
    entry = isolated.pop(table, None)
    if entry is None:
        return journal
    returned = {name: times for name, times in journal.returned_ms.items() if name != table}
    return replace(journal, isolated=isolated, barred={**journal.barred, table: entry}, returned_ms=returned)


def after_progress(journal: Journal, seen: Mapping[str, DiskState], now_ms: int) -> Journal:
    """The journal once versions have passed what they were isolated for: they return, unless they did so too often."""
    for table, entry in journal.isolated.items():
        lately = tuple(at for at in journal.returned_ms.get(table, ()) if now_ms - at < _RETURNS_MS)
        if table in seen and len(lately) < _RETURNS and _is_past(entry.at, seen[table]):
            isolated = {name: each for name, each in journal.isolated.items() if name != table}
            returned = {**journal.returned_ms, table: (*lately, now_ms)}
            journal = replace(journal, isolated=isolated, returned_ms=returned)

    def is_past(table: str, at: str) -> bool:
        return table in seen and _is_past(at, seen[table])

    barred = {table: each for table, each in journal.barred.items() if not is_past(table, each.at)}
    strikes = {table: each for table, each in journal.strikes.items() if not is_past(table, each.at)}
    if (len(barred), len(strikes)) == (len(journal.barred), len(journal.strikes)):
        return journal
    return replace(journal, barred=barred, strikes=strikes)


def next_suspect(journal: Journal, started_s: Mapping[str, float], now_s: float) -> str | None:
    """The suspect that starts now; None: none. ``started_s``: when each suspect was started in this process. They start one
    after the other, each when the one before has passed its place (``after_progress`` forgets it then) or had its time."""
    suspects = [table for table, strike in journal.strikes.items() if strike.points >= _SUSPECT]
    waiting = [table for table in suspects if table not in started_s]
    waiting.sort(key=lambda table: (journal.strikes[table].points, table))
    running = [started_s[table] for table in suspects if table in started_s]
    if not waiting or (running and now_s < max(running) + _NEXT_AFTER_S):
        return None
    return waiting[0]


def may_start(journal: Journal, table: str, started_s: Mapping[str, float]) -> bool:
    """Whether the shared process runs a version that is not isolated: a suspect once it is its turn."""
    strike = journal.strikes.get(table)
    return strike is None or strike.points < _SUSPECT or table in started_s


def only_of(journal: Journal, tables: Iterable[str]) -> Journal:
    """The journal without versions that are no more."""
    kept = frozenset(tables)
    if kept.issuperset([*journal.strikes, *journal.isolated, *journal.barred, *journal.returned_ms]):
        return journal
    return Journal(
        {table: each for table, each in journal.strikes.items() if table in kept},
        {table: each for table, each in journal.isolated.items() if table in kept},
        {table: each for table, each in journal.barred.items() if table in kept},
        {table: each for table, each in journal.returned_ms.items() if table in kept},
    )


@dataclass(frozen=True, slots=True)
class RestartTurn:
    """An isolated version's process: whether it runs, and when it may start again (monotonic seconds)."""

    runs: bool
    start_at_s: float


def to_start(turns: Mapping[str, RestartTurn], most: int, now_s: float) -> list[str]:
    """The versions whose processes start now, the longest waiting first; at most ``most`` run at once."""
    room = most - sum(turn.runs for turn in turns.values())
    due = [table for table, turn in turns.items() if not turn.runs and turn.start_at_s <= now_s]
    return sorted(due, key=lambda table: (turns[table].start_at_s, table))[: max(0, room)]


def as_body(journal: Journal) -> dict[str, Any]:
    """The journal as JSON."""

    def of(entry: IsolatedVersion) -> list[Any]:
        return [entry.at, entry.cause, entry.since_ms, list(entry.stamp)]

    return {
        "strikes": {table: [each.at, each.times, each.points] for table, each in journal.strikes.items()},
        "isolated": {table: of(each) for table, each in journal.isolated.items()},
        "barred": {table: of(each) for table, each in journal.barred.items()},
        "returned_ms": {table: list(each) for table, each in journal.returned_ms.items()},
    }


def journal_of(body: Mapping[str, Any]) -> Journal:
    """The journal from its JSON. Raises KeyError, TypeError or ValueError when it is none."""

    def entry(values: list[Any]) -> IsolatedVersion:
        at, cause, since_ms, stamp = values
        return IsolatedVersion(str(at), str(cause), int(since_ms), tuple(int(each) for each in stamp))

    return Journal(
        {
            table: DeathStreak(str(at), int(times), int(points))
            for table, (at, times, points) in body["strikes"].items()
        },
        {table: entry(each) for table, each in body["isolated"].items()},
        {table: entry(each) for table, each in body["barred"].items()},
        {table: tuple(int(at) for at in each) for table, each in body["returned_ms"].items()},
    )


def _isolate(journal: Journal, table: str, entry: IsolatedVersion) -> Journal:
    def without(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: each for name, each in part.items() if name != table}

    return replace(
        journal,
        strikes=without(journal.strikes),
        barred=without(journal.barred),
        isolated={**journal.isolated, table: entry},
    )


def _named(at: str) -> str:
    return "its start" if at == START else f"its batch {at.partition('/')[2]}"


def _is_past(at: str, seen: DiskState) -> bool:
    """Whether a version has committed what was under way, or another generation has committed anything."""
    if at == START:
        return seen.phase == "running" and (seen.done >= 0 or seen.phase_s >= _SETTLED_S)
    generation, _, batch = at.partition("/")
    if seen.generation != int(generation):
        return seen.done >= 0
    return seen.done >= int(batch)
