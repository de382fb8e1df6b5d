"""[shell] The writer: topics with ``lake: true`` into their tables, one topic at a time.

A round of a topic reads what is new, up to a bound, and commits rows and positions at once. A topic that is
behind by more has its next round after the other topics. Dead-letter records are written before the commit:
a writer that is killed in between writes them again, and ``hub dlq`` lists them once. A topic that fails
waits a growing time; the others continue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow
from pyiceberg.catalog import Catalog

from hub.config import Settings
from hub.errors import Conflict, HubError
from hub.iceberg.catalog import identifier_of, open_catalog
from hub.kafka import own_cluster
from hub.kafka.cluster import KafkaCluster
from hub.lake.batch import LakeBatch, read_batch
from hub.lake.maintenance import maintain
from hub.lake.note import LakeNote, LakeState, TopicInLake, write_note
from hub.lake.schemas import LakeSchemas
from hub.lake.snapshots import MissingRange, TableProgress, gone_ranges, starts
from hub.lake.table import LakeTable, check_same_topic, ensure_table, topic_changed
from hub.log import Reader, TopicDescription
from hub.materializers.engine.plans.topics import ensure_dead_letter_topic, largest_records
from hub.record import Positions
from hub.runtime import Backoff
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.dead_letters.model import DLQ_SUFFIX
from hub.topics.tree.tree import LiveTree

log = logging.getLogger(__name__)

_STEP_S = 1.0
_QUEUE_KB = 65_536


@dataclass
class TopicWork:
    """State of the writer for one topic. ``table`` None: it is to be opened."""

    schemas: LakeSchemas
    note: TopicInLake
    table: LakeTable | None = None
    due_s: float = 0.0
    maintain_s: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 60.0))
    last_error: str = ""


def lake_topics(tree: LiveTree) -> list[str]:
    """Return the topics that the tree wants in the lake."""
    return sorted(name for name, spec in tree.topics().items() if spec.lake)


class LakeWriter:
    """Writer of all tables. Call ``step`` repeatedly. Not thread safe."""

    def __init__(
        self,
        settings: Settings,
        cluster: KafkaCluster,
        registry: RegistryClient,
        topics: Callable[[], list[str]],
        now_s: Callable[[], float] = time.time,
        open_reader: Callable[[], Reader] | None = None,
    ) -> None:
        self.settings, self.cluster, self.registry = settings, cluster, registry
        self.work: dict[str, TopicWork] = {}
        self._topics, self._now_s = topics, now_s
        self._open_reader = open_reader or (lambda: cluster.gatherer(queue_kb=_QUEUE_KB))
        self._catalog: Catalog | None = None
        self._reader: Reader | None = None

    def step(self, going: Callable[[], bool] = lambda: True) -> bool:
        """Give each topic that is due a round. Returns False if none was. Raises HubError for Kafka's own
        errors.
        """
        names = self._topics()
        for gone in self.work.keys() - set(names):
            del self.work[gone]
        descriptions = self.cluster.described(names)
        done = False
        for name in names:
            work = self.work.get(name) or self._new(name)
            if not going() or self._now_s() < work.due_s:
                continue
            done = True
            try:
                if name not in descriptions:
                    raise Conflict(
                        f'topic "{name}" does not exist in Kafka',
                        hint="apply the tree: hub topic apply",
                        code="HUB-1812",
                    )
                self._round(name, work, descriptions[name], going)
                work.backoff.reset()
            except HubError as error:
                self._failed(work, error)
            write_note(self.settings.home, self.note())
        return done

    def note(self) -> LakeNote:
        """Return the state of all topics."""
        return LakeNote(round(self._now_s() * 1_000), {name: work.note for name, work in self.work.items()})

    def close(self) -> None:
        """Close the reader and the catalog; the next step opens them again."""
        for work in self.work.values():
            work.table = None
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _new(self, name: str) -> TopicWork:
        table = ".".join(identifier_of(self.settings, name))
        work = self.work[name] = TopicWork(LakeSchemas(self.registry, name), TopicInLake(name, table))
        work.maintain_s = self._now_s() + self.settings.lake_maintain_h * 3_600
        return work

    def _failed(self, work: TopicWork, error: HubError) -> None:
        """Close all tables: the next round reads the state of the table again."""
        work.table = None
        pause_s = work.backoff.next_s()
        work.due_s = self._now_s() + pause_s
        if error.message != work.last_error:
            log.error('topic "%s" is not written: %s', work.note.topic, error)
            work.last_error = error.message
        work.note = replace(work.note, state="FAILING", trouble=error.message, behind=None)

    def _round(
        self, name: str, work: TopicWork, description: TopicDescription, going: Callable[[], bool]
    ) -> None:
        table = work.table or self._open(name, work)
        ends = self._by_partition(self.cluster.end_offsets([name]))
        begins = self._by_partition(self.cluster.beginning_offsets([name]))
        check_same_topic(table, name, description.topic_id)
        first, lost, cut = starts(table.progress, begins, ends)
        if cut:
            raise topic_changed(table.name, name)
        if lost:
            log.error('topic "%s": %d offsets are gone before they were in the table', name, lost)
        if work.schemas.refresh() or table.version != work.schemas.number:
            self._evolve(work, table)
        batch = LakeBatch()
        if any(first[each] < end for each, end in ends.items()):
            batch = read_batch(
                self._opened_reader(), name, first, ends, work.schemas, table.arrow_schema, going
            )
        self._commit(name, table, batch, description.topic_id, lost, gone_ranges(table.progress, begins))
        if batch.newer_schema:
            self._evolve(work, table)
        self._settle(work, table, batch, ends)

    def _open(self, name: str, work: TopicWork) -> LakeTable:
        if self._catalog is None:
            self._catalog = open_catalog(self.settings)
        table = work.table = ensure_table(self._catalog, identifier_of(self.settings, name), name)
        work.schemas.use(table.fields)
        return table

    def _evolve(self, work: TopicWork, table: LakeTable) -> None:
        table.evolve(work.schemas.since(table.version), work.schemas.number)
        work.schemas.use(table.fields)

    def _commit(
        self,
        name: str,
        table: LakeTable,
        batch: LakeBatch,
        topic_id: str,
        lost: int,
        gone: Sequence[MissingRange],
    ) -> None:
        before = table.progress
        if not lost and all(before.positions.get(each) == at for each, at in batch.positions.items()):
            return
        if batch.dead:
            self._write_dead_letters(name, batch)
        progress = TableProgress(
            topic_id,
            {**before.positions, **batch.positions},
            before.lost + lost,
            before.dead_letters + len(batch.dead),
            None if before.missing is None else (*before.missing, *gone),
        )
        rows = pyarrow.concat_tables(batch.tables) if batch.tables else table.arrow_schema.empty_table()
        table.append(rows, progress)

    def _write_dead_letters(self, name: str, batch: LakeBatch) -> None:
        largest = largest_records(self.cluster, [name])[name]
        ensure_dead_letter_topic(self.cluster, name + DLQ_SUFFIX, largest, self.settings)
        writer = self.cluster.writer()
        try:
            writer.append(batch.dead)
        finally:
            writer.close()

    def _settle(self, work: TopicWork, table: LakeTable, batch: LakeBatch, ends: Mapping[int, int]) -> None:
        """Set when the topic is due again, and its note."""
        now_s = self._now_s()
        progress = table.progress
        behind = sum(max(0, end - progress.positions.get(each, 0)) for each, end in ends.items())
        again = batch.newer_schema or (behind > 0 and not batch.stopped)
        work.due_s = now_s if again else now_s + self.settings.lake_commit_s
        state: LakeState = "FAILING" if batch.stopped else "WRITING"
        stopped = "; ".join(f"partition {each}: {why}" for each, why in batch.stopped.items())
        if stopped and stopped != work.last_error:
            log.error('topic "%s": a partition is not read on: %s', work.note.topic, stopped)
        work.last_error = stopped
        work.note = replace(
            work.note,
            state=state,
            trouble=stopped,
            rows=table.rows,
            behind=behind,
            committed_at_ms=table.committed_at_ms,
            dead_letters=progress.dead_letters,
            lost=progress.lost,
        )
        if 0 < work.maintain_s <= now_s and self.settings.lake_maintain_h > 0 and not again:
            work.maintain_s = now_s + self.settings.lake_maintain_h * 3_600
            maintain(table, self.settings, now_s)

    def _opened_reader(self) -> Reader:
        if self._reader is None:
            self._reader = self._open_reader()
        return self._reader

    @staticmethod
    def _by_partition(positions: Positions) -> dict[int, int]:
        return {place.partition: at for place, at in positions}


def run(settings: Settings, stop: threading.Event) -> None:
    """Write until ``stop`` is set. While Kafka does not answer, it waits and tries again."""
    cluster, registry = own_cluster(settings), RegistryClient(settings.registry)
    tree = LiveTree(settings.project / "topics.yaml")
    writer = LakeWriter(settings, cluster, registry, lambda: lake_topics(tree))
    backoff = Backoff(0.5, 10.0)
    last_error = wrong_tree = ""
    while not stop.is_set():
        try:
            worked = writer.step(lambda: not stop.is_set())
            backoff.reset()
            last_error = ""
            write_note(settings.home, writer.note())
            if tree.error is not None and tree.error.message != wrong_tree:
                log.error("topics.yaml cannot be read, the previous tree stays in force: %s", tree.error)
            wrong_tree = "" if tree.error is None else tree.error.message
            if not worked:
                stop.wait(_STEP_S)
        except HubError as error:
            if error.message != last_error:
                log.warning("the lake waits: %s", error)
            last_error = error.message
            writer.close()
            stop.wait(backoff.next_s())
    writer.close()
    registry.close()
