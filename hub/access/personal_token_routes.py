"""[edge] FastAPI: make, list and revoke tokens of people."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from hub.access.access_yaml import Name
from hub.access.live_config import LiveAccess
from hub.access.personal_tokens import MOST_DAYS, PersonalToken, PersonalTokens, checked_grants
from hub.access.secrets import TOKEN_BYTES, hash_of_token, token_of
from hub.caller import CALLER, HUB, Action, Caller, Forbidden, may
from hub.errors import CallerError, NotFound

_DAY_S = 86_400


class NewToken(BaseModel, extra="forbid"):
    """A token to make. ``owner``: a user of access.yaml, by default the caller.
    ``grants``: as in access.yaml."""

    name: Name
    owner: str | None = None
    expires_days: Annotated[int, Field(ge=1, le=MOST_DAYS)] = 90
    grants: list[dict[str, object]] = Field(default_factory=list, max_length=100)


def visible(tokens: PersonalTokens) -> list[PersonalToken]:
    """Return the caller's tokens; for admins of the hub those of everybody."""
    caller = _caller()
    return [each for each in tokens.all() if _may_see(caller, each)]


def make(access: LiveAccess, tokens: PersonalTokens, new_token: NewToken) -> tuple[PersonalToken, str]:
    """Make a token. Returns it and its text. Raises CallerError, Forbidden, NotFound, Conflict, PeerError."""
    owner = _owner(_caller(), new_token, access)
    checked_grants(new_token.grants)
    text, now = token_of(secrets.token_bytes(TOKEN_BYTES)), int(time.time())
    ends = now + new_token.expires_days * _DAY_S
    made = PersonalToken(
        secrets.token_hex(6), new_token.name, owner, hash_of_token(text), tuple(new_token.grants), now, ends
    )
    tokens.add(made)
    return made, text


def revoke(tokens: PersonalTokens, id: str) -> PersonalToken:
    """Revoke a token that the caller sees. Raises NotFound, PeerError."""
    found = next((each for each in visible(tokens) if each.id == id), None)
    if found is None:
        raise NotFound(f'there is no token "{id[:40]}"', hint="hub access token ls", code="HUB-1709")
    tokens.revoke(id)
    return found


def create_router(access: LiveAccess, tokens: PersonalTokens) -> APIRouter:
    """Return the routes over the tokens of one home."""
    router = APIRouter(prefix="/api/access/tokens", tags=["access"])

    @router.get("")
    def list_tokens() -> list[dict[str, object]]:
        """List the caller's tokens; for admins of the hub those of everybody."""
        return [_shown(each) for each in visible(tokens)]

    @router.post("")
    def make_token(new_token: NewToken) -> dict[str, object]:
        """Make a token. The answer has its text, this once."""
        made, text = make(access, tokens, new_token)
        return {**_shown(made), "token": text}

    @router.delete("/{id}")
    def revoke_token(id: str) -> dict[str, object]:
        """Revoke a token: it ends at once, with its open streams."""
        return _shown(revoke(tokens, id))

    return router


def _caller() -> Caller:
    caller = CALLER.get()
    if caller is None:
        raise CallerError(
            "access is not controlled here, so tokens mean nothing",
            hint="write access.yaml first (docs/tutorials/closed-in-ten-minutes.md)",
            code="HUB-1707",
        )
    return caller


def _owner(caller: Caller, new_token: NewToken, access: LiveAccess) -> str:
    """Return who will own the token. Raises Forbidden, NotFound."""
    owner = new_token.owner or caller.name
    if not (caller.for_others or (caller.is_person and owner == caller.name)):
        raise Forbidden(
            "a token is made by its owner, who has signed in with a password or by the identity provider",
            hint="sign in as a user of access.yaml, or run the command on the hub's own machine with --owner",
        )
    if access.rules is None or owner not in access.rules.file.users:
        raise NotFound(
            f'"{owner[:100]}" is not a user of access.yaml, so a token of theirs would have no grants',
            hint="name one with --owner; hub access ls lists them",
            code="HUB-1714",
        )
    return owner


def _may_see(caller: Caller, token: PersonalToken) -> bool:
    own = caller.is_person and token.owner == caller.name
    return own or caller.for_others or may(Action.admin, HUB)


def _shown(token: PersonalToken) -> dict[str, object]:
    return {name: value for name, value in asdict(token).items() if name != "hash"}
