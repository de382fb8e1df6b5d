"""[shell] Detect clients that a cluster no longer answers, and have each replaced once Kafka answers again.

librdkafka's clients do not always come back (docs/adr/0030-cut-off-clients.md). Every client of a cluster
therefore reports its answers and failures to a ``Contact``::

    failing  no answer since ``failing_since_s``; the client goes on by itself
    overdue  failing for ``cut_off_s``: a thread asks Kafka with a fresh client every two seconds
    cut off  overdue, and it was asked again meanwhile: it is not asked any more, calls fail at once
    renewed  the fresh client was answered: whoever holds a client that was cut off makes a new one before its next call

``Contacts`` are the clients of one cluster in this process; ``reports`` tells of all clusters. Times are
monotonic seconds.
"""  # noqa: E501

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hub.errors import HubError

log = logging.getLogger(__name__)

CUT_OFF_S = 30.0
PROBE_EVERY_S = 2.0
_LOOK_EVERY_S = 0.25


class Contact:
    """Contact of one client with its cluster. ``answered`` and ``failed`` may be called from any thread.
    ``blocked``: the client is cut off. ``renewals``: how often its owner was asked to replace it.
    """

    def __init__(self, contacts: Contacts, client: str, is_behind: Callable[[], bool] | None = None) -> None:
        self.client = client
        self.failing_since_s: float | None = None
        self.failed_at_s = 0.0  # last
        self.why = ""
        self.blocked = False
        self.renewals = 0
        self.doubted = False
        self.forgotten = False  # a failure was forgotten, and this client had no answer since
        self.is_behind = is_behind
        self._contacts = contacts

    def answered(self) -> None:
        """Note that Kafka answered this client."""
        self.forgotten = False
        if self.failing_since_s is not None:
            self.failing_since_s, self.blocked, self.why = None, False, ""

    def failed(self, why: str) -> None:
        """Note that an answer did not come."""
        self.why, self.failed_at_s = why, time.monotonic()
        if self.failing_since_s is None:
            self.failing_since_s = self.failed_at_s
            self._contacts.watch()

    def doubt(self) -> None:
        """Check in the background whether ``is_behind``: the client received nothing, which is normal or a
        lost connection.
        """
        self.doubted = True
        self._contacts.watch()

    def failing_s(self, now_s: float) -> float:
        """Seconds without an answer; 0 when the last call was answered."""
        return 0.0 if self.failing_since_s is None else max(0.0, now_s - self.failing_since_s)

    def has_failed_again(self) -> bool:
        """Return whether this client failed again after its first failure.

        True when its failures span half of ``cut_off_s``, or when an earlier failure was forgotten and no
        answer came since: a client whose timeout exceeds ``cut_off_s`` fails only once in that time."""
        return self.failing_since_s is not None and (
            self.forgotten or self.failed_at_s - self.failing_since_s >= self._contacts.cut_off_s / 2
        )

    def forget(self) -> None:
        """Clear the failure: Kafka answers a new client, and this one may not have sent a request since."""
        self.answered()
        self.forgotten = True

    def renew(self) -> None:
        """Ask the holder for a new client; Kafka has just answered one."""
        self.renewals += 1
        self.answered()


class ContactReport(NamedTuple):
    """Longest time that a client of this kind has had no answer from a cluster; 0 when all are answered."""

    cluster: str
    client: str
    cut_off_s: float
    why: str


class Contacts:
    """Contacts of one cluster's clients. ``probe`` asks Kafka with a new client and returns whether it
    answers.
    """

    def __init__(self, cluster: str, cut_off_s: float, probe: Callable[[], bool | None]) -> None:
        self.cluster = cluster
        self.cut_off_s = cut_off_s
        self._probe = probe
        self._lock = threading.Lock()
        self._known: weakref.WeakSet[Contact] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        self._probe_at_s = 0.0
        _everywhere.add(self)

    def open(self, client: str, is_behind: Callable[[], bool] | None = None) -> Contact:
        """Return the contact of a new client of this kind, kept for as long as its holder keeps it.
        ``is_behind`` returns True when records wait that the client does not get; it may raise PeerError."""
        made = Contact(self, client, is_behind)
        with self._lock:
            self._known.add(made)
        return made

    def close(self, contact: Contact) -> None:
        with self._lock:
            self._known.discard(contact)

    def watch(self) -> None:
        """Watch the contacts in a thread for as long as one of them fails."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_look_after, args=(weakref.ref(self),), name="kafka-contact", daemon=True
                )
                self._thread.start()

    def all(self) -> list[Contact]:
        with self._lock:
            return list(self._known)

    def step(self, now_s: float) -> bool:
        """Check all contacts once; return False when no further check is needed."""
        contacts = self.all()
        for each in contacts:
            if each.doubted:
                self._ask_whether_behind(each)
        failing = [each for each in contacts if each.failing_since_s is not None]
        overdue = [each for each in failing if each.failing_s(now_s) >= self.cut_off_s]
        for each in overdue:
            if not each.blocked and each.has_failed_again():
                each.blocked = True
                log.warning(
                    'Kafka at "%s": %s has had no answer for %.0f s (%s): a fresh client is tried',
                    *(self.cluster, each.client, each.failing_s(now_s), each.why.strip()),
                )
        if overdue and now_s >= self._probe_at_s:
            self._probe_at_s = now_s + PROBE_EVERY_S
            if self._probe():
                self._end(overdue)
        return bool(failing) or any(each.doubted for each in contacts)

    def _end(self, overdue: Sequence[Contact]) -> None:
        """Kafka answers: have cut-off clients replaced, and clear failures that did not recur."""
        cut_off = [each for each in overdue if each.blocked]
        for each in overdue:
            if each.blocked:
                each.renew()
            else:
                each.forget()
        if cut_off:
            names = ", ".join(sorted({each.client for each in cut_off}))
            log.warning('Kafka at "%s" answers a fresh client: replaced: %s', self.cluster, names)

    def _ask_whether_behind(self, contact: Contact) -> None:
        contact.doubted = False
        try:
            behind = contact.is_behind is not None and contact.is_behind()
        except HubError:  # Kafka does not answer the admin client, which has a contact of its own
            return
        if behind:
            contact.renew()
            log.warning(
                'Kafka at "%s": %s gets no records though some wait: replaced', self.cluster, contact.client
            )

    def is_over(self) -> bool:
        """Check once; return True when no further check is needed and the thread should end."""
        try:
            if self.step(time.monotonic()):
                return False
        except Exception:
            log.exception("clients of Kafka cannot be looked after")
            return False
        with self._lock:
            # A client that failed after the check relied on the running thread.
            if any(each.failing_since_s is not None or each.doubted for each in self._known):
                return False
            self._thread = None
            return True

    def reports(self, now_s: float) -> list[ContactReport]:
        """Return one report for each kind of client: that of the client with the longest wait."""
        worst: dict[str, ContactReport] = {}
        for each in self.all():
            report = ContactReport(self.cluster, each.client, each.failing_s(now_s), each.why)
            if each.client not in worst or report.cut_off_s > worst[each.client].cut_off_s:
                worst[each.client] = report
        return [worst[client] for client in sorted(worst)]


def _look_after(contacts: weakref.ref[Contacts]) -> None:
    """Run the watchdog. Holds no reference between two steps, so the thread ends with the cluster's last
    user.
    """
    while (found := contacts()) is not None:
        if found.is_over():
            return
        del found
        time.sleep(_LOOK_EVERY_S)


_everywhere: weakref.WeakSet[Contacts] = weakref.WeakSet()


def reports() -> list[ContactReport]:
    """Contact of every kind of client in this process, by cluster;
    of two clusters objects for one address the worst."""
    now_s = time.monotonic()
    worst: dict[tuple[str, str], ContactReport] = {}
    for contacts in list(_everywhere):
        for each in contacts.reports(now_s):
            key = each.cluster, each.client
            if key not in worst or each.cut_off_s > worst[key].cut_off_s:
                worst[key] = each
    return [worst[key] for key in sorted(worst)]
