"""[shell] The alert manager: every few seconds, read all sources, run ``step``, store the decisions, and send
notifications.

At the start, the stored state is read, so that nothing is notified twice. In each round the sources are read
(from memory; queries run in a thread of their own), ``step`` decides, its records are written, and
notifications go to the queues. While Kafka does not accept records, they wait in memory and notifications are
sent anyway.

One server evaluates alerts at a time. A server that starts fences the earlier one (by a transactional name),
which then sends nothing. The active server writes a claim every minute. A fenced server becomes active again
if the last claim is still its own (Kafka fenced its writer after a transaction timeout), or if the other
server's claims stop for minutes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hub.alerts.config.live_config import LiveAlerts
from hub.alerts.config.read_entries import rule_tells_nobody, tells_nobody
from hub.alerts.delivery.notification_queues import ChannelStatus, NotificationQueues
from hub.alerts.model.listing import AlertListing, listing
from hub.alerts.model.matching import Matchers, labels_of
from hub.alerts.model.records import (
    ALERTS_CONFIG,
    ALERTS_TOPIC,
    Claim,
    StoredAlerts,
    claim_record,
    pending_record,
    records_of,
    send_record,
    sent_record,
)
from hub.alerts.model.rules import RULES, AlertRule, RuleChanges, RuleObservations, Severity, Verdict
from hub.alerts.model.state_machine import FIRING, Alert, AlertingState, GroupKey, Notification, Silence, step
from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError, nearest
from hub.kafka.reader import up_to
from hub.log import Cluster, Reader, Writer, WriterFenced
from hub.record import NewRecord
from hub.runtime import repeating

log = logging.getLogger(__name__)

WRITER = "hub-alerts"
LONGEST_SILENCE_MS = 366 * 86_400_000
MOST_SILENCES = 1_000
# Limit of alerts with their own series in /metrics.
MOST_SERIES = 200
MOST_UNSAVED = 50_000
# Interval of claims; time without a claim after which the active server counts as gone; interval at which a
# fenced server checks.
CLAIM_EVERY_MS = 60_000
CLAIM_HOLDS_MS = 5 * 60_000
LOOK_EVERY_MS = 30_000
_READING = "what was told before is being read"
_SILENT_S = 60.0
_BUSY_SHARE = 0.2


class AlertLog(Cluster, Protocol):
    def reader(self) -> Reader: ...

    def writer(self, name: str | None = None) -> Writer: ...


Source = Callable[[RuleChanges, int], Sequence[RuleObservations]]
"""(rules with their changes, time in epoch ms) → the current observations of one part of the hub."""


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """A rule with the number of its objects by state; None if the caller may not see them. ``nobody``: no
    channel for its alerts is usable.
    """

    rule: AlertRule
    good: int | None = 0
    bad: int | None = 0
    unknown: int | None = 0
    firing: int = 0
    error: str | None = None
    nobody: bool = False


@dataclass(frozen=True)
class AlertSnapshot:
    """State of the alert manager for readers.

    ``error`` is the reason if nothing is evaluated; ``troubles`` lists other problems. ``listed`` is the
    listing, if already made. ``whole`` is False if the caller may not see everything. ``unheard`` holds the
    keys of alerts without a usable channel. ``file_errors`` counts errors in alerts.yaml and alerts/*.yaml.
    """

    at_ms: int
    state: AlertingState
    rules: tuple[RuleStatus, ...]
    channels: tuple[ChannelStatus, ...]
    error: str | None = None
    troubles: tuple[str, ...] = ()
    listed: AlertListing | None = None
    whole: bool = True
    unheard: frozenset[str] = frozenset()
    file_errors: int = 0

    @cached_property
    def listing(self) -> AlertListing:
        """The alerts, sorted."""
        return self.listed if self.listed is not None else listing(self.state, self.at_ms)

    @property
    def firing(self) -> int | None:
        """Number of alerts that fire and are not silenced; None if unknown."""
        return None if self.error is not None else self.listing.firing


@dataclass
class AlertManager:
    """The alert manager. Use ``with manager.running():``. Each round reads ``sources``."""

    cluster: AlertLog
    live: LiveAlerts
    outbox: NotificationQueues
    sources: list[Source] = field(default_factory=list)
    every_s: float = 5.0
    replication_factor: int = 1
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    state: AlertingState = field(default_factory=AlertingState)
    error: str | None = _READING
    unsaved: dict[bytes, NewRecord] = field(default_factory=dict)
    _rules: tuple[RuleStatus, ...] = ()
    _troubles: tuple[str, ...] = ()
    _unheard: frozenset[str] = frozenset()
    _firing: int | None = None
    _listing: AlertListing | None = None
    _read: bool = False
    _fenced: bool = False
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _claimed_ms: int | None = None
    # While fenced: when to check next, and the other server's last claim with the time at which it was first
    # seen.
    _look_at_ms: int = 0
    _others: Claim | None = None
    _others_since_ms: int | None = None
    _not_kept: str | None = None
    _writer: Writer | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _writing: threading.Lock = field(default_factory=threading.Lock)
    notifications: int = 0

    @contextmanager
    def running(self) -> Iterator[AlertManager]:
        """Run a round every few seconds while the block runs."""
        try:
            with repeating(
                self.step,
                name="alerts",
                pause_s=lambda took_s: max(self.every_s - took_s, took_s / _BUSY_SHARE - took_s, 0.1),
                failed="alerts could not be judged",
            ):
                yield self
        finally:
            self.close()

    def close(self) -> None:
        """Stop sending, and write pending records, including the held time of pending alerts."""
        self.outbox.stop()
        with self._lock:
            self._keep([pending_record(each) for each in self.state.alerts.values() if each.held_unkept])
        self._write()
        self._close_writer()

    # ---- one round

    def step(self) -> None:
        """Run one round: read the sources, decide, store, send."""
        if self._fenced and not self._take_back():
            return
        try:
            self._first()
        except HubError as error:
            self.error = f"what was told before cannot be read: {error.message}"
            return
        self._use_files()
        now_ms = self.now_ms()
        changes, routes = self.live.file.changes(), self.live.reading.routes()
        seen: list[RuleObservations] = []
        complaints = self.live.complaints()
        troubles = list(complaints)
        for source in self.sources:
            try:
                seen += source(changes, now_ms)
            except HubError as error:
                troubles.append(error.message)
            except Exception as error:
                log.exception("a source of alerts failed")
                troubles.append(f"{type(error).__name__}: {error}")
        if len(troubles) > len(complaints):
            # A failed source reported none of its rules: they are unknown, not gone.
            told = {each.rule.name for each in seen}
            seen += [
                RuleObservations(each.rule, whole=False, error="not seen now")
                for each in self._rules
                if each.rule.name not in told
            ]
        with self._lock:
            before = self.state
            self.state, notifications = step(before, seen, routes, now_ms)
            self._keep([*records_of(before, self.state), *map(send_record, notifications)])
            if self._writer is not None:
                self._claim(now_ms)
        if not self._write():
            return
        for each in notifications:
            self.notifications += 1
            self.outbox.put(each)
        firing = Counter(each.rule for each in self.state.firing)
        unusable = self.live.reading.unusable
        self._rules = tuple(
            _status(each, firing[each.rule.name], rule_tells_nobody(routes, each.rule, unusable))
            for each in seen
        )
        self._unheard = frozenset(
            each.key for each in self.state.firing if unusable and tells_nobody(routes, each.labels, unusable)
        )
        if self.state.left_out:
            troubles.append(f"{self.state.left_out} more objects break a rule than are followed")
        self._troubles, self.error = tuple(troubles), None
        self._firing = self.known().firing

    def _first(self) -> None:
        """Read the stored state once, and queue notifications that were not sent yet."""
        if self._read:
            return
        if self._writer is None and ALERTS_TOPIC in self.cluster.topics():
            # Open the writer before reading: this fences other servers, so nothing is written after the read.
            self._open_writer()
        kept = read(self.cluster)
        self._use_files()
        with self._lock:
            self.state, self._read = kept.state, True
        for each in kept.unsent.values():
            self.outbox.put(each)

    def _use_files(self) -> None:
        self.live.refresh()
        self.outbox.use(self.live.file.channels, self.live.reading.unusable)

    # ---- the active server

    def _open_writer(self) -> Writer:
        """Open the writer, which fences other servers, and write a claim at once: a fenced server reads it to
        identify the active one.
        """
        self._writer = writer = self.cluster.writer(WRITER)
        claim = Claim(self._id, self.now_ms())
        writer.append([claim_record(claim)])
        self._claimed_ms = claim.at_ms
        return writer

    def _claim(self, now_ms: int) -> None:
        if self._claimed_ms is None or not 0 <= now_ms - self._claimed_ms < CLAIM_EVERY_MS:
            self._claimed_ms = now_ms
            self._keep([claim_record(Claim(self._id, now_ms))])

    def _take_back(self) -> bool:
        """Return True if this fenced server may become active again; it then restarts from the stored
        state.
        """
        now_ms = self.now_ms()
        if now_ms < self._look_at_ms:
            return False
        self._look_at_ms = now_ms + LOOK_EVERY_MS
        try:
            claim = read(self.cluster).claim
        except HubError as error:
            log.warning("who watches cannot be read: %s", error.message)
            return False
        if claim is None or claim.by != self._id:
            # Measured by this server's clock: the other server's may differ.
            if self._others_since_ms is None or claim != self._others:
                self._others, self._others_since_ms = claim, now_ms
            if now_ms - self._others_since_ms < CLAIM_HOLDS_MS:
                return False
        log.warning("this server watches alerts again: no other says that it does")
        with self._lock:
            self.unsaved.clear()  # based on a state that another server may have changed since
            self._fenced, self._read, self.error = False, False, _READING
        self._close_writer()
        return True

    # ---- storage

    def _keep(self, records: Sequence[NewRecord]) -> None:
        for record in records:
            key = record.key or b""
            self.unsaved.pop(key, None)  # move the newest record to the end
            self.unsaved[key] = record
        while len(self.unsaved) > MOST_UNSAVED:
            self.unsaved.pop(next(iter(self.unsaved)))

    def _write(self) -> bool:
        """Write pending records; they are kept if that fails. Readers are not blocked. Returns True if this
        server is still active.
        """
        with self._writing:
            with self._lock:
                pending = list(self.unsaved.items())
            if not pending or self._fenced:
                return not self._fenced
            try:
                writer = self._writer
                if writer is None:
                    make_topic(self.cluster, self.replication_factor)
                    writer = self._open_writer()
                writer.append([record for _, record in pending])
            except WriterFenced:
                self._fenced, self._others_since_ms = True, None
                self._look_at_ms = self.now_ms() + LOOK_EVERY_MS
                self.error = "another server of the hub watches now: this one tells nobody anything"
                log.error("%s", self.error)
            except HubError as error:
                if self._not_kept is None:
                    log.warning("alerts are kept here until Kafka takes them: %s", error.message)
                self._not_kept = f"not written to the log yet: {error.message}"
                self._close_writer()
            except Exception as error:  # on any error: notifications are sent anyway
                if self._not_kept is None:
                    log.exception("alerts are kept here, they cannot be written")
                self._not_kept = f"not written to the log yet: {type(error).__name__}: {error}"
                self._close_writer()
            else:
                self._not_kept = None
                with self._lock:
                    for key, record in pending:
                        if self.unsaved.get(key) is record:
                            del self.unsaved[key]
            return not self._fenced

    def _close_writer(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()
        self._writer = None

    def sent(self, notification: Notification) -> None:
        """Record that a notification was sent or given up, so it is not sent again. Called by the queues,
        from any thread.
        """
        if notification.test:
            return
        with self._lock:
            self._keep([sent_record(notification.id)])
        if self._not_kept is None:  # otherwise the next round writes it
            self._write()

    # ---- actions of users

    def silence(self, matchers: Matchers, reason: str, by: str, ends_ms: int) -> Silence:
        """Create a silence that starts now. Raises CallerError; Conflict if another server is active."""
        now_ms = self.now_ms()
        if not matchers:
            raise CallerError(
                "a silence of everything is refused", hint="name a label: severity=info, topic=shop.**"
            )
        if not reason.strip():
            raise CallerError("a silence needs a reason", hint="say why, for those who find it later")
        if not now_ms < ends_ms <= now_ms + LONGEST_SILENCE_MS:
            raise CallerError(
                "a silence ends in the future, and within a year", hint="for 2h, or until a time"
            )
        with self._lock:
            self._ready()
            if len(self.state.silences) >= MOST_SILENCES:
                raise CallerError(
                    f"{MOST_SILENCES} silences are kept", hint="end some: hub alert unsilence ID"
                )
            made = Silence(uuid.uuid4().hex[:12], matchers, reason.strip(), by.strip(), now_ms, ends_ms)
            self._silences({**self.state.silences, made.id: made})
        self._write_now()
        return made

    def unsilence(self, id: str) -> Silence:
        """End a silence now. Raises NotFound, Conflict."""
        with self._lock:
            self._ready()
            known = self.state.silences.get(id)
            if known is None:
                guess = nearest(id, self.state.silences)
                raise NotFound(
                    f'silence "{id[:40]}" does not exist',
                    hint=f'did you mean "{guess}"?' if guess else "hub alert ls --silences lists them",
                )
            ended = replace(known, ends_ms=min(known.ends_ms, self.now_ms()))
            self._silences({**self.state.silences, id: ended})
        self._write_now()
        return ended

    def _ready(self) -> None:
        if self._fenced:
            raise Conflict("another server of the hub watches alerts", hint="ask that one")
        if not self._read:
            raise PeerError(
                self.error or "alerts are not read yet", hint="try again in a moment", code="HUB-3071"
            )

    def _silences(self, silences: Mapping[str, Silence]) -> None:
        after = replace(self.state, silences=silences)
        self._keep(records_of(self.state, after))
        self.state = after
        self._firing = self.known().firing

    def _write_now(self) -> None:
        if not self._write():
            raise Conflict("another server of the hub watches alerts", hint="ask that one")

    def test(self, channel: str) -> None:
        """Send a test notification over a channel, once. Raises NotFound, and the channel's error."""
        self._use_files()
        channels = self.live.file.channels
        if channel not in channels and channel not in self.live.reading.unusable:
            guess = nearest(channel, channels)
            raise NotFound(
                f'there is no channel "{channel[:80]}"',
                hint=f'did you mean "{guess}"?'
                if guess
                else f"alerts.yaml has {', '.join(channels) or 'none'}",
            )
        self.outbox.try_once(notification_of_test(channel, self.now_ms()))

    # ---- reads

    def known(self) -> AlertSnapshot:
        """Return the current state from memory, without blocking."""
        with self._lock:
            now_ms, troubles = self.now_ms(), self._troubles + ((self._not_kept,) if self._not_kept else ())
            if self._listing is None or not self._listing.holds(self.state, now_ms):
                self._listing = listing(self.state, now_ms)
            channels = tuple(self.outbox.statuses())
            return AlertSnapshot(
                now_ms,
                self.state,
                self._rules,
                channels,
                self.error,
                troubles,
                self._listing,
                unheard=self._unheard,
                file_errors=len(self.live.faults()),
            )

    def firing(self) -> int | None:
        """Return the number of alerts that fire and are not silenced, as of the last round; None if
        unknown.
        """
        return None if self.error is not None else self._firing

    def families(self) -> Iterator[Metric]:
        """Yield the series for /metrics. While nothing is evaluated, the series of alerts have no samples:
        alert on ``absent``.
        """
        yield from families(self.known(), self.notifications)


def read(cluster: AlertLog) -> StoredAlerts:
    """Read the stored alerts. Raises PeerError if nothing arrives for a minute, HubFault."""
    kept = StoredAlerts()
    if ALERTS_TOPIC not in cluster.topics():
        return kept
    end = cluster.end_offsets([ALERTS_TOPIC])
    reader = cluster.reader()
    try:
        reader.assign(cluster.beginning_offsets([ALERTS_TOPIC]))
        for records in up_to(end, reader, _SILENT_S):
            for record in records:
                kept.apply(record)
    finally:
        reader.close()
    return kept


def make_topic(cluster: Cluster, replication_factor: int) -> None:
    """Create the topic ``_hub.alerts`` if it does not exist. Raises PeerError."""
    if ALERTS_TOPIC not in cluster.topics():
        with contextlib.suppress(Conflict):
            cluster.create_topic(
                ALERTS_TOPIC, partitions=1, config=ALERTS_CONFIG, replication_factor=replication_factor
            )


def notification_of_test(channel: str, now_ms: int) -> Notification:
    """Build a test notification."""
    labels = labels_of({"alertname": "test", "severity": Severity.info})
    alert = Alert(
        *("0" * 16, "test", (), labels, "This is a test: nothing is wrong.", "", None, FIRING, now_ms),
        last=Verdict.BAD,
        last_ms=now_ms,
        fired_at_ms=now_ms,
        runbook="test",
    )
    group = GroupKey("test", ())
    return Notification(uuid.uuid4().hex[:16], channel, group, (alert,), now_ms, test=True)


def _status(seen: RuleObservations, firing: int, nobody: bool) -> RuleStatus:
    counts = Counter(each.verdict for each in seen.observations)
    good, bad, unknown = counts[Verdict.GOOD], counts[Verdict.BAD], counts[Verdict.UNKNOWN]
    return RuleStatus(seen.rule, good, bad, unknown, firing, seen.error, nobody)


def families(known: AlertSnapshot, notifications: int = 0) -> Iterator[Metric]:
    """Yield metrics: a few per rule and channel, and one per firing alert, at most 200."""
    evaluated = GaugeMetricFamily("hub_alerts_watched", "1 while this server judges alerts and tells of them")
    evaluated.add_metric([], 0.0 if known.error else 1.0)
    yield evaluated
    wrong = GaugeMetricFamily("hub_alert_file_errors", "Errors in alerts.yaml and alerts/*.yaml")
    wrong.add_metric([], known.file_errors)
    yield wrong
    firing = GaugeMetricFamily(
        "hub_alerts_firing", "Alerts that fire, by rule and severity", labels=["alertname", "severity"]
    )
    objects = GaugeMetricFamily(
        "hub_alert_objects", "Objects that a rule looks at, by what is seen", labels=["alertname", "state"]
    )
    if known.error is None:
        for each in known.rules:
            if each.rule.kind == "slo" and each.rule.name not in RULES:
                continue
            firing.add_metric([each.rule.name, each.rule.severity], each.firing)
            for state, number in (("good", each.good), ("bad", each.bad), ("unknown", each.unknown)):
                if number is not None:
                    objects.add_metric([each.rule.name, state], number)
    yield from (firing, objects)
    alert = GaugeMetricFamily(
        "hub_alert_firing",
        "1 for an alert that fires; silenced says whether somebody is told",
        labels=["alertname", "severity", "owner", "object", "silenced"],
    )
    if known.error is None:
        firing_now = [each for each in known.listing.open if each.alert.firing]
        for each_firing in sorted(firing_now, key=lambda each: each.alert.fired_at_ms or 0)[:MOST_SERIES]:
            one, silenced = each_firing.alert, str(each_firing.silence is not None).lower()
            object = ",".join(f"{name}={value}" for name, value in one.object)
            alert.add_metric([one.rule, each_firing.severity, each_firing.owner, object[:300], silenced], 1.0)
    yield alert
    by_channel = ["channel"]
    sent = CounterMetricFamily("hub_alert_sent", "Notifications that a channel took", labels=by_channel)
    failed = CounterMetricFamily("hub_alert_failed", "Tries that a channel did not take", labels=by_channel)
    given_up = CounterMetricFamily(
        "hub_alert_given_up", "Notifications that were given up after all tries", labels=by_channel
    )
    waiting = GaugeMetricFamily(
        "hub_alert_waiting", "Notifications that wait for a channel", labels=by_channel
    )
    for channel in known.channels:
        sent.add_metric([channel.name], channel.sent)
        failed.add_metric([channel.name], channel.failed)
        given_up.add_metric([channel.name], channel.given_up)
        waiting.add_metric([channel.name], channel.waiting)
    yield from (sent, failed, given_up, waiting)
    yield CounterMetricFamily("hub_alert_notifications", "Notifications that were made", value=notifications)
