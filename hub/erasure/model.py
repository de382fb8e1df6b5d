"""[core] An erasure as a value, and the commands that change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from hub.approvals.second_person import is_own
from hub.errors import CallerError, NotFound

Status = Literal["requested", "approved", "running", "done", "canceled"]
PlaceState = Literal["planned", "waiting", "done", "not erased", "unknown"]
PlaceKind = Literal[
    "topic", "keys", "copies", "view", "store", "view over views", "sink", "readers", "backup"
]
OPEN_STATES: Final = ("planned", "waiting")


class ErasureRefused(CallerError):
    """An erasure cannot be requested, approved or canceled."""

    code = "HUB-1840"


class NoErasure(NotFound):
    """An erasure with this id does not exist."""

    code = "HUB-1841"


@dataclass(frozen=True, slots=True)
class Place:
    """A place that holds the person. ``action``: the steps there. ``detail``: the reason of its state, and
    how the result was verified. ``mark``: a number that was stored before the first step: of keys, or of a
    view's last version. ``at_ms``: time of the state.
    """

    kind: PlaceKind
    name: str
    action: str
    state: PlaceState = "planned"
    detail: str = ""
    mark: int | None = None
    at_ms: int | None = None

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.name}"

    def now(self, state: PlaceState, detail: str, at_ms: int) -> Place:
        """Return the place in a state; the same object if nothing changes."""
        if (state, detail) == (self.state, self.detail):
            return self
        return replace(self, state=state, detail=detail, at_ms=at_ms)


@dataclass(frozen=True, slots=True)
class Erasure:
    """An erasure. ``person``: the id in the field that ``erasable_by`` names. ``topics``: patterns.
    ``due_at_ms``: time of its first step. ``keys_gone_at_ms``: time at which all keys were destroyed.
    """

    id: str
    person: str
    topics: tuple[str, ...]
    reason: str
    requested_by: str
    requested_at_ms: int
    places: tuple[Place, ...]
    status: Status = "requested"
    approved_by: str = ""
    approved_at_ms: int | None = None
    due_at_ms: int | None = None
    keys_gone_at_ms: int | None = None
    ended_by: str = ""
    ended_at_ms: int | None = None

    def of_kind(self, *kinds: PlaceKind) -> list[Place]:
        """Return its places of some kinds."""
        return [each for each in self.places if each.kind in kinds]

    def put(self, places: Sequence[Place]) -> Erasure:
        """Return the erasure with new states of some places."""
        changed = {each.id: each for each in places}
        return replace(self, places=tuple(changed.get(each.id, each) for each in self.places))


Erasures = Mapping[str, Erasure]


def find_erasure(known: Erasures, id: str) -> Erasure:
    """Return an erasure. Raises NoErasure."""
    if id not in known:
        raise NoErasure(f'erasure "{id}" does not exist', hint="hub erase ls lists them")
    return known[id]


def checked_request(new: Erasure, known: Erasures) -> Erasure:
    """Return a new erasure. Raises ErasureRefused if it would erase nothing, or the same is under way."""
    if not any(each.state == "planned" for each in new.of_kind("topic")):
        why = "; ".join(f"{each.name}: {each.detail}" for each in new.of_kind("topic")) or "no topic matches"
        raise ErasureRefused(
            f"nothing can be erased in {', '.join(new.topics)}: {why}",
            hint="hub topic tree shows the topics; docs/how-to/forget-a-person.md",
        )
    for each in known.values():
        same = (each.person, each.topics) == (new.person, new.topics)
        if same and each.status in ("requested", "approved", "running"):
            raise ErasureRefused(
                f"erasure {each.id} of the same person and topics is {each.status}",
                hint=f"hub erase show {each.id}",
            )
    return new


def approve(erasure: Erasure, by: str, now_ms: int, delay_ms: int, *, needs_second: bool) -> Erasure:
    """Approve a request. ``needs_second``: the requester may not. Raises ErasureRefused."""
    if erasure.status != "requested":
        raise ErasureRefused(
            f"erasure {erasure.id} is {erasure.status}", hint=f"hub erase show {erasure.id} shows its state"
        )
    if is_own(by, [erasure.requested_by], second=needs_second):
        raise ErasureRefused(
            f"erasure {erasure.id} was requested by {by}, and a second person approves",
            hint="ask somebody else with the role operate over the hub",
        )
    return replace(
        erasure, status="approved", approved_by=by, approved_at_ms=now_ms, due_at_ms=now_ms + delay_ms
    )


def cancel(erasure: Erasure, by: str, now_ms: int) -> Erasure:
    """Cancel an erasure before its first step. Raises ErasureRefused."""
    if erasure.status not in ("requested", "approved"):
        raise ErasureRefused(
            f"erasure {erasure.id} is {erasure.status}, so it cannot be canceled",
            hint=f"see the finished steps: hub erase show {erasure.id}",
        )
    return replace(erasure, status="canceled", ended_by=by, ended_at_ms=now_ms)


def begin(erasure: Erasure, places: Sequence[Place], now_ms: int) -> Erasure:
    """Begin an approved erasure that is due, with the places of this moment. A topic under legal hold since
    is left out.
    """
    if erasure.status != "approved" or erasure.due_at_ms is None or now_ms < erasure.due_at_ms:
        return erasure
    return replace(erasure, status="running", places=tuple(places))


def finish(erasure: Erasure, now_ms: int) -> Erasure:
    """End a running erasure when no place is open any more."""
    if erasure.status != "running" or any(each.state in OPEN_STATES for each in erasure.places):
        return erasure
    return replace(erasure, status="done", ended_at_ms=now_ms)
