"""[core] Canaries and mirrors with record filters (``only``): choose headers that pass, and find filters that
none can pass.

A canary is one record for all mirrors of its topic. It gets the headers that the filters require, as far as
they are compatible; its value is fixed and has no fields that a filter may require. A route that no canary
can pass is reported as such, because a filtered canary would look like a loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hub.completeness.canary.probes import SCHEMA
from hub.replication.config.mirrors import RecordCondition

HEADER = "hub.canary"
_ANY = "canary"
_OWN_FIELDS: Mapping[str, tuple[type, ...]] = {
    field["name"]: (str,) if field["type"] == "string" else (int, float) for field in SCHEMA["fields"]
}


@dataclass(frozen=True, slots=True)
class CanaryHeaders:
    """Result of ``fitted``: the ``headers`` of canaries; ``closed`` maps each impassable mirror to the
    reason.
    """

    headers: tuple[tuple[str, bytes], ...]
    closed: Mapping[str, str]


def fitted(filters: Mapping[str, Sequence[RecordCondition]]) -> CanaryHeaders:
    """Choose headers that satisfy the filters of all mirrors. ``filters`` holds each mirror's conditions, all
    of which must hold. Mirrors are processed by name, so the result is deterministic.
    """
    conditions: dict[str, list[RecordCondition]] = {}
    values: dict[str, str | None] = {}
    closed: dict[str, str] = {}
    for mirror, rules in sorted(filters.items()):
        why = next((f"its filter lets no canary through: {rule}" for rule in rules if _never(rule)), None)
        wanted: dict[str, list[RecordCondition]] = {}
        for rule in rules:
            if rule.header is not None:
                wanted.setdefault(rule.header, []).append(rule)
        chosen: dict[str, str | None] = {}
        for header, own in wanted.items() if why is None else ():
            others = conditions.get(header, [])
            found = _value([*others, *own])
            if found is _NOTHING:
                why = f"no canary passes its filter ({own[0]})" + (
                    " and those of other mirrors together" if others else ""
                )
                break
            chosen[header] = found
        if why is not None:
            closed[mirror] = why
            continue
        values |= chosen
        for header, own in wanted.items():
            conditions.setdefault(header, []).extend(own)
    headers = tuple((name, value.encode()) for name, value in sorted(values.items()) if value is not None)
    return CanaryHeaders(headers, closed)


_NOTHING = "\0"


def _value(rules: Sequence[RecordCondition]) -> str | None:
    """Return a header value that all conditions accept, None to omit the header, ``_NOTHING`` if there is
    none.
    """
    listed = (each for rule in rules for each in rule.in_ or () if isinstance(each, str))
    for candidate in (None, _ANY, *listed):
        if all(rule.accepts([candidate]) for rule in rules):
            return candidate
    return _NOTHING


def _never(rule: RecordCondition) -> bool:
    """Return True for a condition on the canary's own header or fields, or on a field that it does not have,
    that no canary meets.
    """
    if rule.header is not None:
        return rule.header == HEADER
    kind = _OWN_FIELDS.get(rule.field or "")
    if kind is None:
        return not rule.accepts([None])
    # The canary's own fields vary: only values of another type are guaranteed to differ from all of them.
    listed = rule.in_ or rule.not_in or ()
    return rule.in_ is not None or any(
        isinstance(each, kind) for each in listed if not isinstance(each, bool)
    )
