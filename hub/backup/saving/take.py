"""[shell] One run of a backup: groups and access rules, ends, records, schemas, and the manifest last.

The order keeps what belongs together: positions of groups are read before the ends, so that no position is
after the saved records; schemas after the records, so that every id in a record is saved.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from hub.backup.saved_registry import read_registry
from hub.backup.saving.range_reader import RangeReader
from hub.backup.saving.run_plan import ClusterTopic, ReadRange, RunPlan, is_selected, plan_run
from hub.backup.saving.segment_writer import SegmentWriter
from hub.backup.storage.manifest import Manifest, SavedPartition, SavedTopic
from hub.backup.storage.vault import Vault, remove_orphans
from hub.errors import HubError, NotFound, PeerError
from hub.kafka.groups import REFUSED
from hub.log import TopicDescription
from hub.record import TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.engine.connection.kafka_connection import KafkaConnection
from hub.times import epoch_ms
from hub.topics.tree.tree import matches

log = logging.getLogger(__name__)

PROGRESS_S = 5.0
_ABANDONED_MS = 600_000
_OWN_GROUPS = "hub."
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """``patterns``: topics to save, none: all. ``from_start``: topics to read from their first record.
    ``files``: definitions to save, text by path. ``schemas`` False: the registry is not read.
    """

    patterns: tuple[str, ...] = ()
    from_start: tuple[str, ...] = ()
    files: Mapping[str, str] | None = None
    schemas: bool = True


@dataclass(frozen=True, slots=True)
class RunReport:
    """Result of a run. Sizes are those of this run. ``troubles``: topics and groups that are not saved to
    their end, with the reason. ``from_start``: partitions that were read from their first record, with the
    reason. ``resumed``: it continued a run that was killed.
    """

    manifest: Manifest
    seconds: float
    records: int
    raw_bytes: int
    stored_bytes: int
    troubles: Mapping[str, str]
    from_start: Mapping[TopicPartition, str]
    gaps: Sequence[tuple[TopicPartition, int, int]]
    resumed: bool


def take(
    source: ClusterHandle,
    vault: Vault,
    request: RunRequest,
    *,
    alone: bool,
    progress: Progress = lambda _done, _all: None,
) -> RunReport:
    """Save what is new. ``alone``: no other process writes to the backup now. Raises PeerError when the
    cluster, its registry or the storage does not answer; then repeat the call: it continues from its last
    progress.
    """
    begun_s = time.monotonic()
    numbers, unfinished = vault.numbers(), vault.unfinished()
    before = unfinished or (vault.run(numbers[-1]) if numbers else None)
    if unfinished is not None and (alone or epoch_ms() - unfinished.ended_at_ms > _ABANDONED_MS):
        remove_orphans(vault, unfinished, lambda count: log.info("%d orphans of a killed run removed", count))
    number = max([*numbers, 0 if before is None else before.number]) + 1
    troubles: dict[str, str] = {}
    started, plan = _planned(source, before, request, number, troubles)
    run = _Run(source, vault, started, plan, troubles, progress)
    manifest = run.read()
    manifest = replace(
        manifest,
        groups=_of_topics(started.groups, manifest.topics),
        registry=read_registry(source.registry) if request.schemas and source.registry else manifest.registry,
        ended_at_ms=epoch_ms(),
        complete=True,
    )
    vault.keep(manifest)
    return RunReport(
        manifest,
        time.monotonic() - begun_s,
        run.writer.records,
        run.writer.raw_bytes,
        run.writer.stored_bytes,
        troubles,
        {each.tp: each.reason for each in plan.ranges if each.reason},
        run.gaps,
        unfinished is not None,
    )


def _planned(
    source: ClusterHandle,
    before: Manifest | None,
    request: RunRequest,
    number: int,
    troubles: dict[str, str],
) -> tuple[Manifest, RunPlan]:
    """Return the state at the beginning of a run, and the plan of its reads. Adds topics that cannot be read
    to ``troubles``. Raises NotFound when the patterns match no topic.
    """

    def is_gone(name: str) -> bool:
        return is_selected(name, request.patterns) and name not in topics

    topics = {name: each for name, each in topics_of(source).items() if is_selected(name, request.patterns)}
    if request.patterns and not topics:
        raise NotFound(
            f"no topic of the cluster matches: {' '.join(request.patterns)}",
            hint="hub topic ls shows the topics; ** stands for any number of labels",
        )
    groups, rules = _groups(source, troubles), _rules(source, troubles)
    facts = _facts(source, topics, troubles)
    taken_at_ms = epoch_ms()
    plan = plan_run(
        before, facts, taken_at_ms, lambda topic: any(matches(each, topic) for each in request.from_start)
    )
    troubles |= plan.troubles
    started = Manifest(
        number,
        taken_at_ms,
        topics=_with_others(before, plan.topics, is_gone),
        groups=groups,
        registry=None if before is None else before.registry,
        files=request.files or {},
        rules=rules,
    )
    return started, plan


class _Run:
    """Reading of the ranges of one run."""

    def __init__(
        self,
        source: ClusterHandle,
        vault: Vault,
        started: Manifest,
        plan: RunPlan,
        troubles: dict[str, str],
        progress: Progress,
    ) -> None:
        self._source, self._vault, self._started, self._plan = source, vault, started, plan
        self._troubles, self._progress = troubles, progress
        begun = {each.tp: each.saved for each in plan.ranges}
        self.writer = SegmentWriter(vault, started.number, started.taken_at_ms, begun)
        self.gaps: list[tuple[TopicPartition, int, int]] = [
            (each.tp, *gap) for each in plan.ranges for gap in each.saved.gaps[-1:] if gap[1] == each.first
        ]

    def read(self) -> Manifest:
        """Read and store every range; return the state after it."""
        self._vault.keep(self._state())
        reader = RangeReader(KafkaConnection(self._source.access, "source"), self._plan.ranges)
        ends = {each.tp: each for each in self._plan.ranges}
        total = sum(each.end - each.first for each in self._plan.ranges)
        at, done = {each.tp: each.first for each in self._plan.ranges}, 0
        kept_at_s = time.monotonic()
        try:
            for taken in reader.taken():
                if taken.gap is not None:
                    self.writer.gap(taken.tp, taken.gap)
                    self.gaps.append((taken.tp, *taken.gap))
                self.writer.add(taken.tp, taken.batches, taken.next)
                if taken.over:
                    self._over(ends[taken.tp], taken.error)
                position = max(at[taken.tp], min(taken.next, ends[taken.tp].end))
                done, at[taken.tp] = done + position - at[taken.tp], position
                self._progress(done, total)
                if time.monotonic() - kept_at_s > PROGRESS_S:
                    self._vault.keep(self._state())
                    kept_at_s = time.monotonic()
            return self._state(wait=True)
        finally:
            reader.close()
            self.writer.close()

    def _over(self, wanted: ReadRange, error: HubError | None) -> None:
        if error is not None:
            self._troubles[wanted.tp.topic] = error.message
        self.writer.end(wanted.tp, read=error is None)

    def _state(self, *, wait: bool = False) -> Manifest:
        """Return the state of the backup with everything that is stored."""
        stored = self.writer.state(wait=wait)
        topics = {
            name: replace(topic, partitions=_updated(topic, stored))
            for name, topic in self._started.topics.items()
        }
        return replace(self._started, topics=topics, ended_at_ms=epoch_ms())


def _updated(
    topic: SavedTopic, stored: Mapping[TopicPartition, SavedPartition]
) -> tuple[SavedPartition, ...]:
    return tuple(
        stored.get(TopicPartition(topic.name, number), each) for number, each in enumerate(topic.partitions)
    )


def _with_others(
    before: Manifest | None, topics: Mapping[str, SavedTopic], is_gone: Callable[[str], bool]
) -> dict[str, SavedTopic]:
    """Return the topics of this run, and the others of the run before, except deleted ones."""
    others = {} if before is None else before.topics
    return {name: topic for name, topic in others.items() if not is_gone(name)} | dict(topics)


def _facts(
    source: ClusterHandle, topics: Mapping[str, TopicDescription], troubles: dict[str, str]
) -> list[ClusterTopic]:
    """Return the state of these topics. Topics with a partition that does not answer are left out."""
    kafka = source.kafka
    config = kafka.topic_config(sorted(topics))
    places = [
        TopicPartition(name, number) for name, each in topics.items() for number in range(each.partitions)
    ]
    begins = dict(kafka.beginnings_of(places)) if places else {}
    ends = dict(kafka.known_ends(places)) if places else {}
    found = []
    for name, each in sorted(topics.items()):
        own = [TopicPartition(name, number) for number in range(each.partitions)]
        missing = [tp.partition for tp in own if tp not in begins or tp not in ends]
        if missing:
            troubles[name] = f"partition {missing[0]} has no leader now"
            continue
        found.append(
            ClusterTopic(
                name,
                each.topic_id,
                each.replication_factor,
                dict(config[name]),
                tuple(begins[tp] for tp in own),
                tuple(ends[tp] for tp in own),
            )
        )
    return found


def _groups(source: ClusterHandle, troubles: dict[str, str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the committed positions of all groups but the hub's own."""
    names = [name for name in source.kafka.groups() if not name.startswith(_OWN_GROUPS)]
    found = {}
    for name, positions in source.kafka.group_offsets(names).items():
        if isinstance(positions, HubError):
            troubles[f"group {name}"] = positions.message
        elif positions:
            found[name] = dict(positions.offsets)
    return found


def _rules(source: ClusterHandle, troubles: dict[str, str]) -> tuple[Mapping[str, str], ...] | None:
    """Return the cluster's access rules; None when it has no authorizer, or does not show them."""
    try:
        rules = source.kafka.all_rules()
    except PeerError as error:
        if error.code != REFUSED:
            raise
        troubles["access rules"] = error.message
        return None
    return None if rules is None else tuple(asdict(each) for each in sorted(rules))


def _of_topics(
    groups: Mapping[str, Mapping[TopicPartition, int]], topics: Mapping[str, SavedTopic]
) -> dict[str, dict[TopicPartition, int]]:
    found = {
        group: {tp: offset for tp, offset in positions.items() if tp.topic in topics}
        for group, positions in groups.items()
    }
    return {group: positions for group, positions in found.items() if positions}
