"""[shell] The relay: committed rows of the outbox table to Kafka, in commit order, each exactly once.

One round: take the slot (one connection may have it), open the writer (which fences an earlier relay and ends
its open transaction), read the position from ``_hub.outbox``, then read, append and confirm until something
fails. After any failure the next round begins from the stored position, so an append whose outcome is unknown
needs no special case. A relay that finds the slot in use waits and takes over when it is free.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hub.errors import CallerError, ConfigError, Conflict, HubError, NotFound
from hub.log import Log, Writer, ensure_topic, whole
from hub.outbox.checkpoints import (
    OUTBOX_CONFIG,
    OUTBOX_TOPIC,
    RefusedOutboxEvent,
    StoredOutbox,
    position_record,
    refused_record,
    relayed_records,
)
from hub.outbox.database import PUBLICATION, OutboxDatabase, OutboxSlot, check_fatal, opened, plain_url
from hub.outbox.events import BrokenRow, MissingColumns, OutboxEvent, Position, TransactionReader
from hub.outbox.note import OutboxNote
from hub.outbox.pgoutput import BrokenMessage, decode, lsn_text
from hub.outbox.replication import Keepalive, ReplicationConnection, SlotInUse
from hub.record import NewRecord
from hub.runtime import Backoff
from hub.times import epoch_ms

log = logging.getLogger(__name__)

BATCH_EVENTS, BATCH_BYTES = 2_000, 8_000_000
CONFIRM_EVERY_S, MEASURE_EVERY_S, IDLE_S = 5.0, 5.0, 1.0
STANDBY_S = 2.0
_SILENT_S = 30.0
_MOST_LEFT, _DELETE_TRIES = 10_000, 10
# Errors of one record, besides a topic that does not exist; anything else is of the cluster and passes.
_OWN_TOPIC, _OWN = "HUB-1142", ("_", "views.")
_BROKEN_ROW = "HUB-1143"
_NOT_ERASABLE = "HUB-1219"
_OF_ONE_RECORD = ("HUB-1310", _OWN_TOPIC, _BROKEN_ROW, _NOT_ERASABLE)


@dataclass
class Relay:
    """The relay of one database. ``deletes``: rows are deleted once their events are in Kafka. ``report`` is
    called with each new state. ``seal`` encrypts the erasable fields of a topic's value.
    """

    url: str
    table: str
    cluster: Log
    replication_factor: int = 1
    deletes: bool = False
    timeout_s: float = 15.0
    report: Callable[[OutboxNote], None] = lambda _note: None
    seal: Callable[[str, bytes | None], bytes | None] = lambda _topic, value: value
    now_ms: Callable[[], int] = epoch_ms
    note: OutboxNote = field(default_factory=OutboxNote)
    unpublished: bool = False  # the publication lacked the table: rows of that time are not relayed
    _logged_problem: str = ""

    def run(self, stop: threading.Event) -> None:
        """Relay until ``stop`` is set. Failures are logged, the same one once, and tried again."""
        backoff = Backoff(0.5, 10.0)
        while not stop.is_set():
            began_s = time.monotonic()
            try:
                self._round(stop)
            except SlotInUse as error:
                self._report_problem("STANDBY", error.message)
                stop.wait(STANDBY_S)
            except (HubError, MissingColumns, BrokenRow, BrokenMessage) as error:
                self._report_problem("FAILING", str(error))
                if time.monotonic() - began_s > backoff.most_s:
                    backoff.reset()
                stop.wait(backoff.next_s())
        self._put(state="STOPPED", lag_s=None, lag_bytes=None)

    def _round(self, stop: threading.Event) -> None:
        with contextlib.ExitStack() as stack:
            database = stack.enter_context(opened(self.url, self.table))
            slot = database.slot_state()
            if slot is None:
                check_fatal(database.facts())
            source = ReplicationConnection(plain_url(self.url), self.timeout_s)
            stack.callback(source.close)
            identity = source.identify()
            outbox = f"{identity.system_id}/{database.slot}"
            ensure_topic(
                self.cluster, OUTBOX_TOPIC, OUTBOX_CONFIG, replication_factor=self.replication_factor
            )
            # Before the slot is taken, so that `hub outbox forget` finds it free.
            stored = read_stored(self.cluster, outbox)
            check_position(stored.position, identity.end_lsn)
            check_slot(stored.position, None if slot is None else slot.confirmed_lsn)
            source.start(database.slot, PUBLICATION)
            writer = self.cluster.writer(f"hub.outbox.{identity.system_id}.{database.slot}")
            stack.callback(writer.close)
            stored = read_stored(self.cluster, outbox)  # again: an earlier relay may have written meanwhile
            RelayRound(self, database, source, writer, stored).run(stop)

    def working(self, stored: StoredOutbox, lag_s: float, measured: OutboxSlot | None) -> None:
        """Report that events are relayed."""
        if self._logged_problem:
            log.info("the outbox is relayed again")
            self._logged_problem = ""
        self._put(
            state="RELAYING",
            trouble="",
            outbox=stored.outbox,
            events=stored.events,
            refused=len(stored.refused),
            lag_s=lag_s,
            lag_bytes=None if measured is None else measured.lag_bytes,
        )

    def _report_problem(self, state: str, why: str) -> None:
        if why != self._logged_problem:
            log.log(logging.INFO if state == "STANDBY" else logging.ERROR, "%s: %s", state, why)
            self._logged_problem = why
        self._put(state=state, trouble=why, lag_s=None, lag_bytes=None)

    def _put(self, **changes: object) -> None:
        self.note = self.note.changed(at_ms=self.now_ms(), **changes)
        self.report(self.note)


class RelayRound:
    """One round of a relay, once everything is open."""

    def __init__(
        self,
        relay: Relay,
        database: OutboxDatabase,
        source: ReplicationConnection,
        writer: Writer,
        stored: StoredOutbox,
    ) -> None:
        self.relay, self.database, self.source, self.writer = relay, database, source, writer
        self.stored = stored
        self.reading = TransactionReader(stored.position or Position(0, 0))
        self._confirmed_s = 0.0
        self._measured_s = 0.0
        self._measured: OutboxSlot | None = None
        if relay.unpublished:
            stored.since_ms = database.clock_ms()
        relay.unpublished = False
        # Rows of an earlier relay that was killed between Kafka's commit and its own deletion.
        self._to_delete: dict[str, int] = {}
        self._left = database.waiting_rows(_MOST_LEFT, stored.since_ms) if relay.deletes else (0, [])

    def run(self, stop: threading.Event) -> None:
        """Read, append, confirm until ``stop`` is set. Raises HubError."""
        self._measure()
        self.relay.working(self.stored, 0.0, self._measured)
        while not stop.is_set():
            events = self._batch()
            if events:
                self._relay(events)
            self._confirm(now=bool(events))
            self._delete()
            self._measure()
            oldest_ms = events[0].committed_at_ms if events else None
            lag_s = 0.0 if oldest_ms is None else max(0.0, (self.relay.now_ms() - oldest_ms) / 1000)
            self.relay.working(self.stored, lag_s, self._measured)

    def _batch(self) -> list[OutboxEvent]:
        """Return what there is, at most a batch; waits a second for the first message."""
        events: list[OutboxEvent] = []
        size, wait_s = 0, IDLE_S
        while len(events) < BATCH_EVENTS and size < BATCH_BYTES:
            message = self.source.read(wait_s)
            if message is None:
                break
            wait_s = 0.0
            if isinstance(message, Keepalive):
                if message.wants_reply:  # a server that shuts down waits for it
                    self._confirmed_s = 0.0
                # Nothing of the table is in the log before its end: the server may remove that part.
                if self.reading.between_transactions:
                    self.reading.position = max(self.reading.position, Position(message.end_lsn, 0))
                continue
            decoded = decode(message)
            event = None if decoded is None else self.reading.apply(decoded)
            if event is not None:
                events.append(event)
                size += len(event.record.value or b"")
        return events

    def _relay(self, events: Sequence[OutboxEvent]) -> None:
        """Append a batch and its position. A batch that Kafka refuses is halved, until the one event that it
        refuses is known: that event is noted as refused, and its row stays.
        """
        at = events[-1].after
        extra = relayed_records(self.stored.outbox, self.stored, events)
        position = self._position_record(at, len(events))
        try:
            check_events(events)
            self.writer.append([*map(self._sealed, events), *extra, position])
        except CallerError as error:
            if not isinstance(error, NotFound) and error.code not in _OF_ONE_RECORD:
                raise
            if len(events) > 1:
                half = len(events) // 2
                self._relay(events[:half])
                self._relay(events[half:])
            else:
                self._refuse(events[0], error.message)
            return
        self.stored.position = at
        self.stored.events += len(events)
        for event in events:
            self.stored.refused.pop(event.id, None)
        if self.relay.deletes:
            self._to_delete |= {event.id: 0 for event in events}

    def _sealed(self, event: OutboxEvent) -> NewRecord:
        """Return the record of an event as Kafka gets it. Raises NotErasable."""
        record = event.record
        return replace(record, value=self.relay.seal(record.topic, record.value))

    def _position_record(self, at: Position, more_events: int = 0) -> NewRecord:
        stored = self.stored
        return position_record(stored.outbox, at, stored.events + more_events, stored.since_ms)

    def _refuse(self, event: OutboxEvent, reason: str) -> None:
        refused = RefusedOutboxEvent(event.id, event.record.topic, reason, self.relay.now_ms())
        position = self._position_record(event.after)
        self.writer.append([refused_record(self.stored.outbox, refused), position])
        self.stored.position = event.after
        self.stored.refused[event.id] = refused
        log.error('event "%s" is refused, its row stays: %s; see: hub outbox status', event.id, reason)

    def _confirm(self, *, now: bool = False) -> None:
        """Confirm the position that is stored in Kafka, never a later one. A slot that begins after the
        stored position is therefore a new one (``check_slot``). Without events it is stored every 5 s.
        """
        due = time.monotonic() - self._confirmed_s >= CONFIRM_EVERY_S
        stored = self.stored
        if due and self.reading.position > (stored.position or Position(0, 0)):
            self.writer.append([self._position_record(self.reading.position)])
            stored.position = self.reading.position
        if (due or now) and stored.position is not None:
            self.source.confirm(stored.position.lsn, self.relay.now_ms())
        if due:
            self._confirmed_s = time.monotonic()

    def _measure(self) -> None:
        if time.monotonic() - self._measured_s >= MEASURE_EVERY_S:
            self._check_publication()
            self._measured = self.database.slot_state()
            self._measured_s = time.monotonic()

    def _check_publication(self) -> None:
        """Raise ConfigError (HUB-1140) when the publication lacks the table: Postgres sends nothing then, and
        looks as if nothing was written.
        """
        if self.database.publishes():
            return
        self.relay.unpublished = True
        self.stored.since_ms = self.database.clock_ms()
        if self.stored.position is not None:
            self.writer.append([self._position_record(self.stored.position)])
        raise ConfigError(
            f'publication "{PUBLICATION}" does not publish table "{self.database.table}":'
            " its events are not relayed",
            hint="run hub outbox init, then docs/how-to/use-the-outbox.md, part `A lost slot`, from step 2",
            code="HUB-1140",
        )

    def _delete(self) -> None:
        """Delete relayed rows. A transaction may be in the log a moment before others see its rows, so a row
        that is not found is looked for again.
        """
        end_lsn, ids = self._left
        if ids and self.reading.position.lsn >= end_lsn:
            self._to_delete |= {each: 0 for each in ids if each not in self.stored.refused}
            self._left = (0, [])
        if self._to_delete:
            gone = self.database.delete(list(self._to_delete))
            self._to_delete = {
                each: tries + 1
                for each, tries in self._to_delete.items()
                if each not in gone and tries + 1 < _DELETE_TRIES
            }


def check_events(events: Sequence[OutboxEvent]) -> None:
    """Raise CallerError (HUB-1142) if one of the events is for a topic of the hub's own: whoever may insert
    rows would have the relay's rights there. Raise it (HUB-1143) for a row that cannot be an event.
    """
    for event in events:
        if event.broken:
            raise CallerError(event.broken, code=_BROKEN_ROW)
        if event.record.topic.startswith(_OWN):
            raise CallerError(
                f"topic \"{event.record.topic[:249]}\" is the hub's own or Kafka's: "
                "applications do not write it",
                code=_OWN_TOPIC,
            )


def check_position(position: Position | None, end_lsn: int) -> None:
    """Raise Conflict (HUB-1980) when the stored position lies behind the end of the database's log: the
    database was restored from a backup, and its new events would be taken for relayed ones.
    """
    if position is not None and position.lsn > end_lsn:
        raise Conflict(
            f"the relay's position {lsn_text(position.lsn)} is after the end of the database's log "
            f"{lsn_text(end_lsn)}",
            hint="the database was restored: docs/how-to/use-the-outbox.md, part `A restored database`",
            code="HUB-1980",
        )


def check_slot(position: Position | None, confirmed_lsn: int | None) -> None:
    """Raise Conflict (HUB-1981) when the slot begins after the stored position: it is a new slot, and events
    between the two places are only in the table.
    """
    if position is not None and confirmed_lsn is not None and confirmed_lsn > position.lsn:
        raise Conflict(
            f"the slot begins at {lsn_text(confirmed_lsn)}, after the relay's position "
            f"{lsn_text(position.lsn)}: it was created again, and events between the two "
            "may be missing in Kafka",
            hint="docs/how-to/use-the-outbox.md, part `A lost slot`",
            code="HUB-1981",
        )


def read_stored(cluster: Log, outbox: str) -> StoredOutbox:
    """Return what ``_hub.outbox`` holds for an outbox. Raises PeerError, HubFault."""
    stored = StoredOutbox(outbox)
    if OUTBOX_TOPIC in cluster.described([OUTBOX_TOPIC]):
        for record in whole(cluster, OUTBOX_TOPIC, _SILENT_S):
            stored.apply(record)
    return stored
