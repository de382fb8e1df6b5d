"""[core] Versions of a view as records of ``_hub.progress``:
their state, commands, and the store's reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from hub.errors import HubFault
from hub.formats.fields import fields_of, known_fields
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.versions.versions import (
    ACTIONS,
    COMPARED,
    PREFIX,
    WANTED,
    CommandReceived,
    SwapPolicy,
    Version,
    VersionDefinition,
    Versions,
)
from hub.record import NewRecord


def state_record(state: Versions) -> NewRecord:
    """Return the record of a state: a swap is one record, so it is atomic."""
    return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{state.view}".encode(), orjson.dumps(body_of(state)))


def body_of(state: Versions) -> dict[str, Any]:
    versions = [
        {**fields_of(each, but=("definition",)), **asdict(each.definition)} for each in state.versions
    ]
    return {**fields_of(state), "served": state.served.number, "versions": versions}


def versions_of(body: Mapping[str, Any]) -> Versions:
    """Read a state. Raises HubFault for a format of another version of the hub."""
    try:
        listed = {name: tuple(body[name]) for name in ("dropping", "refused")}
        versions = tuple(_version(each) for each in body["versions"])
        state: Versions = known_fields(Versions, {**body, **listed, "versions": versions})
        served = [each.number for each in state.versions if each.state == "served"]
        if served != [body["served"]]:
            raise ValueError(f"{len(served)} versions are served")
    except (KeyError, TypeError, ValueError) as error:
        raise HubFault(f"not a record of a view's versions ({error})") from error
    return state


def _version(body: Mapping[str, Any]) -> Version:
    policy = {**body["policy"], "same": tuple(body["policy"]["same"])}
    definition = known_fields(VersionDefinition, {**body, "policy": known_fields(SwapPolicy, policy)})
    return known_fields(Version, {**body, "definition": definition})


def command_of(body: Mapping[str, Any]) -> CommandReceived | None:
    """Return the command of a record; None for one that this hub does not know."""
    if body.get("action") not in ACTIONS or not isinstance(body.get("id"), str):
        return None
    number = body.get("version")
    return CommandReceived(body["id"], body["action"], number if isinstance(number, int) else None)


def wanted_record(view: str, command: CommandReceived) -> NewRecord:
    """Return the record that sends a command."""
    body = {"id": command.id, "action": command.action, "version": command.number}
    return NewRecord(PROGRESS_TOPIC, f"{WANTED}{view}".encode(), orjson.dumps(body))


def compared_record(view: str, number: int, at: str, report: Mapping[str, Any]) -> NewRecord:
    """Return the serving store's report on a ready version."""
    body = {"version": number, "at": at, "report": dict(report)}
    return NewRecord(PROGRESS_TOPIC, f"{COMPARED}{view}".encode(), orjson.dumps(body))
