"""[core] Decide which view ended Spark and which views run in a process of their own
(docs/adr/0025-isolated-views.md).

All views share one JVM, so a view that fills its memory ends the queries of all views. The decision is made
from evidence on disk::

    the JVM dies ──▶ suspects: versions that were planning or in a batch
                     │  several: in the next process they start one after the other, so that its death has one suspect
                     ▼
       the same batch at the next death ──▶ isolated: a process of its own, so that its next death is its own
                                               │  it commits the batch          its file changes
                                               ▼                                     ▼
                                           back in the shared process        barred: tried again there, once

A mistake is reversible and therefore cheap: an innocent view commits its batch in its own process and
returns. A process that was killed from outside is weaker evidence than one that ran out of memory: it takes
three such deaths during the same batch.

Pure functions: times are passed in. The files and processes are in processes.py.
"""  # noqa: E501

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
# Versions that returned ``_RETURNS`` times within ``_RETURNS_MS`` stay isolated until their file changes.
_RETURNS, _RETURNS_MS = 2, 3_600_000
# Points that a death adds to its suspects. From ``_SUSPECT`` points on they start one after the other; from
# ``_GUILTY`` points on they are isolated.
_POINTS: Mapping[Weight, int] = {"certain": 3, "crash": 3, "killed": 2}
_SUSPECT, _GUILTY = 3, 6
# How long the next suspect waits for the previous one, which may have nothing to commit.
_NEXT_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class ProcessDeath:
    """End of a process. ``cause``: for people ("Spark ran out of memory"). ``weight``: strength of the
    evidence."""

    cause: str
    weight: Weight


@dataclass(frozen=True, slots=True)
class DiskState:
    """State of one version of a view, read from disk.

    ``phase``: what its thread does (None: nothing), since ``phase_s`` seconds. ``generation``: that of its
    checkpoint. ``begun``, ``done``: the last batch that was begun and the last that was committed (-1: none).
    ``realtime``: it runs in real-time mode, where a batch appears in the log only when it ends.
    """

    phase: Phase | None
    phase_s: float = 0.0
    generation: int = 0
    begun: int = -1
    done: int = -1
    realtime: bool = False
    started_s: float = 0.0  # seconds since its thread was started

    @property
    def at(self) -> str | None:
        """Place of the work in progress; None: nothing. It is the same at the next death if nothing was
        committed meanwhile."""
        if self.phase is None:
            return None
        if self.phase == "planning":
            return START
        if self.begun > self.done:
            return f"{self.generation}/{self.begun}"
        return f"{self.generation}/{self.done + 1}" if self.realtime else None


@dataclass(frozen=True, slots=True)
class DeathStreak:
    """Consecutive deaths that found a version at the same place: their number, and the points that they add
    up to."""

    at: str
    times: int
    points: int


@dataclass(frozen=True, slots=True)
class IsolatedVersion:
    """A version that runs in a process of its own: its place, and the cause as a half sentence in which "it"
    is the view."""

    at: str
    cause: str
    since_ms: int
    stamp: tuple[int, ...] = ()  # modification times of its files: a change gives it a new try


@dataclass(frozen=True, slots=True)
class StrikeJournal:
    """Memory over several deaths, by version.

    ``barred``: isolated until their file changed. They run in the shared process as long as they are the
    newest version of their view.
    """

    strikes: Mapping[str, DeathStreak] = field(default_factory=dict)
    isolated: Mapping[str, IsolatedVersion] = field(default_factory=dict)
    barred: Mapping[str, IsolatedVersion] = field(default_factory=dict)
    returned_ms: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def death_of(code: int, out_of_memory_kills: int = 0) -> ProcessDeath:
    """Classify the exit code of Spark's JVM.

    ``out_of_memory_kills``: processes that the kernel has killed since the JVM started because memory was
    full.
    """
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
    journal: StrikeJournal,
    death: ProcessDeath,
    disk_states: Mapping[str, DiskState],
    stamps: Mapping[str, tuple[int, ...]],
    now_ms: int,
) -> StrikeJournal:
    """Return the journal after the shared process died. ``disk_states``: state of its versions.

    Isolates at most one version, the one that was started last: a wrongly isolated view is worse off than
    with one more death.
    """
    suspects = {table: each.at for table, each in disk_states.items() if each.at is not None}
    suspects = {table: at for table, at in suspects.items() if table not in journal.isolated}
    strikes: dict[str, DeathStreak] = {}
    for table, at in suspects.items():
        before = journal.strikes.get(table)
        times, points = (before.times, before.points) if before is not None and before.at == at else (0, 0)
        strikes[table] = DeathStreak(at, times + 1, points + _POINTS[death.weight])
    alone = death.weight == "certain" and len(suspects) == 1
    guilty = [table for table, strike in strikes.items() if alone or strike.points >= _GUILTY]
    # Versions that started earlier in the sequence ran without harm in their time.
    guilty.sort(
        key=lambda table: (
            suspects[table] == START,
            disk_states[table].started_s,
            -strikes[table].points,
            table,
        )
    )
    journal = replace(journal, strikes=strikes)
    for table in guilty[:1]:
        at = strikes[table].at
        often = f" {strikes[table].times} times" if strikes[table].times > 1 else ""
        entry = IsolatedVersion(at, f"{_named(at)} {death.cause}{often}", now_ms, stamps.get(table, ()))
        journal = _isolate(journal, table, entry)
    return journal


def after_stall(
    journal: StrikeJournal, table: str, at: str, cause: str, stamp: tuple[int, ...], now_ms: int
) -> StrikeJournal:
    """Return the journal after a version's batch stalled. No other version is suspect."""
    return _isolate(journal, table, IsolatedVersion(at, f"{_named(at)} {cause}", now_ms, stamp))


def after_change(journal: StrikeJournal, table: str) -> StrikeJournal:
    """Return the journal after the file of an isolated version's view changed: it is tried in the shared
    process."""
    isolated = dict(journal.isolated)
    entry = isolated.pop(table, None)
    if entry is None:
        return journal
    returned = {name: times for name, times in journal.returned_ms.items() if name != table}
    return replace(journal, isolated=isolated, barred={**journal.barred, table: entry}, returned_ms=returned)


def after_progress(
    journal: StrikeJournal, disk_states: Mapping[str, DiskState], now_ms: int
) -> StrikeJournal:
    """Return the journal after versions committed what isolated them. They return, unless they did so too
    often."""
    for table, entry in journal.isolated.items():
        lately = tuple(at for at in journal.returned_ms.get(table, ()) if now_ms - at < _RETURNS_MS)
        if table in disk_states and len(lately) < _RETURNS and _is_past(entry.at, disk_states[table]):
            isolated = {name: each for name, each in journal.isolated.items() if name != table}
            returned = {**journal.returned_ms, table: (*lately, now_ms)}
            journal = replace(journal, isolated=isolated, returned_ms=returned)

    def is_past(table: str, at: str) -> bool:
        return table in disk_states and _is_past(at, disk_states[table])

    barred = {table: each for table, each in journal.barred.items() if not is_past(table, each.at)}
    strikes = {table: each for table, each in journal.strikes.items() if not is_past(table, each.at)}
    if (len(barred), len(strikes)) == (len(journal.barred), len(journal.strikes)):
        return journal
    return replace(journal, barred=barred, strikes=strikes)


def next_suspect(journal: StrikeJournal, started_s: Mapping[str, float], now_s: float) -> str | None:
    """Return the suspect that starts now, None if none does. ``started_s``: when each suspect was started in
    this process.

    Suspects start one after the other: when the previous one has passed its place (``after_progress`` then
    forgets it) or has had ``_NEXT_AFTER_S``.
    """
    suspects = [table for table, strike in journal.strikes.items() if strike.points >= _SUSPECT]
    waiting = [table for table in suspects if table not in started_s]
    waiting.sort(key=lambda table: (journal.strikes[table].points, table))
    running = [started_s[table] for table in suspects if table in started_s]
    if not waiting or (running and now_s < max(running) + _NEXT_AFTER_S):
        return None
    return waiting[0]


def may_start(journal: StrikeJournal, table: str, started_s: Mapping[str, float]) -> bool:
    """Return True if the shared process may run a version that is not isolated. A suspect waits
    for its turn."""
    strike = journal.strikes.get(table)
    return strike is None or strike.points < _SUSPECT or table in started_s


def only_of(journal: StrikeJournal, tables: Iterable[str]) -> StrikeJournal:
    """Return the journal without versions that no longer exist."""
    kept = frozenset(tables)
    if kept.issuperset([*journal.strikes, *journal.isolated, *journal.barred, *journal.returned_ms]):
        return journal
    return StrikeJournal(
        {table: each for table, each in journal.strikes.items() if table in kept},
        {table: each for table, each in journal.isolated.items() if table in kept},
        {table: each for table, each in journal.barred.items() if table in kept},
        {table: each for table, each in journal.returned_ms.items() if table in kept},
    )


@dataclass(frozen=True, slots=True)
class RestartTurn:
    """The process of an isolated version: if it runs, and when it may start again (monotonic seconds)."""

    runs: bool
    start_at_s: float


def to_start(turns: Mapping[str, RestartTurn], most: int, now_s: float) -> list[str]:
    """Return the versions whose processes start now, the longest waiting first. At most ``most``
    run at once."""
    room = most - sum(turn.runs for turn in turns.values())
    due = [table for table, turn in turns.items() if not turn.runs and turn.start_at_s <= now_s]
    return sorted(due, key=lambda table: (turns[table].start_at_s, table))[: max(0, room)]


def as_body(journal: StrikeJournal) -> dict[str, Any]:
    """Return the journal as JSON."""

    def of(entry: IsolatedVersion) -> list[Any]:
        return [entry.at, entry.cause, entry.since_ms, list(entry.stamp)]

    return {
        "strikes": {table: [each.at, each.times, each.points] for table, each in journal.strikes.items()},
        "isolated": {table: of(each) for table, each in journal.isolated.items()},
        "barred": {table: of(each) for table, each in journal.barred.items()},
        "returned_ms": {table: list(each) for table, each in journal.returned_ms.items()},
    }


def journal_of(body: Mapping[str, Any]) -> StrikeJournal:
    """Load the journal from its JSON. Raises KeyError, TypeError or ValueError when it is malformed."""

    def entry(values: list[Any]) -> IsolatedVersion:
        at, cause, since_ms, stamp = values
        return IsolatedVersion(str(at), str(cause), int(since_ms), tuple(int(each) for each in stamp))

    return StrikeJournal(
        {
            table: DeathStreak(str(at), int(times), int(points))
            for table, (at, times, points) in body["strikes"].items()
        },
        {table: entry(each) for table, each in body["isolated"].items()},
        {table: entry(each) for table, each in body["barred"].items()},
        {table: tuple(int(at) for at in each) for table, each in body["returned_ms"].items()},
    )


def _isolate(journal: StrikeJournal, table: str, entry: IsolatedVersion) -> StrikeJournal:
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


def _is_past(at: str, disk_states: DiskState) -> bool:
    """Return True if a version has committed its work in progress, or another generation has committed
    anything."""
    if at == START:
        return disk_states.phase == "running" and (disk_states.done >= 0 or disk_states.phase_s >= _SETTLED_S)
    generation, _, batch = at.partition("/")
    if disk_states.generation != int(generation):
        return disk_states.done >= 0
    return disk_states.done >= int(batch)
