"""[core] Bounds on requests in progress: their number, their bytes, and a pause after Kafka did not answer;
quotas of events and bytes.

Requests above the limits are refused at once (429), and so are requests for a moment after Kafka did not
answer (503). All methods take the time, so that tests need no clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import orjson

from hub.errors import PeerError
from hub.quotas.kinds import Quota
from hub.quotas.spending import spend
from hub.topics.gateway.produce_request import MOST_REQUEST_BYTES, Busy, TooLarge

MOST_REQUESTS = 256
MOST_BYTES = 64 << 20
_AWAY_S = 1.0


def require_room(topic: str) -> None:
    """Refuse a request before its body is read if a quota is used up already. Raises QuotaExceeded."""
    for quota in (Quota.events_in, Quota.bytes_in):
        spend(quota, 0, topics=(topic,))


def spend_bytes(topic: str, size: int) -> None:
    """Count the body of a request. Raises QuotaExceeded."""
    spend(Quota.bytes_in, size, topics=(topic,))


def spent_events(topic: str, number: int) -> int:
    """Count the events of a request and return their number. Raises QuotaExceeded: nothing was written."""
    spend(Quota.events_in, number, topics=(topic,))
    return number


def spend_event(topic: str, value: object) -> None:
    """Count one event with its value as JSON. Raises QuotaExceeded."""
    spend_bytes(topic, len(orjson.dumps(value)))
    spent_events(topic, 1)


class Admission:
    """Capacity for requests. Thread safe. ``down`` builds the error for an unavailable Kafka."""

    def __init__(self, down: Callable[[str], PeerError]) -> None:
        self._down = down
        self._lock = threading.Lock()
        self._requests = self._bytes = 0
        self._away_until_s = float("-inf")
        self._answered_at_s = float("-inf")

    def admit(self, size: int, now_s: float) -> Slot:
        """Reserve capacity for a request of up to ``size`` bytes. Raises TooLarge; Busy, PeerError (nothing
        was written).
        """
        if size > MOST_REQUEST_BYTES:
            raise TooLarge(
                f"the request has {size} bytes, {MOST_REQUEST_BYTES} are allowed", hint="send several"
            )
        with self._lock:
            if now_s < self._away_until_s:
                raise self._down("it did not a moment ago; nothing was written")
            if self._requests >= MOST_REQUESTS or self._bytes + size > MOST_BYTES:
                if self._requests and now_s - self._answered_at_s > _AWAY_S:
                    raise self._down("the queue is full; nothing was written")
                raise Busy(
                    f"{self._requests} requests with {self._bytes} bytes are under way",
                    hint="try again; nothing was written",
                )
            if self._requests == 0:
                self._answered_at_s = now_s
            self._requests += 1
            self._bytes += size
        return Slot(self, size)

    def note_answer(self, now_s: float) -> None:
        """Record that Kafka answered."""
        self._answered_at_s = now_s

    def away(self, now_s: float) -> None:
        """Record that Kafka did not answer: requests are refused for a moment."""
        self._away_until_s = now_s + _AWAY_S

    def give_back(self, size: int, requests: int) -> None:
        with self._lock:
            self._bytes -= size
            self._requests -= requests


class Slot:
    """Capacity reserved for one request. Call ``release`` once it is answered; ``release`` is idempotent."""

    def __init__(self, admission: Admission, size: int) -> None:
        self._admission = admission
        self._size: int | None = size

    def shrink(self, size: int) -> None:
        """Return capacity if the body is smaller than reserved."""
        if self._size is not None and size < self._size:
            self._admission.give_back(self._size - size, 0)
            self._size = size

    def release(self) -> None:
        size, self._size = self._size, None
        if size is not None:
            self._admission.give_back(size, 1)
