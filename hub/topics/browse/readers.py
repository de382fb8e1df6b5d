"""[shell] Consumer groups of a topic: groups with committed positions in it, or with members assigned to it.

Kafka keeps a group's positions for days after its last member left, so inactive groups are listed as well as
active ones. The hub's own views publish their positions as groups; these are left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hub.errors import NotFound
from hub.kafka import GroupMember
from hub.record import Positions

MOST_GROUPS = 2_000
OWN_GROUPS = ("hub.view.", "hub.store.")
_AT_ONCE = 100


class GroupSource(Protocol):
    """Cluster calls that this module needs."""

    def groups(self) -> list[str]: ...

    def positions_of_groups(self, groups: Sequence[str]) -> Mapping[str, Positions]: ...

    def group_members(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]: ...

    def end_offsets(self, topics: Sequence[str]) -> Positions: ...


@dataclass(frozen=True, slots=True)
class GroupReader:
    """A group that reads a topic. ``clients`` holds the ids of its current members, sorted; ``active`` is
    True if it has any. ``lag_records`` is the lag over the partitions that it has a position in, None without
    any.
    """

    group: str
    clients: tuple[str, ...]
    lag_records: int | None

    @property
    def active(self) -> bool:
        return bool(self.clients)

    def __str__(self) -> str:
        late = "" if self.lag_records is None else f", {self.lag_records:,} records behind"
        if not self.active:
            return f"group {self.group} reads it: no member now{late}"
        shown = ", ".join(self.clients[:5]) + (
            f" and {len(self.clients) - 5} more" if len(self.clients) > 5 else ""
        )
        return f"group {self.group} reads it: active now ({shown}){late}"


@dataclass(frozen=True, slots=True)
class TopicReaders:
    """Readers by topic, sorted by name. ``unread`` describes what is missing because time ran out, or
    "".
    """

    by_topic: Mapping[str, tuple[GroupReader, ...]]
    unread: str = ""


def readers_of(cluster: GroupSource, topics: Sequence[str], wait_s: float) -> TopicReaders:
    """Return the readers of these topics. Stops asking after ``wait_s``; each request has the cluster's own
    timeout.

    Topics that do not exist have no readers. Raises PeerError if Kafka does not answer.
    """
    deadline = time.monotonic() + wait_s
    wanted = set(topics)
    names = [each for each in cluster.groups() if not each.startswith(OWN_GROUPS)]
    positions: dict[str, Positions] = {}
    members: dict[str, Sequence[GroupMember]] = {}
    queried = 0
    while queried < min(len(names), MOST_GROUPS) and time.monotonic() < deadline:
        some = names[queried : queried + _AT_ONCE]
        positions |= cluster.positions_of_groups(some)
        members |= cluster.group_members(some)
        queried += len(some)
    read = {
        group: {tp.topic for tp, _ in positions.get(group, Positions())}
        | {topic for member in members.get(group, ()) for topic in member.topics}
        for group in names[:queried]
    }
    there = sorted(wanted & {tp.topic for each in positions.values() for tp, _ in each})
    ends = _ends(cluster, there)
    group_readers = {
        topic: tuple(
            _reader(group, topic, positions.get(group, Positions()), members.get(group, ()), ends)
            for group in names[:queried]
            if topic in read[group]
        )
        for topic in sorted(wanted)
    }
    return TopicReaders(
        group_readers,
        "" if queried == len(names) else f"{queried} of {len(names)} consumer groups were asked",
    )


def _ends(cluster: GroupSource, topics: Sequence[str]) -> Positions:
    try:
        return cluster.end_offsets(topics) if topics else Positions()
    except NotFound:  # a topic was deleted, its positions not yet
        return Positions()


def _reader(
    group: str, topic: str, positions: Positions, members: Sequence[GroupMember], ends: Positions
) -> GroupReader:
    behind = [
        max(0, ends.offsets[tp] - offset)
        for tp, offset in positions
        if tp.topic == topic and tp in ends.offsets
    ]
    clients = tuple(sorted({each.client_id for each in members}))
    return GroupReader(group, clients, sum(behind) if behind else None)
