"""[shell] Read dead-letter records from the log; repair, replay and dismiss them.

Each action opens the writer ``hub.dlq`` first and then reads the recorded actions. Opening fences an earlier
writer and ends its last transaction, so the actions read are complete. A replayed event and the actions that
close its dead-letter records are one transaction. A replay that is killed and restarted therefore appends
nothing twice, and two concurrent replays cannot both append.

Reads are bounded by ``MOST_DEAD_LETTERS``, ``MOST_BYTES`` of retained data and ``_READ_S``; an incomplete
result is marked as such. Lists hold no values.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from hub.caller import sees_schema, sees_topic
from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError, nearest
from hub.log import Cluster, Reader, TopicDescription, Writer
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.rules import RuleRefused
from hub.schema_registry.contracts.runner import RUNNER
from hub.schema_registry.formats import exact_json
from hub.topics.conformance.auditor import SchemaIdCache as KnownSchemas
from hub.topics.conformance.rules import judge, size_of
from hub.topics.dead_letters import model as dead_letter
from hub.topics.dead_letters import repair as dead_letters_repair
from hub.topics.dead_letters.model import (
    ACTIONS_TOPIC,
    DeadLetter,
    DeadLetterAction,
    RecordPlace,
    TopicDeadLetters,
    TrackedDeadLetter,
    dead_letter_of,
    kind_of,
    without_value,
)
from hub.topics.dead_letters.repair import DecodedEvent, sight
from hub.topics.tree.key_fields import at_path

WRITER_NAME = "hub.dlq"
MOST_DEAD_LETTERS = 100_000
MOST_BYTES = 256 << 20
MOST_AT_ONCE = 10_000
MOST_BYTES_AT_ONCE = 1 << 30  # limit on MOST_AT_ONCE records with their values
_READ_S = 30.0
_POLL = 5_000
_BATCH = 100
_MOST_SCANNED = 100_000
_SCAN_S = 5.0
_DEFAULT_LARGEST = 1_048_588
_NOT_CLOSED = ("open", "repaired")
_MOST_LEDGER, _MOST_LEDGER_BYTES = 10_000_000, 16 << 30  # actions are read completely or not at all
_ACTIONS_CONFIG = {"cleanup.policy": "compact", "max.message.bytes": str(32 << 20)}

T = TypeVar("T")


class DeadLetterLog(Cluster, Protocol):
    """A cluster that opens readers and writers."""

    def reader(self) -> Reader: ...

    def writer(self, name: str | None = None) -> Writer: ...


# (offset and key of each record of a partition, True if complete).
Looked = tuple[list[tuple[int, bytes | None]], bool]
# (JSON value of the event, its dead-letter record) → new JSON value; None leaves the record as it is.
Change = Callable[[Any, DeadLetter], Any]


@dataclass(frozen=True, slots=True)
class Repair:
    """A requested repair: ``change`` builds the new value, or ``schema_id`` alone sets the schema of the
    existing bytes.
    """

    change: Change | None = None
    schema_id: int | None = None
    key: str | None = None


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

    cluster: DeadLetterLog
    registry: SchemaRegistry
    declared_key: Callable[[str], str | None] = lambda topic: None
    replication_factor: int = 1
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    refuses: Callable[[str], HubError | None] = lambda topic: None

    # ---- reads

    def topics(self) -> Mapping[str, TopicDescription]:
        """Return the topics that hold dead-letter records."""
        found = self.cluster.topics()
        return {name: topic for name, topic in sorted(found.items()) if kind_of(name) is not None}

    def resolved(self, topic: str) -> list[str]:
        """Resolve a name to dead-letter topics: the topic itself, or those of the topic or view with that
        name. Raises NotFound.
        """
        there = self.topics()
        if topic in there:
            return [topic]
        asked = (f"{topic}.dlq", f"{topic}.quarantine", f"views.{topic}.late", f"{topic}.late")
        named = [name for name in asked if name in there]
        if not named:
            guess = nearest(topic, filter(sees_topic, there))
            raise NotFound(
                f'topic "{topic}" has no dead letters',
                hint=f'did you mean "{guess}"?' if guess else "hub dlq ls lists the topics that have",
            )
        return named

    def heaps(self, topic: str | None = None) -> tuple[list[dict[str, Any]], bool]:
        """Return (one row per topic with dead-letter records, see ``TopicDeadLetters.row``; True if all were
        read).
        """
        names = self.resolved(topic) if topic is not None else list(self.topics())
        rows, complete = [], True
        for name in names:
            found = self.letters([name])
            complete = complete and found.complete
            heap = TopicDeadLetters(name, kind_of(name) or "view")
            for each in found.letters:
                heap.take(each)
            if found.letters or topic is not None:
                rows.append(heap.row(self.now_ms()))
        return rows, complete

    def letters(self, names: Sequence[str], most: int = MOST_DEAD_LETTERS) -> FoundDeadLetters:
        """Return the dead-letter records of these topics without values, ordered by partition, with the
        actions taken. Duplicates for one view and event are merged.
        """
        there, ledger = self.topics(), self.ledger()
        made = FoundDeadLetters()
        letters, made.complete = self._read(
            *self._whole(names), most, lambda record: without_value(dead_letter_of(record))
        )
        made.letters = dead_letter.once(
            dead_letter.known(letter, there[letter.at.topic].topic_id, ledger) for letter in letters
        )
        return made

    def records(self, names: Sequence[str], most: int = MOST_DEAD_LETTERS) -> tuple[list[Record], bool]:
        """Return (the records of these topics by position, without values; True if complete)."""
        return self._read(*self._whole(names), most, lambda record: record._replace(value=None))

    def letter(self, place: RecordPlace) -> TrackedDeadLetter:
        """Return one dead-letter record. Raises NotFound."""
        there = self.topics()
        if place.topic not in there:
            raise NotFound(
                f'topic "{place.topic}" has no dead letters', hint="hub dlq ls lists the topics that have"
            )
        record = self._record(place)
        if record is None:
            raise NotFound(
                f"dead letter {place} does not exist", hint=f"hub dlq ls {place.topic} tells which do"
            )
        return dead_letter.known(dead_letter_of(record), there[place.topic].topic_id, self.ledger())

    def at_offsets(self, topic: str, offsets: Sequence[int]) -> dict[int, list[RecordPlace]]:
        """Find the dead-letter records at these offsets; an offset can exist in several partitions. Raises
        PeerError.
        """
        partitions = range(self.topics()[topic].partitions)
        found: dict[int, list[RecordPlace]] = {offset: [] for offset in offsets}
        places = [RecordPlace(topic, each, offset) for offset in offsets for each in partitions]
        for place in self._between(places, lambda record: record.offset):
            found[place.offset].append(place)
        return found

    def ledger(self) -> dict[RecordPlace, DeadLetterAction]:
        """Read the actions taken on all dead-letter records. Raises PeerError if this takes longer than 60
        s.
        """
        if ACTIONS_TOPIC not in self.cluster.topics():
            return {}
        records, complete = self._read(
            *self._whole([ACTIONS_TOPIC]),
            _MOST_LEDGER,
            lambda record: record,
            60.0,
            values=True,
            most_bytes=_MOST_LEDGER_BYTES,
        )
        if not complete:
            raise PeerError(f'topic "{ACTIONS_TOPIC}" is not read to its end in 60 s', hint="try again")
        return dead_letter.folded(records)

    def show(self, place: RecordPlace) -> dict[str, Any]:
        """Return one dead-letter record in detail, decoded as far as possible (``repair.DecodedEvent``)."""
        found = self.letter(place)
        letter, entry = found.letter, found.entry
        seen = sight(found.value, self._source)
        row: dict[str, Any] = {
            "letter": str(letter.at),
            "state": found.state,
            "kind": letter.kind,
            "by": letter.by,
            "reason": letter.reason,
            "detail": letter.detail,
            "from": None if letter.of is None else str(letter.of),
            "producer": letter.producer,
            "key": _text(found.key),
            "timestamp_ms": letter.timestamp_ms,
            "written_at_ms": letter.written_at_ms,
            **seen.row(),
            "bytes": None if found.value is None else len(found.value),
            "hex": dead_letters_repair.hex_of(found.value),
            "headers": {name: _text(value) for name, value in letter.headers},
        }
        if entry is not None:
            row["done"] = {
                "state": entry.state,
                "by": entry.by,
                "at_ms": entry.at_ms,
                "why": entry.why,
                "went": None if entry.went is None else str(entry.went),
            }
            if found.is_repaired:
                row["original_hex"] = dead_letters_repair.hex_of(letter.value)
        if letter.of is not None and found.state in ("open", "repaired"):
            row["later"] = self.later(letter)
        return row

    def later(self, letter: DeadLetter) -> dict[str, Any]:
        """Report later events with the same key in the original topic: their number, the first offset, and
        how many records were scanned.

        The scan is bounded. If ``complete`` is False, later events may exist beyond it.
        """
        return self._later([letter])[0]

    def _later(self, letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
        """``later()`` for many dead-letter records; scans each partition once. Partitions that do not fit
        into ``_READ_S`` are skipped.
        """
        by_partition: dict[TopicPartition, list[int]] = {}
        for letter in letters:
            if letter.first is not None:
                by_partition.setdefault(letter.first.topic_partition, []).append(letter.first.offset)
        topics = sorted(self.cluster.topics().keys() & {tp.topic for tp in by_partition})
        ends, begins = self.cluster.end_offsets(topics), self.cluster.beginning_offsets(topics)
        found: dict[TopicPartition, Looked] = {}
        deadline = time.monotonic() + _READ_S
        for tp, offsets in by_partition.items():
            begin, end = max(min(offsets) + 1, begins.get(tp)), ends.get(tp)
            if begin >= end:
                found[tp] = [], True
            elif time.monotonic() < deadline:
                found[tp] = self._read(
                    Positions({tp: begin}),
                    Positions({tp: end}),
                    _MOST_SCANNED,
                    lambda record: (record.offset, record.key),
                    _SCAN_S,
                )
        return [self._later_of(letter, *_looked(letter, found)) for letter in letters]

    @staticmethod
    def _later_of(
        letter: DeadLetter, records: Sequence[tuple[int, bytes | None]], complete: bool
    ) -> dict[str, Any]:
        since = 0 if letter.first is None else letter.first.offset + 1
        behind = [(offset, key) for offset, key in records if offset >= since]
        after = [offset for offset, key in behind if key == letter.key]
        return {
            "events": len(after),
            "first_offset": min(after, default=None),
            "scanned": len(behind),
            "complete": complete,
        }

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
        _few(places)
        if dry_run:
            return [row for row, _ in self._repaired(places, how, by, why)]
        with self._acting() as writer:
            made = self._repaired(places, how, by, why)
            entries = [entry.record() for _, entry in made if entry is not None]
            for start in range(0, len(entries), _BATCH):
                writer.append(entries[start : start + _BATCH])
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
        _few(places)
        if dry_run:
            return self._replay(None, places, by, as_is=as_is, look=look)
        with self._acting() as writer:
            return self._replay(writer, places, by, as_is=as_is, look=look)

    def dismiss(
        self, places: Sequence[RecordPlace], by: str, *, why: str | None = None, undo: bool = False
    ) -> list[dict[str, Any]]:
        """Close these dead-letter records without a replay; with ``undo``, reopen them."""
        _few(places)
        with self._acting() as writer:
            there, known = self.topics(), self._known(places)
            entries = []
            for place in places:
                topic_id = there[place.topic].topic_id
                if undo:
                    entries.append(dead_letter.reopen(known[place], topic_id, by, self.now_ms()))
                else:
                    entries.append(dead_letter.dismiss(known[place], topic_id, by, self.now_ms(), why))
            for start in range(0, len(entries), _BATCH):
                writer.append([entry.record() for entry in entries[start : start + _BATCH]])
        return [{"letter": str(entry.at), "state": entry.state} for entry in entries]

    # ---- repair

    def _repaired(
        self, places: Sequence[RecordPlace], how: Repair, by: str, why: str | None
    ) -> list[tuple[dict[str, Any], DeadLetterAction | None]]:
        there, known = self.topics(), self._known(places)
        facts = _ClusterFacts(self.cluster, self.registry)
        made: list[tuple[dict[str, Any], DeadLetterAction | None]] = []
        for place in places:
            found = known[place]
            before = sight(found.value, self._source)
            key, value = self._made(found, how, facts)
            if value is found.value and key == found.key:
                made.append(({"letter": str(place), "state": found.state, "changes": []}, None))
                continue
            self._right(found.letter, key, value, facts)
            entry = dead_letter.repair(found, there[place.topic].topic_id, key, value, by, self.now_ms(), why)
            after = sight(value, self._source)
            row = {
                "letter": str(place),
                "state": entry.state,
                "changes": dead_letters_repair.difference(before.value, after.value),
                "before": before.row(),
                "after": after.row(),
                "key": _text(key),
                "hex_before": dead_letters_repair.hex_of(found.value),
                "hex_after": dead_letters_repair.hex_of(value),
            }
            made.append((row, entry))
        return made

    def _made(
        self, found: TrackedDeadLetter, how: Repair, facts: _ClusterFacts
    ) -> tuple[bytes | None, bytes | None]:
        """Return (key, value) of the repaired event."""
        letter = found.letter
        topic = self._target(letter, facts)
        key = found.key if how.key is None else how.key.encode()
        seen = sight(found.value, self._source, how.schema_id)
        if how.change is None:
            if how.schema_id is None:
                return key, found.value
            if found.value is None:
                raise CallerError(f"dead letter {letter.at} has no value that a schema could describe")
            body = found.value[5:] if len(found.value) >= 5 and found.value[0] == 0 else found.value
            return key, frame(how.schema_id, body)
        try:
            value = how.change(seen.value, letter)
            if value is None:
                return key, found.value
            if how.schema_id is None and f"{topic}-value" not in facts.subjects():
                return key, dead_letters_repair.dumped(value)  # the topic has no value schema
            schema_id, source = self._schema(topic, how.schema_id or seen.schema_id)
            plain = dead_letters_repair.in_doubles(value)
            body = RUNNER.encoder_of(source).body(plain)
            if source.schema_type == "JSON" and body == exact_json.dumped(plain):
                body = dead_letters_repair.dumped(value)  # no rule rewrote the value: keep each number exact
            return key, frame(schema_id, body)
        except RuleRefused as error:
            raise error.of(f"dead letter {letter.at}") from None
        except CallerError as error:
            raise CallerError(
                f"dead letter {letter.at}: {error.message}",
                hint=error.hint or f"hub dlq show {letter.at.named} has what could be read of it",
                code=error.code,
            ) from None

    def _schema(self, topic: str, wanted: int | None) -> tuple[int, SchemaSource]:
        """Return the schema to encode with: ``wanted`` if it belongs to the topic's subject, else the
        latest.
        """
        subject = f"{topic}-value"
        if wanted is not None:
            with contextlib.suppress(NotFound):
                if subject in self.registry.subjects_of(wanted):
                    return wanted, self.registry.source(wanted)
        latest = self.registry.latest(subject)
        return latest.id, self.registry.source(latest.id)

    def _right(
        self, letter: DeadLetter, key: bytes | None, value: bytes | None, facts: _ClusterFacts
    ) -> None:
        """Check that the event may return to its topic: schema, declared key, size. Raises CallerError."""
        topic = self._target(letter, facts)
        where = f"dead letter {letter.at}"
        assert letter.of is not None
        event = Record(topic, letter.of.partition, letter.of.offset, 0, key, value)
        if f"{topic}-value" in facts.subjects():
            wrong = judge(event, facts.schemas.of(f"{topic}-value"))
            if wrong is not None:
                raise CallerError(
                    f'{where}: its event is not what topic "{topic}" promises: {wrong.reason}: {wrong.detail}',
                    hint=f"repair it: hub dlq repair {letter.at.named} --set FIELD=VALUE",
                    code="HUB-1330",
                )
        declared = self.declared_key(topic)
        if declared is not None and value is not None:
            self._key_right(where, topic, declared, key, value)
        largest = facts.largest(topic)
        size = size_of(NewRecord(topic, key, value, letter.headers)) + 200
        if size > largest:
            raise CallerError(
                f'{where}: its event takes {size} bytes, topic "{topic}" takes {largest}',
                hint="raise max.message.bytes of the topic, or make the event smaller",
                code="HUB-1330",
            )

    def _key_right(self, where: str, topic: str, declared: str, key: bytes | None, value: bytes) -> None:
        seen = sight(value, self._source)
        said = at_path(seen.value, declared) if isinstance(seen.value, Mapping) else None
        if str(said) != _text(key):
            raise CallerError(
                f'{where}: the tree says that "{declared}" is the key of topic "{topic}"; it is '
                f"{said!r} in the event, and the record's key is {_text(key)!r}",
                hint=f"--set {declared}=…, or --key …: an event with another key belongs to another partition, publish it",
                code="HUB-1330",
            )

    def _target(self, letter: DeadLetter, facts: _ClusterFacts) -> str:
        """Return the topic that the event returns to. Raises CallerError, NotFound."""
        if letter.of is None:
            raise CallerError(
                f"dead letter {letter.at} does not say where it is from",
                hint="publish its event yourself, and dismiss it",
            )
        topic = facts.topics().get(letter.of.topic)
        if topic is None or letter.of.partition >= topic.partitions:
            raise NotFound(
                f"dead letter {letter.at}: {letter.of.topic} partition {letter.of.partition} does not exist any more",
                hint="create the topic again (hub topic apply), or dismiss the letter",
            )
        return letter.of.topic

    # ---- replay

    def _replay(
        self, writer: Writer | None, places: Sequence[RecordPlace], by: str, *, as_is: bool, look: bool
    ) -> list[dict[str, Any]]:
        there, ledger = self.topics(), self.ledger()
        known = self._known(places, ledger)
        beside = self._beside(known)
        facts = _ClusterFacts(self.cluster, self.registry)
        ids = {name: topic.topic_id for name, topic in there.items()}
        closed: set[RecordPlace] = set()
        rows: list[dict[str, Any]] = []
        steps: list[list[NewRecord]] = []  # each inner list is atomic

        # Replay in the order of the original log, to keep the order of events per key.
        order = sorted(places, key=lambda place: (known[place].letter.first or place, place))
        later = dict(
            zip(order, self._later([known[place].letter for place in order] if look else []), strict=False)
        )
        for place in order:
            found = known[place]
            letter = found.letter
            group = beside.setdefault(letter.event, [])
            done = found if found.state == "replayed" or place in closed else None
            done = done or next((each for each in group if dead_letter.stands_for(each, found)), None)
            if done is not None:
                rows.append({"letter": str(place), "state": "replayed", "done": "before"})
                if (
                    done is not found and done.entry is not None
                ):  # a recomputed view wrote the record again after the replay
                    steps.append([dead_letter.with_replay(found, ids[place.topic], done).record()])
                continue
            target = self._target(letter, facts)
            if (refused := self.refuses(target)) is not None:
                raise refused
            self._replayable(found, as_is)
            self._right(letter, found.key, found.value, facts)
            same = [found, *(each for each in group if each.state in _NOT_CLOSED and each.letter.at != place)]
            timestamp_ms = self._time(letter)
            end = self.cluster.end_offsets([target]).get(
                TopicPartition(target, letter.of.partition if letter.of else 0)
            )
            event, entries = dead_letter.replay(found, same, ids, end, timestamp_ms, by, self.now_ms())
            steps.append([event, *(entry.record() for entry in entries)])
            closed |= {entry.at for entry in entries}
            made = {entry.at: entry for entry in entries}
            group[:] = [
                TrackedDeadLetter(each.letter, made.get(each.letter.at, each.entry)) for each in group
            ]
            if all(each.letter.at != place for each in group):
                group.append(TrackedDeadLetter(letter, made[place]))
            views = dead_letter.views_of(event)
            row: dict[str, Any] = {
                "letter": str(place),
                "state": "replayed" if writer is not None else found.state,
                "to": f"{target}:{event.partition}",
                "key": _text(event.key),
                "timestamp_ms": timestamp_ms,
                "for": "all" if views is None else views,
                "repaired": found.is_repaired,
            }
            if look:
                row["later"] = later[place]
            rows.append(row)
        if writer is not None:
            for records in _in_batches(steps):
                writer.append(records)
        return rows

    def _replayable(self, found: TrackedDeadLetter, as_is: bool) -> None:
        letter = found.letter
        if letter.kind == "late":
            raise CallerError(
                f"{letter.at} is a late event: in its topic it is there already, and for the view it would be late again",
                hint=f"hub view replay-late {letter.by} says the way out",
                code="HUB-1331",
            )
        if letter.kind != "view" or letter.everywhere or found.is_repaired:
            return
        if not as_is:
            raise CallerError(
                f'dead letter {letter.at} would be dead again for view "{letter.by}": {letter.detail}',
                hint="repair it first; a view that was changed has read it again from its topic, while it is there: "
                "dismiss it then",
                code="HUB-1331",
            )
        there = None if letter.of is None else self._record(letter.of)
        # After the topic was recreated, another event may be at this position.
        if (
            there is not None
            and letter.of is not None
            and (there.key, there.value) == (letter.key, letter.value)
        ):
            raise CallerError(
                f'dead letter {letter.at}: its event is in topic "{letter.of.topic}" still, where view "{letter.by}", '
                "when its file was changed, has read it again: a replay would count it twice",
                hint="dismiss it; --as-is is for events that retention has taken since",
                code="HUB-1331",
            )

    def _beside(
        self, known: Mapping[RecordPlace, TrackedDeadLetter]
    ) -> dict[Hashable, list[TrackedDeadLetter]]:
        """Group the dead-letter records by event. One replay closes all unclosed records of its event."""
        originals = {each.letter.of.topic for each in known.values() if each.letter.of is not None}
        there = self.topics()
        names = [
            name
            for topic in sorted(originals)
            for name in (f"{topic}.dlq", f"{topic}.quarantine")
            if name in there
        ]
        wanted = {each.letter.event for each in known.values()}
        grouped: dict[Hashable, list[TrackedDeadLetter]] = {}
        found = self.letters(names, MOST_DEAD_LETTERS) if names else FoundDeadLetters()
        if not found.complete:
            raise Conflict(
                f"there are more than {MOST_DEAD_LETTERS} dead letters, or their keys and headers have more than "
                f"{MOST_BYTES >> 20} MB, or they are not read in {_READ_S:.0f} s: "
                "those of one event cannot be told together",
                hint=f"closed ones too are read: let old ones go, by retention.ms of {' and '.join(names)}",
            )
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
        if letter.of is not None:
            original = self._record(letter.of)
            if original is not None and original.timestamp_ms >= 0:
                return original.timestamp_ms
        return letter.written_at_ms

    # ---- the log

    @contextmanager
    def _acting(self) -> Iterator[Writer]:
        """Open the writer ``hub.dlq``. This fences concurrent actions and completes what an earlier writer
        left open.
        """
        if ACTIONS_TOPIC not in self.cluster.topics():
            with contextlib.suppress(Conflict):
                self.cluster.create_topic(
                    ACTIONS_TOPIC,
                    partitions=1,
                    config=_ACTIONS_CONFIG,
                    replication_factor=self.replication_factor,
                )
        writer = self.cluster.writer(WRITER_NAME)
        try:
            yield writer
        finally:
            writer.close()

    def _known(
        self, places: Sequence[RecordPlace], ledger: Mapping[RecordPlace, DeadLetterAction] | None = None
    ) -> dict[RecordPlace, TrackedDeadLetter]:
        """Return the dead-letter records at these positions. Raises NotFound naming the first missing one."""
        there = self.topics()
        ledger = self.ledger() if ledger is None else ledger
        found: dict[RecordPlace, TrackedDeadLetter] = {}
        for place in places:
            if place.topic not in there:
                raise NotFound(
                    f'topic "{place.topic}" has no dead letters', hint="hub dlq ls lists the topics that have"
                )
        wanted = set(places)
        if len(wanted) > 20:  # one pass instead of one read per record
            by_place = self._between(wanted, lambda record: record, values=True)
        else:
            by_place = {place: each for place in wanted if (each := self._record(place)) is not None}
        for place in places:
            record = by_place.get(place)
            if record is None:
                raise NotFound(
                    f"dead letter {place} does not exist", hint=f"hub dlq ls {place.topic} tells which do"
                )
            found[place] = dead_letter.known(dead_letter_of(record), there[place.topic].topic_id, ledger)
        return found

    def _record(self, place: RecordPlace) -> Record | None:
        """Return the record at exactly this position, None if there is none."""
        topics = self.cluster.topics()
        if place.topic not in topics or not 0 <= place.partition < topics[place.topic].partitions:
            return None
        where = place.topic_partition
        end = self.cluster.end_offsets([place.topic]).get(where)
        begin = self.cluster.beginning_offsets([place.topic]).get(where)
        if not begin <= place.offset < end:
            return None
        records, _ = self._read(
            Positions({where: place.offset}),
            Positions({where: place.offset + 1}),
            1,
            lambda record: record,
            _SCAN_S,
            values=True,
        )
        return next((record for record in records if record.offset == place.offset), None)

    def _between(
        self, places: Collection[RecordPlace], of: Callable[[Record], T], *, values: bool = False
    ) -> dict[RecordPlace, T]:
        """Apply ``of`` to the records at these positions, in order. Records in between are read and skipped.
        Raises PeerError.
        """
        wanted = frozenset(places)
        spans: dict[TopicPartition, tuple[int, int]] = {}
        for place in wanted:
            first, last = spans.get(place.topic_partition, (place.offset, place.offset))
            spans[place.topic_partition] = min(first, place.offset), max(last, place.offset)
        topics = sorted({tp.topic for tp in spans})
        begins, ends = self.cluster.beginning_offsets(topics), self.cluster.end_offsets(topics)
        start = {tp: max(begins.get(tp), first) for tp, (first, _) in spans.items()}
        end = {tp: min(ends.get(tp), last + 1) for tp, (_, last) in spans.items()}
        some = [tp for tp in spans if start[tp] < end[tp]]
        if not some:
            return {}
        begin = Positions({tp: start[tp] for tp in some})

        def at_its_place(record: Record) -> tuple[RecordPlace, T] | None:
            place = RecordPlace(record.topic, record.partition, record.offset)
            return (place, of(record)) if place in wanted else None

        found, complete = self._read(
            begin,
            Positions({tp: end[tp] for tp in some}),
            MOST_DEAD_LETTERS,
            at_its_place,
            values=values,
            most_bytes=MOST_BYTES_AT_ONCE,
        )
        if not complete:
            raise PeerError(
                f"the dead letters from {begin} on are not all read: more than {MOST_DEAD_LETTERS} lie between the first and the "
                f"last that are named, or these have more than {MOST_BYTES_AT_ONCE >> 20} MB, or it takes longer than {_READ_S:.0f} s",
                hint="name fewer that are nearer to each other, of one partition: -p N",
            )
        return dict(found)

    def _whole(self, names: Sequence[str]) -> tuple[Positions, Positions]:
        """Return the beginning and end offsets of these topics."""
        return self.cluster.beginning_offsets(names), self.cluster.end_offsets(names)

    def _read(
        self,
        start: Positions,
        end: Positions,
        most: int,
        of: Callable[[Record], T | None],
        timeout_s: float = _READ_S,
        *,
        values: bool = False,
        most_bytes: int | None = None,
    ) -> tuple[list[T], bool]:
        """Apply ``of`` to the records from ``start`` to ``end``; return (results sorted by position, True if
        complete).

        None results are dropped. With ``values``, the results retain the values, so value sizes count toward
        ``most_bytes`` (default ``MOST_BYTES``).
        """
        if not len(end):
            return [], True
        reader = self.cluster.reader()
        found: list[tuple[RecordPlace, T]] = []
        seen = held = 0
        deadline = time.monotonic() + timeout_s
        try:
            reader.assign(Positions({tp: start.get(tp) for tp, _ in end}))
            while not reader.position().covers(end):
                if seen >= most or held >= (most_bytes or MOST_BYTES) or time.monotonic() > deadline:
                    break
                for record in reader.poll(min(_POLL, most - seen), 0.2):
                    seen += 1
                    if record.offset < end.get(record.topic_partition) and (made := of(record)) is not None:
                        found.append((RecordPlace(record.topic, record.partition, record.offset), made))
                        held += _size(record, values)
            complete = reader.position().covers(end)
        finally:
            reader.close()
        return [made for _, made in sorted(found, key=lambda each: each[0])], complete

    def _source(self, schema_id: int) -> SchemaSource | None:
        try:
            if not sees_schema(lambda: self.registry.subjects_of(schema_id)):
                return None
            return self.registry.source(schema_id)
        except HubError as error:
            if error.retriable:
                raise
            return None


@dataclass
class _ClusterFacts:
    """Cluster and registry lookups of one action, cached so that each is made once."""

    cluster: DeadLetterLog
    registry: SchemaRegistry
    schemas: KnownSchemas = field(init=False)
    _topics: Mapping[str, TopicDescription] | None = None
    _subjects: frozenset[str] | None = None
    _largest: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.schemas = KnownSchemas(self.registry)

    def topics(self) -> Mapping[str, TopicDescription]:
        if self._topics is None:
            self._topics = self.cluster.topics()
        return self._topics

    def subjects(self) -> frozenset[str]:
        if self._subjects is None:
            self._subjects = frozenset(self.registry.subjects())
        return self._subjects

    def largest(self, topic: str) -> int:
        """Return the maximum size of a record of the topic, in bytes."""
        if topic not in self._largest:
            config = self.cluster.topic_config([topic])[topic]
            self._largest[topic] = int(config.get("max.message.bytes", _DEFAULT_LARGEST))
        return self._largest[topic]


def _size(record: Record, with_value: bool) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + headers + (len(record.value or b"") if with_value else 0)


def _looked(letter: DeadLetter, found: Mapping[TopicPartition, Looked]) -> Looked:
    return ([], True) if letter.first is None else found.get(letter.first.topic_partition, ([], False))


def _in_batches(steps: Iterable[Sequence[NewRecord]]) -> Iterator[list[NewRecord]]:
    batch: list[NewRecord] = []
    for step in steps:
        batch += step
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def sets(assignments: Sequence[tuple[str, Any]]) -> Change:
    """Return a change that sets fields."""
    return lambda value, _letter: dead_letters_repair.changed(value, assignments)


def whole(value: Any) -> Change:
    """Return a change that replaces the whole event."""
    return lambda _value, _letter: value


def _few(places: Sequence[RecordPlace]) -> None:
    if not places:
        raise CallerError("no dead letter is named", hint="hub dlq ls -l TOPIC lists their offsets")
    if len(places) > MOST_AT_ONCE:
        raise CallerError(
            f"{len(places)} dead letters, {MOST_AT_ONCE} at once are allowed", hint="name fewer"
        )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


__all__ = ["Change", "DeadLetters", "DecodedEvent", "FoundDeadLetters", "Repair", "sets", "whole"]
