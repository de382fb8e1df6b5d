"""[shell] Dead-letter records of one cluster: list, show, repair, replay, dismiss.

Each action opens the writer ``hub.dlq`` first and then reads the recorded actions. Opening fences an earlier
writer and ends its last transaction, so the actions read are complete. A replayed event and the actions that
close its dead-letter records are one transaction. A replay that is killed and restarted therefore appends
nothing twice, and two concurrent replays cannot both append.

``reader.py`` reads, ``event_builder.py`` builds and checks events, ``actions.py`` decides. Lists hold no
values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hub.caller import sees_topic
from hub.errors import CallerError, Conflict, HubError, NotFound, did_you_mean
from hub.log import Log, Writer, ensure_topic
from hub.record import NewRecord, Record, TopicPartition
from hub.schema_registry.client.port import SchemaRegistry
from hub.times import epoch_ms
from hub.topics.dead_letters import actions
from hub.topics.dead_letters import reader as reads
from hub.topics.dead_letters.event_builder import EventBuilder, Repair
from hub.topics.dead_letters.listing import TopicDeadLetters, detail_row, later_row, merge_repeated, text_of
from hub.topics.dead_letters.model import (
    ACTIONS_TOPIC,
    DeadLetter,
    DeadLetterAction,
    RecordPlace,
    TrackedDeadLetter,
    with_action,
)
from hub.topics.dead_letters.reader import DeadLetterReader
from hub.topics.dead_letters.record_format import dead_letter_of, kind_of, without_value
from hub.topics.dead_letters.repair import difference, hex_of, sight

WRITER_NAME = "hub.dlq"
MOST_AT_ONCE = 10_000
BATCH = 100
_ACTIONS_CONFIG = {"cleanup.policy": "compact", "max.message.bytes": str(32 << 20)}


@dataclass(slots=True)
class FoundDeadLetters:
    """Dead-letter records from a bounded read. ``complete`` is False if there are more."""

    letters: list[TrackedDeadLetter] = field(default_factory=list)
    complete: bool = True


@dataclass
class DeadLetters:
    """Dead-letter records of one cluster. Thread safe: each call opens its own reader and writer.

    ``declared_key`` returns the key field that the topic tree declares for a topic. ``refuses`` returns the
    reason why no event may be written to a topic here, None if writing is allowed.
    """

    cluster: Log
    registry: SchemaRegistry
    declared_key: Callable[[str], str | None] = lambda topic: None
    replication_factor: int = 1
    now_ms: Callable[[], int] = epoch_ms
    refuses: Callable[[str], HubError | None] = lambda topic: None
    reader: DeadLetterReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = DeadLetterReader(self.cluster)

    # ---- reads

    def resolved(self, topic: str) -> list[str]:
        """Resolve a name to dead-letter topics: the topic itself, or those of the topic or view with that
        name. Raises NotFound.
        """
        there = self.reader.topics()
        if topic in there:
            return [topic]
        candidates = (f"{topic}.dlq", f"{topic}.quarantine", f"views.{topic}.late", f"{topic}.late")
        named = [name for name in candidates if name in there]
        if not named:
            raise NotFound(
                f'topic "{topic}" has no dead-letter records',
                hint=did_you_mean(topic, filter(sees_topic, there), "hub dlq ls lists the topics that have"),
            )
        return named

    def heaps(self, topic: str | None = None) -> tuple[list[dict[str, Any]], bool]:
        """Return (one row per topic with dead-letter records, see ``TopicDeadLetters.row``; True if all were
        read).
        """
        names = self.resolved(topic) if topic is not None else list(self.reader.topics())
        rows, complete = [], True
        for name in names:
            listed = self.letters([name])
            complete = complete and listed.complete
            counts = TopicDeadLetters(name, kind_of(name) or "view")
            for each in listed.letters:
                counts.take(each)
            if listed.letters or topic is not None:
                rows.append(counts.row(self.now_ms()))
        return rows, complete

    def letters(self, names: Sequence[str]) -> FoundDeadLetters:
        """Return the dead-letter records of these topics without values, ordered by partition, with the
        actions taken. Duplicates for one view and event are merged.
        """
        there, taken = self.reader.topics(), self.reader.actions()
        found, complete = self.reader.read(
            *self.reader.whole(names),
            reads.MOST_DEAD_LETTERS,
            lambda record: without_value(dead_letter_of(record)),
        )
        tracked = (with_action(letter, there[letter.at.topic].topic_id, taken) for letter in found)
        return FoundDeadLetters(merge_repeated(tracked), complete)

    def records(self, names: Sequence[str]) -> tuple[list[Record], bool]:
        """Return (the records of these topics by position, without values; True if complete)."""
        return self.reader.read(
            *self.reader.whole(names), reads.MOST_DEAD_LETTERS, lambda record: record._replace(value=None)
        )

    def letter(self, place: RecordPlace) -> TrackedDeadLetter:
        """Return one dead-letter record. Raises NotFound."""
        return self.reader.tracked([place])[place]

    def at_offsets(self, topic: str, offsets: Sequence[int]) -> dict[int, list[RecordPlace]]:
        """Find the dead-letter records at these offsets; an offset can exist in several partitions. Raises
        PeerError.
        """
        partitions = range(self.reader.topics()[topic].partitions)
        found: dict[int, list[RecordPlace]] = {offset: [] for offset in offsets}
        places = [RecordPlace(topic, each, offset) for offset in offsets for each in partitions]
        for place in self.reader.between(places, lambda record: record.offset):
            found[place.offset].append(place)
        return found

    def show(self, place: RecordPlace) -> dict[str, Any]:
        """Return one dead-letter record in detail, decoded as far as possible (``repair.DecodedEvent``)."""
        found = self.letter(place)
        row = detail_row(found, sight(found.value, self._builder().encoder.source))
        if found.letter.of is not None and not found.is_closed:
            row["later"] = self.later([found.letter])[0]
        return row

    def later(self, letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
        """Report later events with the same key in the original topics (``listing.later_row``).

        The scan is bounded. If ``complete`` is False, later events may exist beyond it.
        """
        scanned = self.reader.keys_behind(letters)
        return [later_row(letter, *found) for letter, found in zip(letters, scanned, strict=True)]

    # ---- actions

    def repair(
        self,
        places: Sequence[RecordPlace],
        how: Repair,
        by: str,
        *,
        why: str | None = None,
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """Repair the events of these dead-letter records. All are built and validated before the first is
        written; one invalid event rejects the whole call. Raises CallerError naming the record.
        """
        _check_count(places)
        if dry_run:
            return [row for row, _ in self._repaired(places, how, by, why)]
        with self._acting() as writer:
            made = self._repaired(places, how, by, why)
            _append(writer, ([entry.record()] for _, entry in made if entry is not None))
        return [row for row, _ in made]

    def replay(
        self,
        places: Sequence[RecordPlace],
        by: str,
        *,
        as_is: bool = False,
        dry_run: bool = False,
        look: bool = True,
    ) -> list[dict[str, Any]]:
        """Append each event to its original topic: same partition and key, its own timestamp, and
        ``hub.replay.*`` headers. Records that were already replayed are skipped, so the call is idempotent.
        All are validated before the first is appended; one that cannot be replayed rejects the whole call.
        Raises CallerError naming the record.

        ``as_is`` allows events that a view rejected and nobody repaired, if the original is gone from its
        topic. ``look`` adds whether later events of the same key exist.
        """
        _check_count(places)
        if dry_run:
            return self._replay_plan(places, by, as_is=as_is, look=look, dry_run=True).rows
        with self._acting() as writer:
            plan = self._replay_plan(places, by, as_is=as_is, look=look)
            _append(writer, plan.steps)
        return plan.rows

    def dismiss(
        self, places: Sequence[RecordPlace], by: str, *, why: str | None = None, undo: bool = False
    ) -> list[dict[str, Any]]:
        """Close these dead-letter records without a replay; with ``undo``, reopen them."""
        _check_count(places)
        with self._acting() as writer:
            there, tracked = self.reader.topics(), self.reader.tracked(places)
            entries = []
            for place in places:
                topic_id, now_ms = there[place.topic].topic_id, self.now_ms()
                if undo:
                    entries.append(actions.reopen(tracked[place], by, now_ms))
                else:
                    entries.append(actions.dismiss(tracked[place], topic_id, by, now_ms, why))
            _append(writer, ([entry.record()] for entry in entries))
        return [{"letter": str(entry.at), "state": entry.state} for entry in entries]

    def _repaired(
        self, places: Sequence[RecordPlace], how: Repair, by: str, why: str | None
    ) -> list[tuple[dict[str, Any], DeadLetterAction | None]]:
        there, tracked = self.reader.topics(), self.reader.tracked(places)
        builder = self._builder()
        rows: list[tuple[dict[str, Any], DeadLetterAction | None]] = []
        for place in places:
            dead_letter = tracked[place]
            key, value = builder.repaired(dead_letter, how)
            if value is dead_letter.value and key == dead_letter.key:
                rows.append(({"letter": str(place), "state": dead_letter.state, "changes": []}, None))
                continue
            builder.check(dead_letter.letter, key, value)
            topic_id = there[place.topic].topic_id
            entry = actions.repair(dead_letter, topic_id, key, value, by, self.now_ms(), why)
            source = builder.encoder.source
            before, after = sight(dead_letter.value, source), sight(value, source)
            row = {
                "letter": str(place),
                "state": entry.state,
                "changes": difference(before.value, after.value),
                "before": before.row(),
                "after": after.row(),
                "key": text_of(key),
                "hex_before": hex_of(dead_letter.value),
                "hex_after": hex_of(value),
            }
            rows.append((row, entry))
        return rows

    def _replay_plan(
        self, places: Sequence[RecordPlace], by: str, *, as_is: bool, look: bool, dry_run: bool = False
    ) -> actions.ReplayPlan:
        """Check each event and plan its replay, in the order of the original log, which keeps the order of
        events per key.
        """
        topic_ids = {name: topic.topic_id for name, topic in self.reader.topics().items()}
        tracked = self.reader.tracked(places, self.reader.actions())
        plan = actions.ReplayPlan(self._same_events(tracked), topic_ids, by, self.now_ms(), dry_run)
        builder = self._builder()
        order = sorted(places, key=lambda place: (tracked[place].letter.first or place, place))
        later = self.later([tracked[place].letter for place in order]) if look else []
        for number, place in enumerate(order):
            dead_letter = tracked[place]
            if plan.is_done(dead_letter):
                continue
            target = builder.target(dead_letter.letter)
            if (refused := self.refuses(target)) is not None:
                raise refused
            actions.check_replayable(dead_letter, as_is, self.reader.record)
            builder.check(dead_letter.letter, dead_letter.key, dead_letter.value)
            assert dead_letter.letter.of is not None
            end = self.cluster.end_offsets([target]).get(
                TopicPartition(target, dead_letter.letter.of.partition)
            )
            row = plan.add(dead_letter, end, self._time(dead_letter.letter))
            if look:
                row["later"] = later[number]
        return plan

    def _same_events(
        self, tracked: Mapping[RecordPlace, TrackedDeadLetter]
    ) -> dict[Hashable, list[TrackedDeadLetter]]:
        """Return all dead-letter records of these events, by event. Raises Conflict if they are too many."""
        originals = {each.letter.of.topic for each in tracked.values() if each.letter.of is not None}
        there = self.reader.topics()
        names = [
            name
            for topic in sorted(originals)
            for name in (f"{topic}.dlq", f"{topic}.quarantine")
            if name in there
        ]
        found = self.letters(names) if names else FoundDeadLetters()
        if not found.complete:
            raise Conflict(
                f"there are more than {reads.MOST_DEAD_LETTERS} dead-letter records, or their keys and "
                f"headers have more than {reads.MOST_BYTES >> 20} MB, or they are not read in "
                f"{reads.READ_S:.0f} s: "
                "those of one event cannot be combined",
                hint=f"closed ones too are read: let old ones go, by retention.ms of {' and '.join(names)}",
            )
        wanted = {each.letter.event for each in tracked.values()}
        grouped: dict[Hashable, list[TrackedDeadLetter]] = {}
        for each in found.letters:
            if each.letter.of is not None and each.letter.event in wanted:
                grouped.setdefault(each.letter.event, []).append(each)
        return grouped

    def _time(self, letter: DeadLetter) -> int | None:
        """Return the event's own timestamp: from the dead-letter record, else from the original event while
        it exists, else the time at which the dead-letter record was written.
        """
        if letter.timestamp_ms is not None and letter.timestamp_ms >= 0:
            return letter.timestamp_ms
        original = None if letter.of is None else self.reader.record(letter.of)
        if original is not None and original.timestamp_ms >= 0:
            return original.timestamp_ms
        return letter.written_at_ms

    @contextmanager
    def _acting(self) -> Iterator[Writer]:
        """Open the writer ``hub.dlq``. This fences concurrent actions and completes what an earlier writer
        left open.
        """
        ensure_topic(self.cluster, ACTIONS_TOPIC, _ACTIONS_CONFIG, replication_factor=self.replication_factor)
        with contextlib.closing(self.cluster.writer(WRITER_NAME)) as writer:
            yield writer

    def _builder(self) -> EventBuilder:
        return EventBuilder(self.cluster, self.registry, self.declared_key)


def _append(writer: Writer, steps: Iterable[Sequence[NewRecord]]) -> None:
    """Append records in transactions of about ``BATCH`` records; the records of a step stay together."""
    batch: list[NewRecord] = []
    for step in steps:
        batch += step
        if len(batch) >= BATCH:
            writer.append(batch)
            batch = []
    if batch:
        writer.append(batch)


def _check_count(places: Sequence[RecordPlace]) -> None:
    if not places:
        raise CallerError("no dead-letter record is named", hint="hub dlq ls -l TOPIC lists their offsets")
    if len(places) > MOST_AT_ONCE:
        raise CallerError(
            f"{len(places)} dead-letter records, {MOST_AT_ONCE} at once are allowed", hint="name fewer"
        )
