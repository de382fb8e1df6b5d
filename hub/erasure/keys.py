"""[shell] Destroy the keys of a person, and follow the compaction of ``_dek_registry_keys``.

A tombstone hides a wrapped key from readers of the state, but the record is on disk until Kafka compacts the
log. Kafka compacts closed segments only, and closes one when a record comes after its time: so the topic gets
a longest time before compaction, and a record now and then that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hub.log import Log, whole
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.dek_registry.records import KEYS_TOPIC, Dek, Kek, KeyFact, KeyRemoved, fact_of
from hub.schema_registry.dek_registry.state import DekRegistryState
from hub.schema_registry.encryption.erasable import person_hash
from hub.schema_registry.model.subject_names import person_subject

LAG: Final = "max.compaction.lag.ms"
_DELETE_DELAY: Final = "file.delete.delay.ms"
_DEFAULT_DELETE_DELAY_MS: Final = 60_000
_NUDGE_EVERY_MS: Final = 10_000


class PersonKeys:
    """Keys of persons. ``lag_ms``: longest time that Kafka may leave a destroyed key in its log."""

    def __init__(self, cluster: Log, lag_ms: int, replication_factor: int, now_ms: Callable[[], int]) -> None:
        self._cluster, self._lag_ms, self._now_ms = cluster, lag_ms, now_ms
        self._node = DekNode(cluster, replication_factor=replication_factor)
        self._nudged_ms = 0

    def count(self, topic: str, person: str) -> int:
        """Return the number of data keys of a person in a topic. Raises PeerError."""
        subject = _subject(topic, person)
        return self._node.read(lambda state: len(_deks(state, subject)))

    def destroy(self, topic: str, person: str) -> None:
        """Remove these keys from the registry. Idempotent. Raises PeerError."""
        subject = _subject(topic, person)
        self._submit(lambda state: [KeyRemoved(each.id) for each in _deks(state, subject)])

    def left_in_log(self, topics: Sequence[str], person: str, before_ms: int) -> int:
        """Return how many records with keys from before a time are in the log. Raises PeerError."""
        subjects = {_subject(each, person) for each in topics}
        if not self._cluster.partition_counts([KEYS_TOPIC]):
            return 0
        facts = (
            fact_of(record)
            for record in whole(self._cluster, KEYS_TOPIC)
            if record.value is not None and record.timestamp_ms <= before_ms
        )
        return sum(isinstance(each, Dek) and each.id.subject in subjects for each in facts)

    def hasten(self, since_ms: int) -> None:
        """Let Kafka compact the log within the longest time. Raises PeerError."""
        config = self._cluster.topic_config([KEYS_TOPIC])[KEYS_TOPIC]
        if int(config.get(LAG, 2**62)) > self._lag_ms:
            self._cluster.alter_config(KEYS_TOPIC, {LAG: str(self._lag_ms)})
        now_ms = self._now_ms()
        if now_ms - since_ms < self._lag_ms or now_ms - self._nudged_ms < max(_NUDGE_EVERY_MS, self._lag_ms):
            return
        self._nudged_ms = now_ms
        self._submit(_unchanged_kek)

    def _submit(self, decide: Callable[[DekRegistryState], Sequence[KeyFact]]) -> None:
        """Write, and leave the writer's name to the servers, which write keys all the time."""
        try:
            self._node.submit(decide)
        finally:
            self._node.close()

    def delete_delay_ms(self) -> int:
        """Return how long Kafka leaves the file of a compacted segment. Raises PeerError."""
        config = self._cluster.topic_config([KEYS_TOPIC])[KEYS_TOPIC]
        return int(config.get(_DELETE_DELAY, _DEFAULT_DELETE_DELAY_MS))


def _subject(topic: str, person: str) -> str:
    return person_subject(topic, person_hash(topic, person))


def _deks(state: DekRegistryState, subject: str) -> list[Dek]:
    return [each for each in state.deks.values() if each.id.subject == subject]


def _unchanged_kek(state: DekRegistryState) -> list[Kek]:
    """Return a fact that changes nothing: the record makes Kafka close a segment that is over."""
    return list(state.keks.values())[:1]
