"""[core] The quotas that access.yaml may set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Quota(StrEnum):
    """A quota by its key in access.yaml."""

    events_in = "events_in_per_s"
    bytes_in = "bytes_in_per_s"
    queries = "queries_per_s"
    sql_seconds = "sql_seconds_per_min"
    registrations = "registrations_per_min"
    subscriptions = "subscriptions"
    connections = "connections"
    kafka_bytes_out = "kafka_bytes_out_per_s"
    kafka_requests = "kafka_request_percentage"

    __hash__ = str.__hash__  # that of Enum is computed in Python, and quotas are keys of dictionaries


@dataclass(frozen=True, slots=True)
class QuotaKind:
    """``unit``: plural noun of the counted things. ``window_s``: seconds in which the limit may be used;
    None: the limit counts what is open at the same time.
    """

    unit: str
    window_s: float | None = None

    @property
    def per(self) -> str:
        return {None: " at once", 1.0: " per second", 60.0: " per minute"}[self.window_s]


KINDS: Final[Mapping[Quota, QuotaKind]] = {
    Quota.events_in: QuotaKind("events", 1.0),
    Quota.bytes_in: QuotaKind("bytes", 1.0),
    Quota.queries: QuotaKind("queries", 1.0),
    Quota.sql_seconds: QuotaKind("seconds of SQL", 60.0),
    Quota.registrations: QuotaKind("schema registrations", 60.0),
    Quota.subscriptions: QuotaKind("subscriptions"),
    Quota.connections: QuotaKind("connections"),
    Quota.kafka_bytes_out: QuotaKind("bytes", 1.0),
    Quota.kafka_requests: QuotaKind("percent of a broker's time", 1.0),
}
# The others are quotas of Kafka, for clients that connect to it directly.
OF_THE_SERVER: Final = tuple(each for each in Quota if not each.startswith("kafka_"))


def limit_text(quota: Quota, limit: float) -> str:
    """Describe a limit.

    >>> limit_text(Quota.sql_seconds, 30.0), limit_text(Quota.connections, 20)
    ('30 seconds of SQL per minute', '20 connections at once')
    """
    kind = KINDS[quota]
    return f"{limit:g} {kind.unit}{kind.per}" if limit < 1e6 else f"{limit:.0f} {kind.unit}{kind.per}"
