"""[shell] Track which of the hub's processes have lost contact with Kafka, from the notes that they write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import Observation, RuleChanges, RuleObservations, Verdict
from hub.kafka.contact.notes import STALE_MS, ContactNote, notes
from hub.kafka.contact.watchdog import CUT_OFF_S
from hub.observability import format
from hub.observability.overview.overview import CutOff
from hub.runtime import repeating
from hub.times import epoch_ms

READ_EVERY_S = 2.0


def worst(note: ContactNote) -> CutOff:
    """Return the client of a process that has waited longest for an answer."""
    if note.reports is None:
        silent = (
            f"it runs (pid {note.pid}) and has written nothing for {STALE_MS // 1000} s: it "
            "hangs, or its disk is full"
        )
        return CutOff(note.process, None, silent)
    if not note.reports:
        return CutOff(note.process, 0.0, "")
    report = max(note.reports, key=lambda each: each.cut_off_s)
    return CutOff(
        note.process, report.cut_off_s, f"{report.client} at {report.cluster}: {report.why.strip()}"
    )


def is_cut_off(process: CutOff, cut_off_s: float = CUT_OFF_S) -> bool:
    """Return whether to report the process. Shorter failures are ones that clients recover from."""
    return process.seconds is None or process.seconds >= cut_off_s


def message_of(process: CutOff) -> str:
    """
    >>> message_of(CutOff("applier", 420.0, "reader at kafka:9092: all of its connections are down"))
    'applier: no answer for 7 min (reader at kafka:9092: all of its connections are down)'
    """
    if process.seconds is None:
        return f"{process.process}: {process.why}"
    return f"{process.process}: no answer for {format.seconds(process.seconds)} ({process.why})"


def observe_contact(
    notes: Iterable[ContactNote], changes: RuleChanges, *, cut_off_s: float, kafka_answers: bool
) -> list[RuleObservations]:
    """Return the observations of rule ``kafka-cut-off``, one for each process on this machine.

    While Kafka does not answer the server either, the others are UNKNOWN: rule ``kafka-away`` reports that.
    """

    def observed(process: CutOff) -> Observation:
        about = labels_of({"process": process.process})
        if not kafka_answers or process.seconds is None:
            return Observation(about, Verdict.UNKNOWN, detail=process.why)
        if process.seconds < cut_off_s:
            return Observation(about, Verdict.GOOD, value=process.seconds)
        message = f"Kafka has not answered {process.process} for {format.seconds(process.seconds)}"
        return Observation(about, Verdict.BAD, message, process.seconds, detail=process.why)

    return [RuleObservations(changes.rule("kafka-cut-off"), tuple(observed(worst(note)) for note in notes))]


@dataclass
class ContactWatch:
    """Periodic reader of the notes in ``home``. Use ``with watch.running():``."""

    home: Path
    cut_off_s: float = CUT_OFF_S
    notes: tuple[ContactNote, ...] = ()

    @contextmanager
    def running(self) -> Iterator[ContactWatch]:
        with repeating(
            self.look,
            name="contact-watch",
            pause_s=lambda _took_s: READ_EVERY_S,
            failed="notes of contact cannot be read",
        ):
            yield self

    def look(self) -> None:
        self.notes = tuple(notes(self.home, epoch_ms()))

    def cut_off(self) -> tuple[CutOff, ...]:
        """Return the processes that have been cut off for at least ``cut_off_s``, by name."""
        return tuple(each for each in map(worst, self.notes) if is_cut_off(each, self.cut_off_s))
