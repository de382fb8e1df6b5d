"""[core] Values that a request names: caller, context, subjects, ids."""

from __future__ import annotations

from collections.abc import Callable

from hub.caller import CALLER
from hub.schema_registry.http.asgi import HttpCall
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import HIGHEST_ID
from hub.schema_registry.registry.rulebook import PolicyCaller
from hub.schema_registry.registry.state_machine import RequestRefused


def caller_of(call: HttpCall) -> PolicyCaller:
    """Return who registers: the authenticated user, with their groups as teams.

    Without access control, the headers of the proxy: ``Hub-Principal`` and ``Hub-Teams`` (separated by
    commas).
    """
    asks = CALLER.get()
    if asks is not None:
        return PolicyCaller(f"User:{asks.name}" if asks.name else "", asks.groups)
    principal = call.headers.get(b"hub-principal", b"").decode("utf-8", "replace")
    teams = call.headers.get(b"hub-teams", b"").decode("utf-8", "replace")
    return PolicyCaller(principal, frozenset(each.strip() for each in teams.split(",") if each.strip()))


def in_context(call: HttpCall) -> None:
    """Rewrite a call below ``/contexts/{ctx}`` as Confluent's filter does: subject ``s`` becomes
    ``:.ctx:s``.
    """
    if len(call.segments) < 3 or call.segments[0] != "contexts":
        return
    context = names.context_named(call.segments[1])
    call.segments = call.segments[2:]
    around = f":{context}:"

    def inside(name: str) -> str:
        return name if name.startswith((":.", names.EVERY_CONTEXT)) else around + name

    match call.segments:
        case ["config" | "mode"]:
            call.segments.append(around)
        case ["config" | "mode" | "subjects", name, *_]:
            call.segments[1] = inside(name)
        case ["compatibility", "subjects", name, *_]:
            call.segments[2] = inside(name)
        case ["schemas", "ids", *_]:
            call.query["subject"] = [inside(call.text("subject"))]
        case ["schemas" | "subjects"]:
            call.query["subjectPrefix"] = [inside(each) for each in call.query.get("subjectPrefix", [""])]


def place_in(call: HttpCall) -> str | None:
    """Return the subject or context of a path; None for the default context."""
    return call.params[0] if call.params else None


def is_named(subject: str | None) -> bool:
    """Return True if ``subject`` names a subject, not only a context."""
    return subject is not None and bool(names.split(subject)[1])


def schema_id_of(text: str) -> int:
    """Parse a schema id. Raises RequestRefused 404 for an impossible one, as for an unknown path."""
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > HIGHEST_ID:
        raise RequestRefused(404, 404, "HTTP 404 Not Found")
    return int(text)


def wanted(call: HttpCall) -> Callable[[str], bool]:
    """Return a filter of subjects by the request's prefixes; ``:*:``, the default, matches every context."""
    prefixes = call.query.get("subjectPrefix", [names.EVERY_CONTEXT])

    def begins(subject: str, prefix: str) -> bool:
        if prefix.startswith(names.EVERY_CONTEXT):
            return names.split(subject)[1].startswith(prefix[len(names.EVERY_CONTEXT) :])
        if prefix.startswith(":."):
            context, name = names.split(prefix)
            return names.context_of(subject) == context and names.split(subject)[1].startswith(name)
        return subject.startswith(prefix)

    return lambda subject: any(begins(subject, prefix) for prefix in prefixes)
