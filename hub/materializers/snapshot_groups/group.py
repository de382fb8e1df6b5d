"""[core] Cuts: several views at one place of the log, as records of ``_hub.progress``.

Views whose files say the same ``cut: NAME`` are a *group*. The materializer moves a group in steps (coordinator.py): it
chooses source positions, lets every member's query read up to them and no further, and when all have committed there, a
record ``cut:NAME`` says so: the positions, and where each member's changelog ended then. What lies before these ends is
made of exactly the events before the positions, in every member. ``group:NAME`` says whether a group moves in step, and why not.

A store that has applied all members up to the ends of one cut, and nothing beyond, is *at* that cut (barrier.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from hub.errors import HubFault
from hub.materializers.definition.declared import changelog_of
from hub.materializers.progress.records import PROGRESS_TOPIC, by_topic
from hub.record import NewRecord, Positions

CUT, GROUP = "cut:", "group:"

# What a group does: its members stop at each cut; they are being brought to the first one; one of them reads what it has
# missed, in large batches; one of them does not run.
GroupState = Literal["together", "gathering", "catching up", "apart"]


@dataclass(frozen=True, slots=True)
class MemberPosition:
    """Where a member was: ``changelog`` is the end of what it had written, made of the events of ``topics`` before the cut."""

    generation: int
    changelog: Positions
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A place of the log that all members stopped at; ``views`` by their versions' names, ``at_ms`` when it was told."""

    name: str
    at: Positions
    views: Mapping[str, MemberPosition]
    at_ms: int

    def sources(self, table: str) -> Positions:
        """What a member's rows are made of."""
        return self.at.of_topics(self.views[table].topics)

    def body(self) -> dict[str, Any]:
        return {
            "cut": self.name,
            "at": by_topic(self.at),
            "views": {
                table: {
                    "generation": each.generation,
                    "changelog": {str(tp.partition): offset for tp, offset in each.changelog},
                    "topics": list(each.topics),
                }
                for table, each in self.views.items()
            },
            "at_ms": self.at_ms,
        }

    def record(self) -> NewRecord:
        return NewRecord(PROGRESS_TOPIC, f"{CUT}{self.name}".encode(), orjson.dumps(self.body()))


def group_snapshot_of(body: Mapping[str, Any]) -> GroupSnapshot:
    """From the JSON of ``GroupSnapshot.body``. Raises HubFault when it is none."""
    try:
        at = Positions.of(
            (topic, int(partition), offset)
            for topic, offsets in body["at"].items()
            for partition, offset in offsets.items()
        )
        views = {
            table: MemberPosition(
                each["generation"],
                Positions.of(
                    (changelog_of(table), int(partition), offset)
                    for partition, offset in each["changelog"].items()
                ),
                tuple(each["topics"]),
            )
            for table, each in body["views"].items()
        }
        return GroupSnapshot(body["cut"], at, views, body["at_ms"])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise HubFault(f"not the record of a cut ({type(error).__name__}: {error})") from error


@dataclass(frozen=True, slots=True)
class GroupNote:
    """What a group does since ``since_ms``, and why it does not move in step."""

    name: str
    state: GroupState
    why: str | None
    views: tuple[str, ...]
    since_ms: int

    def record(self) -> NewRecord:
        body = {
            "group": self.name,
            "state": self.state,
            "why": self.why,
            "views": list(self.views),
            "since_ms": self.since_ms,
        }
        return NewRecord(PROGRESS_TOPIC, f"{GROUP}{self.name}".encode(), orjson.dumps(body))


def next_place(at: Positions, ends: Positions, most: int) -> Positions:
    """Where a group goes from ``at``: to the ends, or about ``most`` events on, of each partition in proportion to what is
    unread of it and at least one. Never back."""
    unread = {tp: end - at.get(tp) for tp, end in ends if end > at.get(tp)}
    total = sum(unread.values())
    if total <= most:
        return at.advanced(ends)
    return at.advanced(
        Positions({tp: at.get(tp) + max(1, count * most // total) for tp, count in unread.items()})
    )


def joined(all_: Iterable[Positions]) -> Positions:
    """The latest of each partition."""
    found = Positions()
    for each in all_:
        found = found.advanced(each)
    return found
