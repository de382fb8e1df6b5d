"""[core] Counts of webhooks' requests, by webhook and outcome."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Literal

from prometheus_client.core import CounterMetricFamily

Outcome = Literal["written", "repeated", "refused", "not signed"]


class WebhookCounts:
    """Counts since the server's start. Thread safe."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Outcome]] = Counter()
        self._lock = threading.Lock()

    def count(self, webhook: str, outcome: Outcome) -> None:
        with self._lock:
            self._counts[webhook, outcome] += 1

    def families(self) -> list[CounterMetricFamily]:
        """Return the counts for ``/metrics``."""
        family = CounterMetricFamily(
            "hub_webhook_requests", "requests to webhooks, by outcome", labels=["webhook", "outcome"]
        )
        with self._lock:
            for (webhook, outcome), count in sorted(self._counts.items()):
                family.add_metric([webhook, outcome], count)
        return [family]
