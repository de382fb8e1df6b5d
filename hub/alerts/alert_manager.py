"""[shell] The alert manager: every few seconds, read all sources, run ``step``, store the decisions, and send
notifications.

At the start, the stored state is read, so that nothing is notified twice. In each round the sources are read
(from memory; queries run in a thread of their own), ``step`` decides, its records are written, and
notifications go to the queues. While Kafka does not accept records, they wait in memory and notifications are
sent anyway.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from prometheus_client.core import Metric

from hub.alerts.alert_log import AlertLog
from hub.alerts.alert_series import families
from hub.alerts.config.live_config import LiveAlerts
from hub.alerts.config.read_entries import reaches_nobody, rule_reaches_nobody
from hub.alerts.delivery.notification_queues import NotificationQueues
from hub.alerts.model.alert_state import (
    FIRING,
    Alert,
    AlertingState,
    GroupKey,
    Notification,
    NotificationRoute,
    Silence,
)
from hub.alerts.model.listing import AlertListing, listing
from hub.alerts.model.matching import Matchers, labels_of
from hub.alerts.model.records import pending_record, records_of, send_record, sent_record
from hub.alerts.model.rules import RuleChanges, RuleObservations, Severity, Verdict
from hub.alerts.model.state_machine import step
from hub.alerts.snapshot import AlertSnapshot, RuleStatus, status_of_rule
from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError, did_you_mean
from hub.log import Log
from hub.runtime import repeating
from hub.times import epoch_ms

log = logging.getLogger(__name__)

LONGEST_SILENCE_MS = 366 * 86_400_000
MOST_SILENCES = 1_000
_READING = "the earlier notifications are being read"
_BUSY_SHARE = 0.2


Source = Callable[[RuleChanges, int], Sequence[RuleObservations]]
"""(rules with their changes, time in epoch ms) → the current observations of one part of the hub."""


@dataclass
class AlertManager:
    """The alert manager. Use ``with manager.running():``. Each round reads ``sources``."""

    cluster: Log
    live: LiveAlerts
    outbox: NotificationQueues
    sources: list[Source] = field(default_factory=list)
    every_s: float = 5.0
    replication_factor: int = 1
    now_ms: Callable[[], int] = epoch_ms
    state: AlertingState = field(default_factory=AlertingState)
    error: str | None = _READING
    notifications: int = 0
    _rules: tuple[RuleStatus, ...] = ()
    _problems: tuple[str, ...] = ()
    _unheard: frozenset[str] = frozenset()
    _firing: int | None = None
    _listing: AlertListing | None = None
    _read: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.log = AlertLog(self.cluster, self.now_ms, self.replication_factor)

    @contextmanager
    def running(self) -> Iterator[AlertManager]:
        """Run a round every few seconds while the block runs."""
        try:
            with repeating(
                self.step,
                name="alerts",
                pause_s=lambda took_s: max(self.every_s - took_s, took_s / _BUSY_SHARE - took_s, 0.1),
                failed="alerts could not be evaluated",
            ):
                yield self
        finally:
            self.close()

    def close(self) -> None:
        """Stop sending, and write pending records, including the held time of pending alerts."""
        self.outbox.stop()
        with self._lock:
            self.log.keep([pending_record(each) for each in self.state.alerts.values() if each.held_unkept])
        self._write()
        self.log.close()

    # ---- one round

    def step(self) -> None:
        """Run one round: read the sources, decide, store, send."""
        if self.log.fenced and not self._take_back():
            return
        try:
            self._first()
        except HubError as error:
            self.error = f"the earlier notifications cannot be read: {error.message}"
            return
        self._use_files()
        now_ms = self.now_ms()
        changes, routes = self.live.file.changes(), self.live.reading.routes()
        observations, problems = self._observe(changes, now_ms)
        with self._lock:
            before = self.state
            self.state, notifications = step(before, observations, routes, now_ms)
            self.log.keep([*records_of(before, self.state), *map(send_record, notifications)])
            self.log.claim(now_ms)
        if not self._write():
            return
        for each in notifications:
            self.notifications += 1
            self.outbox.put(each)
        self._summarize(observations, problems, routes)

    def _observe(self, changes: RuleChanges, now_ms: int) -> tuple[list[RuleObservations], list[str]]:
        """Return the observations of all sources, and what is wrong with files and sources."""
        observations: list[RuleObservations] = []
        complaints = self.live.complaints()
        problems = list(complaints)
        for source in self.sources:
            try:
                observations += source(changes, now_ms)
            except HubError as error:
                problems.append(error.message)
            except Exception as error:
                log.exception("a source of alerts failed")
                problems.append(f"{type(error).__name__}: {error}")
        if len(problems) > len(complaints):
            # A failed source reported none of its rules: they are unknown, not gone.
            reported = {each.rule.name for each in observations}
            observations += [
                RuleObservations(each.rule, whole=False, error="not seen now")
                for each in self._rules
                if each.rule.name not in reported
            ]
        return observations, problems

    def _summarize(
        self,
        observations: Sequence[RuleObservations],
        problems: Sequence[str],
        routes: Sequence[NotificationRoute],
    ) -> None:
        """Keep what readers see of this round."""
        firing = Counter(each.rule for each in self.state.firing)
        unusable = self.live.reading.unusable
        self._rules = tuple(
            status_of_rule(each, firing[each.rule.name], rule_reaches_nobody(routes, each.rule, unusable))
            for each in observations
        )
        self._unheard = frozenset(
            each.key
            for each in self.state.firing
            if unusable and reaches_nobody(routes, each.labels, unusable)
        )
        left_out = self.state.left_out
        more = [f"{left_out} more objects break a rule than are followed"] if left_out else []
        self._problems, self.error = (*problems, *more), None
        self._firing = self.snapshot().firing

    def _first(self) -> None:
        """Read the stored state once, and queue notifications that were not sent yet."""
        if self._read:
            return
        stored = self.log.read()
        self._use_files()
        with self._lock:
            self.state, self._read = stored.state, True
        for each in stored.unsent.values():
            self.outbox.put(each)

    def _take_back(self) -> bool:
        """Return True if this fenced server is active again; it then restarts from the stored state."""
        if not self.log.take_back():
            return False
        with self._lock:
            self._read, self.error = False, _READING
        return True

    def _write(self) -> bool:
        """Write pending records. Return True if this server is still active."""
        active = self.log.write()
        if not active:
            self.error = "another server of the hub watches now: this one sends no notifications"
        return active

    def _use_files(self) -> None:
        self.live.refresh()
        self.outbox.use(self.live.file.channels, self.live.reading.unusable)

    def sent(self, notification: Notification) -> None:
        """Record that a notification was sent or given up, so it is not sent again. Called by the queues,
        from any thread.
        """
        if notification.test:
            return
        with self._lock:
            self.log.keep([sent_record(notification.id)])
        if self.log.write_error is None:  # otherwise the next round writes it
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
            silence = Silence(uuid.uuid4().hex[:12], matchers, reason.strip(), by.strip(), now_ms, ends_ms)
            self._silences({**self.state.silences, silence.id: silence})
        self._write_now()
        return silence

    def unsilence(self, id: str) -> Silence:
        """End a silence now. Raises NotFound, Conflict."""
        with self._lock:
            self._ready()
            known = self.state.silences.get(id)
            if known is None:
                raise NotFound(
                    f'silence "{id[:40]}" does not exist',
                    hint=did_you_mean(id, self.state.silences, "hub alert ls --silences lists them"),
                )
            ended = replace(known, ends_ms=min(known.ends_ms, self.now_ms()))
            self._silences({**self.state.silences, id: ended})
        self._write_now()
        return ended

    def _ready(self) -> None:
        if self.log.fenced:
            raise Conflict("another server of the hub watches alerts", hint="ask that one")
        if not self._read:
            raise PeerError(
                self.error or "alerts are not read yet", hint="try again in a moment", code="HUB-3071"
            )

    def _silences(self, silences: Mapping[str, Silence]) -> None:
        after = replace(self.state, silences=silences)
        self.log.keep(records_of(self.state, after))
        self.state = after
        self._firing = self.snapshot().firing

    def _write_now(self) -> None:
        if not self._write():
            raise Conflict("another server of the hub watches alerts", hint="ask that one")

    def test(self, channel: str) -> None:
        """Send a test notification over a channel, once. Raises NotFound, and the channel's error."""
        self._use_files()
        channels = self.live.file.channels
        if channel not in channels and channel not in self.live.reading.unusable:
            raise NotFound(
                f'channel "{channel[:80]}" does not exist',
                hint=did_you_mean(channel, channels, f"alerts.yaml has {', '.join(channels) or 'none'}"),
            )
        self.outbox.try_once(notification_of_test(channel, self.now_ms()))

    # ---- reads

    def snapshot(self) -> AlertSnapshot:
        """Return the current state from memory, without blocking."""
        with self._lock:
            now_ms, problems = (
                self.now_ms(),
                self._problems + ((self.log.write_error,) if self.log.write_error else ()),
            )
            if self._listing is None or not self._listing.holds(self.state, now_ms):
                self._listing = listing(self.state, now_ms)
            channels = tuple(self.outbox.statuses())
            return AlertSnapshot(
                now_ms,
                self.state,
                self._rules,
                channels,
                self.error,
                problems,
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
        yield from families(self.snapshot(), self.notifications)


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
