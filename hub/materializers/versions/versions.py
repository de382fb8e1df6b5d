"""[core] Versions of a view: a changed view is built beside the one that serves, compared with it, and swapped in.

::

             opened                 caught up           compared, and nothing against it
    (none) ──────────▶ served   building ──────▶ ready ──────▶ served ──▶ former ──▶ (dropped)
                          ▲  changed │                            ▲  swapped │  kept for a while
                          └──────────┴── a new number each        └──────────┘  rolled back

Laws, whatever comes in which order: exactly one version is served; at most one is on its way and one is former; a
number is never given twice; the served one changes only to one that a store holds whole. ``decide`` is the whole of it:
a state and an event make the next state, which is written to the log as one record (``versions:<view>`` of
``_hub.progress``). So a swap is one record, there or not; what has to run and what has to go is read off the state.

A version may be built as a second opinion: ``recompute`` computes the served one's definition again from the sources, beside it, has the
store compare all rows, keeps what was found (``Versions.recomputed``) and drops it. It is never served.

An event may come again (a process died between doing and noting): it then changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never

import orjson

from hub.errors import HubFault
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.record import NewRecord, Positions

State = Literal["building", "ready", "served", "former"]
Action = Literal["apply", "rollback", "drop", "rewind", "recompute"]
ACTIONS: tuple[Action, ...] = ("apply", "rollback", "drop", "rewind", "recompute")
# Why a version is built that is compared and never served.
RECOMPUTE = "recompute"
PREFIX, WANTED, COMPARED = "versions:", "wanted:", "compared:"


@dataclass(frozen=True, slots=True)
class SwapPolicy:
    """How a version takes over. ``compares``: a store says how it differs first. ``rows_within``: by which share the row
    count may differ; ``same``: columns of which no row may differ. What breaks these waits for ``apply``. ``recompute_ms``: how often
    the view is computed again from its sources and compared; None: when it is asked for."""

    manual: bool = False
    compares: bool = True
    keep_ms: int = 86_400_000
    rows_within: float | None = None
    same: tuple[str, ...] = ()
    recompute_ms: int | None = None


@dataclass(frozen=True, slots=True)
class VersionDefinition:
    """What a version computes. ``text``: the file as it was; ``body``: the checked view as JSON; ``fingerprint``: equal
    for two that can go on from one another's state."""

    text: str
    body: str
    fingerprint: str
    policy: SwapPolicy = SwapPolicy()


@dataclass(frozen=True, slots=True)
class Version:
    """One computation of the view. ``plain``: it lives under the view's own name, the others under name and number.

    ``at``: positions of its changelog; a store that has these has every row. ``lost``: why it cannot go on computing.
    ``until_ms``: a former one is dropped then. ``held``: why a ready one is not swapped in by itself.
    """

    number: int
    plain: bool
    state: State
    definition: VersionDefinition
    why: str
    since_ms: int
    at: str | None = None
    comparison: Mapping[str, Any] | None = None
    held: str | None = None
    lost: str | None = None
    until_ms: int | None = None

    @property
    def suffix(self) -> int | None:
        """Its number where that is part of its names."""
        return None if self.plain else self.number


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions of a view, by number. ``judged``: the file's text that was acted upon last. ``dropping``: suffixes of
    those whose topic, tables and checkpoint have still to be removed. ``refused``: fingerprints that were rolled back or
    dropped: they come again only when the file asks. ``answered``: the last command that was
    carried out or refused (then ``refusal`` says why). ``recomputed``: what the last second opinion found."""

    view: str
    versions: tuple[Version, ...]
    judged: str
    last: int
    dropping: tuple[int | None, ...] = ()
    refused: tuple[str, ...] = ()
    answered: str | None = None
    refusal: str | None = None
    recomputed: Mapping[str, Any] | None = None

    @property
    def served(self) -> Version:
        return next(each for each in self.versions if each.state == "served")

    @property
    def coming(self) -> Version | None:
        """The one that is built or waits."""
        return next((each for each in self.versions if each.state in ("building", "ready")), None)

    @property
    def former(self) -> Version | None:
        return next((each for each in self.versions if each.state == "former"), None)

    def number(self, number: int) -> Version | None:
        return next((each for each in self.versions if each.number == number), None)

    def with_suffix(self, suffix: int | None) -> Version | None:
        return next((each for each in self.versions if each.suffix == suffix), None)

    def record(self) -> NewRecord:
        return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{self.view}".encode(), orjson.dumps(body_of(self)))


# ---- what may happen


@dataclass(frozen=True, slots=True)
class VersionOpened:
    """The view runs for the first time: what it has is its first version."""

    number: int
    definition: VersionDefinition


@dataclass(frozen=True, slots=True)
class ComputationKept:
    """The same computation goes on under another text, or is computed anew in its place: then ``why``."""

    number: int
    definition: VersionDefinition
    why: str | None = None


@dataclass(frozen=True, slots=True)
class DefinitionChanged:
    """The view means something else now: its file changed, or what it reads did."""

    definition: VersionDefinition
    why: str
    by_file: bool = True


@dataclass(frozen=True, slots=True)
class VersionLost:
    """A version's state is gone or fits no more."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class VersionCaughtUp:
    """It has read what the served one has; ``at`` are the positions of its changelog then."""

    number: int
    at: Positions


@dataclass(frozen=True, slots=True)
class VersionCompared:
    """The store that serves has all rows of a ready version, and tells how they differ from those served."""

    number: int
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CommandReceived:
    """Somebody wants something. ``number``: of which version, where that is a question."""

    id: str
    action: Action
    number: int | None = None


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class VersionRemoved:
    """Nothing is left of a dropped version."""

    suffix: int | None


Event = (
    VersionOpened
    | ComputationKept
    | DefinitionChanged
    | VersionLost
    | VersionCaughtUp
    | VersionCompared
    | CommandReceived
    | TimePassed
    | VersionRemoved
)


# ---- what follows from it


def decide(state: Versions | None, event: Event, view: str, now_ms: int) -> Versions | None:
    """The next state; the same object when nothing changes. None: there is none yet."""
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
    """Whether a second opinion is due by the view's file: so long after the last one, or after the version was served."""
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
    known = state.number(number)
    if known is None:
        return state
    found = _put(state, replace(known, definition=definition, why=why or known.why))
    return found if found.judged == definition.text else replace(found, judged=definition.text)


def _build(state: Versions, definition: VersionDefinition, why: str, now_ms: int) -> Versions:
    """A new version from the start of the log; one that was on its way is given up for it."""
    if state.coming is not None:
        state = _without(state, state.coming.number)
    number = state.last + 1
    version = Version(number, False, "building", definition, why, now_ms)
    return replace(_put(state, version), last=number, judged=definition.text)


def _changed(state: Versions, event: DefinitionChanged, now_ms: int) -> Versions:
    definition = event.definition
    if not event.by_file and definition.fingerprint in state.refused:
        return state  # it was built, and somebody did not want it
    judged = definition.text if event.by_file else state.judged
    refused = () if event.by_file else state.refused
    found = _changed_to(state, definition, event.why, now_ms)
    return (
        found
        if (found.judged, found.refused) == (judged, refused)
        else replace(found, judged=judged, refused=refused)
    )


def _changed_to(state: Versions, definition: VersionDefinition, why: str, now_ms: int) -> Versions:
    same = [
        each
        for each in state.versions
        if each.definition.fingerprint == definition.fingerprint and each.lost is None
    ]
    if not same:
        return _build(state, definition, why, now_ms)
    # The change was taken back, or came before: that version is there already.
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
        return replace(_build(state, version.definition, why, now_ms), judged=state.judged)
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
    """What is kept of a second opinion: whether the rows that are served are what the sources say now."""
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
            f"{report['differing']} rows are others, {report['only_after']} are new, {report['only_before']} are gone, when "
            "they are computed again from the sources"
        )
    return {"state": state, "reason": why or None, "at_ms": now_ms, "at": version.at, "report": dict(report)}


def broken(policy: SwapPolicy, report: Mapping[str, Any]) -> str | None:
    """Which expectation a comparison does not meet; None: none."""
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
    """``version`` is served; the one that was is kept for the way back, an earlier one goes."""
    if state.former is not None and state.former.number != version.number:
        state = _without(state, state.former.number)
    before = state.served
    if before.number == version.number:
        return state
    if before.lost is not None:
        # Its rows stand still from here on: no way back that anybody would want.
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
    """The next state, or why not."""
    coming, former, served = state.coming, state.former, state.served
    if coming is not None and coming.why == RECOMPUTE:
        # A second opinion stands in nobody's way.
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
                return f"version {served.number} is the former one already: hub view apply brings version {former.number} back"
            if coming is not None:
                state = _without(state, coming.number)
            return _refuse(_swap(state, former, now_ms), served)
        case "drop":
            wanted = state.number(event.number) if event.number is not None else (coming or former)
            if wanted is None:
                return (
                    f"version {event.number} does not exist"
                    if event.number
                    else "no version beside the one that is served"
                )
            if wanted.state == "served":
                return f"version {wanted.number} is served: roll back or apply another one first"
            return _refuse(_without(state, wanted.number), wanted)
        case "recompute":
            if coming is not None:
                return f"version {coming.number} is being built: it is compared with what is served when it is complete"
            if not served.definition.policy.compares:
                return "the store that serves does not have this view, so there is nobody to compare it"
            return _recompute(state, now_ms)
        case "rewind":
            return replace(_build(state, served.definition, "rewind", now_ms), judged=state.judged)
        case _:
            assert_never(event.action)


def _refuse(state: Versions, version: Version) -> Versions:
    return replace(
        state, refused=tuple(dict.fromkeys((*state.refused, version.definition.fingerprint)))[-16:]
    )


# ---- as JSON


def body_of(state: Versions) -> dict[str, Any]:
    return {
        "view": state.view,
        "served": state.served.number,
        "judged": state.judged,
        "last": state.last,
        "dropping": list(state.dropping),
        "refused": list(state.refused),
        "answered": state.answered,
        "refusal": state.refusal,
        "recomputed": state.recomputed,
        "versions": [
            {
                "number": each.number,
                "plain": each.plain,
                "state": each.state,
                "why": each.why,
                "since_ms": each.since_ms,
                "at": each.at,
                "comparison": each.comparison,
                "held": each.held,
                "lost": each.lost,
                "until_ms": each.until_ms,
                "text": each.definition.text,
                "body": each.definition.body,
                "fingerprint": each.definition.fingerprint,
                "policy": {
                    "manual": each.definition.policy.manual,
                    "compares": each.definition.policy.compares,
                    "keep_ms": each.definition.policy.keep_ms,
                    "rows_within": each.definition.policy.rows_within,
                    "same": list(each.definition.policy.same),
                    "recompute_ms": each.definition.policy.recompute_ms,
                },
            }
            for each in state.versions
        ],
    }


def versions_of(body: Mapping[str, Any]) -> Versions:
    """Raises HubFault when it is not what this version of the hub writes."""
    try:
        state = Versions(
            body["view"],
            tuple(_version(each) for each in body["versions"]),
            body["judged"],
            body["last"],
            tuple(body["dropping"]),
            tuple(body["refused"]),
            body["answered"],
            body["refusal"],
            body.get("recomputed"),
        )
        served = [each.number for each in state.versions if each.state == "served"]
        if served != [body["served"]]:
            raise ValueError(f"{len(served)} versions are served")
    except (KeyError, TypeError, ValueError) as error:
        raise HubFault(f"not a record of a view's versions ({error})") from error
    return state


def _version(body: Mapping[str, Any]) -> Version:
    policy = {**body["policy"], "same": tuple(body["policy"]["same"])}
    return Version(
        body["number"],
        body["plain"],
        body["state"],
        VersionDefinition(body["text"], body["body"], body["fingerprint"], SwapPolicy(**policy)),
        body["why"],
        body["since_ms"],
        body["at"],
        body["comparison"],
        body["held"],
        body["lost"],
        body["until_ms"],
    )


def command_of(body: Mapping[str, Any]) -> CommandReceived | None:
    """A command's record; None when it is none that this hub knows."""
    if body.get("action") not in ACTIONS or not isinstance(body.get("id"), str):
        return None
    number = body.get("version")
    return CommandReceived(body["id"], body["action"], number if isinstance(number, int) else None)


def wanted_record(view: str, asked: CommandReceived) -> NewRecord:
    """What a command is sent as."""
    body = {"id": asked.id, "action": asked.action, "version": asked.number}
    return NewRecord(PROGRESS_TOPIC, f"{WANTED}{view}".encode(), orjson.dumps(body))


def compared_record(view: str, number: int, at: str, report: Mapping[str, Any]) -> NewRecord:
    """What the store that serves says of a ready version."""
    body = {"version": number, "at": at, "report": dict(report)}
    return NewRecord(PROGRESS_TOPIC, f"{COMPARED}{view}".encode(), orjson.dumps(body))
