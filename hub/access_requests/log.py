"""[shell] The log ``_hub.access_requests``: requests as JSON, for its records and for callers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import orjson

from hub.access_requests.model import AccessRequest
from hub.approvals.decided_log import DecidedLog, DecidedTopic
from hub.errors import HubFault
from hub.formats.fields import known_fields
from hub.log import Log
from hub.record import NewRecord, Record

REQUESTS_TOPIC: Final = "_hub.access_requests"


def as_json(request: AccessRequest) -> dict[str, Any]:
    """Return a request as JSON."""
    return {**asdict(request), "settings": dict(request.settings)}


def record_of(request: AccessRequest) -> NewRecord:
    """Return the record that stores a request."""
    return NewRecord(REQUESTS_TOPIC, request.id.encode(), orjson.dumps(as_json(request)), partition=0)


def stored_request(record: Record) -> AccessRequest:
    """Read a record. Raises HubFault (HUB-5704) for one that the hub did not write."""
    try:
        found: AccessRequest = known_fields(AccessRequest, orjson.loads(record.value or b""))
    except (ValueError, TypeError, AttributeError) as error:
        raise HubFault(
            f'topic "{REQUESTS_TOPIC}" offset {record.offset}: the record cannot be read as a request for '
            f"access ({type(error).__name__})",
            hint="find the writer: only the hub may write this topic",
            code="HUB-5704",
        ) from None
    return found


RequestLog = DecidedLog[AccessRequest]
_TOPIC: Final = DecidedTopic(
    REQUESTS_TOPIC, "hub.access_requests", "requests for access", "HUB-3831", record_of, stored_request
)


def request_log(cluster: Log, replication_factor: int) -> RequestLog:
    """Return the log of all requests for access of a cluster."""
    return DecidedLog(_TOPIC, cluster, replication_factor)
