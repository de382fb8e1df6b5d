"""[edge] Follower of the log of a source's schema registry, so that no event arrives before the schema that
it names.

An event that names a schema was written after the registration was acknowledged, and the registration was in
``_schemas`` by then. So the engine asks for the end of that log after it has fetched events, and commits them
once the target's registry has the schemas up to there; events are not inspected. A registry that keeps its
log in another cluster cannot be followed in this way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from hub.errors import NotFound
from hub.kafka import KafkaReader
from hub.record import Positions, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, SchemaErased, SchemaStored, SubjectCleared, fact_of

log = logging.getLogger(__name__)

SCHEMAS_LOG = TopicPartition(SCHEMAS_TOPIC, 0)
_AWAITED_S = 30.0
_POLL_RECORDS = 1_000


class SchemaNews:
    """New schemas in the log, from its present end on. Use from one thread; close it.

    Raises NotFound when the cluster has no such log, PeerError when it does not answer or denies access.
    """

    def __init__(self, source: ClusterHandle) -> None:
        self._source = source
        ends = source.kafka.end_offsets([SCHEMAS_TOPIC])
        if SCHEMAS_LOG not in ends.offsets:
            raise NotFound(f'cluster "{source.name}" has no topic "{SCHEMAS_TOPIC}"')
        self._reader: KafkaReader = source.kafka.reader(queue_kb=1_024)
        self._reader.assign(Positions({SCHEMAS_LOG: ends.get(SCHEMAS_LOG)}))
        # (subject, version) → time it was read here: a registry may read its log later than this reader.
        self._awaited: dict[tuple[str, int], float] = {}

    @property
    def read_to(self) -> int:
        """Next offset to read."""
        return self._reader.position().get(SCHEMAS_LOG)

    @property
    def awaits(self) -> bool:
        """True while the log has versions that were not found in the registry yet."""
        return bool(self._awaited)

    def poll(self, timeout_s: float) -> None:
        """Read new records; wait for them up to ``timeout_s``."""
        for record in self._reader.poll(_POLL_RECORDS, timeout_s):
            match fact_of(record):
                case SchemaStored(subject=subject, version=version):
                    self._awaited.setdefault((subject, version), time.monotonic())
                case SchemaErased(subject=subject, version=version):
                    self._awaited.pop((subject, version), None)
                case SubjectCleared(subject=subject):
                    for each in [each for each in self._awaited if subject in (None, each[0])]:
                        del self._awaited[each]

    def settle(self, matters: Callable[[str], bool], found: Collection[tuple[str, int]] = ()) -> None:
        """Stop awaiting versions of subjects that do not matter, and those that are ``found``. A version that
        the registry lacks for ``_AWAITED_S`` is dropped with a warning: the log is probably that of another
        registry.
        """
        now_s = time.monotonic()
        for each, since_s in list(self._awaited.items()):
            if not matters(each[0]) or each in found:
                del self._awaited[each]
            elif now_s - since_s > _AWAITED_S:
                del self._awaited[each]
                log.warning(
                    'cluster "%s": %s v%d is in topic "%s" and its registry does not have it: '
                    "is it another's log?",
                    self._source.name,
                    *each,
                    SCHEMAS_TOPIC,
                )

    def close(self) -> None:
        self._reader.close()
