"""[core] Newest event of each key of a topic, and the requests whose marks its events carry.

Memory: about 150 bytes a key. Keys are kept as hashes of 128 bits, so their length does not matter.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from hub.errors import PeerError
from hub.record import Positions, Record
from hub.topics.gateway.expected_version.version import KeyVersion
from hub.topics.gateway.idempotency import WINDOW_S, FoundRequest, found_in
from hub.topics.gateway.produce_request import IDEMPOTENCY_HEADER

MOST_KEYS = 2_000_000
_MOST_MARKS = 50_000


@dataclass
class KeyIndex:
    """State of one topic up to ``positions``. ``apply`` alone changes it, with records in their order."""

    topic: str
    most_keys: int = MOST_KEYS
    positions: Positions = field(default_factory=Positions)
    _newest: dict[bytes, KeyVersion] = field(default_factory=dict)
    _marks: OrderedDict[str, FoundRequest] = field(default_factory=OrderedDict)

    def apply(self, records: Iterable[Record], positions: Positions) -> None:
        """Add committed records; ``positions`` are those after them. Raises PeerError for too many keys."""
        for record in records:
            if record.key is not None:
                version = KeyVersion(record.topic_partition, record.offset + 1, record.value is None)
                self._newest[hash_of(record.key)] = version
            for key, found in found_in((record,), IDEMPOTENCY_HEADER).items():
                self._marks.pop(key, None)
                self._marks[key] = found
        while len(self._marks) > _MOST_MARKS:
            self._marks.popitem(last=False)
        if len(self._newest) > self.most_keys:
            raise PeerError(
                f'topic "{self.topic}": has more than {self.most_keys} keys, too many for expected versions',
                hint="spread the events over several topics, or write them without Expected-Version",
                code="HUB-3102",
            )
        self.positions = positions

    def version(self, key: bytes, begins: Positions) -> KeyVersion | None:
        """Return the version of a key; None without an event. ``begins``: events before are gone."""
        key_version = self._newest.get(hash_of(key))
        return (
            None if key_version is None or key_version.after <= begins.get(key_version.place) else key_version
        )

    def written(self, mark: str, now_ms: int) -> FoundRequest | None:
        """Return the request with an idempotency key, if its record is in the log within the window."""
        found_request = self._marks.get(mark)
        return (
            None
            if found_request is None or now_ms - found_request.started_at_ms > WINDOW_S * 1000
            else found_request
        )


def hash_of(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()
