"""[shell] Use against limits at this server: for the page, its JSON and the metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric

from hub.access.live_config import LiveAccess
from hub.caller import CALLER, HUB, Action, may
from hub.quotas.policy import NO_QUOTAS, QuotaPolicy
from hub.quotas.usage import UsagePage, families, usage_page, usage_rows


@dataclass(frozen=True, slots=True)
class ServerUsage:
    """Use since the server's start, and the limits of the current access.yaml."""

    access: LiveAccess

    def page(self) -> UsagePage:
        """Return everybody's rows to callers who may read the hub; to others their own."""
        rows = usage_rows(self.access.ledger, self._policy, time.monotonic())
        caller, whole = CALLER.get(), may(Action.read, HUB)
        if not whole and caller is not None:
            rows = [each for each in rows if each.kind in ("user", "token") and each.name == caller.name]
        return usage_page(rows, self._policy, whole=whole)

    def families(self) -> Iterator[Metric]:
        return families(self.access.ledger, self._policy)

    @property
    def _policy(self) -> QuotaPolicy:
        return NO_QUOTAS if self.access.rules is None else self.access.rules.quotas
