"""Readers of a topic: groups with positions or members in it, active or not, within a bounded wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from hub.errors import NotFound, PeerError
from hub.kafka import GroupMember
from hub.record import Positions
from hub.topics.browse.readers import readers_of


@dataclass
class Groups:
    """Consumer groups of a cluster, by name: positions and members."""

    all: Mapping[str, tuple[Positions, Sequence[GroupMember]]]
    ends: Positions = field(default_factory=Positions)
    asked: list[str] = field(default_factory=list)

    def groups(self) -> list[str]:
        return sorted(self.all)

    def positions_of_groups(self, groups: Sequence[str]) -> Mapping[str, Positions]:
        self.asked += groups
        return {each: self.all[each][0] for each in groups}

    def group_members(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]:
        return {each: self.all[each][1] for each in groups}

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        if "gone" in topics:
            raise NotFound("gone")
        return self.ends.of_topics(topics)


def at(*entries: tuple[str, int, int]) -> Positions:
    return Positions.of(entries)


def member(client_id: str, *topics: str) -> GroupMember:
    return GroupMember(client_id, frozenset(topics))


def test_active_and_last_seen_groups_with_their_clients_and_lag() -> None:
    cluster = Groups(
        {
            "billing": (at(("t", 0, 5), ("t", 1, 9)), [member("b-2", "t"), member("b-1")]),
            "old": (at(("t", 0, 1), ("u", 0, 1)), []),
            "fresh": (at(), [member("f", "t")]),  # has partitions, has not committed yet
            "elsewhere": (at(("u", 0, 3)), [member("e", "u")]),
            "hub.view.v": (at(("t", 0, 5)), []),
        },
        at(("t", 0, 1_005), ("t", 1, 9), ("u", 0, 3)),
    )
    found = readers_of(cluster, ["t", "nobody"], 5)
    assert [str(each) for each in found.by_topic["t"]] == [
        "group billing reads it: active now (b-1, b-2), 1,000 records behind",
        "group fresh reads it: active now (f)",
        "group old reads it: no member now, 1,004 records behind",
    ]
    assert found.by_topic["nobody"] == () and found.unread == ""
    assert "hub.view.v" not in cluster.asked


def test_when_the_time_is_over_it_says_how_many_were_asked() -> None:
    cluster = Groups({f"g{n:03}": (at(("t", 0, 1)), []) for n in range(150)})
    found = readers_of(cluster, ["t"], 0)
    assert found.by_topic["t"] == () and found.unread == "0 of 150 consumer groups were asked"
    assert len(readers_of(cluster, ["t"], 5).by_topic["t"]) == 150


def test_a_topic_that_is_gone_has_no_end_and_kafka_away_is_raised() -> None:
    (reader,) = readers_of(Groups({"g": (at(("gone", 0, 1)), [])}), ["gone"], 5).by_topic["gone"]
    assert (reader.active, reader.lag_records) == (False, None)

    class Away(Groups):
        def groups(self) -> list[str]:
            raise PeerError("Kafka does not answer")

    with pytest.raises(PeerError):
        readers_of(Away({}), ["t"], 5)
