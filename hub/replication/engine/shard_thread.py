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
from dataclasses import replace
from datetime import UTC, datetime

from hub.errors import HubError
from hub.log import WriterFenced
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.registries import Registries, registries
from hub.replication.clusters.status_records import LinkContents
from hub.replication.config.mirrors import Mirror, is_open
from hub.replication.engine.batch_engine import BatchEngine
from hub.replication.engine.connection.kafka_connection import KafkaConnection
from hub.replication.engine.rates import Bucket
from hub.replication.engine.shard_start import ShardAssignment, ShardStart
from hub.replication.engine.shard_state import EngineSettings, NotYet, PartitionProgress
from hub.replication.ownership.links import Link
from hub.replication.ownership.shards import Shard
from hub.replication.rewriting.link_compression import CODECS
from hub.replication.rewriting.record_filter import NoSchemas, RecordRewriter
from hub.replication.rewriting.rules_of_schema import shape_of
from hub.runtime import Backoff

log = logging.getLogger(__name__)

_IDLE_S = 0.2
_RETRY_FIRST_S, _RETRY_MOST_S = 15.0, 300.0
_WORKER_FETCH_BYTES = 32 << 20
_LEAST_FETCH_BYTES = 1 << 20
_WORKER_LONG_FETCH_BYTES = 64 << 20
_SCHEMAS_S, _SCHEMAS_LOOK_S = 0.3, 0.02


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
            engine.interrupt()

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
                self._throttle()
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
            raise NotYet("another cluster owns these topics now")
        start = ShardStart(self.shard, self.link, self.source, self.target)
        foreign, born = start.foreign(wish, partitions)
        start.seed(wish, partitions, born)
        engine = BatchEngine(
            KafkaConnection(self.source.access, "source"),
            KafkaConnection(self.target.access, "target"),
            link=self.shard.link,
            shard=self.shard.number,
            partitions=partitions,
            settings=replace(
                settings_of(self.link.mirror, self.shards_here, self.shards_of_link),
                bounds=self.source.kafka.bounds,
            ),
            foreign=foreign,
            left_out={tp: ranges for tp, ranges in start.left_out(wish).items() if tp in partitions},
            rewriters=self._rewriters(wish, topics),
            schemas_first=self._await_schemas if wish.schemas_first else None,
        )
        try:
            engine.start()
            # Checked after fencing: a change of ownership either came before and is seen now, or comes later
            # and fences us.
            if self._may(self.link, topics) != allowed:
                raise NotYet("ownership changed meanwhile: restarting")
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

    def _rewriters(self, wish: ShardAssignment, topics: Sequence[str]) -> dict[str, RecordRewriter]:
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
            raise NotYet("some topics are no longer carried: restarting")  # their schemas may be why
        if any(
            carried.topics[tp.topic].own_ids != self._of.topics[tp.topic].own_ids
            for tp in self._of.partitions
        ):
            raise NotYet("a schema's id means another schema at the target: restarting with the target's ids")

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

    def _throttle(self) -> None:
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
        fetch_most_bytes=min(mirror.link.fetch, max(fetch, _WORKER_LONG_FETCH_BYTES // max(1, shards_here))),
        in_flight_bytes=mirror.link.in_flight,
        compression=CODECS[mirror.link.compression],
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
        fetch_most_bytes=min(made.fetch_most_bytes, max(65_536, share)),
    )


def _closed(mirror: Mirror) -> str:
    """Return why the mirror's schedule does not let it run now; "" when it does."""
    if mirror.schedule is None or is_open(mirror.schedule, datetime.now(UTC)):
        return ""
    return "outside its schedule"
