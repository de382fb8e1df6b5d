"""[core] Plan of one run of a backup, made by comparing the run before with the cluster.

A partition continues where the run before ended. It is read again from its first record when its topic was
recreated, and when it is compacted and was not read for longer than tombstones are kept: a tombstone may have
come and gone meanwhile, and its key would stay alive in the backup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hub.backup.storage.manifest import Manifest, SavedPartition, SavedTopic
from hub.log import DAY_MS
from hub.record import TopicPartition
from hub.topics.tree.tree import matches

_LEFT_OUT = ("__", "_hub.", "_schemas")
_CHANGELOGS = "views"


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic as the cluster has it now. ``begins`` and ``ends``: by partition, committed records only."""

    name: str
    topic_id: str
    replication_factor: int
    config: Mapping[str, str]
    begins: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Offsets [first, end) of one partition to read. ``saved``: the range that they continue. ``reason``: why
    the partition is read from its start again; "" when it continues.
    """

    tp: TopicPartition
    first: int
    end: int
    saved: SavedPartition
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """``topics``: every selected topic with what is saved of it so far. ``ranges``: what is read.
    ``troubles``: topics that cannot continue, with the reason; what is saved of them stays.
    """

    topics: Mapping[str, SavedTopic]
    ranges: tuple[ReadRange, ...]
    troubles: Mapping[str, str]


def is_selected(topic: str, patterns: Iterable[str]) -> bool:
    """Return whether a run saves a topic. Without patterns all are saved, except Kafka's and the hub's own,
    whose records are about offsets of this cluster, and ``_schemas``, which is saved through the registry.

    >>> [is_selected(each, ["shop.**"]) for each in ("shop.orders", "_hub.audit", "crm.a")]
    [True, False, False]
    """
    if topic.startswith(_LEFT_OUT):
        return False
    wanted = list(patterns)
    return not wanted or any(matches(pattern, topic) for pattern in wanted)


def is_restored(topic: str, patterns: Iterable[str]) -> bool:
    """Return whether a restore writes a saved topic. Changelogs of views are restored only by a pattern that
    begins with ``views``: the hub computes views again, and their changelogs have positions of the old
    cluster.

    >>> [is_restored("views.orders", each) for each in ([], ["**"], ["views.**"])]
    [False, False, True]
    """
    wanted = list(patterns)
    if topic.split(".", 1)[0] == _CHANGELOGS:
        wanted = [each for each in wanted if each.split(".", 1)[0] == _CHANGELOGS]
        return any(matches(pattern, topic) for pattern in wanted)
    return is_selected(topic, wanted)


def plan_run(
    before: Manifest | None, topics: Iterable[ClusterTopic], now_ms: int, from_start: Callable[[str], bool]
) -> RunPlan:
    """Return what a run reads. ``from_start``: topics that the caller wants to be read
    from their first record."""
    saved: dict[str, SavedTopic] = {}
    ranges: list[ReadRange] = []
    troubles: dict[str, str] = {}
    for facts in topics:
        saved_topic = before.topics.get(facts.name) if before is not None else None
        same = (
            saved_topic is not None and saved_topic.topic_id == facts.topic_id and not from_start(facts.name)
        )
        parts: list[SavedPartition] = []
        for number, (begin, end) in enumerate(zip(facts.begins, facts.ends, strict=True)):
            former = (
                saved_topic.partitions[number]
                if saved_topic is not None and number < len(saved_topic.partitions)
                else None
            )
            reason = "" if same else _reason(facts, saved_topic, from_start)
            if same and former is not None and _is_too_old(facts, former, now_ms):
                reason = "it is compacted, and tombstones may have come and gone since it was last read"
            if former is None or reason:
                former = SavedPartition(begin, begin)
            tp = TopicPartition(facts.name, number)
            if former.next > end:
                troubles[facts.name] = (
                    f"partition {number} ends at {end} in the cluster, and {former.next} in the backup:"
                    " the cluster lost records"
                )
            elif former.next < begin:
                gap = (former.next, begin)
                former = SavedPartition(
                    former.start, begin, former.segments, (*former.gaps, gap), former.read_at_ms
                )
            parts.append(former)
            if former.next <= end:
                ranges.append(ReadRange(tp, former.next, end, former, reason))
        saved[facts.name] = SavedTopic(
            facts.name, facts.topic_id, facts.replication_factor, facts.config, tuple(parts)
        )
    return RunPlan(saved, tuple(ranges), troubles)


def _reason(facts: ClusterTopic, saved_topic: SavedTopic | None, from_start: Callable[[str], bool]) -> str:
    if saved_topic is None:
        return ""
    return "--from-start" if from_start(facts.name) else "the topic was deleted and made again"


def _is_too_old(facts: ClusterTopic, saved: SavedPartition, now_ms: int) -> bool:
    if "compact" not in facts.config.get("cleanup.policy", "") or not saved.segments:
        return False
    kept = facts.config.get("delete.retention.ms", "")
    return now_ms - saved.read_at_ms >= (int(kept) if kept.isdigit() else DAY_MS)
