"""[shell] Schema ids that a view's events name and its plan does not know: ask the registry for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.materializers.engine.plans.unknown_schema_ids import ASK_AGAIN_S, UnknownIds
from hub.materializers.spark.formats.decode import SchemaAnswers
from hub.schema_registry.client.registry_client import RegistryClient

log = logging.getLogger(__name__)


class SchemaWatch:
    """Answers of the registry about the schema ids of one view. ``topics``: those that the view reads."""

    def __init__(self, cluster: KafkaCluster, registry: RegistryClient, table: str) -> None:
        self._cluster = cluster
        self._registry = registry
        self._table = table
        self._answered = SchemaAnswers()
        self._looked_up: set[int] = set()
        self._unknown = UnknownIds()
        self._ask_again_at_s = 0.0
        self.topics: Sequence[str] = ()

    @property
    def extra_ids(self) -> list[int]:
        """Ids of the registry that events named, in order.
        No subject of the view's topics has to have them."""
        return sorted(self._looked_up & self._answered.ids)

    def answers(self) -> SchemaAnswers:
        """Return the answers for the plan's query. An id that is not a usable writer schema counts as unknown
        to the registry."""
        return SchemaAnswers(
            self._answered.ids - self._looked_up, self._answered.until, self._unknown.ids, self._unknown.above
        )

    def learn(self, schema_id: int, topic: str) -> None:
        """Ask the registry for an id that ended the query, so that the next plan can judge it.

        Raises HubError when Kafka or the registry does not answer.
        """
        log.info("view %s: planned again for schema id %d of topic %s", self._table, schema_id, topic)
        until = self._cluster.end_offsets(self.topics)  # must be read before the registry is asked
        self._answered = SchemaAnswers(self._registry.ids(), until)
        self._looked_up.add(schema_id)
        if schema_id not in self._answered.ids:
            self._unknown.refuse(schema_id, self._answered.ids, time.monotonic())
            self._ask_again_at_s = time.monotonic() + ASK_AGAIN_S

    def appeared(self) -> bool:
        """Return True if the registry now has an id that this view refuses. The next plan reads
        its events."""
        if not self._unknown or time.monotonic() < self._ask_again_at_s:
            return False
        self._ask_again_at_s = time.monotonic() + ASK_AGAIN_S
        try:
            until = self._cluster.end_offsets(self.topics)
            known = self._registry.ids()
        except HubError:
            return False
        found = self._unknown.appeared(known)
        if not found:
            return False
        log.info(
            "view %s: planned again for schema ids %s, which were unknown before",
            self._table,
            sorted(found)[:20],
        )
        self._answered = SchemaAnswers(known, until)
        self._looked_up |= found
        return True
