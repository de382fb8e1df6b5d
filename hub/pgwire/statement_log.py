"""[core] Port to the access log: sign-ins and statements of connections. The server implements it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from hub.access.authenticate import AuthenticatedCaller, AuthRequest
from hub.access.live_config import AccessRules
from hub.caller import Caller
from hub.errors import HubError


class StatementLog(Protocol):
    """Logs what happens on connections. ``request``: the credentials of the connection."""

    def signed_in(self, authenticated_caller: AuthenticatedCaller, request: AuthRequest) -> None: ...

    def refused(self, request: AuthRequest, error: HubError) -> None: ...

    def caller(self, caller: Caller, rules: AccessRules) -> Caller:
        """Return the caller, who notes the masked objects that it reads."""

    def statement(
        self, authenticated_caller: AuthenticatedCaller, request: AuthRequest
    ) -> AbstractContextManager[None]:
        """Log the statement that runs within, with its result."""


# Of the current connection.
STATEMENT: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "pgwire_statement", default=nullcontext
)
