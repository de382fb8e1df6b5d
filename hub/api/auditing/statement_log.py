"""[shell] Sign-ins and statements of Postgres' protocol in the access log: hub.pgwire's StatementLog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hub.access.authenticate import AuthenticatedCaller, AuthRequest
from hub.access.live_config import AccessRules
from hub.access_log.request import NOTES
from hub.api.auditing.request_log import NOBODY, LoggedRequest, RequestLog, noting
from hub.caller import Caller
from hub.errors import HubError
from hub.observability.web.http_status import status_of

_METHOD = "POSTGRES"


class DatabaseLog:
    """Log of the connections of a server."""

    def __init__(self, owner: RequestLog) -> None:
        self._owner = owner

    def signed_in(self, authenticated_caller: AuthenticatedCaller, auth_request: AuthRequest) -> None:
        for entry in self._request(authenticated_caller, auth_request).uses():
            self._owner.log.note(entry)

    def refused(self, auth_request: AuthRequest, error: HubError) -> None:
        self._request(NOBODY, auth_request).refused(error, status_of(error))

    def caller(self, caller: Caller, rules: AccessRules) -> Caller:
        return noting(caller, rules)

    @contextmanager
    def statement(
        self, authenticated_caller: AuthenticatedCaller, auth_request: AuthRequest
    ) -> Iterator[None]:
        logged = self._request(authenticated_caller, auth_request)
        before = NOTES.set(logged.notes)
        status = 500
        try:
            yield
            status = 200
        except HubError as error:
            status = status_of(error)
            raise
        finally:
            NOTES.reset(before)
            logged.answered(status)

    def _request(self, authenticated_caller: AuthenticatedCaller, auth_request: AuthRequest) -> LoggedRequest:
        return LoggedRequest(self._owner, None, "hub", "", "", _METHOD, authenticated_caller, auth_request)


def database_log(log: RequestLog | None) -> DatabaseLog | None:
    """Return the log of connections over a server's log; None without one."""
    return None if log is None else DatabaseLog(log)
