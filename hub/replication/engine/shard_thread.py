"""[shell] One shard of a link on this worker: a thread that steps its engine, one transaction after the
other.

::

    held back? (pause, schedule) ─▶ idle
    taken      ─▶ seed partitions with another start ─▶ engine.start (fences) ─▶ still allowed? ─▶ step …
    fenced     ─▶ over: another worker has the shard
    a partition is stopped ─▶ the others continue; it is retried later, or when a person runs ``resume``

A step is one transaction at most, so that threads share the processor fairly; memory is bounded by what an
engine may fetch at once, which the worker divides by the number of its shards. Rate limits are waited for
between steps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from hub.errors import HubError
from hub.log import WriterFenced
from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, read_progress, read_to_end, topics_of
from hub.replication.clusters.control_state import CarriedTopic, LinkContents
from hub.replication.clusters.registries import Registries, registries
from hub.replication.config.mirrors import Mirror, StartConfig, is_open
from hub.replication.engine.batch_engine import BatchEngine, EngineSettings, NotYet, PartitionProgress
from hub.replication.engine.rates import Bucket
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, Gap, checkpoint_partition
from hub.replication.maps.imported_copy import ImportedCopy, born_from, copied_of
from hub.replication.maps.two_way_offset_map import foreign_ranges
from hub.replication.ownership.links import Link
from hub.replication.ownership.shards import Shard
from hub.replication.rewriting.record_filter import NoSchemas, RecordRewriter, shape_of
from hub.runtime import Backoff

log = logging.getLogger(__name__)

_IDLE_S = 0.2
_RETRY_FIRST_S, _RETRY_MOST_S = 15.0, 300.0
_WORKER_FETCH_BYTES = 32 << 20
_LEAST_FETCH_BYTES = 1 << 20
_SCHEMAS_S, _SCHEMAS_LOOK_S = 0.3, 0.02


@dataclass(frozen=True, slots=True)
class ShardAssignment:
    """Assignment of a shard: its partitions, and the identities of their topics. ``schemas_first``: commit
    records only after the schemas that the source's registry had when they were fetched. A changed assignment
    restarts the engine.
    """

    partitions: tuple[TopicPartition, ...] = ()
    topics: Mapping[str, CarriedTopic] = field(default_factory=dict)
    opposites: Mapping[str, str] = field(default_factory=dict)
    retry_at_ms: int = 0
    schemas_first: bool = False


class ShardRun(threading.Thread):
    """Thread of one shard; see the module. The fleet sets ``wish`` and reads everything else.

    ``may``: returns which of the given topics may be carried now, by the control topics of both clusters,
    current as of the call. ``carries``: returns the last report of the link tasks. ``secrets``: keys of masks
    by their references.
    """

    def __init__(
        self,
        shard: Shard,
        link: Link,
        clusters: Mapping[str, ClusterHandle],
        may: Callable[[Link, Sequence[str]], frozenset[str]],
        carries: Callable[[], LinkContents | None],
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name=f"{shard.link}.{shard.number}", daemon=True)
        self.shard, self.link = shard, link
        self.source, self.target = clusters[link.source], clusters[link.target]
        self.wish = ShardAssignment()
        self.held: str = ""
        self.shards_here = 1
        self.shards_of_link = 1
        self.fenced = False
        self.state, self.reason = "starting", ""
        self.progress: tuple[PartitionProgress, ...] = ()
        self.ticked_at_s = time.monotonic()
        self.throttled = False
        self._may, self._carries = may, carries
        self._schemas_to: int | None = None  # schema log end that a commit waited for in vain
        self._secrets = secrets or {}
        self._schemas: Registries | NoSchemas = NoSchemas()
        self._halt = threading.Event()
        self._again = False
        self._engine: BatchEngine | None = None
        self._of = ShardAssignment()
        self._bucket: Bucket | None = None
        self._sent = 0
        self._retry_at_s = 0.0
        self._retry_backoff = Backoff(_RETRY_FIRST_S, _RETRY_MOST_S)

    # ---- called by the fleet

    def stop(self) -> None:
        self._halt.set()

    def restart(self) -> None:
        """Restart the engine; a thread that waits on a socket is woken by closing the socket."""
        self._again = True
        engine = self._engine
        if engine is not None:
            engine.source.close()
            engine.target.close()

    # ---- the thread

    def run(self) -> None:
        backoff = Backoff(0.2, 10.0)
        while not self._halt.is_set():
            self.ticked_at_s = time.monotonic()
            try:
                if self._stands():
                    continue
                engine = self._engine or self._open()
                engine.step()
                self._tell(engine)
                backoff.reset()
                self._throttle(engine)
            except WriterFenced as fenced:
                log.info("%s: %s", self.name, fenced.message)
                self.fenced, self.state, self.reason = True, "fenced", fenced.message
                break
            except HubError as error:
                self._close()
                self.state, self.reason = "trouble", error.message
                log.warning("%s: %s", self.name, error.message)
                self._halt.wait(backoff.next_s())
            except Exception:
                # A bug in one engine must not stop the worker's other shards.
                self._close()
                self.state, self.reason = "trouble", "an error of the hub itself: see the worker's log"
                log.exception("%s", self.name)
                self._halt.wait(max(2.0, backoff.next_s()))
        self._close()

    def _stands(self) -> bool:
        """Return whether there is nothing to do now; if so, waits for ``_IDLE_S``."""
        held = self.held or _closed(self.link.mirror)
        wish = self.wish
        if self._engine is not None and (held or self._again or wish != self._of or self._due()):
            self._close()
        self._again = False
        if held:
            self.state, self.reason = "paused", held
        elif not wish.partitions:
            self.state, self.reason = "idle", "nothing to carry"
        elif why := self._lacks_schemas():
            self.state, self.reason = "trouble", why
        else:
            return False
        self._halt.wait(_IDLE_S)
        return True

    def _due(self) -> bool:
        """Return whether stopped partitions are due for a retry."""
        return 0 < self._retry_at_s <= time.monotonic()

    def _open(self) -> BatchEngine:
        wish = self.wish
        self.state, self.reason = "starting", ""
        topics = sorted({tp.topic for tp in wish.partitions})
        allowed = self._may(self.link, topics)
        partitions = [tp for tp in wish.partitions if tp.topic in allowed]
        if not partitions:
            raise NotYet("another side acts for these topics now")
        foreign, born = self._foreign(wish, partitions)
        self._seed(wish, partitions, born)
        engine = BatchEngine(
            self.source.access,
            self.target.access,
            link=self.shard.link,
            shard=self.shard.number,
            partitions=partitions,
            settings=replace(
                settings_of(self.link.mirror, self.shards_here, self.shards_of_link),
                bounds=self.source.kafka.bounds,
            ),
            foreign=foreign,
            shapers=self._shapers(wish, topics),
            schemas_first=self._await_schemas if wish.schemas_first else None,
        )
        try:
            engine.start()
            # Checked after fencing: a change of ownership either came before and is seen now, or comes later
            # and fences us.
            if self._may(self.link, topics) != allowed:
                raise NotYet("hands were changed meanwhile: beginning anew")
        except BaseException:
            engine.close()
            self._close()
            raise
        self._engine, self._of = engine, wish
        self._retry_at_s = 0.0
        rate = self.link.mirror.limits.bytes_per_second
        self._bucket = Bucket(rate / max(1, self.shards_of_link)) if rate else None
        self._sent = 0
        log.info("%s: carries %d partitions", self.name, len(partitions))
        return engine

    def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        schemas, self._schemas = self._schemas, NoSchemas()
        if isinstance(schemas, Registries):
            schemas.close()

    def _shapers(self, wish: ShardAssignment, topics: Sequence[str]) -> dict[str, RecordRewriter]:
        """Return the rewriters of the topics for which the file filters or changes records."""
        shapes = {
            topic: shape
            for topic in topics
            if (shape := shape_of(self.link.mirror, topic, rewrites=wish.topics[topic].own_ids)) is not None
        }
        if shapes:
            self._schemas = registries(self.source, self.target)
        return {topic: RecordRewriter(shape, self._schemas, self._secrets) for topic, shape in shapes.items()}

    # ---- schemas before the events that name them

    def _await_schemas(self, end: int) -> None:
        """Wait briefly until the target has the schemas that the source's log has before ``end``. Records to
        be committed may name them, although most schemas belong to other topics. Raises NotYet after
        ``_SCHEMAS_S``: the transaction is then retried once the schemas are there, because an open
        transaction blocks the readers of the target, and so the link tasks that carry schemas.
        """
        self._schemas_to = end
        deadline = time.monotonic() + _SCHEMAS_S
        while why := self._lacks_schemas():
            if time.monotonic() > deadline or self._halt.is_set() or self._again or self.held:
                raise NotYet(why)
            self._halt.wait(_SCHEMAS_LOOK_S)
        carried = self._carries()
        if carried is None or not carried.topics.keys() >= {tp.topic for tp in self._of.partitions}:
            raise NotYet("some topics are not carried any more: beginning anew")  # their schemas may be why
        if any(
            carried.topics[tp.topic].own_ids != self._of.topics[tp.topic].own_ids
            for tp in self._of.partitions
        ):
            raise NotYet(
                "a schema's id means another schema at the target: beginning anew with the target's ids"
            )

    def _lacks_schemas(self) -> str:
        """Return why the last commit still waits for schemas at the target; empty when it does not."""
        if self._schemas_to is None or not self.wish.schemas_first:
            return ""
        carried = self._carries()
        if carried is not None and carried.schemas_to >= self._schemas_to:
            self._schemas_to = None
            return ""
        said = f": {carried.error}" if carried is not None and carried.error else ""
        return f"events wait for schemas that the registry of {self.target.name} does not have yet{said}"

    def _tell(self, engine: BatchEngine) -> None:
        self.progress = tuple(engine.progress())
        failed = [each for each in self.progress if each.error is not None]
        if failed and not self._retry_at_s:
            self._retry_at_s = time.monotonic() + self._retry_backoff.next_s()
        elif not failed:
            self._retry_at_s = 0.0
            self._retry_backoff.reset()
        error = engine.error
        self.state, self.reason = ("mirroring", "") if error is None else ("trouble", error.message)

    def _throttle(self, engine: BatchEngine) -> None:
        sent = sum(each.bytes for each in self.progress)
        taken, self._sent = sent - self._sent, sent
        self.throttled = False
        if self._bucket is None:
            return
        wait_s = self._bucket.took(time.monotonic(), taken)
        while wait_s > 0 and not self._halt.is_set() and not self._again and not self.held:
            self.throttled = True
            self.ticked_at_s = time.monotonic()
            self._halt.wait(min(wait_s, _IDLE_S))
            wait_s -= _IDLE_S

    # ---- before an engine starts

    def _foreign(
        self, wish: ShardAssignment, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, list[tuple[int, int]]], dict[TopicPartition, int]]:
        """Return the ranges of source offsets that came from the target, by the map of the other direction,
        and by partition the offset from which on records were born at the source: copies before it are in no
        map. If either topic was recreated since, the target has nothing of that map's records, and everything
        is sent. Only partitions that the other direction has carried are listed.
        """
        found: dict[TopicPartition, list[tuple[int, int]]] = {}
        born: dict[TopicPartition, int] = {}
        if not any(tp.topic in wish.opposites for tp in partitions):
            return found, born
        theirs, copied = read_progress(self.source), self._copied()
        there = topics_of(self.target)
        for tp in partitions:
            back = wish.opposites.get(tp.topic)
            if back is None or tp not in theirs.of(back):
                continue
            mark = theirs.of(back)[tp]
            ours = there[tp.topic].topic_id if tp.topic in there else ""
            if not mark.is_of(ours, wish.topics[tp.topic].topic_id):
                found[tp], born[tp] = [], 0
                continue
            table = theirs.table(back, tp)
            if table is None:
                raise NotYet(f"the map of {back} is not readable yet")
            found[tp] = foreign_ranges(table, 0, table.target_next)
            born[tp] = born_from(mark, copied.get((back, *tp)))
        return found, born

    def _copied(self) -> dict[tuple[str, str, int], ImportedCopy]:
        """Return the notes that imports left at the source."""
        found: dict[bytes, ImportedCopy | None] = {}

        def take(record: Record) -> None:
            if record.key is not None:
                found[record.key] = copied_of(record)

        read_to_end(self.source, [CHECKPOINTS_TOPIC], take)
        return {(each.link, each.topic, each.partition): each for each in found.values() if each is not None}

    def _seed(
        self,
        wish: ShardAssignment,
        partitions: Sequence[TopicPartition],
        brought: Mapping[TopicPartition, int],
    ) -> None:
        """Write checkpoints for partitions that do not begin where an engine would begin by itself. They are
        written under the shard's own fence, so that newer checkpoints of another worker are not overwritten.

        ``brought``: partitions that the other direction has carried, so that the target has records of its
        own, with the source offset from which on the source's records are its own. Raises NotYet for any other
        partition whose target has records and no checkpoint: its records would come twice (after a mirror was
        dropped).
        """
        known = read_progress(self.target, maps=False).of(self.shard.link)
        if not any(self._needs_seed(wish, tp, known.get(tp), tp in brought) for tp in partitions):
            return
        writer = self.target.kafka.writer(self.shard.transactional_id)
        try:
            known = read_progress(self.target, maps=False).of(self.shard.link)
            needed = [tp for tp in partitions if self._needs_seed(wish, tp, known.get(tp), tp in brought)]
            records = self._seeds(wish, needed, known, brought)
            if records:
                writer.append(records)
                log.info("%s: %d partitions begin where they are told", self.name, len(needed))
        finally:
            writer.close()

    def _needs_seed(
        self, wish: ShardAssignment, tp: TopicPartition, known: Checkpoint | None, brought: bool
    ) -> bool:
        topic = wish.topics[tp.topic]
        if known is not None:
            return (
                bool(topic.topic_id)
                and known.topic_id != topic.topic_id
                and topic.generation > known.generation
            )
        return self.link.mirror.start != "earliest" or brought

    def _seeds(
        self,
        wish: ShardAssignment,
        needed: Sequence[TopicPartition],
        known: Mapping[TopicPartition, Checkpoint],
        brought: Mapping[TopicPartition, int],
    ) -> list[NewRecord]:
        topics = sorted({tp.topic for tp in needed})
        if not topics:
            return []
        begins = self.source.kafka.beginning_offsets(topics)
        ends = self.target.kafka.end_offsets(topics, committed=False)
        there_from = self.target.kafka.beginning_offsets(topics)
        starts = self._starts(topics)
        there = topics_of(self.target)
        own = self.target.kafka.topics()[CHECKPOINTS_TOPIC].partitions
        place = checkpoint_partition(self.shard.link, self.shard.number, own)
        now_ms = int(time.time() * 1000)
        made: list[NewRecord] = []
        for tp in needed:
            before, topic = known.get(tp), wish.topics[tp.topic]
            if before is None and tp not in brought and ends.get(tp) > there_from.get(tp):
                raise NotYet(
                    f'topic "{tp.topic}" partition {tp.partition}: the target has records and no checkpoint of this mirror'
                )
            first, end = begins.get(tp), ends.get(tp)
            if before is None:
                first = max(first, starts.get(tp, 0), brought.get(tp, 0))
            else:
                # Where the former copy ended: records after it were born there while that side had the
                # ownership, and must return one day.
                same = before.target_topic_id in ("", there[tp.topic].topic_id)
                end = min(end, before.target_next) if same else there_from.get(tp)
            after = Checkpoint(
                self.shard.link,
                self.shard.number,
                *tp,
                topic.topic_id,
                first,
                -1,
                end,
                target_topic_id=there[tp.topic].topic_id,
                generation=topic.generation if before is not None else 0,
                source_start=first,
                target_start=end,
                committed_at_ms=now_ms,
            )
            if before is not None:
                lost = Gap(self.shard.link, *tp, before.topic_id, before.source_next, -1, "recreated", now_ms)
                made.append(lost.record(place))
            made.append(after.record(place))
        return made

    def _starts(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions without a checkpoint, where these do not start at their
        first record.
        """
        start = self.link.mirror.start
        if start == "earliest":
            return {}
        ends = dict(self.source.kafka.end_offsets(topics))
        if isinstance(start, StartConfig):
            at_ms = int(start.timestamp.timestamp() * 1000)
            return ends | dict(self.source.kafka.offsets_at(topics, at_ms))
        return ends


def settings_of(mirror: Mirror, shards_here: int, shards_of_link: int) -> EngineSettings:
    """Return the engine settings of a mirror; memory is divided by the shards of this worker, limits by those
    of the link.
    """
    defaults = EngineSettings()
    fetch = max(_LEAST_FETCH_BYTES, min(defaults.fetch_bytes, _WORKER_FETCH_BYTES // max(1, shards_here)))
    made = replace(
        defaults,
        commit_interval_s=mirror.commit.interval / 1000,
        commit_bytes=mirror.commit.size,
        commit_records=mirror.commit.records,
        on_gap=mirror.on_gap,
        fetch_bytes=fetch,
        fetch_partition_bytes=min(defaults.fetch_partition_bytes, fetch),
    )
    rate = mirror.limits.bytes_per_second
    if rate is None:
        return made
    # A transaction of about one second at most, so that the limit holds over seconds and not over minutes.
    share = max(16_384, rate // max(1, shards_of_link))
    return replace(
        made,
        commit_bytes=min(made.commit_bytes, share),
        fetch_bytes=min(fetch, max(65_536, share)),
        fetch_partition_bytes=min(made.fetch_partition_bytes, max(65_536, share)),
    )


def _closed(mirror: Mirror) -> str:
    """Return why the mirror's schedule does not let it run now; "" when it does."""
    if mirror.schedule is None or is_open(mirror.schedule, datetime.now(UTC)):
        return ""
    return "outside its schedule"
