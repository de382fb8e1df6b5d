"""[core] Snapshot groups: several views at one place of the log, as records of ``_hub.progress``.

Views whose files have the same ``cut: NAME`` are a *group*. The materializer moves a group in steps
(coordinator.py): it chooses source positions, lets every member's query read exactly up to them, and when all
have committed there, writes a record ``cut:NAME`` with the positions, and the end of each member's changelog.
Rows before these ends are made of exactly the events before the positions, in every member. ``group:NAME`` is
the group's state, with the reason when it does not move in steps.

A store that has applied all members exactly up to the ends of one snapshot is *at* that snapshot
(barrier.py).
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

# States: members stop at each snapshot; they are on the way to the first one; one of them reads missed events
# in large batches; one of them does not run; a source transaction is open, or larger than its view takes.
GroupState = Literal["together", "gathering", "catching up", "apart", "waiting"]


@dataclass(frozen=True, slots=True)
class MemberPosition:
    """Position of a member: ``changelog`` ends with the rows made of the events of ``topics`` before the
    snapshot.
    """

    generation: int
    changelog: Positions
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A place of the log that all members stopped at. ``views``: by version name; ``at_ms``: when it was
    published.
    """

    name: str
    at: Positions
    views: Mapping[str, MemberPosition]
    at_ms: int

    def sources(self, table: str) -> Positions:
        """Return the source positions that a member's rows are made of."""
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
    """Read the JSON of ``GroupSnapshot.body``. Raises HubFault for another format."""
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
    """State of a group since ``since_ms``, and why it does not move in steps."""

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
    """Return the next place of a group: the ends, or about ``most`` events past ``at``; never before ``at``.

    Each partition advances in proportion to its unread events, by at least one.
    """
    unread = {tp: end - at.get(tp) for tp, end in ends if end > at.get(tp)}
    total = sum(unread.values())
    if total <= most:
        return at.advanced(ends)
    return at.advanced(
        Positions({tp: at.get(tp) + max(1, count * most // total) for tp, count in unread.items()})
    )


def joined(all_: Iterable[Positions]) -> Positions:
    """Return the latest position of each partition."""
    positions = Positions()
    for each in all_:
        positions = positions.advanced(each)
    return positions
