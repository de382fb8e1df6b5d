"""[edge] FastAPI: ``/api/alerts``, silences, rules, and channel tests. Reads come from memory."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import orjson
from fastapi import APIRouter, Body, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from hub.alerts.alerts_json import body_of, rules_of, silence_row, silences_of
from hub.alerts.model.alert_state import Silence
from hub.alerts.model.listing import ListedAlert
from hub.alerts.model.matching import Matchers, matchers_of
from hub.alerts.model.state_machine import MOST_ALERTS
from hub.alerts.snapshot import AlertSnapshot
from hub.caller import done_by
from hub.errors import CallerError
from hub.times import epoch_ms, parse_iso
from hub.topics.tree.tree_file import duration_ms

MOST_LABELS = 20


class HasAlertManager(Protocol):
    def snapshot(self) -> AlertSnapshot: ...

    def silence(self, matchers: Matchers, reason: str, by: str, ends_ms: int) -> Silence: ...

    def unsilence(self, id: str) -> Silence: ...

    def test(self, channel: str) -> None: ...


class SilenceBody(BaseModel, extra="forbid"):
    """``matchers``: label to value, or to several; ``topic`` and ``node`` take patterns of the tree. It ends
    after ``for``
    (2h, 1d) or ``until`` (ISO 8601)."""

    matchers: dict[str, str | list[str]] = Field(min_length=1, max_length=MOST_LABELS)
    reason: str = Field(min_length=1, max_length=1_000)
    by: str = Field("", max_length=200)
    lasts: str | None = Field(None, alias="for", max_length=20)
    until: str | None = Field(None, max_length=40)


def create_router(manager: HasAlertManager) -> APIRouter:
    """Build the routes for a running alert manager."""
    router = APIRouter(tags=["alerts"])

    @router.get("/api/alerts")
    def alerts(
        state: Annotated[
            Literal["firing", "pending"] | None, Query(description="Only what fires, or is pending.")
        ] = None,
        severity: Annotated[str | None, Query(description="page, warning or info.")] = None,
        owner: Annotated[str | None, Query(description="Only objects of this owner.")] = None,
        name: Annotated[str | None, Query(description="Only of this rule.")] = None,
        silenced: Annotated[bool | None, Query(description="Only silenced ones, or only the others.")] = None,
        limit: Annotated[
            int, Query(ge=1, description="Most open alerts to return, the worst first.")
        ] = MOST_ALERTS,
    ) -> Response:
        """List firing, pending and past alerts, silences, rules and channels. ``firing`` is null while
        nothing is watched.
        """

        def fits(each: ListedAlert) -> bool:
            return (
                state in (None, each.alert.phase)
                and severity in (None, each.severity)
                and owner in (None, each.owner)
                and name in (None, each.alert.rule)
                and silenced in (None, each.silence is not None)
            )

        return _json(body_of(manager.snapshot(), fits, limit))

    @router.get("/api/alerts/rules")
    def rules() -> Response:
        """Every rule: how many objects it looks at, and how many are good, bad or unknown."""
        return _json(rules_of(manager.snapshot()))

    add_silences(router, manager)

    @router.post("/api/alerts/channels/{channel}/test")
    def test(channel: str) -> Response:
        """Send one test notification over a channel, and return the result."""
        manager.test(channel)
        return _json({"channel": channel, "sent": True})

    return router


def add_silences(router: APIRouter, manager: HasAlertManager) -> None:
    """Add the routes that list, create and end silences."""

    @router.get("/api/alerts/silences")
    def silences() -> Response:
        """Silences: those that hold first."""
        return _json(silences_of(manager.snapshot()))

    @router.post("/api/alerts/silences", status_code=201)
    def silence(body: Annotated[SilenceBody, Body()]) -> Response:
        """Suppress notifications of alerts with these labels until the silence ends."""
        now_ms = epoch_ms()
        made = manager.silence(
            matchers_of(body.matchers), body.reason, done_by(body.by), end_of(body.lasts, body.until, now_ms)
        )
        return _json(silence_row(made, max(now_ms, made.starts_ms)), 201)  # the silence starts a moment later

    @router.delete("/api/alerts/silences/{id}")
    def unsilence(id: str) -> Response:
        """End a silence now."""
        return _json(silence_row(manager.unsilence(id), epoch_ms()))


def end_of(lasts: str | None, until: str | None, now_ms: int) -> int:
    """Return the end of a silence (epoch ms). Raises CallerError."""
    if (lasts is None) == (until is None):
        raise CallerError("a silence needs its end", hint="say how long (2h, 1d), or until when")
    try:
        if lasts is not None:
            return now_ms + duration_ms(lasts.strip())
        return parse_iso(until or "")
    except (ValueError, OverflowError):
        end = lasts if lasts is not None else until
        raise CallerError(
            f'"{end}" is not the end of a silence', hint="2h, 1d, or a time such as 2026-01-31T12:00:00Z"
        ) from None


def _json(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
