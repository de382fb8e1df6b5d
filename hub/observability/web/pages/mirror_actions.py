"""[core] Operations on a mirror as the page and HTTP request them: the request, its plan, the equal command.

The plan is shown before anything is done: ``GET /mirrors/NAME/pause`` has it, and a form that carries it out.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

from hub.errors import CallerError, NotFound

MirrorAction = Literal[
    "apply",
    "verify",
    "pause",
    "resume",
    "abort",
    "drop",
    "rehearse",
    "switchover",
    "failover",
    "failback",
    "promote",
]
Tail = Literal["replay", "discard", "merge", "restore"]
MOST_PATTERNS: Final = 100
LABELS: Final[Mapping[MirrorAction, str]] = {
    "apply": "Prepare the target",
    "verify": "Compare both sides",
    "pause": "Pause",
    "resume": "Resume",
    "abort": "Abort the change",
    "drop": "Drop",
    "rehearse": "Rehearse",
    "switchover": "Switch over",
    "failover": "Fail over",
    "failback": "Fail back",
    "promote": "Promote",
}
EFFECTS: Final[Mapping[MirrorAction, str]] = {
    "apply": "Topics, settings, schemas and rules of the target become what mirrors.yaml declares. Workers "
    "do the same for later changes.",
    "verify": "The records of both sides are compared. Nothing changes but the result in the status.",
    "pause": "Workers stop within a second or two, at the end of a transaction.",
    "resume": "It continues where it stopped. A change of ownership in progress is completed.",
    "abort": "The change of ownership is undone. Ownership has not moved.",
    "drop": "Checkpoints, maps and gaps are deleted. A topic that is still in the file is mirrored again "
    "from the start once its copy is deleted.",
    "rehearse": "A failover is planned on the real clusters, and the result is recorded. No topic, group or "
    "owner changes.",
    "switchover": "Ownership moves to the target while both sides are up. Stop writers and groups at the "
    "source: it waits until all of them are idle.",
    "failover": "Ownership moves to the target now. Records that were not mirrored stay at the source.",
    "failback": "Ownership returns to the source, after records written at the target were copied there.",
    "promote": "Ownership moves to the target permanently, and the mirror is removed. Remove it from "
    "mirrors.yaml afterwards.",
}
# They cannot be undone: the caller repeats the mirror's name, as for the command.
NAMED: Final[frozenset[MirrorAction]] = frozenset({"drop", "failover", "promote"})


@dataclass(frozen=True, slots=True)
class MirrorRequest:
    """An operation on a mirror. ``topics``: patterns; empty: the whole mirror. ``tail`` and ``export``: of a
    failback alone, ``delete_copies``: of a drop alone. ``newest``: of a comparison, the number of offsets of
    each partition; None: all. ``confirmed``: digest of the plan that the caller saw; None: any plan."""

    mirror: str
    action: MirrorAction
    topics: tuple[str, ...] = ()
    tail: Tail = "replay"
    delete_copies: bool = False
    export: bool = False
    confirmed: str | None = None
    newest: int | None = None

    @property
    def exports(self) -> bool:
        """True if a failback writes the records that only the source has to files: a restore always does."""
        return self.action == "failback" and (self.export or self.tail == "restore")

    @property
    def needs_name(self) -> bool:
        """True if the operation cannot be undone, so that the caller repeats the mirror's name."""
        return self.action in NAMED or (self.action == "failback" and self.tail == "restore")

    @property
    def command(self) -> str:
        """Return the command that does the same."""
        words = ["hub", "mirror", "resume" if self.action == "abort" else self.action, self.mirror]
        words += ["--abort"] if self.action == "abort" else []
        words += ["--now"] if self.action == "rehearse" else []
        for topic in self.topics:
            words += ["--topic", topic]
        words += [f"--{self.tail}"] if self.action == "failback" and self.tail != "replay" else []
        words += ["--export", f"{self.mirror}-failback"] if self.exports else []
        words += ["--newest", str(self.newest)] if self.action == "verify" and self.newest else []
        words += ["--delete-copies"] if self.action == "drop" and self.delete_copies else []
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """Plan of a request, as of now.

    ``topics``: each topic that it concerns alone, with its state and owner. ``steps``: in order. ``notes``:
    lines on access rules, masked copies and topics that are not mirrored. ``effects``: lines on records that
    would be lost or read again. ``plan``: the same for programs, as ``hub mirror drill -o json``. ``digest``:
    of the plan, where a confirmation names it.
    """

    request: MirrorRequest
    topics: tuple[Mapping[str, str], ...] = ()
    steps: tuple[Mapping[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    label: str = ""
    means: str = ""
    needs_name: bool = False
    digest: str = ""


def plan_of(
    request: MirrorRequest,
    steps: Sequence[Mapping[str, str]],
    *,
    topics: Sequence[Mapping[str, str]] = (),
    notes: Sequence[str] = (),
    effects: Sequence[str] = (),
    plan: Mapping[str, Any] | None = None,
) -> MirrorPlan:
    """Return the plan of a request with its texts."""
    action = request.action
    return MirrorPlan(
        request,
        tuple(topics),
        tuple(steps),
        tuple(notes),
        tuple(effects),
        plan or {},
        request.command,
        LABELS[action],
        EFFECTS[action],
        request.needs_name,
        str((plan or {}).get("digest", "")),
    )


def checked_request(
    mirror: str,
    action: str,
    topics: Sequence[str],
    tail: str = "replay",
    delete_copies: bool = False,
    *,
    export: bool = False,
    confirmed: str | None = None,
    newest: int | None = None,
) -> MirrorRequest:
    """Return a request. Raises NotFound for an unknown action, CallerError for a wrong value."""
    if action not in LABELS:
        raise NotFound(
            f'mirror "{mirror}" has no operation "{action[:30]}"', hint=f"use one of: {', '.join(LABELS)}"
        )
    if tail not in get_args(Tail):
        raise CallerError(f'tail "{tail[:30]}" is unknown', hint=f"use one of: {', '.join(get_args(Tail))}")
    patterns = tuple(dict.fromkeys(each.strip() for each in topics if each.strip()))
    if len(patterns) > MOST_PATTERNS:
        raise CallerError(
            f"{len(patterns)} topic patterns are too many", hint=f"name at most {MOST_PATTERNS}"
        )
    if patterns and action == "rehearse":
        raise CallerError(
            f'mirror "{mirror}": a rehearsal covers the whole mirror',
            hint=f"for single topics: hub mirror drill {mirror} --topic {patterns[0]}",
        )
    if patterns and action == "apply":
        raise CallerError(
            f'mirror "{mirror}": apply covers the whole mirror', hint="leave `topics` out of the request"
        )
    named = cast(MirrorAction, action)
    return MirrorRequest(mirror, named, patterns, cast(Tail, tail), delete_copies, export, confirmed, newest)


def check_confirmed(request: MirrorRequest, typed: str) -> None:
    """Raise CallerError (HUB-1606) where an operation cannot be undone and its mirror is not named again."""
    if request.needs_name and typed != request.mirror:
        said = f'"{typed[:80]}" is not "{request.mirror}"' if typed else "the mirror's name was not repeated"
        raise CallerError(
            f'{request.action} of mirror "{request.mirror}": {said}, so nothing was done',
            hint=f'confirm with the name: "{request.mirror}"',
            code="HUB-1606",
        )


def offered(status: Mapping[str, Any], *, handed_over: bool) -> tuple[MirrorAction, ...]:
    """Return the operations of a whole mirror that fit its state. ``status``: as ``hub mirror status``."""
    if "workers" not in status:
        return ()
    if status.get("operations"):
        return ("resume", "abort")
    if handed_over or status.get("declared", status["mirror"]) != status["mirror"]:
        return ("failback",)
    if status.get("state") == "paused":
        return ("resume", "rehearse", "failover", "drop")
    return ("pause", "rehearse", "switchover", "failover", "promote")
