"""[shell] Forget a mirror: delete its records about its copies in the topics of its target. The copies
stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hub.log import Writer
from hub.record import NewRecord, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.readers import read_control_state, read_progress
from hub.replication.clusters.status_records import CHORES
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, CONTROL_TOPIC, MAP_TOPIC
from hub.replication.maps.imported_copy import ImportedCopy
from hub.replication.ownership.links import Link, links, opposite
from hub.replication.ownership.shards import Shard
from hub.replication.planning.source_deletion import source_record

_FORGOTTEN_AT_ONCE = 10_000

Meant = Callable[[str], bool]


def forget_both(
    file: MirrorsFile, link: Link, clusters: Mapping[str, ClusterHandle], topics: Sequence[str] = ()
) -> int:
    """``forget`` a link, and the other direction's state of the same topics. That state alone would mark all
    records of the copies as born there, and they would be mirrored into the copies again. Raises PeerError;
    then repeat the call.
    """
    source, target = clusters[link.source], clusters[link.target]
    known = {tp.topic for tp in read_progress(target, maps=False).of(link.name)}
    there = read_progress(source, maps=False)
    by_name: dict[str, list[str]] = {}
    for topic in sorted(known & set(topics) if topics else known):
        back = opposite(file, link, topic)
        if back is not None and any(tp.topic == topic for tp in there.of(back)):
            by_name.setdefault(back, []).append(topic)
    every = links(file)
    for name, of in by_name.items():  # this side last: as long as it exists, the call can be repeated
        forget(every[name], source, of)
    return forget(link, target, topics)


def forget(link: Link, target: ClusterHandle, topics: Sequence[str] = ()) -> int:
    """Take over the shards, then delete checkpoints, gaps, maps, marks and status of a link (or of some of
    its topics). The copies stay. Returns the number of partitions.
    """
    for number in range(link.mirror.shards):
        target.kafka.writer(Shard(link.name, number).transactional_id).close()
    # Kept open until the map is deleted: link tasks that open it meanwhile, to compact the map they have
    # read, fence this writer.
    chores = target.kafka.writer(Shard(link.name, CHORES).transactional_id)
    only = set(topics)

    def meant(topic: str) -> bool:
        return not only or topic in only

    progress, board = read_progress(target), read_control_state(target)
    topic_partitions = [tp for tp in progress.of(link.name) if meant(tp.topic)]
    own = range(target.kafka.topics()[CHECKPOINTS_TOPIC].partitions)
    runs = list(_map_tombstones(link.name, progress, meant))
    try:
        for first in range(0, len(runs), _FORGOTTEN_AT_ONCE):
            chores.append(runs[first : first + _FORGOTTEN_AT_ONCE])
    finally:
        chores.close()
    sender = target.kafka.sender(linger_ms=5)
    for each in (
        *_checkpoint_tombstones(link.name, progress, topic_partitions, own, meant),
        *_topic_tombstones(link.name, board, meant),
        *(_link_tombstones(link.name, board) if not only else ()),
    ):
        sender.send(each)
    sender.flush(60.0)
    return len(topic_partitions)


def forget_copy(
    link: str,
    topic: str,
    target: ClusterHandle,
    writer: Writer,
    *,
    except_for: frozenset[bytes] = frozenset(),
) -> None:
    """Delete the records of a copy that does not exist any more. Nobody can write a checkpoint of it: that
    needs a record of the copy in the same transaction. ``writer``: with the fence of the link's tasks;
    ``except_for``: keys of control records that stay.
    """
    progress, board = read_progress(target), read_control_state(target)

    def meant(name: str) -> bool:
        return name == topic

    own = range(target.kafka.topics()[CHECKPOINTS_TOPIC].partitions)
    places = [tp for tp in progress.of(link) if tp.topic == topic]
    records = [
        *_map_tombstones(link, progress, meant),
        *_checkpoint_tombstones(link, progress, places, own, meant),
        *(each for each in _topic_tombstones(link, board, meant) if each.key not in except_for),
    ]
    for first in range(0, len(records), _FORGOTTEN_AT_ONCE):
        writer.append(records[first : first + _FORGOTTEN_AT_ONCE])


def _map_tombstones(link: str, progress: WrittenState, meant: Meant) -> Iterator[NewRecord]:
    for (name, topic, _, _), found in progress.keys.items():
        if name == link and meant(topic):
            for number, key in found:
                yield NewRecord(MAP_TOPIC, key, None, partition=number)


def _checkpoint_tombstones(
    link: str, progress: WrittenState, topic_partitions: Sequence[TopicPartition], own: range, meant: Meant
) -> Iterator[NewRecord]:
    """Tombstones by key in any partition: with another number of shards a record may be in another one."""
    keys = [f"checkpoint|{link}|{tp.topic}|{tp.partition}".encode() for tp in topic_partitions]
    keys += [gap.key for gap in progress.gaps.values() if gap.link == link and meant(gap.topic)]
    keys += [ImportedCopy(link, *tp, "", 0).key for tp in topic_partitions]
    keys += [each.key for each in progress.rules_of(link) if meant(each.topic)]
    for key in keys:
        for number in own:
            yield NewRecord(CHECKPOINTS_TOPIC, key, None, partition=number)


def _topic_tombstones(link: str, board: ControlState, meant: Meant) -> Iterator[NewRecord]:
    """Yield tombstones for records of single topics in the control and status topics."""
    for (name, topic), synced in board.synced.items():
        if name == link and meant(topic):
            yield NewRecord(CONTROL_TOPIC, synced.record().key, None)
    keys = [(key, each.key) for key, each in board.deletions.items()]
    keys += [(key, each.key) for key, each in board.drifts.items()]
    for (name, topic), record_key in keys:
        if name == link and meant(topic):
            yield NewRecord(CONTROL_TOPIC, record_key, None)
    for (name, _), places in board.marks.items():
        if name == link:
            yield from (NewRecord(CONTROL_TOPIC, m.key, None) for tp, m in places.items() if meant(tp.topic))
    for status in board.partitions.values():
        if status.link == link and meant(status.topic):
            yield _tombstone(status.record())
    for verified in board.verified.values():
        if verified.link == link and meant(verified.topic):
            yield _tombstone(verified.record())


def _link_tombstones(link: str, board: ControlState) -> Iterator[NewRecord]:
    """Yield tombstones for records of the whole link in the control and status topics."""
    for group in board.groups.values():
        if group.link == link:
            yield _tombstone(group.record())
    for (name, _), subject in board.subjects.items():
        if name == link:
            yield NewRecord(CONTROL_TOPIC, subject.record().key, None)
    for (name, _), rehearsal in board.rehearsals.items():
        if name == link:
            yield rehearsal.forgotten()
    if link in board.sources:
        yield _tombstone(source_record(link, ""))
    for stated in (board.carries.get(link), board.ends.get(link), board.rights.get(link)):
        if stated is not None:
            yield _tombstone(stated.record())


def _tombstone(record: NewRecord) -> NewRecord:
    return NewRecord(record.topic, record.key, None)
