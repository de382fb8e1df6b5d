"""[shell] Notification queues: one thread and one queue per channel, so that a failing channel delays no
other.

A failed attempt is repeated after growing pauses, ``TRIES`` times in all; a permanent refusal is not
repeated. A queue holds ``MOST_WAITING`` notifications; when it is full, the oldest is given up. ``done`` is
called once for each notification that was sent or given up. Notifications for an unusable channel wait until
its entry in alerts.yaml is fixed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hub.alerts.config.alerts_yaml import Channel
from hub.alerts.model.alert_state import Notification
from hub.errors import ConfigError, HubError
from hub.runtime import Backoff
from hub.times import epoch_ms

log = logging.getLogger(__name__)

TRIES = 6
UNUSABLE = "unusable"
MOST_WAITING = 100

Send = Callable[[str, Channel, Notification], None]


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """Status of a channel. ``error`` is that of the last attempt, None if it succeeded."""

    name: str
    kind: str
    waiting: int = 0
    sent: int = 0
    failed: int = 0
    given_up: int = 0
    error: str | None = None
    sent_at_ms: int | None = None


@dataclass
class _ChannelQueue:
    """Queue of one channel. ``channel`` is None while its entry in alerts.yaml is invalid; ``status.error``
    has the reason.
    """

    channel: Channel | None
    status: ChannelStatus
    queue: deque[Notification] = field(default_factory=deque)
    thread: threading.Thread | None = None


class NotificationQueues:
    """Queues of all channels. ``send`` raises HubError and is retried if the error is ``retriable``.

    Call ``stop`` after use. ``done`` is not called for notifications that are still waiting then; they are
    sent after the next start.
    """

    def __init__(
        self,
        send: Send,
        done: Callable[[Notification], None] = lambda _notification: None,
        *,
        backoff: Callable[[], Backoff] = lambda: Backoff(first_s=1.0, most_s=60.0, factor=3.0),
        now_ms: Callable[[], int] = epoch_ms,
    ) -> None:
        self._send, self._done, self._backoff, self._now_ms = send, done, backoff, now_ms
        self._workers: dict[str, _ChannelQueue] = {}
        self._changed = threading.Condition()
        self._stopped = threading.Event()

    def use(self, channels: Mapping[str, Channel], unusable: Mapping[str, str] | None = None) -> None:
        """Set the channels. ``unusable`` maps channels that cannot be used to the reason.

        Waiting notifications of removed channels are given up.
        """
        unusable = unusable or {}
        lost: list[Notification] = []
        with self._changed:
            for name, channel in channels.items():
                worker = self._workers.get(name)
                if worker is None:
                    self._workers[name] = _ChannelQueue(channel, ChannelStatus(name, channel.kind))
                elif worker.channel != channel:
                    error = worker.status.error if worker.channel is not None else None
                    worker.channel = channel
                    worker.status = replace(worker.status, kind=channel.kind, error=error)
            for name, reason in unusable.items():
                worker = self._workers.setdefault(name, _ChannelQueue(None, ChannelStatus(name, UNUSABLE)))
                worker.channel = None
                worker.status = replace(worker.status, kind=UNUSABLE, error=reason)
            for name in self._workers.keys() - channels.keys() - unusable.keys():
                lost += self._workers.pop(name).queue
            self._changed.notify_all()
        for each in lost:
            log.warning('notification %s is given up: channel "%s" no longer exists', each.id, each.channel)
            self._done(each)

    def put(self, notification: Notification) -> None:
        """Queue a notification; returns at once."""
        lost: Notification | None = None
        with self._changed:
            worker = self._workers.get(notification.channel)
            if worker is None or self._stopped.is_set():
                lost = notification if worker is None else None
            else:
                if len(worker.queue) >= MOST_WAITING:
                    lost = worker.queue.popleft()
                    worker.status = replace(worker.status, given_up=worker.status.given_up + 1)
                worker.queue.append(notification)
                if worker.thread is None:
                    worker.thread = threading.Thread(
                        target=self._run, args=(worker,), name=f"alerts-{notification.channel}", daemon=True
                    )
                    worker.thread.start()
                self._changed.notify_all()
        if lost is not None:
            log.warning('notification %s is given up: channel "%s" is full or gone', lost.id, lost.channel)
            self._done(lost)

    def statuses(self) -> list[ChannelStatus]:
        with self._changed:
            return [
                replace(each.status, waiting=len(each.queue)) for _, each in sorted(self._workers.items())
            ]

    def try_once(self, notification: Notification) -> None:
        """Send a notification synchronously, once. Raises HubError."""
        with self._changed:
            worker = self._workers[notification.channel]
            channel, reason = worker.channel, worker.status.error
        if channel is None:
            raise ConfigError(f'channel "{notification.channel}" cannot be used: {reason}', code="HUB-1105")
        self._send(notification.channel, channel, notification)

    def stop(self) -> None:
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            threads = [each.thread for each in self._workers.values() if each.thread is not None]
        deadline = time.monotonic() + 2.0
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, worker: _ChannelQueue) -> None:
        name = worker.status.name
        while True:
            with self._changed:
                while (not worker.queue or worker.channel is None) and not self._stopped.is_set():
                    if self._workers.get(name) is not worker:
                        return
                    self._changed.wait(1.0)
                if self._stopped.is_set() or self._workers.get(name) is not worker:
                    return
                notification = worker.queue[0]
            taken = self._tried(worker, notification)
            if taken is None:
                continue
            with self._changed:
                is_first = bool(worker.queue) and worker.queue[0] is notification
                if is_first:
                    worker.queue.popleft()
                if not taken:
                    worker.status = replace(worker.status, given_up=worker.status.given_up + 1)
            if is_first:
                try:
                    self._done(notification)
                except Exception:  # it was sent; continue with the next one
                    log.exception("notification %s was sent, which could not be noted", notification.id)

    def _tried(self, worker: _ChannelQueue, notification: Notification) -> bool | None:
        """Return True if the notification was sent, False if it was given up, None if the hub stops or the
        channel became unusable.
        """
        backoff = self._backoff()
        for left in reversed(range(TRIES)):
            if self._stopped.is_set():
                return None
            with self._changed:
                if self._workers.get(worker.status.name) is not worker:
                    return None
                channel = worker.channel
            if channel is None:
                return None  # the notification stays at the head of the queue
            try:
                self._send(worker.status.name, channel, notification)
            except HubError as error:
                message, again = error.message, left > 0 and error.retriable
                log.warning("%s%s", message, "" if again else ": given up")
            except Exception as error:
                message, again = f"{type(error).__name__}: {error}", False
                log.exception('channel "%s"', worker.status.name)
            else:
                with self._changed:
                    worker.status = replace(
                        worker.status, sent=worker.status.sent + 1, error=None, sent_at_ms=self._now_ms()
                    )
                return True
            with self._changed:
                worker.status = replace(worker.status, failed=worker.status.failed + 1, error=message)
            if not again:
                return False
            if self._stopped.wait(backoff.next_s()):
                return None
        return False
