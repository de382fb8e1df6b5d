"""[edge] FastAPI: explain how a user sees a view or topic."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from hub.access.decide import ANONYMOUS, Principal, granted_as
from hub.access.live_config import AccessRules, LiveAccess
from hub.access.masking.explain import explained
from hub.caller import CALLER, HUB, Action, Kind, Resource, require
from hub.errors import CallerError, NotFound, did_you_mean
from hub.masking.shape import FieldPath


def create_router(access: LiveAccess) -> APIRouter:
    """Return the route over the current access.yaml."""
    router = APIRouter(prefix="/api/access/explain", tags=["access"])

    @router.get("")
    def explain(
        user: Annotated[str, Query(max_length=100)],
        topic: Annotated[str, Query(max_length=249)] = "",
        view: Annotated[str, Query(max_length=249)] = "",
        group: Annotated[list[str] | None, Query()] = None,
    ) -> dict[str, Any]:
        """Explain how a user or token sees a ``topic`` or ``view``, field by field, with the rules.

        Everybody may ask about themselves, admins of the hub about everybody. ``group``: groups that the user
        has at the identity provider."""
        if bool(topic) == bool(view):
            raise CallerError("name one topic or one view", hint="?user=ana&view=customers")
        caller = CALLER.get()
        if caller is not None and caller.name != user:
            require(Action.admin, HUB)
        what = Resource(Kind.view, view) if view else Resource(Kind.topic, topic)
        rules = access.rules
        if rules is None:
            raise CallerError(
                "access is not controlled here: everybody sees everything",
                hint="write access.yaml (docs/how-to/control-access.md)",
                code="HUB-1713",
            )
        who = _principal(rules, user, group or [])
        granted = rules.decide(who, Action.read, what)
        rows = [{"what": "grant", "seen": "yes" if granted.allowed else "no", "why": granted.reason}]
        if granted.allowed:
            rows += explained(rules.shape(who, what), _fields(rules, what))
        return {"user": user, "object": str(what), "sees": rows}

    return router


def _fields(rules: AccessRules, what: Resource) -> list[FieldPath]:
    if not rules.masks.rules:
        return []
    facts, owner = rules.mask_sources.require_facts(), list(granted_as(what))[-1]
    if owner.kind is Kind.view:
        return [(column,) for column in facts.view(owner.name).columns]
    return list(facts.topic(owner.name).fields)


def _principal(rules: AccessRules, name: str, groups: list[str]) -> Principal:
    if name == "anonymous":
        return ANONYMOUS
    token = rules.file.tokens.get(name)
    if token is not None:
        return Principal(name, "token", frozenset(token.groups))
    if name not in rules.file.users and not groups:
        raise NotFound(
            f'user or token "{name[:100]}" does not exist',
            hint=did_you_mean(
                name,
                [*rules.file.users, *rules.file.tokens],
                "one of an identity provider: give the groups, too",
            ),
            code="HUB-1714",
        )
    return rules.oidc_user(name, frozenset(groups)) if groups else rules.user(name)
