"""[edge] FastAPI: the versions of a view, and the commands that swap them.

A command is a record of ``_hub.progress``. Only the materializer carries it out; it writes the command's id
and outcome to the view's next ``versions:`` record, which returns through the store. So a caller sends a
command, then polls.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Literal

import anyio.to_thread
import orjson
from fastapi import APIRouter, Response
from pydantic import BaseModel

from hub.caller import sees_view, shows_all
from hub.errors import NotFound, did_you_mean
from hub.log import Log
from hub.materializers.definition.declared import changelog_of, table_of
from hub.materializers.progress.view_states import Newest
from hub.materializers.stores.sql_store import Store
from hub.materializers.versions.version_records import wanted_record
from hub.materializers.versions.versions import PREFIX, CommandReceived

_HIDDEN = ("text", "body", "fingerprint", "plain")


class VersionCommand(BaseModel, extra="forbid"):
    """``drop`` may say which version."""

    action: Literal["apply", "rollback", "drop", "rewind", "recompute"]
    version: int | None = None


def create_router(store: Store, log: Log, newest: Newest = dict) -> APIRouter:
    """Return the routes of one store and its log. ``newest``: see ``hub.materializers.serving.routes``."""
    router = APIRouter(tags=["views"])

    @router.get("/view-versions/{view}")
    def versions(view: str) -> Response:
        """Show all versions of a view with their definitions, and the result of the last command."""
        return _json(view_versions(store, view, newest))

    @router.post("/view-versions/{view}", status_code=202)
    async def command(view: str, body: VersionCommand) -> Response:
        """Request a swap, rollback, drop, rewind or recomputation. The ``id`` of the response appears as
        ``answered`` once it was handled."""
        await anyio.to_thread.run_sync(view_versions, store, view)  # raises NotFound
        received = CommandReceived(uuid.uuid4().hex, body.action, body.version)

        def send() -> None:
            writer = log.writer()
            try:
                writer.append([wanted_record(view, received)])
            finally:
                writer.close()

        await anyio.to_thread.run_sync(send)
        return _json({"id": received.id}, 202)

    return router


def view_versions(store: Store, view: str, newest: Newest = dict) -> dict[str, Any]:
    """Return all versions of a view with their definitions, and the outcome of the last command. Raises
    NotFound.
    """
    records = newest(store.progress())
    body = records.get(f"{PREFIX}{view}")
    if body is None:
        known = sorted(key.removeprefix(PREFIX) for key in records if key.startswith(PREFIX))
        raise NotFound(
            f'view "{view}" has no versions: it does not exist, or has not run yet',
            hint=did_you_mean(view, filter(sees_view, known), "hub view ls lists the views"),
            code="HUB-1410",
        )
    return {
        "view": view,
        "served": body["served"],
        "served_changelog": changelog_of(store.served(view)),
        "judged": body["judged"],
        "answered": body["answered"],
        "refusal": body["refusal"],
        "recomputed": recomputed(records, view),
        "versions": [
            {**shown, "text": each["text"]}
            for shown, each in zip(shown_versions(records, view), body["versions"], strict=True)
        ],
    }


def recomputed(records: Mapping[str, Any], view: str) -> dict[str, Any] | None:
    """Return the last recomputation check; the differing rows only for a caller who may read them."""
    found: Mapping[str, Any] | None = records.get(f"{PREFIX}{view}", {}).get("recomputed")
    if found is None:
        return None
    report = {name: value for name, value in found["report"].items() if name != "samples" or shows_all(view)}
    return {**found, "report": report}


def shown_versions(records: Mapping[str, Any], view: str) -> list[dict[str, Any]]:
    """Return a view's versions for lists. ``records``: the store's progress records by key."""
    body: Mapping[str, Any] = records.get(f"{PREFIX}{view}", {})
    served: Mapping[str, Any] = records.get(f"progress:{view}", {})
    found = []
    for each in body.get("versions", ()):
        table = table_of(view, None if each["plain"] else each["number"])
        beside = "" if each["state"] == "served" else "version."
        name = table if beside else view
        state = records.get(f"{beside}state:{name}", {})
        progress = records.get(f"{beside}progress:{name}", {})
        shown = {name: value for name, value in each.items() if name not in _HIDDEN}
        if each.get("comparison") and not shows_all(view):
            shown["comparison"] = {
                name: value for name, value in each["comparison"].items() if name != "samples"
            }
        found.append(
            {
                **shown,
                "changelog": changelog_of(table),
                "engine": state.get("state"),
                "reason": each["lost"] or state.get("reason"),
                "positions": progress.get("sources", {}),
                "behind": _behind(served.get("sources", {}), progress.get("sources")),
                "swap": "manual" if each["policy"]["manual"] else "auto",
            }
        )
    return found


def _behind(served: Mapping[str, Any], own: Mapping[str, Any] | None) -> int | None:
    """Return how many events of common topics it lacks against the served version; None without a report."""
    if own is None:
        return None
    missing = 0
    for topic in served.keys() & own.keys():
        mine: Mapping[str, int] = own[topic]
        missing += sum(max(0, offset - mine.get(partition, 0)) for partition, offset in served[topic].items())
    return missing


def _json(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
