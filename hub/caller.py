"""[core] The caller of the current request, and its permissions.

The guard of the server (hub/api/guard.py) sets it. None is the hub itself: its own threads, and every request
while access is not controlled. Threads and tasks that answer requests inherit the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum

from hub.errors import CallerError, PeerError
from hub.masking.shape import OPEN, Visibility


class Action(StrEnum):
    """Actions on a topic, a view, or the hub itself. ``hub.access.decide.ROLES`` has the actions of each
    role.
    """

    describe = "describe"
    read = "read"
    write = "write"
    operate = "operate"
    admin = "admin"


class Kind(StrEnum):
    topic = "topic"
    subject = "subject"
    view = "view"
    hub = "hub"


@dataclass(frozen=True, slots=True)
class Resource:
    """The object of an action; ``name`` is empty for the hub itself."""

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        return "the hub" if self.kind is Kind.hub else f'{self.kind} "{self.name[:249]}"'


HUB = Resource(Kind.hub)


class Unauthenticated(CallerError):
    """The request has no credentials, or wrong ones."""

    code = "HUB-1701"


class Forbidden(CallerError):
    """The caller may not do this. ``details["ask"]``: role and object of a request for access."""

    code = "HUB-1702"


class TooMany(CallerError):
    """The caller exceeds its share; ``details["retry_after"]``: seconds until a retry may succeed."""

    code = "HUB-1705"


class TooManyFailures(TooMany):
    """Too many wrong passwords from one address."""

    code = "HUB-1703"


@dataclass(frozen=True)
class AccessDecision:
    """Yes or no, and why: the grant that allows, or the one that is missing. ``ask``: role and object, as
    ``hub access request`` takes them; "": nobody can ask for the missing grant."""

    allowed: bool
    reason: str
    hint: str | None = None
    ask: str = ""


@dataclass(frozen=True)
class Caller:
    """A caller. ``name`` is empty while nobody is signed in. ``way``: how they signed in, as
    hub.access.authenticate names it (``session``, ``token``, …). ``for_others``: the hub's own command line,
    which names its user. ``is_person``: signed in themselves, not by one of their tokens. ``shape``: a topic
    or view as they see it; ``is_masked``: whether that may be less than everything.
    """

    name: str
    groups: frozenset[str]
    decide: Callable[[Action, Resource], AccessDecision] = field(repr=False)
    way: str = ""
    for_others: bool = False
    is_person: bool = False
    shape: Callable[[Resource], Visibility] = field(default=lambda _what: OPEN, repr=False)
    is_masked: bool = False


CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


def may(action: Action, resource: Resource) -> bool:
    """Return whether the caller may do this."""
    caller = CALLER.get()
    return caller is None or caller.decide(action, resource).allowed


def require(action: Action, resource: Resource) -> None:
    """Raise Forbidden with the missing grant if the caller may not do this; Unauthenticated if nobody is
    signed in.
    """
    caller = CALLER.get()
    if caller is None:
        return
    decision = caller.decide(action, resource)
    if decision.allowed:
        return
    if not caller.name:
        raise Unauthenticated(
            f"sign in to {action} {resource}",
            hint="a user and password, or a token: docs/how-to/control-access.md",
        )
    error = Forbidden(decision.reason, hint=decision.hint)
    error.details = {"ask": decision.ask} if decision.ask else {}
    raise error


def sees_topic(name: str) -> bool:
    """Return whether the caller sees the topic in lists."""
    return CALLER.get() is None or may(Action.describe, Resource(Kind.topic, name))


def sees_view(name: str) -> bool:
    return CALLER.get() is None or may(Action.describe, Resource(Kind.view, name))


def reads_view(name: str) -> bool:
    """Return whether the caller may read the view's rows."""
    return CALLER.get() is None or may(Action.read, Resource(Kind.view, name))


def sees_subject(name: str) -> bool:
    return CALLER.get() is None or may(Action.describe, Resource(Kind.subject, name))


def sees_schema(subjects: Callable[[], Iterable[str]]) -> bool:
    """Return whether the caller sees one of the schema's subjects, and so the schema. ``subjects`` is called
    only if there is a caller.
    """
    return CALLER.get() is None or any(sees_subject(each) for each in subjects())


def reads_all(topics: Iterable[str] = (), views: Iterable[str] = ()) -> None:
    """Raise Forbidden for the first topic or view that the caller may not read."""
    for topic in topics:
        require(Action.read, Resource(Kind.topic, topic))
    for view in views:
        require(Action.read, Resource(Kind.view, view))


def topic_visibility(name: str) -> Visibility:
    """Return what the caller sees of a topic's records. Raises PeerError while that is not known."""
    caller = CALLER.get()
    return OPEN if caller is None or not caller.is_masked else caller.shape(Resource(Kind.topic, name))


def view_visibility(name: str) -> Visibility:
    """Return what the caller sees of a view's rows. Raises PeerError while that is not known."""
    caller = CALLER.get()
    return OPEN if caller is None or not caller.is_masked else caller.shape(Resource(Kind.view, name))


def shows_keys(view: str) -> bool:
    """Return whether the caller sees the keys of all rows of the view; False where that is not known."""
    if not reads_view(view):
        return False
    try:
        shape = view_visibility(view)
    except PeerError:
        return False
    return shape.is_open or (shape.key.form == "shown" and not shape.rows and not shape.closed)


def shows_all(view: str) -> bool:
    """Return whether the caller sees all rows of the view with all fields; False where that is not known."""
    try:
        return reads_view(view) and view_visibility(view).is_open
    except PeerError:
        return False


def shows_records(topic: str) -> bool:
    """Return whether the caller sees all records of the topic with all fields; False where that is not
    known."""
    try:
        return topic_visibility(topic).is_open
    except PeerError:
        return False


def done_by(account: str) -> str:
    """Return the name to record for an action: the signed-in name, or without access control the name in the
    request.
    """
    caller = CALLER.get()
    if caller is None or caller.for_others:
        return account
    return caller.name or "anonymous"
