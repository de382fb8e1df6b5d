"""[core] HTTP status of an error, the same for JSON, pages and refused requests."""

from __future__ import annotations

from hub.caller import Forbidden, TooMany, Unauthenticated
from hub.errors import CallerError, Conflict, Gone, HubError, NotFound, PeerError
from hub.hosts import UnknownHost
from hub.masking.shape import MaskRefused
from hub.schema_registry.contracts.rules import RuleRefused
from hub.schema_registry.registry.errors import RequestRefused

# The first match applies; any other error is an internal one.
_STATUS_OF: tuple[tuple[type[HubError], int], ...] = (
    (Unauthenticated, 401),
    (Forbidden, 403),
    (MaskRefused, 403),
    (TooMany, 429),
    (UnknownHost, 421),
    (NotFound, 404),
    (Gone, 410),
    (Conflict, 409),
    (RuleRefused, 422),
    (CallerError, 400),
    (PeerError, 503),
)


def status_of(error: HubError) -> int:
    """Return the HTTP status of an error; 500 for a fault of the hub itself.

    >>> status_of(NotFound('topic "a" does not exist')), status_of(PeerError("Kafka does not answer"))
    (404, 503)
    """
    if isinstance(error, RequestRefused):
        return error.status
    return next((status for kind, status in _STATUS_OF if isinstance(error, kind)), 500)
