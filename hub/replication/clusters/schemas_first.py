"""[edge] What is written to the log of a source's registry, so that no event arrives before the schema that it names.

An event that names a schema was written after the registration was acknowledged, which by then stood in ``_schemas``. So
whoever has fetched events asks afterwards how far that log goes, and commits them once the target's registry has what it
tells up to there: no event is looked into. A registry that keeps its log in another cluster cannot be followed so.
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
    """The log from its present end on. For one thread; close it.

    Raises NotFound when the cluster has no such log, PeerError when it does not answer or may not be asked.
    """

    def __init__(self, source: ClusterHandle) -> None:
        self._source = source
        ends = source.kafka.end_offsets([SCHEMAS_TOPIC])
        if SCHEMAS_LOG not in ends.offsets:
            raise NotFound(f'cluster "{source.name}" has no topic "{SCHEMAS_TOPIC}"')
        self._reader: KafkaReader = source.kafka.reader(queue_kb=1_024)
        self._reader.assign(Positions({SCHEMAS_LOG: ends.get(SCHEMAS_LOG)}))
        # (subject, version) with when we were told: a registry may read its log later than we do.
        self._awaited: dict[tuple[str, int], float] = {}

    @property
    def read_to(self) -> int:
        """The next offset to read."""
        return self._reader.position().get(SCHEMAS_LOG)

    @property
    def awaits(self) -> bool:
        """Whether versions were told of that were not found in the registry yet."""
        return bool(self._awaited)

    def poll(self, timeout_s: float) -> None:
        """Read what is new; wait for it."""
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
        """Stop awaiting versions of subjects that do not matter, and those that are ``found``. What a registry does not know
        for long is another's: this log is not the one it keeps."""
        now_s = time.monotonic()
        for each, since_s in list(self._awaited.items()):
            if not matters(each[0]) or each in found:
                del self._awaited[each]
            elif now_s - since_s > _AWAITED_S:
                del self._awaited[each]
                log.warning(
                    'cluster "%s": %s v%d is told of in topic "%s" and its registry does not have it: is it another\'s log?',
                    self._source.name,
                    *each,
                    SCHEMAS_TOPIC,
                )

    def close(self) -> None:
        self._reader.close()
