"""[shell] The log ``_hub.access_requests``."""

from __future__ import annotations

from typing import Final

from hub.access_requests.model import AccessRequest
from hub.access_requests.records import REQUESTS_TOPIC, record_of, stored_request
from hub.approvals.decided_log import DecidedLog, DecidedTopic
from hub.log import Log

RequestLog = DecidedLog[AccessRequest]
_TOPIC: Final = DecidedTopic(
    REQUESTS_TOPIC, "hub.access_requests", "requests for access", "HUB-3831", record_of, stored_request
)


def request_log(cluster: Log, replication_factor: int) -> RequestLog:
    """Return the log of all requests for access of a cluster."""
    return DecidedLog(_TOPIC, cluster, replication_factor)
