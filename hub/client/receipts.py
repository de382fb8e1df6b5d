"""[core] Receipts: counts of the events that the server acknowledged to this client. The server's
completeness check compares them with the log.

Each event gets an id in the header ``hub-event-id``, unless it has one. For each acknowledged event, the
offset, the minute of its timestamp and the hash of its id are kept until they are sent. At most ``MOST``
events are kept; others count as dropped.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from hub.client.requests import Event

EVENT_ID = "hub-event-id"
MOST = 100_000
EVERY_S = 5.0
_A_RECEIPT, _A_REQUEST = 1_000, 100
_MINUTE_MS = 60_000

_EVENTS = uuid.UUID("7f0f1f0e-5d0b-4c55-8a53-3c1b8e2f6a11")

Place = tuple[str, int]
# Offset, minute, hash of the id.
Taken = tuple[int, int, int]


class Receipts:
    """Pending receipts of one program, ``producer``. Thread safe. Return a body of ``due`` that could not be
    sent with ``back``.
    """

    def __init__(self, producer: str) -> None:
        self.instance = f"{producer}-{uuid.uuid4().hex[:12]}"
        self.next_s = 0.0
        self._taken: dict[Place, list[Taken]] = {}
        self._dropped: dict[Place, int] = {}
        self._count = 0
        self._lock = threading.Lock()

    def named(self, events: Iterable[Event], topic: str, key: str) -> list[Event]:
        """Return the events with an id each. The ids are the same when a call is repeated with its
        idempotency key, because the server compares requests. Events whose key the server takes from the
        value carry no headers, so they stay as they are.
        """
        from hub.client.requests import DECLARED

        return [
            event
            if event.key is DECLARED or EVENT_ID in event.headers
            else replace(
                event, headers={**event.headers, EVENT_ID: uuid.uuid5(_EVENTS, f"{topic}/{key}/{number}").hex}
            )
            for number, event in enumerate(events)
        ]

    def took(self, topic: str, events: Sequence[Event], lines: Sequence[Mapping[str, Any]]) -> None:
        """Record the server's result lines, one per event."""
        with self._lock:
            for event, line in zip(events, lines, strict=False):
                event_id = event.headers.get(EVENT_ID)
                if line.get("error_code") != 200 or event_id is None or "timestamp" not in line:
                    continue
                place = (topic, int(line["partition_id"]))
                # Keep the first event of each partition in any case: its receipt carries the number of
                # dropped events.
                if self._count >= MOST and place in self._taken:
                    self._dropped[place] = self._dropped.get(place, 0) + 1
                    continue
                at_ms = round(datetime.fromisoformat(line["timestamp"]).timestamp() * 1000)
                content = event_id.encode() if isinstance(event_id, str) else event_id
                hashed = blake2b(content, digest_size=8, person=b"hub event id").digest()
                taken = (
                    int(line["offset"]),
                    max(0, at_ms) // _MINUTE_MS * _MINUTE_MS,
                    int.from_bytes(hashed),
                )
                self._taken.setdefault(place, []).append(taken)
                self._count += 1

    def back(self, body: bytes) -> None:
        """Count the records of an unsent body as dropped, so that the counts are not taken for complete."""
        with self._lock:
            for each in orjson.loads(body)["receipts"]:
                place = (each["topic"], each["partition"])
                count = sum(minute["count"] for minute in each["minutes"]) + each["dropped"]
                self._dropped[place] = self._dropped.get(place, 0) + count

    def due(self, at_ms: int) -> bytes | None:
        """Remove some pending receipts and return them as a body of ``POST /api/audit/receipts``; None if
        there are none.
        """
        receipts: list[dict[str, Any]] = []
        with self._lock:
            for place, taken in list(self._taken.items()):
                by_offset = {each[0]: each for each in taken}
                self._count -= len(taken)
                some = sorted(by_offset)[:_A_RECEIPT]
                rest = [by_offset[offset] for offset in sorted(by_offset)[_A_RECEIPT:]]
                self._count += len(rest)
                if rest:
                    self._taken[place] = rest
                else:
                    del self._taken[place]
                dropped = self._dropped.pop(place, 0)
                receipts.append(_receipt(place, [by_offset[offset] for offset in some], dropped))
                if len(receipts) == _A_REQUEST:
                    break
        if not receipts:
            return None
        return orjson.dumps({"instance": self.instance, "at_ms": at_ms, "receipts": receipts})


def _receipt(place: Place, taken: Sequence[Taken], dropped: int) -> dict[str, Any]:
    runs: list[list[int]] = []
    minutes: dict[int, tuple[int, int]] = {}
    for offset, minute, hashed in taken:
        if runs and offset == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([offset, 1])
        count, total = minutes.get(minute, (0, 0))
        minutes[minute] = (count + 1, (total + hashed) % (1 << 64))
    return {
        "topic": place[0],
        "partition": place[1],
        "runs": runs,
        "minutes": [
            {"bucket_ms": minute, "count": count, "sum": f"{total:016x}"}
            for minute, (count, total) in sorted(minutes.items())
        ],
        "dropped": dropped,
    }
