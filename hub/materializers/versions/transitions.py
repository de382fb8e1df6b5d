"""[core] State machine of a view's versions: a changed view is built, compared with the served one, and
swapped in.

::

             opened                 caught up           compared, and nothing against it
    (none) ──────────▶ served   building ──────▶ ready ──────▶ served ──▶ former ──▶ (dropped)
                          ▲  changed │                            ▲  swapped │  kept for a while
                          └──────────┴── a new number each        └──────────┘  rolled back

Invariants for any order of events: exactly one version is served; at most one is building or ready, and at
most one is former; a number is never reused; only a version that a store has in full becomes the served one.
``decide`` is the whole machine: a state and an event give the next state, which is written to the log as one
record (``versions:<view>`` of ``_hub.progress``). So a swap is one record, atomic; the state determines which
versions run and which are removed.

An event may be repeated (a process died between acting and writing): it then changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from hub.materializers.versions.versions import (
    ERASE,
    RECOMPUTE,
    CommandReceived,
    ComputationKept,
    DefinitionChanged,
    Event,
    SwapPolicy,
    TimePassed,
    Version,
    VersionCaughtUp,
    VersionCompared,
    VersionDefinition,
    VersionLost,
    VersionOpened,
    VersionRemoved,
    Versions,
)


def decide(state: Versions | None, event: Event, view: str, now_ms: int) -> Versions | None:
    """Return the next state; the same object when nothing changes. None: there is none yet."""
    if isinstance(event, VersionOpened):
        if state is not None:
            return state
        first = Version(event.number, True, "served", event.definition, "first", now_ms)
        return Versions(view, (first,), event.definition.text, event.number)
    if state is None:
        return None
    match event:
        case ComputationKept():
            return _keep_computation(state, event.number, event.definition, event.why)
        case DefinitionChanged():
            return _changed(state, event, now_ms)
        case VersionLost():
            return _lost(state, event.number, event.why, now_ms)
        case VersionCaughtUp():
            return _caught_up(state, event, now_ms)
        case VersionCompared():
            return _compared(state, event, now_ms)
        case CommandReceived():
            return _apply_command(state, event, now_ms)
        case TimePassed():
            former = state.former
            over = former is not None and former.until_ms is not None and former.until_ms <= now_ms
            state = _without(state, former.number) if former is not None and over else state
            return _recompute(state, now_ms) if is_recompute_due(state, now_ms) else state
        case VersionRemoved():
            left = tuple(each for each in state.dropping if each != event.suffix)
            return state if left == state.dropping else replace(state, dropping=left)
        case _:
            assert_never(event)


def is_recompute_due(state: Versions, now_ms: int) -> bool:
    """Return whether a recomputation check is due: ``recompute_ms`` after the last one or last swap."""
    policy, served = state.served.definition.policy, state.served
    if (
        policy.recompute_ms is None
        or not policy.compares
        or state.coming is not None
        or served.lost is not None
    ):
        return False
    last_ms = int((state.recomputed or {}).get("at_ms", 0))
    return now_ms - max(last_ms, served.since_ms) >= policy.recompute_ms


def _recompute(state: Versions, now_ms: int) -> Versions:
    return replace(_build(state, state.served.definition, RECOMPUTE, now_ms), judged=state.judged)


def _put(state: Versions, version: Version) -> Versions:
    others = [each for each in state.versions if each.number != version.number]
    ordered = tuple(sorted([*others, version], key=lambda each: each.number))
    return state if ordered == state.versions else replace(state, versions=ordered)


def _without(state: Versions, number: int) -> Versions:
    gone = state.number(number)
    if gone is None:
        return state
    left = tuple(each for each in state.versions if each.number != number)
    return replace(state, versions=left, dropping=(*state.dropping, gone.suffix))


def _keep_computation(
    state: Versions, number: int, definition: VersionDefinition, why: str | None = None
) -> Versions:
    version = state.number(number)
    if version is None:
        return state
    versions = _put(state, replace(version, definition=definition, why=why or version.why))
    return versions if versions.judged == definition.text else replace(versions, judged=definition.text)


def _build(state: Versions, definition: VersionDefinition, why: str, now_ms: int) -> Versions:
    """Start a new version from the start of the log; one that is building or ready is dropped."""
    if state.coming is not None:
        state = _without(state, state.coming.number)
    number = state.last + 1
    version = Version(number, False, "building", definition, why, now_ms)
    return replace(_put(state, version), last=number, judged=definition.text)


def _changed(state: Versions, event: DefinitionChanged, now_ms: int) -> Versions:
    definition = event.definition
    if not event.by_file and definition.fingerprint in state.refused:
        return state  # it was built, and a user rejected it
    judged = definition.text if event.by_file else state.judged
    refused = () if event.by_file else state.refused
    versions = _changed_to(state, definition, event.why, now_ms)
    return (
        versions
        if (versions.judged, versions.refused) == (judged, refused)
        else replace(versions, judged=judged, refused=refused)
    )


def _changed_to(state: Versions, definition: VersionDefinition, why: str, now_ms: int) -> Versions:
    same = [
        each
        for each in state.versions
        if each.definition.fingerprint == definition.fingerprint and each.lost is None
    ]
    if not same:
        return _build(state, definition, why, now_ms)
    # The change was reverted, or made earlier: that version exists already.
    version = next((each for each in same if each.state == "served"), same[-1])
    state = _keep_computation(state, version.number, definition)
    version = replace(version, definition=definition)
    if version.state in ("building", "ready"):
        return state
    if state.coming is not None:
        state = _without(state, state.coming.number)
    return _swap(state, version, now_ms) if version.state == "former" else state


def _lost(state: Versions, number: int, why: str, now_ms: int) -> Versions:
    version = state.number(number)
    if version is None or version.lost is not None:
        return state
    if version.state == "former" or version.why == RECOMPUTE:
        return _without(state, number)
    if version.state in ("building", "ready"):
        again = ERASE if version.why == ERASE else why
        return replace(_build(state, version.definition, again, now_ms), judged=state.judged)
    state = _put(state, replace(version, lost=why))
    if state.coming is not None:
        return state
    return replace(_build(state, version.definition, why, now_ms), judged=state.judged)


def _caught_up(state: Versions, event: VersionCaughtUp, now_ms: int) -> Versions:
    version = state.number(event.number)
    if version is None or version.state != "building":
        return state
    policy = version.definition.policy
    ready = replace(version, state="ready", at=str(event.at), since_ms=now_ms)
    if version.why == ERASE:
        return _swap(_put(state, ready), ready, now_ms)
    if policy.compares or version.why == RECOMPUTE:
        return _put(state, ready)
    if policy.manual:
        return _put(state, replace(ready, held="swap: manual"))
    return _swap(_put(state, ready), ready, now_ms)


def _compared(state: Versions, event: VersionCompared, now_ms: int) -> Versions:
    version = state.number(event.number)
    if version is None or version.state != "ready" or version.comparison is not None:
        return state
    if version.why == RECOMPUTE:
        return replace(_without(state, version.number), recomputed=_opinion(version, event.report, now_ms))
    against = broken(version.definition.policy, event.report)
    held = "swap: manual" if version.definition.policy.manual else against
    version = replace(version, comparison=event.report, held=held)
    state = _put(state, version)
    return state if held is not None else _swap(state, version, now_ms)


def _opinion(version: Version, report: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the result of a recomputation check: whether the served rows equal those of the sources now."""
    found = sum(int(report.get(name, 0)) for name in ("only_before", "only_after", "differing"))
    if "error" in report:
        state, why = "UNKNOWN", f"the comparison failed: {report['error']}"
    elif not found:
        state, why = "MATCHES", ""
    elif not report.get("same_positions"):
        state, why = "UNKNOWN", "the two were never equally far, so differences may be news"
    else:
        state = "DIFFERS"
        why = (
            f"{report['differing']} rows are others, {report['only_after']} are new, "
            f"{report['only_before']} are gone, when "
            "they are computed again from the sources"
        )
    return {"state": state, "reason": why or None, "at_ms": now_ms, "at": version.at, "report": dict(report)}


def broken(policy: SwapPolicy, report: Mapping[str, Any]) -> str | None:
    """Return which expectation a comparison breaks; None if it meets all."""
    if "error" in report:
        return f"the comparison failed: {report['error']}"
    before, after = int(report.get("rows_before", 0)), int(report.get("rows_after", 0))
    if policy.rows_within is not None and abs(after - before) > policy.rows_within * before:
        return f"{after} rows, {before} before: more than {policy.rows_within:.0%} apart"
    by_column: Mapping[str, int] = report.get("differing_by_column", {})
    columns: list[str] = list(report.get("columns", ()))
    for name in policy.same:
        if name not in columns:
            return f'column "{name}" is not in both'
        if by_column.get(name, 0):
            return f'column "{name}" differs in {by_column[name]} rows'
    return None


def _swap(state: Versions, version: Version, now_ms: int) -> Versions:
    """Serve ``version``; keep the served one for a rollback, and drop an earlier former one."""
    if state.former is not None and state.former.number != version.number:
        state = _without(state, state.former.number)
    before = state.served
    if before.number == version.number:
        return state
    if version.why == ERASE:
        # Its rows, and comparisons with them, have the fields of the person.
        state = replace(_without(state, before.number), recomputed=None)
    elif before.lost is not None:
        # Its rows no longer change: a rollback to it is useless.
        state = _without(state, before.number)
    else:
        until = now_ms + version.definition.policy.keep_ms
        state = _put(state, replace(before, state="former", since_ms=now_ms, until_ms=until, held=None))
    return _put(state, replace(version, state="served", since_ms=now_ms, until_ms=None, held=None))


def _apply_command(state: Versions, event: CommandReceived, now_ms: int) -> Versions:
    if state.answered == event.id:
        return state
    done = _carried_out(state, event, now_ms)
    if isinstance(done, str):
        return replace(state, answered=event.id, refusal=done)
    return replace(done, answered=event.id, refusal=None)


def _carried_out(state: Versions, event: CommandReceived, now_ms: int) -> Versions | str:
    """Return the next state, or why the command is refused."""
    coming, former, served = state.coming, state.former, state.served
    if coming is not None and coming.why == RECOMPUTE:
        # A recomputation check blocks no command.
        if event.action == RECOMPUTE:
            return f"version {coming.number} is being computed for that already"
        state, coming = _without(state, coming.number), None
        if event.action == "drop" and event.number is None:
            return state
    match event.action:
        case "apply":
            if coming is not None and coming.state == "building":
                return f"version {coming.number} is still being built"
            if coming is not None and coming.definition.policy.compares and coming.comparison is None:
                return f"version {coming.number} is complete, but the store has not compared it yet"
            if coming is not None:
                return _swap(state, coming, now_ms)
            if former is not None and former.number > served.number:
                return _swap(state, former, now_ms)
            return f"version {served.number} is the newest and is served"
        case "rollback":
            if former is None:
                return "no former version is kept"
            if former.number > served.number:
                return (
                    f"version {served.number} is the former one already: hub view apply brings version "
                    f"{former.number} back"
                )
            if coming is not None:
                state = _without(state, coming.number)
            return _refuse(_swap(state, former, now_ms), served)
        case "drop":
            return _dropped(state, event.number)
        case "recompute":
            if coming is not None:
                return (
                    f"version {coming.number} is being built: it is compared with the served version "
                    "when it is complete"
                )
            if not served.definition.policy.compares:
                return "the store that serves does not have this view, so it cannot be compared"
            return _recompute(state, now_ms)
        case "erase":
            return _erased(state, now_ms)
        case "rewind":
            return replace(_build(state, served.definition, "rewind", now_ms), judged=state.judged)
        case _:
            assert_never(event.action)


def _erased(state: Versions, now_ms: int) -> Versions:
    """Return the state with a version that is built to erase; the former one is dropped at once."""
    if state.former is not None:
        state = _without(state, state.former.number)
    return replace(_build(state, state.served.definition, ERASE, now_ms), judged=state.judged)


def _dropped(state: Versions, number: int | None) -> Versions | str:
    """Return the state without a version (None: the coming one, else the former one), or why it stays."""
    wanted = state.number(number) if number is not None else (state.coming or state.former)
    if wanted is None:
        return f"version {number} does not exist" if number else "no version other than the served one"
    if wanted.state == "served":
        return f"version {wanted.number} is served: roll back or apply another one first"
    return _refuse(_without(state, wanted.number), wanted)


def _refuse(state: Versions, version: Version) -> Versions:
    return replace(
        state, refused=tuple(dict.fromkeys((*state.refused, version.definition.fingerprint)))[-16:]
    )
