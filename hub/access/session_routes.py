"""[edge] FastAPI: list and end sessions of people."""

from __future__ import annotations

import time
from collections.abc import Mapping

from fastapi import APIRouter

from hub.access.open_sessions import OpenSession, OpenSessions
from hub.access.signed_out_sessions import EndedSessions
from hub.caller import CALLER, HUB, Action, may
from hub.errors import NotFound, PeerError


def visible_sessions(sessions: OpenSessions, ended: EndedSessions) -> list[OpenSession]:
    """Return the caller's open sessions; for admins of the hub those of everybody. Raises PeerError."""
    caller = CALLER.get()
    if caller is None:
        return []
    try:
        open_sessions = sessions.all(time.time())
    except OSError as error:
        raise PeerError(f"the list of sessions cannot be read: {error.strerror}", code="HUB-3077") from None
    everybody = caller.for_others or may(Action.admin, HUB)
    return [
        each
        for each in open_sessions
        if (everybody or (caller.is_person and each.name == caller.name)) and not ended.has_mark(each.mark)
    ]


def end_session(sessions: OpenSessions, ended: EndedSessions, id: str) -> OpenSession:
    """End a session that the caller sees, at once and on all servers of the home.
    Raises NotFound, PeerError."""
    open_session = next((each for each in visible_sessions(sessions, ended) if each.id == id), None)
    if open_session is None:
        raise NotFound(f'there is no session "{id[:40]}"', hint="hub access session ls", code="HUB-1717")
    try:
        ended.end_mark(open_session.mark, open_session.ends_at_s, time.time())
    except OSError as error:
        raise PeerError(
            f"the session is over on this server only: {error.strerror}",
            hint="the hub's home cannot be written; end it again when it can",
            code="HUB-3073",
        ) from None
    return open_session


def create_router(sessions: OpenSessions, ended: EndedSessions) -> APIRouter:
    """Return the routes over the sessions of one home."""
    router = APIRouter(prefix="/api/access/sessions", tags=["access"])

    @router.get("")
    def list_sessions() -> list[Mapping[str, object]]:
        """List the caller's sessions; for admins of the hub those of everybody."""
        return [_shown(each) for each in visible_sessions(sessions, ended)]

    @router.delete("/{id}")
    def revoke_session(id: str) -> Mapping[str, object]:
        """End a session at once, with its open streams."""
        return _shown(end_session(sessions, ended, id))

    return router


def _shown(session: OpenSession) -> Mapping[str, object]:
    return {
        "id": session.id,
        "name": session.name,
        "way": session.way,
        "address": session.address,
        "started_at_s": session.started_at_s,
        "ends_at_s": session.ends_at_s,
    }
