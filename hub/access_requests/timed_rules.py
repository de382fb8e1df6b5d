"""[shell] Kafka's access rules of grants with ``until``: added when they begin, removed when they end.

All other rules are left to ``hub access apply``. What to add and to remove follows from access.yaml, the
time and the cluster alone, so nothing is stored: after a kill, or on another server, the same plan is made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from hub.access.kafka_grants import timed_plan
from hub.access.live_config import AccessRules, LiveAccess
from hub.kafka import KafkaCluster

log = logging.getLogger(__name__)

_EVERY_MS = 60_000  # rules of topics that were made since


@dataclass
class TimedRules:
    """Call ``step`` regularly. ``own``: Kafka's user of the hub itself, whose rules are left alone."""

    access: LiveAccess
    cluster: KafkaCluster
    own: str | None
    now_ms: Callable[[], int]
    _done: AccessRules | None = None
    _at_ms: int = 0

    def step(self) -> None:
        """Make the rules of grants with ``until`` like access.yaml. Raises PeerError."""
        rules, now_ms = self.access.rules, self.now_ms()
        if rules is None or not rules.file.ends_ms():
            return
        if rules is self._done and now_ms - self._at_ms < _EVERY_MS:
            return
        existing = self.cluster.all_rules()
        if existing is not None:
            topics = tuple(self.cluster.topics())
            plan = timed_plan(rules.file, now_ms, topics, existing, self.own)
            self.cluster.add_rules(plan.add)
            self.cluster.remove_rules(plan.remove)
            if plan.add or plan.remove:
                log.info(
                    "access rules of Kafka: %d added and %d removed by `until` of access.yaml",
                    len(plan.add),
                    len(plan.remove),
                )
        self._done, self._at_ms = rules, now_ms
