"""[shell] The log ``_hub.alerts``: stored decisions, and which server may write them.

One server evaluates alerts at a time. A server that starts fences the earlier one (by a transactional name),
which then sends nothing. A server that has written nothing since its start fences nobody later: it gives way
to one that has claimed the log meanwhile. The active server writes a claim every minute. A fenced server
becomes active again if the last claim is still its own (Kafka fenced its writer after a transaction timeout),
or if the other server's claims stop for minutes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hub.alerts.model.records import ALERTS_CONFIG, ALERTS_TOPIC, Claim, StoredAlerts, claim_record
from hub.errors import HubError
from hub.log import Log, Writer, WriterFenced, ensure_topic, whole
from hub.record import NewRecord

log = logging.getLogger(__name__)

WRITER = "hub-alerts"
MOST_UNSAVED = 50_000
# Interval of claims; time without a claim after which the active server counts as gone; interval at which a
# fenced server checks.
CLAIM_EVERY_MS = 60_000
CLAIM_HOLDS_MS = 5 * 60_000
LOOK_EVERY_MS = 30_000


@dataclass
class AlertLog:
    """Writer of ``_hub.alerts``. Records that Kafka does not take are kept in memory and written later.

    ``fenced``: another server is active. ``write_error``: why records are not written yet, or None. Thread
    safe.
    """

    cluster: Log
    now_ms: Callable[[], int]
    replication_factor: int = 1
    unsaved: dict[bytes, NewRecord] = field(default_factory=dict)
    fenced: bool = False
    write_error: str | None = None
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _claimed_ms: int | None = None
    # While fenced: when to check next, and the other server's last claim with the time at which it was first
    # seen.
    _look_at_ms: int = 0
    _others: Claim | None = None
    _others_since_ms: int | None = None
    _writer: Writer | None = None
    # Whether it has opened the log, or taken it back: it may then open it again without a look at claims.
    _has_led: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> StoredAlerts:
        """Return what is stored. Other servers are fenced before, so nothing is written after the read.

        Raises PeerError, HubFault.
        """
        if self._writer is None and ALERTS_TOPIC in self.cluster.topics():
            self._open()
        return read(self.cluster)

    def keep(self, records: Sequence[NewRecord]) -> None:
        """Add records to those that are to be written; the newest of each key."""
        with self._lock:
            for record in records:
                key = record.key or b""
                self.unsaved.pop(key, None)  # move the newest record to the end
                self.unsaved[key] = record
            while len(self.unsaved) > MOST_UNSAVED:
                self.unsaved.pop(next(iter(self.unsaved)))

    def claim(self, now_ms: int) -> None:
        """Keep a claim if one is due and this server writes."""
        if self._writer is None:
            return
        if self._claimed_ms is None or not 0 <= now_ms - self._claimed_ms < CLAIM_EVERY_MS:
            self._claimed_ms = now_ms
            self.keep([claim_record(Claim(self._id, now_ms))])

    def write(self) -> bool:
        """Write pending records; they are kept if that fails. Return True if this server is still active."""
        with self._writing:
            with self._lock:
                pending = list(self.unsaved.items())
            if pending and not self.fenced:
                self._write(pending)
            return not self.fenced

    def _write(self, pending: Sequence[tuple[bytes, NewRecord]]) -> None:
        try:
            if self._writer is None:
                ensure_topic(
                    self.cluster, ALERTS_TOPIC, ALERTS_CONFIG, replication_factor=self.replication_factor
                )
                self._give_way()
            (self._writer or self._open()).append([record for _, record in pending])
        except WriterFenced:
            self.fenced, self._others_since_ms = True, None
            self._look_at_ms = self.now_ms() + LOOK_EVERY_MS
            log.error("another server of the hub evaluates alerts now: this one sends nothing")
        except HubError as error:
            if self.write_error is None:
                log.warning("alerts are kept here until Kafka takes them: %s", error.message)
            self._failed(error.message)
        except Exception as error:  # on any error: notifications are sent anyway
            if self.write_error is None:
                log.exception("alerts are kept here, they cannot be written")
            self._failed(f"{type(error).__name__}: {error}")
        else:
            self.write_error = None
            with self._lock:
                for key, record in pending:
                    if self.unsaved.get(key) is record:
                        del self.unsaved[key]

    def _failed(self, reason: str) -> None:
        self.write_error = f"not written to the log yet: {reason}"
        self.close()

    def take_back(self) -> bool:
        """Return True if this fenced server is active again. Drops records that are not
        written yet, since another server may have changed the state they are based on."""
        now_ms = self.now_ms()
        if now_ms < self._look_at_ms:
            return False
        self._look_at_ms = now_ms + LOOK_EVERY_MS
        try:
            claim = read(self.cluster).claim
        except HubError as error:
            log.warning("the server that evaluates alerts cannot be read: %s", error.message)
            return False
        if claim is None or claim.by != self._id:
            # Measured by this server's clock: the other server's may differ.
            if self._others_since_ms is None or claim != self._others:
                self._others, self._others_since_ms = claim, now_ms
            if now_ms - self._others_since_ms < CLAIM_HOLDS_MS:
                return False
        log.warning("this server evaluates alerts again: no other claims to")
        with self._lock:
            self.unsaved.clear()
            self.fenced, self._has_led = False, True
        self.close()
        return True

    def close(self) -> None:
        """Close the writer; the next write opens another one."""
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()
        self._writer = None

    def _give_way(self) -> None:
        """Raise WriterFenced if this server never led, and another one claims the log."""
        if not self._has_led and read(self.cluster).claim is not None:
            raise WriterFenced("another server claimed the log after this one started")

    def _open(self) -> Writer:
        """Open the writer, which fences other servers, and write a claim at once: a fenced server reads it to
        identify the active one."""
        self._writer = writer = self.cluster.writer(WRITER)
        claim = Claim(self._id, self.now_ms())
        writer.append([claim_record(claim)])
        self._claimed_ms, self._has_led = claim.at_ms, True
        return writer


def read(cluster: Log) -> StoredAlerts:
    """Read the stored alerts. Raises PeerError if nothing arrives for a minute, HubFault."""
    stored_alerts = StoredAlerts()
    if ALERTS_TOPIC in cluster.topics():
        for record in whole(cluster, ALERTS_TOPIC):
            stored_alerts.apply(record)
    return stored_alerts
