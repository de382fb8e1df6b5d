"""[shell] ``hub mirror import``: lets a mirror continue MirrorMaker 2's copies where MirrorMaker stopped.

::

    offset syncs, checkpoints ─▶ mirror_maker_records.py  MirrorMaker's offset pairs and group positions
    both sides, record by record ─▶ alignment.py  the map, and where to continue; or why that is not proven
    nothing moved meanwhile, a person confirmed ─▶ map and checkpoints, one transaction per shard ─▶ groups

It is the only permitted way into a target that has records and no checkpoint of the mirror. A topic is
imported completely or not at all. Partitions with a checkpoint are left alone, so a repeated run after a
crash does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b

from hub.errors import CallerError, NotFound
from hub.kafka.protocol import broker_client
from hub.kafka.protocol.broker_client import BrokerCluster
from hub.record import Positions, Record, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.clusters.readers import read_control_state, read_progress, read_to_end
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.migration.alignment import Alignment, PartitionLog, Print, boundary
from hub.replication.migration.import_plan import (
    ImportedPartition,
    MirrorMakerImport,
    MirrorMakerState,
    imported_whole,
    table_of,
)
from hub.replication.migration.mirror_maker_records import (
    GroupCheckpoint,
    OffsetSync,
    checkpoint_of,
    checkpoints_topic,
    heartbeat_of,
    meant,
    renamed,
    sync_of,
    syncs_topic,
    usable,
)
from hub.replication.operations.group_carrier import Found, GroupCarrier
from hub.replication.ownership.failover import Control
from hub.replication.ownership.group_offsets import GroupSides, carry
from hub.replication.ownership.links import Link, carries
from hub.replication.verification.committed_records import committed_records
from hub.replication.verification.comparable import complete_tables

_REPORT_EVERY = 10_000
_HEARTBEATS = "heartbeats"
ANEW = (
    "keep the copy, its records may exist nowhere else: exclude the topic from the mirror, or copy them"
    " to another topic before this one is made anew and mirrored from its start"
)


class Importer:
    """One call of the command. ``progress`` is called with the number of records read since its last call.
    Close it.

    Raises CallerError for a mirror whose rules filter or change records: MirrorMaker's copies are complete.
    """

    def __init__(
        self,
        file: MirrorsFile,
        link: Link,
        clusters: Mapping[str, ClusterHandle],
        control: Control,
        *,
        source_alias: str | None = None,
        progress: Callable[[int], None] = lambda more: None,
    ) -> None:
        if link.mirror.rewrites:
            raise CallerError(
                f'mirror "{link.name}": its rules (only, mask, schema_ids) make other records '
                "than MirrorMaker copied",
                hint="import with a mirror that has none of them",
            )
        self.file, self.link, self.control = file, link, control
        self.source, self.target = clusters[link.source], clusters[link.target]
        self.alias = source_alias or link.source
        self._here, self._there = (
            BrokerCluster(self.source.access, self.source.name),
            BrokerCluster(self.target.access, self.target.name),
        )
        self._progress = progress
        self._began_at = time.monotonic()
        self._ends: dict[str, Positions] = {}
        self._copies: frozenset[str] = frozenset()
        self._of_groups: dict[str, dict[TopicPartition, dict[str, int]]] = {}

    def close(self) -> None:
        self._here.close()
        self._there.close()

    # ---- records of MirrorMaker

    def read_state(self, syncs: str | None = None, checkpoints: str | None = None) -> MirrorMakerState:
        """Read both topics to their ends. Raises NotFound (HUB-1630) with a similar name."""
        here, there = self.source.kafka.topics(), self.target.kafka.topics()
        at_source = syncs or syncs_topic(self.link.target)
        at_target = syncs or syncs_topic(self.alias)
        if at_source in here:
            where, name = self.source, at_source
        elif at_target in there:
            where, name = self.target, at_target
        else:
            alike = meant([*here, *there], at_source)
            raise NotFound(
                f'neither "{at_source}" at {self.source.name} nor "{at_target}" at '
                f"{self.target.name} is there",
                hint=f'did you mean --offset-syncs-topic "{alike}"?'
                if alike
                else "name it: --offset-syncs-topic",
                code="HUB-1630",
            )
        group_topic = checkpoints or checkpoints_topic(self.alias)
        if group_topic not in there:
            if checkpoints is not None:
                raise NotFound(
                    f'topic "{checkpoints}" is not at {self.target.name}',
                    hint=f'did you mean "{alike}"?' if (alike := meant(there, group_topic)) else None,
                    code="HUB-1630",
                )
            group_topic = ""
        offset_syncs: dict[TopicPartition, list[OffsetSync]] = {}
        groups: dict[tuple[str, TopicPartition], GroupCheckpoint] = {}

        def take_sync(record: Record) -> None:
            if (sync := sync_of(record)) is not None:
                offset_syncs.setdefault(sync.place, []).append(sync)

        def take_group(record: Record) -> None:
            if (mark := checkpoint_of(record)) is not None:
                groups[mark.group, mark.place] = mark

        read_to_end(where, [name], take_sync)
        if group_topic:
            read_to_end(self.target, [group_topic], take_group)
        return MirrorMakerState(
            where.name,
            name,
            group_topic,
            {place: usable(each) for place, each in offset_syncs.items()},
            tuple(groups[key] for key in sorted(groups)),
        )

    # ---- check that MirrorMaker has stopped

    def watch(self, state: MirrorMakerState) -> None:
        """Record the ends of all topics that only a MirrorMaker of this pair would write to."""
        ours = {tp.topic for tp in read_progress(self.target, maps=False).of(self.link.name)}
        self._copies = frozenset(self._carried()) - ours
        self._began_at = time.monotonic()
        self._ends = {name: self._reach(name, topics) for name, topics in self._watched(state).items()}

    def moved(self, state: MirrorMakerState, quiet_s: float) -> tuple[str, ...]:
        """Return the topics written to since ``watch``; waits until that is at least ``quiet_s`` ago."""
        time.sleep(max(0.0, self._began_at + quiet_s - time.monotonic()))
        found = []
        for name, topics in self._watched(state).items():
            for tp, end in self._reach(name, topics):
                if end > self._ends[name].get(tp, end):
                    found.append(f"{tp.topic} at {name}")
        if _HEARTBEATS in self.target.kafka.topics() and self._beats():
            found.append(f"{_HEARTBEATS} at {self.target.name}")
        return tuple(sorted(set(found)))

    def _watched(self, state: MirrorMakerState) -> dict[str, list[str]]:
        mine = {
            self.source.name: {state.syncs_topic} if state.syncs_at == self.source.name else set(),
            self.target.name: {
                state.checkpoints_topic,
                *({state.syncs_topic} if state.syncs_at == self.target.name else ()),
                *(f"mm2-{kind}.{self.alias}.internal" for kind in ("offsets", "status")),
                *self._copies,
            },
        }
        return {
            name: sorted(topics & reached.kafka.topics().keys())
            for name, topics in mine.items()
            for reached in (self.source if name == self.source.name else self.target,)
        }

    def _reach(self, name: str, topics: Sequence[str]) -> Positions:
        reached = self.source if name == self.source.name else self.target
        return reached.kafka.end_offsets(topics, committed=False) if topics else Positions()

    def _beats(self) -> bool:
        """Return whether a heartbeat from our source came since ``watch``: other pairs write to that topic,
        too.
        """
        since_ms = (time.time() - (time.monotonic() - self._began_at)) * 1000
        found: list[bool] = []
        kafka = self.target.kafka
        begins = kafka.offsets_at([_HEARTBEATS], int(since_ms))
        reader = kafka.reader()
        try:
            ends = kafka.end_offsets([_HEARTBEATS])
            wanted = Positions({tp: end for tp, end in ends if begins.get(tp, end) < end})
            reader.assign(Positions({tp: begins.get(tp) for tp, _ in wanted}))
            deadline = time.monotonic() + kafka.timeout_s
            while wanted and not reader.position().covers(wanted) and time.monotonic() < deadline:
                found += [heartbeat_of(record) == self.alias for record in reader.poll(1_000, 0.2)]
        finally:
            reader.close()
        return any(found)

    # ---- inspection

    def _carried(self) -> tuple[str, ...]:
        return carries(self.file, self.link, topics_of(self.source), self.control)

    def look(self, state: MirrorMakerState, newest: int | None = None) -> MirrorMakerImport:
        """Compare every partition of the mirror. Changes nothing. Raises PeerError when a cluster does not
        answer.
        """
        topics = self._carried()
        here, there = topics_of(self.source), topics_of(self.target)
        known = read_progress(self.target, maps=False).of(self.link.name)
        config = self.source.kafka.topic_config(list(topics))
        both = [topic for topic in topics if topic in there]
        self._here.refresh(both)
        self._there.refresh(both)
        places: list[ImportedPartition] = []
        for topic in topics:
            other = renamed(self.alias, topic)
            if topic not in there or not self._has_records(topic):
                if other in there:
                    places += [
                        _renamed(TopicPartition(topic, n), other) for n in range(here[topic].partitions)
                    ]
                continue
            compacted = "compact" in config.get(topic, {}).get("cleanup.policy", "delete")
            found = [
                self._one(TopicPartition(topic, number), state, known, newest, compacted)
                for number in range(min(here[topic].partitions, there[topic].partitions))
            ]
            places += imported_whole(found)
        return MirrorMakerImport(state, tuple(places), tuple(self._groups(state, places)))

    def _has_records(self, topic: str) -> bool:
        return any(end for _, end in self.target.kafka.end_offsets([topic], committed=False))

    def _one(
        self,
        place: TopicPartition,
        state: MirrorMakerState,
        checkpoints: Mapping[TopicPartition, Checkpoint],
        newest: int | None,
        compacted: bool,
    ) -> ImportedPartition:
        if place in checkpoints:
            mark = checkpoints[place]
            went_on = Alignment(
                mark.source_next, source_from=mark.source_start, target_from=mark.target_start
            )
            return ImportedPartition(
                place, "has a checkpoint", went_on, mark.target_next, "the mirror continues from it"
            )
        here, there = self._log(self._here, place), self._log(self._there, place)
        stable = self._there.offsets([place], isolation=broker_client.READ_COMMITTED)[place]
        if stable < there.end:
            return ImportedPartition(
                place,
                "refused",
                reason=f"a transaction is still open at offset {stable} of the copy",
                hint="it ends when it times out: do the same again then",
            )
        found = boundary(here, there, state.syncs.get(place, ()), newest=newest, compacted=compacted)
        if found.refusal:
            hint = (
                f"if that part of the copy does not matter, --newest N compares only the "
                f"newest offsets; else {ANEW}"
            )
            return ImportedPartition(place, "refused", found, there.end, found.refusal, hint)
        behind = self._behind(place, found, here, there)
        if behind is not None:
            return ImportedPartition(place, "refused", found, there.end, *behind)
        return ImportedPartition(place, "ready", found, there.end)

    def _behind(
        self, place: TopicPartition, alignment: Alignment, here: PartitionLog, there: PartitionLog
    ) -> tuple[str, str] | None:
        """Refuse if a group reads before the mapped range: it would be moved past records that
        the copy has.
        """
        firsts = here.first_from(here.begin), there.first_from(there.begin)
        starts = alignment.source_from, alignment.target_from
        if not alignment.runs or any(
            first is not None and first[0] >= at for first, at in zip(firsts, starts, strict=True)
        ):
            return None  # mapped from the first record of one side on: nothing is skipped
        for group, offset in self._positions(place.topic).get(place, {}).items():
            if offset < alignment.source_from:
                return (
                    (
                        f'group "{group}" is at {offset} at the source, the comparison begins at '
                        f"{alignment.source_from}"
                    ),
                    "compare more: a larger --newest, or none",
                )
        return None

    def _positions(self, topic: str) -> dict[TopicPartition, dict[str, int]]:
        if topic not in self._of_groups:
            found: dict[TopicPartition, dict[str, int]] = {}
            for sides in GroupCarrier(self.file, self.link, self.source, self.target).group_sides([topic]):
                for tp, offset in sides.source.items():
                    found.setdefault(tp, {})[sides.group] = offset
            self._of_groups[topic] = found
        return self._of_groups[topic]

    def _log(self, cluster: BrokerCluster, place: TopicPartition) -> PartitionLog:
        begin, end = cluster.offsets([place], broker_client.EARLIEST)[place], cluster.offsets([place])[place]

        def read(first: int, until: int) -> Iterator[Print]:
            for number, raw in enumerate(committed_records(cluster, place, first, until), 1):
                if not number % _REPORT_EVERY:
                    self._progress(_REPORT_EVERY)
                yield raw.offset, _fingerprint(raw.timestamp_ms, raw.rest)

        return PartitionLog(begin, end, read)

    # ---- groups

    def _groups(self, state: MirrorMakerState, places: Sequence[ImportedPartition]) -> Iterator[Found]:
        """Yield the groups of MirrorMaker's checkpoints with their present positions at the source (or the
        recorded ones, if the group is gone there), and the decision by the map. The mirror carries other
        groups, like these from now on.
        """
        tables = {each.place: table_of(each) for each in places if each.state == "ready"}
        if any(each.state == "has a checkpoint" for each in places):
            _, kept = complete_tables(self.target, self.link.name)
            tables |= {each.place: kept[each.place] for each in places if each.state == "has a checkpoint"}
        positions_of: dict[str, dict[TopicPartition, int]] = {}
        for mark in state.checkpoints:
            if mark.place in tables and self.link.mirror.selects_group(mark.group):
                positions_of.setdefault(mark.group, {})[mark.place] = mark.upstream
        if not positions_of:
            return
        topics = sorted({tp.topic for tp in tables})
        carrier = GroupCarrier(self.file, self.link, self.source, self.target)
        live = {sides.group: sides.source for sides in carrier.group_sides(topics)}
        theirs = self.target.kafka.positions_of_groups(list(positions_of))
        there = [group for group in self.target.kafka.groups() if group in positions_of]
        members = self.target.kafka.group_members(there)
        board = read_control_state(self.target, status=False)
        for group, positions in sorted(positions_of.items()):
            at = positions | {tp: n for tp, n in live.get(group, {}).items() if tp in tables}
            now = theirs[group].of_topics(topics).offsets if group in theirs else {}
            sides = GroupSides(group, at, now, bool(members.get(group)))
            marks = board.marks.get((self.link.name, group), {})
            yield sides, carry(sides, tables, marks, force=self.link.mirror.groups.force)


def _fingerprint(timestamp_ms: int, rest: bytes) -> int:
    """Hash everything that a copy must keep: the timestamp, and the bytes of key, value and headers."""
    hashed = blake2b(timestamp_ms.to_bytes(8, signed=True), digest_size=8)
    hashed.update(rest)
    return int.from_bytes(hashed.digest())


def _renamed(place: TopicPartition, other: str) -> ImportedPartition:
    return ImportedPartition(
        place,
        "renamed",
        reason=f"MirrorMaker wrote it as {other} (DefaultReplicationPolicy), a mirror keeps "
        f"the name {place.topic}",
        hint=f"let the mirror copy it again under its own name; groups are carried exactly. Move "
        f"the readers of {other}"
        " there, then delete it",
    )
