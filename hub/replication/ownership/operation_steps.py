"""[core] Steps of the operations that change ownership: drill, switchover, failover, failback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import orjson

from hub.formats.fields import fields_of
from hub.record import NewRecord
from hub.replication.maps.checkpoint import CONTROL_TOPIC


def scope_of(home: str, topic: str = "") -> str:
    """Return the key of an ownership: of all topics of ``home``, or of one topic that moves by itself.

    >>> scope_of("nyc"), scope_of("nyc", "nyc.orders")
    ('nyc', 'nyc|nyc.orders')
    """
    return f"{home}|{topic}" if topic else home


Kind = Literal["drill", "switchover", "failover", "failback", "promote"]


Tail = Literal["replay", "discard", "merge", "restore"]
CARRIED_TAILS: frozenset[Tail] = frozenset({"replay", "merge"})  # workers append the tail


StepName = Literal[
    "claim",
    "fence_home",
    "settle_tail",
    "start_back",
    "catch_up",
    "stop_writers",
    "drain",
    "fence_mirror",
    "declare_loss",
    "place_groups",
    "take_ownership",
    "drop_mirror",
    "start_mirror",
    "open_writers",
    "finish",
]


_DOES: Mapping[StepName, str] = {
    "claim": "write the operation down, so that no other one begins",
    "fence_home": "record at {old} that {now} owns its topics, before anything else there",
    "settle_tail": "records of {old} that were not mirrored: {settles}",
    "start_back": "mirror the new records from {now} to {old}, from the end of the copy",
    "catch_up": "wait until the mirror lags by little",
    "stop_writers": "let no application write at {old}",
    "drain": "wait until the mirror has carried everything",
    "fence_mirror": "acquire the mirror's transactional ids, so that no late write is possible",
    "declare_loss": "record which offsets were not mirrored",
    "place_groups": "place every consumer group at {new}",
    "take_ownership": "{new} owns the topics, with the next epoch, recorded in both clusters",
    "drop_mirror": "forget the mirror of what moves: {new} stays the owner",
    "start_mirror": "mirror from {new} to {old}",
    "open_writers": "let applications write at {new}",
    "finish": "the operation is complete",
}


_SETTLES: Mapping[Tail, str] = {
    "replay": "append them (replay)",
    "discard": "declare them lost (discard)",
    "merge": "append them, but for superseded ones of compacted topics (merge)",
    "restore": "export them, make their topics again, and fill these from the other side (restore)",
}


_STEPS: Mapping[Kind, tuple[StepName, ...]] = {
    "drill": (),
    "switchover": (
        "claim",
        "stop_writers",
        "drain",
        "fence_mirror",
        "place_groups",
        "take_ownership",
        "start_mirror",
        "open_writers",
        "finish",
    ),
    "failover": (
        "claim",
        "fence_mirror",
        "declare_loss",
        "place_groups",
        "take_ownership",
        "open_writers",
        "finish",
    ),
    "failback": (
        "claim",
        "fence_home",
        "settle_tail",
        "start_back",
        "catch_up",
        "stop_writers",
        "drain",
        "fence_mirror",
        "place_groups",
        "take_ownership",
        "start_mirror",
        "open_writers",
        "finish",
    ),
    "promote": (
        "claim",
        "stop_writers",
        "drain",
        "fence_mirror",
        "place_groups",
        "take_ownership",
        "drop_mirror",
        "open_writers",
        "finish",
    ),
}


POINT_OF_NO_RETURN: StepName = "take_ownership"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Ownership of the topics of ``home``: ``acting`` may write them. Epoch 0, never written: every home owns
    its own topics. ``topics``: those that moved by themselves; empty: all of ``home``.
    """

    home: str
    acting: str
    epoch: int
    at_ms: int = 0
    topics: tuple[str, ...] = ()

    def record(self, topic: str = "") -> NewRecord:
        body = {"acting": self.acting, "epoch": self.epoch, "at_ms": self.at_ms}
        return NewRecord(CONTROL_TOPIC, f"owner|{scope_of(self.home, topic)}".encode(), orjson.dumps(body))

    def records(self) -> list[NewRecord]:
        """Return one record a topic, or the one of the whole home."""
        return [self.record(topic) for topic in self.topics or ("",)]


@dataclass(frozen=True, slots=True)
class FailoverStep:
    """One step as it is shown and carried out. ``at``: the clusters that have to be up for it."""

    name: StepName
    does: str
    at: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OwnershipChange:
    """A change of ownership: the topics of ``home`` move from ``old`` to ``new`` with ``epoch``.

    ``old_is_up``: whether the old side answered at the start; a failover does not need it. ``tail``: what a
    failback does with records that home had and nobody mirrored. ``state`` aborted: undone before ownership
    changed. ``topics``: the topics that move by themselves, one record each; empty: all of ``home``.
    ``export``: folder for files of a failback's tail, on the machine of the command.
    """

    id: str
    kind: Kind
    mirror: str
    home: str
    old: str
    new: str
    epoch: int
    old_is_up: bool = True
    tail: Tail = "replay"
    done: tuple[StepName, ...] = ()
    state: Literal["running", "done", "aborted"] = "running"
    begun_at_ms: int = 0
    topics: tuple[str, ...] = ()
    export: str = ""

    def records(self) -> list[NewRecord]:
        """Return one record a topic, or the one of the whole home."""
        return [self.record(topic) for topic in self.topics or ("",)]

    def record(self, topic: str = "") -> NewRecord:
        unset = () if self.export else ("export",)  # releases that do not know it stop at it
        body = fields_of(self, but=("home", "topics", *unset))
        key = f"operation|{scope_of(self.home, topic)}".encode()
        return NewRecord(CONTROL_TOPIC, key, orjson.dumps(body))

    @property
    def whose(self) -> str:
        """The topics that move, for people."""
        if not self.topics:
            return f"the topics of {self.home}"
        more = f" and {len(self.topics) - 1} more" if len(self.topics) > 1 else ""
        return f"topic {self.topics[0]}{more}"

    @property
    def steps(self) -> tuple[FailoverStep, ...]:
        """All steps in order, with descriptions."""
        # On a failback the records are with the acting side, which is the old one.
        placeholders = {"old": self.old, "new": self.new, "now": self.old, "settles": _SETTLES[self.tail]}
        if self.kind == "failback":
            placeholders |= {"old": self.new, "now": self.old}
        made = []
        for name in self._names:
            step_placeholders = (
                placeholders
                if name in ("fence_home", "settle_tail", "start_back")
                else {**placeholders, "old": self.old}
            )
            made.append(FailoverStep(name, _DOES[name].format(**step_placeholders), self._at(name)))
        return tuple(made)

    @property
    def _names(self) -> tuple[StepName, ...]:
        """Names of the steps in order. A merge stops the writers before it compares keys."""
        names = _STEPS[self.kind]
        if self.kind != "failback" or self.tail != "merge":
            return names
        rest = tuple(name for name in names if name != "stop_writers")
        at = rest.index("settle_tail")
        return (*rest[:at], "stop_writers", *rest[at:])

    def _at(self, name: StepName) -> tuple[str, ...]:
        if self.kind == "failover" and not self.old_is_up:
            return (self.new,)
        match name:
            case "stop_writers" | "fence_home" | "settle_tail":
                return (self.old,) if name == "stop_writers" else (self.old, self.new)
            case "fence_mirror" | "open_writers" | "declare_loss":
                return (self.new,)
            case _:
                return (self.old, self.new)

    @property
    def next(self) -> FailoverStep | None:
        """The step to do now (perhaps again); None when the operation is complete."""
        if self.state != "running":
            return None
        return next((step for step in self.steps if step.name not in self.done), None)
