"""[core] Lists of dead-letter records: merged, paged, counted, and shown in detail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from hub.topics.dead_letters.model import STATES, DeadLetter, Kind, RecordPlace, TrackedDeadLetter
from hub.topics.dead_letters.repair import DecodedEvent, hex_of

_MOST_COUNTED = 50


def merge_repeated(found: Iterable[TrackedDeadLetter]) -> list[TrackedDeadLetter]:
    """Merge the dead-letter records of one event and view, in the order of the first of each.

    A view that is recomputed, or that crashed while writing, writes its dead-letter records again. An action
    on one of them counts for all: a replay wins, otherwise the latest action.
    """
    dead_letters: dict[Hashable, TrackedDeadLetter] = {}
    for each in found:
        letter = each.letter
        same = (letter.kind, letter.by, letter.event)
        before = dead_letters.setdefault(same, each)
        if _rank(each) > _rank(before):
            dead_letters[same] = replace(each, first_at=before.listed_at)
    return list(dead_letters.values())


def _rank(dead_letter: TrackedDeadLetter) -> tuple[bool, int]:
    return dead_letter.state == "replayed", -1 if dead_letter.entry is None else dead_letter.entry.at_ms


def dead_letter_row(dead_letter: TrackedDeadLetter) -> dict[str, Any]:
    """Return a list row as a JSON-ready dict; ``written_at_ms`` is epoch milliseconds."""
    letter = dead_letter.letter
    return {
        "topic": letter.at.topic,
        "partition": letter.at.partition,
        "offset": letter.at.offset,
        "state": dead_letter.state,
        "reason": letter.reason,
        "detail": letter.detail,
        "by": letter.by,
        "from": None if letter.of is None else str(letter.of),
        "key": text_of(dead_letter.key),
        "producer": letter.producer,
        "written_at_ms": letter.written_at_ms,
    }


def detail_row(tracked: TrackedDeadLetter, decoded: DecodedEvent) -> dict[str, Any]:
    """Return one dead-letter record in detail as a JSON-ready dict."""
    letter, entry = tracked.letter, tracked.entry
    row: dict[str, Any] = {
        "letter": str(letter.at),
        "state": tracked.state,
        "kind": letter.kind,
        "by": letter.by,
        "reason": letter.reason,
        "detail": letter.detail,
        "from": None if letter.of is None else str(letter.of),
        "producer": letter.producer,
        "key": text_of(tracked.key),
        "timestamp_ms": letter.timestamp_ms,
        "written_at_ms": letter.written_at_ms,
        **decoded.row(),
        "bytes": None if tracked.value is None else len(tracked.value),
        "hex": hex_of(tracked.value),
        "headers": {name: text_of(value) for name, value in letter.headers},
    }
    if entry is not None:
        row["done"] = {
            "state": entry.state,
            "by": entry.by,
            "at_ms": entry.at_ms,
            "why": entry.why,
            "went": None if entry.went is None else str(entry.went),
        }
        if tracked.is_repaired:
            row["original_hex"] = hex_of(letter.value)
    return row


def later_row(
    letter: DeadLetter, records: Sequence[tuple[int, bytes | None]], complete: bool
) -> dict[str, Any]:
    """Report the events with the same key behind the original one: their number, the first offset, and how
    many records were scanned. ``records`` are (offset, key) of its partition; if not ``complete``, later
    events may exist beyond them.
    """
    since = 0 if letter.first is None else letter.first.offset + 1
    behind = [(offset, key) for offset, key in records if offset >= since]
    after = [offset for offset, key in behind if key == letter.key]
    return {
        "events": len(after),
        "first_offset": min(after, default=None),
        "scanned": len(behind),
        "complete": complete,
    }


def text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """One page of dead-letter rows. ``more`` counts the rows that follow; ``after`` is the cursor for the
    next page, None on the last one.
    """

    rows: list[dict[str, Any]]
    more: int
    after: RecordPlace | None


def page(
    dead_letters: Iterable[TrackedDeadLetter],
    row: Callable[[TrackedDeadLetter], dict[str, Any]],
    limit: int,
    most_bytes: int,
    after: RecordPlace | None = None,
) -> DeadLetterPage:
    """Return the first rows after the cursor ``after``: at most ``limit`` rows and ``most_bytes`` of JSON,
    but at least one row.

    ``dead_letters`` must be in list order. Paging returns each record once, even if actions are taken in
    between.
    """
    behind = [each for each in dead_letters if after is None or each.listed_at > after]
    rows: list[dict[str, Any]] = []
    size = 0
    for each in behind[:limit]:
        made = row(each)
        size += len(orjson.dumps(made))
        if rows and size > most_bytes:
            break
        rows.append(made)
    more = len(behind) - len(rows)
    return DeadLetterPage(rows, more, behind[len(rows) - 1].listed_at if more else None)


@dataclass(slots=True)
class TopicDeadLetters:
    """Counts over the dead-letter records of one topic."""

    topic: str
    kind: Kind
    states: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    producers: Counter[str] = field(default_factory=Counter)
    by: Counter[str] = field(default_factory=Counter)
    oldest_ms: int | None = None
    newest_ms: int | None = None

    def take(self, dead_letter: TrackedDeadLetter) -> None:
        """Count one record. Reasons, producers, views and ages cover only records that are not closed."""
        self.states[dead_letter.state] += 1
        if dead_letter.state in ("replayed", "dismissed"):
            return
        letter = dead_letter.letter
        self.reasons[letter.reason] += 1
        self.producers[letter.producer] += 1
        self.by[letter.by] += 1
        at_ms = letter.written_at_ms
        self.oldest_ms = at_ms if self.oldest_ms is None else min(self.oldest_ms, at_ms)
        self.newest_ms = at_ms if self.newest_ms is None else max(self.newest_ms, at_ms)

    def row(self, now_ms: int) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "kind": self.kind,
            **{state: self.states[state] for state in STATES},
            "by_reason": _most(self.reasons),
            "by_producer": _most(self.producers),
            "by": _most(self.by),
            "oldest_age_ms": None if self.oldest_ms is None else max(0, now_ms - self.oldest_ms),
            "newest_age_ms": None if self.newest_ms is None else max(0, now_ms - self.newest_ms),
        }


def _most(counts: Counter[str]) -> dict[str, int]:
    """Return the highest counts by name and the sum of the rest as ``(others)``. Names come from anybody, so
    their number is unbounded.
    """
    found = dict(counts.most_common(_MOST_COUNTED))
    left = counts.total() - sum(found.values())
    return {**found, "(others)": left} if left else found
