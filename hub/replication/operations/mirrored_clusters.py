"""[shell] State of the clusters of a mirrors.yaml, as the change of ownership of one home needs it: which of
them answer, what their control topics say, and which links carry which topics between two sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hub.access_log.chain import LogSigner
from hub.errors import PeerError
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.clusters.control_state import ControlState, joined
from hub.replication.clusters.readers import read_control_state
from hub.replication.clusters.renaming.link_view import seen_by
from hub.replication.clusters.status_records import CHORES
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link, home_of, links, masked, way_back
from hub.replication.ownership.operation_steps import Kind
from hub.replication.ownership.shards import shard_of


@dataclass
class MirroredClusters:
    """The clusters of a mirrors.yaml, asked once whether they answer. ``only``: the topics that move by
    themselves; empty: all of their home but those that moved by themselves before. ``signer`` and ``by``: of
    the report of a failback.
    """

    file: MirrorsFile
    clusters: Mapping[str, ClusterHandle]
    only: frozenset[str] = frozenset()
    signer: Callable[[], LogSigner] | None = None
    by: str = ""
    _up: dict[str, bool] = field(default_factory=dict)
    _apart: dict[str, frozenset[str]] = field(default_factory=dict)

    def seen_by(self, link: Link) -> MirroredClusters:
        """Return the clusters as a link sees them."""
        return replace(self, clusters=seen_by(link, self.clusters))

    def moves(self, home: str, topic: str) -> bool:
        """Return whether a change of ownership of ``home`` moves a topic."""
        if home_of(self.file, topic) != home:
            return False
        return topic in self.only if self.only else topic not in self.apart(home)

    def apart(self, home: str) -> frozenset[str]:
        """Return the topics of a home that are away by themselves; read once: none leaves or returns during
        an operation.
        """
        if home not in self._apart:
            self._apart[home] = self.control().apart(home)
        return self._apart[home]

    def shards(self, link: Link) -> list[int]:
        """Return the shards of a link that carry what moves, and the one of its link tasks."""
        if not self.only:
            return list(range(CHORES, link.mirror.shards))
        partitions = {
            (topic, number)
            for side in (link.source, link.target)
            if self.is_up(side)
            for topic, found in topics_of(self.clusters[side]).items()
            if topic in self.only
            for number in range(found.partitions)
        }
        return [CHORES, *sorted({shard_of(*each, link.mirror.shards) for each in partitions})]

    def is_up(self, name: str) -> bool:
        """Return whether a cluster answers; asked once."""
        if name not in self._up:
            try:
                self.clusters[name].kafka.wait_ready(3.0)
                self._up[name] = True
            except PeerError:
                self._up[name] = False
        return self._up[name]

    def check_reach(self, kind: Kind, *ends: str) -> None:
        """Raise PeerError (HUB-3623) when a change needs a closed cluster that is not reached from here. A
        failover needs none: its old side may be gone.
        """
        for end in ends if kind not in ("failover", "drill") else ():
            self.clusters[end].check_open()

    def control_states(self) -> dict[str, ControlState]:
        return {
            name: read_control_state(reached, status=False)
            for name, reached in self.clusters.items()
            if self.is_up(name)
        }

    def control(self) -> Control:
        return joined(board.control for board in self.control_states().values())

    def ways(self, home: str, source: str, target: str) -> list[Link]:
        """Return the links that carry topics of ``home`` from one side to the other. Empty where neither is
        the home: a third cluster has at most a copy of home's records, and no map of records born elsewhere.
        """
        every = links(self.file)
        if home not in (source, target):
            return []
        if source == home:
            return [
                link
                for name, link in every.items()
                if name in self.file.mirrors
                and (link.source, link.target) == (source, target)
                and (not self.only or any(map(link.mirror.selects, self.only)))
            ]
        names = {
            back
            for tp in self.topics(home, source)
            if (back := way_back(self.file, tp, home, source)) is not None
        }
        return [every[name] for name in sorted(names)]

    def topics(self, home: str, at: str) -> list[str]:
        return [name for name in topics_of(self.clusters[at]) if self.moves(home, name)]

    def carried(self, home: str, source: str, target: str) -> list[str]:
        """Return the topics that a change from ``source`` to ``target`` waits for; masked topics are never
        sent home.
        """
        every = self.topics(home, source)
        if source == home:
            ways = self.ways(home, source, target)
            return [topic for topic in every if any(way.mirror.selects(topic) for way in ways)]
        return [topic for topic in every if way_back(self.file, topic, home, source) is not None]

    def topics_of_link(self, link: Link, home: str) -> set[str]:
        """Return the topics of a change that one link carries."""
        every = self.carried(home, link.source, link.target)
        if link.source == home:
            return {topic for topic in every if link.mirror.selects(topic)}
        return {topic for topic in every if way_back(self.file, topic, home, link.source) == link.name}

    def masked(self, home: str, old: str, new: str) -> list[str]:
        """Return the topics of which one side has a masked copy: records born of it away stay away, because
        at home they would overwrite originals.
        """
        if home not in (old, new):
            return []
        away, at = (old, old) if new == home else (new, old)
        if not self.is_up(at):
            at = new
        return [topic for topic in self.topics(home, at) if masked(self.file, topic, home, away)]
