"""[shell] The materializer process: one Spark session and one thread per view.

Each view's thread runs one loop. It plans the view (topics, schemas, generation), catches up in *bulk* when
many events are unread, and then runs *live* or *realtime*, as the view's file says. It plans again when the
plan is stale (the file changed, a new topic matches, an unknown schema id appeared). When the query fails,
the thread reports the error in the view's state and retries after a growing pause. Other views are not
affected.

A *version* is one computation of a view from the start of its log (versions/versions.py). When the plan
changes so that the state cannot be used, or the checkpoint is lost, the next version is built beside the
serving one, with a thread, a checkpoint and a changelog of its own. The view's file applies to the newest
version. Older versions continue from their own definition in the log and from the schemas and topics noted
beside their checkpoints. With ``swap: in_place`` the view is recomputed in the same changelog instead, as its
next *generation*. Rows carry the generation in ``hub.version``, so rows of a later generation replace those
of an earlier one in every store.

Real-time mode writes rows as events arrive and logs their offsets only at its checkpoints. After a stop
between two checkpoints, the events since the last one are folded again, perhaps in another order among the
sources, and a store keeps the row that it already has of the same version. A position is therefore reported
only once it covers everything that may have been read before. Until then a store may hold a row that is ahead
in one source and behind in another.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hub.config import SERVING, Settings
from hub.errors import ConfigError, Conflict, HubError, NotFound, PeerError, nearest
from hub.kafka import KafkaCluster, own_cluster
from hub.log import TopicDescription, Writer
from hub.materializers.definition.declared import META, changelog_of, table_of, table_of_changelog
from hub.materializers.definition.entity_plan import RULES, EntityPlan, shape
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import (
    body_of,
    definition_text,
    files_of,
    load_view,
    view_files,
    view_of,
)
from hub.materializers.definition.python_functions import digest
from hub.materializers.definition.sql_view import SqlSource, SqlView, checked, query_of
from hub.materializers.engine.disks import full_disk
from hub.materializers.engine.file_watch import CommitWatch, ViewFolder
from hub.materializers.engine.report_thread import ReportThread, folder_of
from hub.materializers.engine.stall_clock import StallClock
from hub.materializers.engine.unknown_schema_ids import ASK_AGAIN_S, UnknownIds
from hub.materializers.isolation.policy import Phase
from hub.materializers.isolation.processes import IsolatedProcess, SharedProcess, isolation_message
from hub.materializers.planning import delta_inputs, exact_sums
from hub.materializers.planning.classify import Classified, classify
from hub.materializers.planning.delta_plan import DeltaPlan
from hub.materializers.progress.batch_traces import BatchTraces
from hub.materializers.progress.records import (
    PROGRESS_CONFIG,
    PROGRESS_TOPIC,
    EngineState,
    Mode,
    Progress,
    ViewState,
    progress_of,
)
from hub.materializers.progress.span_counts import telling
from hub.materializers.snapshot_groups.coordinator import Member, SnapshotGroups
from hub.materializers.spark import checkpoint_corruption, delta_engine, delta_stream, sql_stream
from hub.materializers.spark import session as spark
from hub.materializers.spark.dataframes import DLQ_SUFFIX, UNKNOWN_SCHEMA, Input, SchemaAnswers
from hub.materializers.spark.dataframes import WriterSchema as EventWriter
from hub.materializers.spark.delta_stream import DeltaQuery
from hub.materializers.spark.python_udfs import failure, own_session
from hub.materializers.spark.read_ends import SparkReadEnds
from hub.materializers.spark.slots import WIDENS, Slots, local_slots
from hub.materializers.spark.sql_stream import SqlPlan, Swept
from hub.materializers.types.avro_types import AvroType, field_types
from hub.materializers.types.source_formats import of_registry, without_defaults
from hub.materializers.versions.version_log import UNDECIDED, VersionLog
from hub.materializers.versions.versions import (
    ComputationKept,
    DefinitionChanged,
    SwapPolicy,
    Version,
    VersionDefinition,
    VersionLost,
    VersionOpened,
)
from hub.record import Positions, TopicPartition, lag_records
from hub.runtime import Backoff, describe_exit
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.formats import InvalidSchema
from hub.topics.dead_letters.model import kind_of
from hub.topics.tree.tree import matches

log = logging.getLogger(__name__)

_POLL_S = 0.03
_TURN_S = 0.1  # pause of the loop over all views when none has news
_STALE_CHECK_S = 2.0
_SILENT_S = 30.0
# Below this many unread events a start goes straight to live.
_BULK_FROM = 20_000
# Interval between two writes of the note on how far a view's batches were swept.
_NOTE_S = 1.0
_CUTS_STOP_S = 5.0
# Longest wait for a JVM to exit after it has closed its connections.
_JVM_ENDS_S = 10.0
# Shorter than _POLL_S: the other members of a snapshot group wait for this view's report.
_POLL_IN_STEP_S = 0.01
_DEFAULT_LARGEST = 1_048_588  # Kafka's default of message.max.bytes
_HEADROOM = 65_536  # room for headers
# Factor of the trigger interval in milliseconds per view of the project: all views together poll Kafka at
# most a hundred times a second.
_MS_A_VIEW = 10
# Factor on the stall limit for work that shows no progress: planning, and computing in the delta operator.
_BLIND_PATIENCE = 4
# Poll interval of a view that waits for the changelog of another view.
_WAITS, _WAIT_S = "HUB-3054", 0.5
_LOST, _DROPPED = "HUB-3056", "HUB-3057"
# A dropped version is removed after this delay, when its readers have switched to another version.
_REMOVE_AFTER_S = 10.0
_UNKNOWN = re.compile(UNKNOWN_SCHEMA + r" (\d+) ([\w.\-]+)")


def paced(settings: Settings, views: int) -> Settings:
    """Return settings with a trigger interval that suits ``views`` views.

    Every view polls Kafka all the time. Together they poll at most a hundred times a second; otherwise some
    dozens of idle views would keep all cores busy.
    """
    return settings.model_copy(update={"trigger_ms": max(settings.trigger_ms, _MS_A_VIEW * views)})


def run(settings: Settings, stop: threading.Event, only: str | None = None, *, decides: bool = False) -> None:
    """Run every view of the project until ``stop`` is set.

    ``only``: run that version alone, as the process of an isolated version (isolation/processes.py). Such a
    process leaves decisions about the view's versions to the shared process, unless ``decides`` is set.

    When Spark's JVM is gone, the process exits at once. Its supervisor starts it again, and it resumes from
    the checkpoints.
    """
    cluster = own_cluster(settings)
    cluster.wait_ready(settings.start_timeout_s)
    _ensure_topic(cluster, PROGRESS_TOPIC, 1, PROGRESS_CONFIG, settings)
    keep_short(cluster, PROGRESS_TOPIC, PROGRESS_CONFIG)
    ledger = VersionLog(cluster, cluster.writer())
    ledger.open()
    board = ProgressQueue(cluster, cluster.writer(), public=ledger.public)
    slots = _slots(settings, cluster)
    session, gateway = spark.open_session(settings, slots)
    registry = RegistryClient(settings.registry)
    runners: Runners = {}
    isolation: SharedProcess | IsolatedProcess = (
        SharedProcess(settings) if only is None else IsolatedProcess(settings, only, decides)
    )
    remover = _Remover(settings, cluster, registry, ledger)
    cuts = SnapshotGroups(
        cluster, cluster.writer(), settings.live_events_per_batch, settings.trigger_ms / 1000
    )
    pulse = ReportThread(cluster.writer(), folder_of(settings.project))
    in_step = threading.Thread(target=cuts.run, args=(stop,), name="cuts", daemon=True)
    folder = ViewFolder(settings.project)
    versions_at = counted_at = looked_at = 0.0
    opened = ExitStack()
    try:
        isolation.open()
        in_step.start()
        opened.enter_context(
            telling(cluster, "hub-materializer" if only is None else f"hub-materializer-{only}")
        )
        if only is None:  # only the shared process reports: it reports for all views
            opened.enter_context(pulse.running())
        while not stop.is_set():
            files = folder.files()
            pulse.tell(frozenset(path.stem for path in files))
            known = [(path, suffix) for path in files for suffix in ledger.suffixes(path.stem)]
            wanted = isolation.step(known, ledger)
            for state in isolation.said():
                board.say(state)
            for key in wanted:
                if key not in runners or not runners[key].alive:
                    runners[key] = Runner(
                        key[0], settings, session, slots, cluster, registry, board, ledger, key[1], isolation
                    )
                    runners[key].start()
            cuts.running = isolation.in_groups([runners[key] for key in wanted])
            board.post()
            for key, runner in list(runners.items()):
                if key not in wanted:
                    runner.stop()
                    if all(path != key[0] for path, _ in wanted):
                        slots.release(key[0].stem)
                    board.forget(runner.table)
                    del runners[key]
            try:
                if time.monotonic() >= versions_at:
                    ledger.step()
                    remover.step(runners, isolation.reads())
            except HubError as error:
                log.warning("versions of views, tried again: %s", error.message)
                versions_at = time.monotonic() + _STALE_CHECK_S
            if slots.most is None and time.monotonic() >= counted_at:
                counted_at = time.monotonic() + _STALE_CHECK_S
                spark.count_slots(session, slots, settings)
            if slots.most is not None and slots.wanted > slots.capacity:
                log.info("Spark starts again with %d task slots", slots.wanted)
                _stop_all(runners)
                session = spark.wider_session(session, slots)
            if gateway.process.poll() is not None:
                # An orderly stop is not possible any more. A new process resumes from the checkpoints.
                log.error("Spark's JVM has ended: %s", describe_exit(gateway.process.returncode))
                isolation.died(gateway.process.returncode)
                os._exit(1)
            if time.monotonic() >= looked_at:
                looked_at = time.monotonic() + _STALE_CHECK_S
                if spark.is_stopped(session):
                    log.error("Spark has stopped itself, in a JVM that goes on: its log says why")
                    os._exit(1)
                if any(runner.undecided for runner in runners.values()):
                    return
                for runner in runners.values():
                    runner.look_at_planning(time.monotonic())
                    if runner.stalled is not None:
                        isolation.stalled(runner.table, runner.stalled)
                        os._exit(1)
            board.news.wait(_TURN_S)
    except Exception as error:
        if spark.is_gone(error):
            code = gateway.ended(_JVM_ENDS_S)
            log.error("Spark's JVM does not answer any more: %s", error)
            isolation.died(code if code is not None else 1)
            os._exit(1)
        raise
    finally:
        isolation.close()
        _stop_all(runners)
        board.post()
        in_step.join(_CUTS_STOP_S)
        ledger.close()
        opened.close()
        session.stop()


@dataclass
class _Remover:
    """Removes the topic, subject and checkpoint of dropped versions after ``_REMOVE_AFTER_S``, once no view
    reads them."""

    settings: Settings
    cluster: KafkaCluster
    registry: RegistryClient
    ledger: VersionLog
    due_at: dict[str, float] = field(default_factory=dict)

    def step(self, runners: Runners, read_elsewhere: frozenset[str]) -> None:
        for view, state in self.ledger.all().items():
            for suffix in state.dropping:
                table, now = table_of(view, suffix), time.monotonic()
                if now < self.due_at.setdefault(table, now + _REMOVE_AFTER_S):
                    continue
                # next try, if it fails or another view still reads it
                self.due_at[table] = now + _REMOVE_AFTER_S
                topic = changelog_of(table)
                if topic in read_elsewhere or any(topic in runner.reads for runner in runners.values()):
                    continue
                self._remove(view, suffix)
                del self.due_at[table]

    def _remove(self, view: str, suffix: int | None) -> None:
        topic = changelog_of(table_of(view, suffix))
        shutil.rmtree(self.settings.checkpoints / table_of(view, suffix), ignore_errors=True)
        if self.cluster.partition_counts([topic]):
            self.cluster.delete_topic(topic)
        with suppress(NotFound):
            self.registry.delete(f"{topic}-value")
        self.ledger.removed(view, suffix)
        log.info("view %s: topic %s, its subject and its checkpoint removed", view, topic)


def _slots_of(view: View | SqlView, topics: Mapping[str, TopicDescription], state: int) -> tuple[int, int]:
    """Return (source partitions, state partitions) for which a real-time view holds one task slot each.

    ``state``: number of state partitions of a stateful view. An entity view reads a topic once, a SQL view
    once per source of it.

    Raises ConfigError when the view's SQL cannot be parsed.
    """
    read = [
        topic.name
        for source in view.all_sources.values()
        for topic in topics.values()
        if _feeds(source.topic, topic.name)
    ]
    if isinstance(view, SqlView):
        return sum(topics[name].partitions for name in read), state * (classify(query_of(view)).name != "A")
    to_come = view.expiry_topic is not None and view.expiry_topic not in topics
    return sum(topics[name].partitions for name in set(read)) + to_come, state


def _stop_all(runners: Runners) -> None:
    for runner in runners.values():
        runner.stopping.set()
    for runner in runners.values():
        runner.stop()
    runners.clear()


def _slots(settings: Settings, cluster: KafkaCluster) -> Slots:
    """Return the task slots that the project's views need, according to their files and the
    existing topics."""
    local = local_slots(settings.spark_master, os.cpu_count() or 1)
    if local is None:
        return Slots(0, 0, None)
    slots = Slots(local, local, settings.spark_slots_most)
    topics = cluster.topics()
    for path in view_files(settings.project):
        try:
            view = load_view(path)
        except (HubError, OSError):
            continue  # the view's thread reports the error
        if view.mode == "realtime":
            with suppress(HubError):  # the view's thread reports the error
                slots.foresee(
                    view.name, *_slots_of(view, topics, view.partitions or settings.view_partitions)
                )
    slots.widen()
    return slots


@dataclass
class ProgressQueue:
    """Progress and states of views, waiting to be written to the progress topic. Keeps the newest of each per
    view."""

    cluster: KafkaCluster
    writer: Writer
    lock: threading.Lock = field(default_factory=threading.Lock)
    progress: dict[str, tuple[Progress, str]] = field(default_factory=dict)
    states: dict[str, ViewState] = field(default_factory=dict)
    # Last progress of each view that was not in bulk mode. From then on its generation has every key. Read by
    # views that use it as a source.
    live: dict[str, Progress] = field(default_factory=dict)
    # Returns the view's own name for the version that is served, None for other versions.
    public: Callable[[str], str | None] = lambda table: table
    # When to ask again for the end offsets of changelogs that did not answer. Such a request takes the full
    # timeout.
    ask_at: dict[str, float] = field(default_factory=dict)
    traces: BatchTraces = field(init=False)
    news: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.traces = BatchTraces(self.cluster)

    def report(self, progress: Progress, changelog: str) -> None:
        with self.lock:
            self.progress[progress.view] = (progress, changelog)
        self.news.set()

    def forget(self, table: str) -> None:
        """Drop the waiting progress of a version: its changelog may be gone."""
        with self.lock:
            self.progress.pop(table, None)

    def say(self, state: ViewState) -> None:
        with self.lock:
            self.states[state.view] = state
        self.news.set()
        log.info("view %s: %s%s", state.view, state.state, f" ({state.reason})" if state.reason else "")

    def post(self) -> None:
        """Write waiting progress and states to the progress topic. Keep what Kafka does not accept for the
        next call."""
        self.news.clear()
        with self.lock:
            progress, states = self.progress, self.states
            self.progress, self.states = {}, {}
        if not progress and not states:
            return
        progress = {name: (self.traces.told(done), changelog) for name, (done, changelog) in progress.items()}
        try:
            ends = self._ends([changelog for _, changelog in progress.values()])
            told = [
                replace(done, changelog=ends[changelog])
                for done, changelog in progress.values()
                if changelog in ends
            ]
            self.writer.append(
                [state.record() for state in states.values()] + [each.record() for each in told]
            )
        except HubError as error:
            log.warning("progress not written, tried again: %s", error.message)
            self._again(progress, states)
            return
        self.live |= {each.view: each for each in told if each.mode != "bulk"}
        published = {each.view for each in told if self._publish(each)}
        self._again({name: each for name, each in progress.items() if each[0].view not in published}, {})

    def _publish(self, told: Progress) -> bool:
        """Publish progress as offsets of a consumer group, for other tools. Return False to have it written
        again."""
        name = self.public(told.view)
        try:
            if name is not None:
                self.cluster.publish_group(f"hub.view.{name}", told.sources)
        except HubError as error:
            log.warning("view %s: its group is not written, tried again: %s", told.view, error.message)
            return False
        return True

    def _ends(self, changelogs: Sequence[str]) -> Mapping[str, Positions]:
        """Return the end offsets of changelogs, read after the commit: at or past the end of everything that
        the batches wrote.

        A changelog whose ends Kafka does not return is left out and asked for again after ``_SILENT_S``, so
        that it does not delay the progress of other views.
        """
        now_s = time.monotonic()
        asked = [each for each in changelogs if now_s >= self.ask_at.get(each, 0.0)]
        if not asked:
            return {}
        counts = self.cluster.partition_counts(asked)
        partitions = [
            TopicPartition(name, number) for name, count in counts.items() for number in range(count)
        ]
        known = self.cluster.known_ends(partitions) if partitions else Positions()
        ends = {name: known.of_topics([name]) for name in asked}
        found = {name: end for name, end in ends.items() if len(end) == counts.get(name)}
        for name in asked:
            self.ask_at.pop(name, None)
            if name not in found:
                log.warning('topic "%s" does not tell its end: its view\'s progress waits', name)
                self.ask_at[name] = now_s + _SILENT_S
        return found

    def _again(self, progress: Mapping[str, tuple[Progress, str]], states: Mapping[str, ViewState]) -> None:
        """Put back what could not be written, unless something newer is waiting."""
        with self.lock:
            self.progress = {**progress, **self.progress}
            self.states = {**states, **self.states}


AnyPlan = spark.ViewPlan | SqlPlan


@dataclass(frozen=True, slots=True)
class _CompiledView:
    """A view compiled against the existing topics and schemas. Has ``shape`` (entity view) or ``classified``
    (SQL view)."""

    view: View | SqlView
    inputs: tuple[Input, ...]
    row_schema: AvroType
    fingerprint: str
    rules: int
    shape: EntityPlan | None = None
    classified: Classified | None = None
    delta: DeltaPlan | None = None


Runners = dict[tuple[Path, int | None], "Runner"]


class Runner:
    """The thread of one version of a view.

    ``suffix``: number of the version; None: the version that has the view's own name. ``start`` and ``stop``
    are called only from the process's main loop.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        session: SparkSession,
        slots: Slots,
        cluster: KafkaCluster,
        registry: RegistryClient,
        board: ProgressQueue,
        ledger: VersionLog | None = None,
        suffix: int | None = None,
        isolation: SharedProcess | IsolatedProcess | None = None,
    ) -> None:
        self.path = path
        self.isolation = isolation or SharedProcess(settings)
        self.stalled: str | None = None  # why it should be isolated; completes the sentence "its batch …"
        self.undecided = False  # the shared process must decide about its versions
        self.planning_since_s: float | None = None
        self.silence = StallClock(settings.stalled_batch_s)
        self.suffix = suffix
        self.table = table_of(path.stem, suffix)
        self.ledger = ledger or VersionLog(cluster, board.writer)
        self.stamp: tuple[int, ...] = ()  # modification times of its files when they were last read
        self.trouble: str | None = None  # why the view's file was rejected
        self.pinned = False  # it keeps the schemas and topics that it was created with
        self.reads: frozenset[str] = frozenset()
        self.settings = settings
        self.session = session
        self.shared = session  # ``session`` is the view's own one while it has Python functions
        self.slots = slots
        self.cluster = cluster
        self.registry = registry
        self.board = board
        self.stopping = threading.Event()
        self.replaced = False  # its later states are ignored
        self.view: View | SqlView | None = None
        self.inputs: tuple[Input, ...] = ()
        self.answered = SchemaAnswers()
        self.asked_ids: set[int] = set()
        self.unknown = UnknownIds()
        self.ask_again_at = 0.0
        self.typed: tuple[tuple[str, tuple[Input, ...]], AvroType] | None = None
        # id and partition count of each topic that the plan reads
        self.logs: Mapping[str, tuple[str, int]] = {}
        self.warm = False
        self.has_slots = False  # claimed when the view was planned
        self.untold = Positions()  # no batch is reported until it covers these offsets
        self.last: dict[Path, spark.CommittedBatch] = {}  # by checkpoint, the last batch that was reported
        self.swept = Swept()
        self.sweeping: SparkSession | None = None  # created when there is something to sweep
        self.noted_at = 0.0
        self.delta: DeltaQuery | None = None
        self.checkpoint: Path | None = None  # checkpoint folder of the current plan
        self.doubt = checkpoint_corruption.CorruptionSuspicion()
        self.causes = ""  # causes of the failure of its last query
        # See snapshot_groups.coordinator.RunningVersion.
        self.label: str | None = None
        self.member: Member | None = None
        self.unheld: str | None = None
        self.said: tuple[str, str | None] = ("starting", None)
        self.thread = threading.Thread(target=self._run, name=f"view-{self.table}", daemon=True)

    @property
    def alive(self) -> bool:
        return self.thread.is_alive()

    @property
    def group(self) -> str | None:
        return self.label

    @property
    def served(self) -> bool:
        return self.ledger.served(self.path.stem) == self.table

    def start(self) -> None:
        with suppress(HubError, OSError):  # the view's thread reports the error
            self.label = load_view(self.path).cut
        self.isolation.marks.begin(self.table)
        self.thread.start()

    def stop(self, timeout_s: float = 20.0) -> None:
        self.stopping.set()
        self.thread.join(timeout_s)
        self.replaced = True

    def _run(self) -> None:
        backoff = Backoff(first_s=0.5, most_s=10.0)
        while not self.stopping.is_set():
            try:
                self._say("starting")
                plan = self._awaited_plan()
                self._hold(plan)
                if self._unread(plan) > _BULK_FROM:
                    self._follow(plan, "bulk")
                    self._unread(plan)  # reports that the generation has every key, if no more events arrive
                while self._follow(plan, self._mode()):
                    backoff.reset()
                    plan = self._plan()
                    self._hold(plan)
            except PySparkException as error:
                if self._learned(str(error)):
                    continue
                # Errors caused by a full disk are not corruption: the files are written again when there is
                # room.
                full = self._full_disk(error)
                why = (
                    None
                    if full
                    else checkpoint_corruption.corruption_of_message(
                        f"{error}\n{self.causes}", self.checkpoint
                    )
                )
                if why is not None:
                    self._doubts(why)
                    self.stopping.wait(backoff.next_s())
                    continue
                broken = failure(str(error), self.path.stem) or _too_large(str(error), self.view)
                if full is not None:
                    self._say("retrying", full)
                elif broken is not None:
                    self._say("failed", str(broken))
                else:
                    self._say("retrying", _first_line(str(error)))
                self.stopping.wait(backoff.next_s())
            except HubError as error:
                if error.code == UNDECIDED:
                    self.undecided = True
                    break
                if error.code in delta_stream.LOST:
                    self._doubts(error.message)
                    self.stopping.wait(backoff.next_s())
                    continue
                self._say("retrying" if error.retriable else "failed", str(error))
                self.stopping.wait(backoff.next_s())
            except FileNotFoundError:
                break
            except Exception as error:  # report any other error, retry, and leave other views alone
                full = self._full_disk(error)
                why = None if full else delta_engine.corruption_of(error)
                if why is not None:
                    self._doubts(why)
                    self.stopping.wait(backoff.next_s())
                    continue
                log.exception("view %s", self.path.stem)
                self._say("retrying", full or _first_line(f"{type(error).__name__}: {error}"))
                self.stopping.wait(backoff.next_s())
        self._say("stopped")

    def _full_disk(self, error: BaseException) -> str | None:
        """Return the message for an error caused by a full disk, else None. The view retries, so it resumes
        when there is room."""
        found = full_disk(
            self.path.stem,
            error,
            {
                "its checkpoints": self.settings.checkpoints / self.table,
                "Spark's own files": self.settings.home / "spark",
            },
        )
        return None if found is None else f"{found.message}; {found.hint}"

    def _doubts(self, why: str) -> None:
        """Handle an error that reports unreadable state.

        Two such errors in a row confirm it: the state is quarantined, and the next plan finds it lost. After
        the first one the view retries.
        """
        if self.checkpoint is not None and self.doubt.confirmed(why):
            self._set_aside(self.checkpoint, why)
            self.doubt.cleared()
        else:
            self._say("retrying", f"its state cannot be read, which is tried once more: {_first_line(why)}")

    @property
    def _aside(self) -> Path:
        return checkpoint_corruption.aside_of(self.settings.checkpoints, self.path.stem)

    def _set_aside(self, checkpoint: Path, why: str) -> None:
        aside = self._aside
        checkpoint_corruption.set_aside(checkpoint, aside, self.table, why, _now_ms())
        log.error("view %s: its checkpoint is damaged: %s; it is kept in %s", self.table, why, aside)

    def _brake(self) -> None:
        """Raise PeerError (HUB-3064) when the checkpoint was corrupt ``damaged_rebuilds`` times within the
        last hour.

        Otherwise a disk that corrupts everything would have the view rebuilt forever.
        """
        aside = self._aside
        times, most = checkpoint_corruption.lately(aside, _now_ms()), self.settings.damaged_rebuilds
        if most and len(times) >= most:
            raise PeerError(
                f"its checkpoint was damaged {len(times)} times within an hour: it is not built anew before"
                f" {datetime.fromtimestamp((times[-most] + checkpoint_corruption.LATELY_MS) / 1000, UTC):%H:%M} UTC",
                hint=f"look after the disk of {self.settings.checkpoints}; then remove {aside}, and it is built at once",
                code="HUB-3064",
            )

    def _why_lost(self, generation: int | None) -> str:
        """Return why a checkpoint is missing. ``generation`` None: any generation, when it is not known which
        one was running."""
        aside = self._aside
        why = checkpoint_corruption.why_aside(aside, self.table, generation)
        if why is None:
            return "its checkpoint is lost"
        return f"its checkpoint is damaged: {_first_line(why)} (kept in {aside})"

    def _mode(self) -> Mode:
        """Return the mode after the catch-up.

        Only the served version runs in real-time mode. Versions that are being built or kept for a rollback
        follow in micro-batches and take no slots.
        """
        assert self.view is not None
        its_turn = self.served and self.slots.open_to(self.path.stem, self.table)
        return "realtime" if self.view.mode == "realtime" and self.warm and its_turn else "live"

    # ---- plan

    def _awaited_plan(self) -> AnyPlan:
        """Return the plan once its prerequisites exist: another view's changelog, or a wider session.

        Checks every ``_WAIT_S`` and reports each reason once.
        """
        said = ""
        while True:
            try:
                plan = self._plan()
            except HubError as error:
                if error.code not in (_WAITS, WIDENS) or self.stopping.is_set():
                    raise
                if str(error) != said:
                    said = str(error)
                    self._say("retrying", said)
                self.stopping.wait(_WAIT_S)
            else:
                if said:
                    self._say("starting")
                return plan

    def _plan(self) -> AnyPlan:
        with self._marked("planning"):
            return self._planned()

    @contextlib.contextmanager
    def _marked(self, phase: Phase) -> Iterator[None]:
        """Note on disk what the thread does, as evidence for the next process if this one dies."""
        self.isolation.marks.mark(self.table, phase)
        self.planning_since_s = time.monotonic() if phase == "planning" else None
        try:
            yield
        except BaseException as error:
            self._keep_marks(error)
            raise
        finally:
            self.planning_since_s = None
            self.isolation.marks.mark(self.table, None)

    def _keep_marks(self, error: BaseException) -> None:
        """Freeze the marks when Spark is gone: they are evidence, and nothing that this process still does
        may overwrite them."""
        if spark.is_gone(error):
            self.isolation.marks.freeze()

    def _planned(self) -> AnyPlan:
        topics = self.cluster.topics()
        known = self.ledger.version(self.path.stem, self.suffix)
        text = self._read_file()
        made = self._chosen(topics, text)
        if made.view.expiry_topic is not None:
            topics = self.cluster.topics()  # the expiry topic may be new
        view = self.view = made.view
        self.label = view.cut
        self.inputs = made.inputs
        partitions = view.partitions or self.settings.view_partitions
        read = sorted({topic for each in made.inputs for topic in each.topics})
        self.reads = frozenset(read)
        largest = _largest_records(self.cluster, read)
        compacted = {"cleanup.policy": "compact", "delete.retention.ms": "604800000"}
        # A row may contain the whole of one event of each source.
        _ensure_room(
            self.cluster, view.changelog, partitions, compacted, sum(largest.values()), self.settings
        )
        for topic in read:
            _ensure_dead_letter_topic(self.cluster, topic + DLQ_SUFFIX, largest[topic], self.settings)
        if isinstance(view, SqlView) and made.classified is not None and made.classified.late:
            _ensure_dead_letter_topic(self.cluster, view.late_topic, max(largest.values()), self.settings)
        schema_id = self.registry.register(f"{view.changelog}-value", orjson.dumps(made.row_schema).decode())
        ids = {topic: topics[topic].topic_id for topic in read}
        generation, checkpoint, partitions = self._generation(made, ids, partitions)
        self.logs = {topic: (ids[topic], topics[topic].partitions) for topic in read}
        if known is None:
            self.ledger.tell(self.path.stem, VersionOpened(generation, self._definition(made, text)))
        self._claim(view, topics, partitions)
        # An id that was looked up and is not a usable writer schema is treated like one that the registry
        # does not have.
        answered = SchemaAnswers(
            self.answered.ids - self.asked_ids, self.answered.until, self.unknown.ids, self.unknown.above
        )
        ready = (made.inputs, answered, made.row_schema, schema_id, generation, checkpoint, partitions)
        if isinstance(view, SqlView):
            assert made.classified is not None
            self.swept = sql_stream.swept(checkpoint)
            return SqlPlan(view, made.classified, *ready, made.delta)
        assert made.shape is not None
        return spark.ViewPlan(made.shape, *ready, self.table)

    def _claim(self, view: View | SqlView, topics: Mapping[str, TopicDescription], state: int) -> None:
        """Claim the view's task slots if this version is the one that uses them.

        For a version that is being built, only check that it could have them at the swap. If it could not, it
        is refused, and the served version continues.
        """
        self.has_slots = view.mode == "realtime" and self.served
        if self.has_slots:
            self.slots.claim(self.path.stem, *_slots_of(view, topics, state))
        elif self.served:
            self.slots.release(self.path.stem)
        elif view.mode == "realtime" and self._is_built():
            self.slots.check(self.path.stem, *_slots_of(view, topics, state))

    def _is_built(self) -> bool:
        version = self.ledger.version(self.path.stem, self.suffix)
        return version is not None and version.state in ("building", "ready")

    # ---- which definition of the view this version has (versions/versions.py)

    def _follows(self) -> bool:
        """Return True if the view's file applies to this version, the newest one."""
        known = self.ledger.of(self.path.stem)
        return known is None or known.versions[-1].suffix == self.suffix

    def _read_file(self) -> str:
        self.stamp = _stamp(self.path)
        return definition_text(self.path)

    def _chosen(self, topics: Mapping[str, TopicDescription], text: str) -> _CompiledView:
        """Return the view as this version computes it. Open another version when the definition's meaning has
        changed."""
        self.pinned = False
        state = self.ledger.of(self.path.stem)
        known = state.with_suffix(self.suffix) if state is not None else None
        if state is None:
            return self._compiled(load_view(self.path), topics, rules=self._rules())
        if known is None:
            raise HubError(f"version {self.table} was dropped", code=_DROPPED)
        if self._follows() and text != state.judged:
            made = self._candidate(known, text, topics)
            if made is not None:
                return made
        else:
            self.trouble = None
        stored = view_of(known.definition.body).of_version(self.suffix)
        note = self._note()
        if note is None or self._in_place(stored):
            made = self._compiled(stored, topics, rules=self._rules())
            if made.fingerprint != known.definition.fingerprint:  # written by the rules of an earlier version
                definition = self._definition(made, known.definition.text)
                self.ledger.tell(self.path.stem, ComputationKept(known.number, definition))
            return made
        if self._follows():
            try:
                made = self._compiled(stored, topics, rules=self._rules())
            except HubError as error:
                if error.retriable or "latest" not in note:
                    raise
                self.trouble = f"it goes on with the schemas it began with: {error}"
            else:
                if made.fingerprint == note["fingerprint"]:
                    return made
                definition = self._definition(made, known.definition.text)
                self.ledger.tell(
                    self.path.stem, DefinitionChanged(definition, "what it reads has changed", by_file=False)
                )
        self.pinned = "latest" in note
        return self._compiled(stored, topics, note if self.pinned else None, self._rules())

    def _candidate(
        self, known: Version, text: str, topics: Mapping[str, TopicDescription]
    ) -> _CompiledView | None:
        """Compile the file's new text for this version. Return None if this version's state does not fit it.

        In that case the reason is recorded in ``trouble``, or another version is opened for it.
        """
        try:
            view = load_view(self.path).of_version(self.suffix)
            made = self._compiled(view, topics, rules=self._rules())
            if made.rules != RULES and made.fingerprint != known.definition.fingerprint:
                made = self._compiled(view, topics)  # its meaning changes in any case
        except HubError as error:
            if error.retriable:
                raise
            self.trouble = f"{self.path.name} is not taken: {error}"
            return None
        self.trouble = None
        definition = self._definition(made, text)
        if self._in_place(view):
            self.ledger.tell(self.path.stem, ComputationKept(known.number, definition))
            return made
        # The text may equal the definition of another version, or of this one.
        self.ledger.tell(self.path.stem, DefinitionChanged(definition, "its file has changed"))
        own = self.ledger.version(self.path.stem, self.suffix)
        return made if own is not None and own.definition.fingerprint == made.fingerprint else None

    def _compiled(
        self,
        view: View | SqlView,
        topics: Mapping[str, TopicDescription],
        pinned: Mapping[str, Any] | None = None,
        rules: int = RULES,
    ) -> _CompiledView:
        """Compile a view. ``pinned``: the schemas and topics that it was created with. ``rules``: see
        entity_plan.RULES."""
        self._allowed(view)
        if not isinstance(view, SqlView):
            compiled, inputs = self._inputs(view, topics, pinned, rules)
            if view.mode == "realtime":
                _check_realtime(view, inputs)
            self.session = own_session(self.shared, view)
            fingerprint = _with_functions(_fingerprint(compiled, inputs), view)
            schema = self._typed(
                fingerprint, inputs, lambda: spark.row_schema(self.session, compiled, inputs)
            )
            return _CompiledView(view, inputs, schema, fingerprint, rules, shape=compiled)
        view = self._resolved(view, pinned)
        classified, inputs = self._sql_inputs(view, topics, pinned, rules)
        if view.mode == "realtime":
            _check_realtime(view, inputs)
        delta: DeltaPlan | None = None
        if not classified.native:
            delta, schema = delta_stream.planned(self.session, view, classified, inputs)
            delta = exact_sums.of_plan(delta) if rules else delta
        fingerprint = _with_functions(_sql_fingerprint(classified, inputs, delta, rules), view)
        if delta is None:
            schema = self._typed(
                fingerprint,
                inputs,
                lambda: sql_stream.row_schema(self.session, view, classified, inputs),
            )
        return _CompiledView(view, inputs, schema, fingerprint, rules, classified=classified, delta=delta)

    def _typed(self, fingerprint: str, inputs: tuple[Input, ...], ask: Callable[[], AvroType]) -> AvroType:
        """Return the schema of the view's rows, cached by fingerprint and inputs.

        A view is planned again for each mode, and Spark's analysis takes most of that time.
        """
        of = (fingerprint, inputs)
        if self.typed is None or self.typed[0] != of:
            self.typed = (of, ask())
        return self.typed[1]

    def _allowed(self, view: View | SqlView) -> None:
        if view.transforms is not None and not self.settings.transforms:
            raise ConfigError(
                f'view "{view.name}": Python functions ({view.transforms.file}) are turned off here',
                hint="they run with the hub's rights; to allow them: HUB_TRANSFORMS=true",
                code="HUB-2153",
            )

    def _resolved(self, view: SqlView, pinned: Mapping[str, Any] | None) -> SqlView:
        """Return the view with the changelogs of the versions of other views that are served now."""
        sources = {
            name: source
            if source.view is None
            else source.model_copy(
                update={
                    "topic": pinned["reads"][name]
                    if pinned is not None
                    else changelog_of(self.ledger.served(source.view))
                }
            )
            for name, source in view.sources.items()
        }
        return view.model_copy(update={"sources": sources})

    def _definition(self, made: _CompiledView, text: str) -> VersionDefinition:
        swap = made.view.swap
        policy = SwapPolicy(
            swap.when == "manual",
            SERVING in (made.view.stores or (SERVING,)),
            round(swap.keep_hours * 3_600_000),
            swap.rows_within,
            tuple(swap.same),
            made.view.recompute_ms,
        )
        view = made.view
        if isinstance(view, SqlView):  # topics of other views' versions are looked up at each plan
            named = {
                name: source
                if source.view is None
                else source.model_copy(update={"topic": changelog_of(source.view)})
                for name, source in view.sources.items()
            }
            view = view.model_copy(update={"sources": named})
        return VersionDefinition(text, body_of(view), made.fingerprint, policy)

    def _rules(self) -> int:
        """Return the rules that this version's state was made with; ``RULES`` if it has no state."""
        note = self._note()
        return RULES if note is None else int(note.get("rules", 0))

    def _in_place(self, view: View | SqlView) -> bool:
        """Return True if a change replaces rows one by one: by declaration, or because a store keeps one
        table per view."""
        urls = self.settings.store_urls
        kinds = [urls[name].partition(":")[0].partition("+")[0] for name in view.stores if name in urls]
        return view.swap.when == "in_place" or any(kind not in ("sqlite", "postgresql") for kind in kinds)

    def _note(self) -> dict[str, Any] | None:
        """Return the note of this version's checkpoint (plan.json); None if there is none or it is
        corrupt."""
        note = self.settings.checkpoints / self.table / "plan.json"
        if not note.exists():
            return None
        try:
            known: dict[str, Any] = orjson.loads(note.read_bytes())
        except ValueError:
            known = {}
        if "fingerprint" in known and "generation" in known:
            return _with_resolution(known)
        # Without the note, it is unknown which plan the state belongs to.
        last = max(_generations(note.parent), default=None)
        if last is not None:
            self._set_aside(note.parent / str(last), "plan.json is not as it was written")
        note.unlink()
        return None

    def _sql_inputs(
        self,
        view: SqlView,
        topics: Mapping[str, TopicDescription],
        pinned: Mapping[str, Any] | None,
        rules: int,
    ) -> tuple[Classified, tuple[Input, ...]]:
        found = self._found(view, topics, pinned)
        query = checked(view, {name: latest for name, (_, _, latest) in found.items()})
        classified = classify(query)
        return exact_sums.of_classified(classified) if rules else classified, sql_stream.inputs_of(
            query, found
        )

    def _inputs(
        self,
        view: View,
        topics: Mapping[str, TopicDescription],
        pinned: Mapping[str, Any] | None,
        rules: int,
    ) -> tuple[EntityPlan, tuple[Input, ...]]:
        if view.expiry_topic is not None and view.expiry_topic not in topics:
            # The last expiry of a key is the latest one: one record per key is enough.
            config = {"cleanup.policy": "compact", "retention.ms": "-1"}
            _ensure_topic(self.cluster, view.expiry_topic, 1, config, self.settings)
            topics = self.cluster.topics()
        found = self._found(view, topics, pinned)
        compiled = shape(view, {name: latest for name, (_, _, latest) in found.items()}, rules)
        expiry = () if compiled.expiry is None else (compiled.expiry,)
        inputs = tuple(Input(source, *found[source.name]) for source in (*compiled.sources, *expiry))
        return compiled, inputs

    def _found(
        self,
        view: View | SqlView,
        topics: Mapping[str, TopicDescription],
        pinned: Mapping[str, Any] | None,
    ) -> dict[str, tuple[tuple[str, ...], tuple[EventWriter, ...], AvroType]]:
        """Return for each source: its topics, every schema that its events may have, and the newest of these
        schemas."""
        found: dict[str, tuple[tuple[str, ...], tuple[EventWriter, ...], AvroType]] = {}
        for name, source in view.all_sources.items():
            names = tuple(sorted(topic for topic in topics if _feeds(source.topic, topic)))
            if not names and isinstance(source, SqlSource) and source.view is not None:
                raise self._waits(source.view)
            if not names:
                guess = nearest(source.topic, topics)
                raise NotFound(
                    f'view "{view.name}": source "{name}": topic "{source.topic}" does not exist',
                    hint=f'did you mean "{guess}"?' if guess else "create it: hub topic apply",
                    code="HUB-2106",
                )
            declared = source.declared
            if declared is not None:
                found[name] = (names, (), declared)
                continue
            try:
                writers, latest = self._writers(view, name, names)
            except NotFound:
                if isinstance(source, SqlSource) and source.view is not None:
                    raise self._waits(source.view) from None
                raise
            found[name] = (names, writers, latest if pinned is None else pinned["latest"][name])
        return found

    def _waits(self, other: str) -> HubError:
        """Return the error for a view whose changelog does not exist yet: it is created when that view is
        planned."""
        known = [path.stem for path in view_files(self.settings.project)]
        guess = None if other in known else nearest(other, known)
        return PeerError(
            f'view "{self.path.stem}" waits for the view "{other}", which has no changelog yet',
            hint=f'did you mean "{guess}"?'
            if guess
            else ("it is starting" if other in known else f"there is no views/{other}.yaml"),
            code=_WAITS,
        )

    def _writers(
        self, view: View | SqlView, source: str, topics: tuple[str, ...]
    ) -> tuple[tuple[EventWriter, ...], AvroType]:
        """Return every schema that events may have, and the topics' own newest schema.

        An event may name any registered id, but a schema of another subject must not decide the source's
        columns. With several topics, the newest is that of their latest versions.
        """
        of_topics = [self.registry.versions(f"{topic}-value") for topic in topics]
        versions = [version for of_topic in of_topics for version in of_topic]
        if not versions:
            raise NotFound(
                f'view "{view.name}": source "{source}": topic "{topics[0]}" has no schema '
                f'(subject "{topics[0]}-value" is not in the registry)',
                hint="name it in topics.yaml and run: hub topic apply; or say what its events are: format: json",
                code="HUB-2107",
            )
        # By version first: a schema that another subject registered earlier has a lower id than the version
        # that it follows.
        latest_versions = [max(each, key=lambda version: version.version) for each in of_topics if each]
        newest = max(latest_versions, key=lambda version: version.id)
        # Events of another schema type become dead-letter records: the columns follow one type.
        writers = {
            version.id: EventWriter(version.id, _avro(version))
            for version in versions
            if version.schema_type == newest.schema_type
        }
        if newest.schema_type == "AVRO":
            latest = writers[newest.id].schema
        else:
            latest = self._as_columns(view, source, newest.id)
        for schema_id in sorted(self.asked_ids & self.answered.ids):
            extra = self._schema(schema_id, newest.schema_type)
            if extra is not None:
                writers[schema_id] = EventWriter(schema_id, extra)
        return tuple(sorted(writers.values(), key=lambda writer: writer.schema_id)), latest

    def _as_columns(self, view: View | SqlView, source: str, schema_id: int) -> AvroType:
        try:
            return of_registry(self.registry.source(schema_id))
        except InvalidSchema as error:
            raise ConfigError(
                f'view "{view.name}": source "{source}": schema id {schema_id}: {error.message}',
                hint=error.hint,
                code="HUB-2150",
            ) from None

    def _schema(self, schema_id: int, schema_type: str) -> AvroType | None:
        """Return the record schema of type ``schema_type`` behind an id that no subject of the topics has;
        None if there is none.

        Always None for Protobuf: a message is identified only by its place in its own file.
        """
        try:
            if schema_type != "AVRO":
                other = self.registry.source(schema_id)
                return {} if other.schema_type == schema_type == "JSON" else None
            parsed: AvroType = orjson.loads(self.registry.schema(schema_id))
            field_types(parsed)
        except (NotFound, ConfigError, ValueError):
            return None
        except HubError as error:
            if error.retriable:
                raise
            return None
        return parsed

    def _learned(self, error: str) -> bool:
        """Return True if the query failed on an unknown schema id. The registry is asked, so that the next
        plan can judge it."""
        found = _UNKNOWN.search(error)
        if found is None or self.view is None:
            return False
        log.info("view %s: planned again for schema id %s of topic %s", self.view.name, *found.groups())
        topics = [topic for each in self.inputs for topic in each.topics]
        until = self.cluster.end_offsets(topics)  # must be read before the registry is asked
        self.answered = SchemaAnswers(self.registry.ids(), until)
        schema_id = int(found.group(1))
        self.asked_ids.add(schema_id)
        if schema_id not in self.answered.ids:
            self.unknown.refuse(schema_id, self.answered.ids, time.monotonic())
            self.ask_again_at = time.monotonic() + ASK_AGAIN_S
        return True

    def _appeared(self) -> bool:
        """Return True if the registry now has an id that this view refuses. The next plan reads
        its events."""
        if not self.unknown or time.monotonic() < self.ask_again_at:
            return False
        self.ask_again_at = time.monotonic() + ASK_AGAIN_S
        try:
            until = self.cluster.end_offsets([topic for each in self.inputs for topic in each.topics])
            known = self.registry.ids()
        except HubError:
            return False
        found = self.unknown.appeared(known)
        if not found:
            return False
        log.info(
            "view %s: planned again for schema ids %s, which were unknown before",
            self.table,
            sorted(found)[:20],
        )
        self.answered = SchemaAnswers(known, until)
        self.asked_ids |= found
        return True

    def _generation(
        self, made: _CompiledView, topic_ids: Mapping[str, str], partitions: int
    ) -> tuple[int, Path, int]:
        """Return (generation, its checkpoint folder, its state partitions). Keeps the running generation if
        its state fits.

        Raises HubError for a version whose state is lost, after another version was opened to replace it.
        """
        view, folder = made.view, self.settings.checkpoints / self.table
        note, known = folder / "plan.json", self._note()
        why = self._why_lost(None)
        if known is not None:
            same_log = all(topic_ids.get(topic) == known_id for topic, known_id in known["topics"].items())
            checkpoint = folder / str(known["generation"])
            if known["fingerprint"] == made.fingerprint and same_log and checkpoint.exists():
                wrong = checkpoint_corruption.of_logs(checkpoint, delta=made.delta is not None)
                if wrong is None:
                    # Add topics that have joined a pattern since, and pins, which notes from before versions
                    # do not have.
                    noted = {**_pins(made), **known, "topics": {**topic_ids, **known["topics"]}}
                    if noted != known:
                        _write_note(note, noted)
                    self.checkpoint = checkpoint
                    return known["generation"], checkpoint, known["partitions"]
                self._set_aside(checkpoint, wrong)
            if checkpoint.exists():
                why = "its state fits no more" if same_log else "a topic that it reads was made anew"
            else:
                why = self._why_lost(known["generation"])
        self._brake()
        version = self.ledger.version(self.path.stem, self.suffix)
        if version is None or self._in_place(view):
            generation = max(self._published_generation(), *_generations(folder), 0) + 1
            if version is not None:
                self.ledger.tell(self.path.stem, ComputationKept(version.number, version.definition, why))
        elif self.suffix is not None and not sum(
            end for _, end in self.cluster.end_offsets([view.changelog])
        ):
            generation = version.number
        else:
            self.ledger.tell(self.path.stem, VersionLost(version.number, why))
            raise HubError(
                f"{why}: it is computed anew beside the rows that are there",
                hint=f"hub view show {view.name} tells how far that is",
                code=_LOST,
            )
        checkpoint = self.checkpoint = folder / str(generation)
        checkpoint.mkdir(parents=True, exist_ok=True)
        body = {
            "generation": generation,
            "fingerprint": made.fingerprint,
            "topics": dict(topic_ids),
            "partitions": partitions,
            **_pins(made),
        }
        _write_note(note, body)
        for old in _generations(folder):
            if old != generation:
                shutil.rmtree(folder / str(old), ignore_errors=True)
        log.info("view %s: generation %d from the start of its log", self.table, generation)
        return generation, checkpoint, partitions

    def _published_generation(self) -> int:
        """Return the latest generation in the progress topic, 0 if there is none. The log outlives lost
        checkpoints."""
        told = self._published(self.table)
        return told.generation if told is not None else 0

    def _published(self, table: str) -> Progress | None:
        """Return the last progress of a version's latest generation from the progress topic.

        Raises PeerError (HUB-3055) when the topic cannot be read to its end within ``kafka_timeout_s``.
        """
        end = self.cluster.end_offsets([PROGRESS_TOPIC])
        reader = self.cluster.reader()
        try:
            reader.assign(self.cluster.beginning_offsets([PROGRESS_TOPIC]))
            latest: Progress | None = None
            deadline = time.monotonic() + self.settings.kafka_timeout_s
            while not reader.position().covers(end):
                # a part of the topic could give an earlier generation, or none
                if time.monotonic() > deadline:
                    raise PeerError(f'topic "{PROGRESS_TOPIC}" cannot be read to its end', code="HUB-3055")
                for record in reader.poll(1_000, 0.5):
                    if record.key != f"progress:{table}".encode():
                        continue
                    progress = progress_of(record, changelog_of(table))
                    if progress is not None and (latest is None or progress.generation >= latest.generation):
                        latest = progress
            return latest
        finally:
            reader.close()

    # ---- run

    def _hold(self, plan: AnyPlan) -> None:
        """Hold back progress when the state may be behind rows of real-time mode, until a batch covers all
        that was readable."""
        behind = _realtime_mark(plan).exists()
        self.untold = self.cluster.end_offsets(plan.topics) if behind else Positions()

    def _unread(self, plan: AnyPlan) -> int:
        committed = _timed(spark.committed_batch(plan.checkpoint), self.last.get(plan.checkpoint))
        reached, begin = (
            committed.sources if committed else Positions(),
            self.cluster.beginning_offsets(plan.topics),
        )
        _check_gone(reached, begin)
        unread = lag_records(self.cluster.end_offsets(plan.topics), begin.advanced(reached))
        if committed is not None and not (isinstance(plan, SqlPlan) and plan.delta):
            # Report the last committed batch: a crash may have prevented that. "live" also means that this
            # generation has every key, so it is reported only when little is unread.
            self._report(plan, committed, "bulk" if unread > _BULK_FROM else "live")
        return unread

    def _replay(self, plan: AnyPlan, mode: Mode) -> None:
        """Read in one batch what real-time mode may have read past its last checkpoint, if events may be
        late.

        Also completes a batch that was begun in another mode before real-time mode starts. Real-time mode
        judged all these events by the watermark of its last checkpoint, and so does one batch. In several
        batches, the later ones would be judged by a watermark that the first have moved, and a count would
        stay below the one that a store already has.
        """
        begun = mode == "realtime" and spark.is_uncommitted(plan.checkpoint)
        if isinstance(plan, SqlPlan) and plan.classified.late and (begun or _realtime_mark(plan).exists()):
            self._follow(plan, "bulk", whole=True)
            self._unread(plan)  # reports the position, if no more events arrive

    def _follow(self, plan: AnyPlan, mode: Mode, *, whole: bool = False) -> bool:
        """Run the query and report its batches. Return True if it was stopped because the plan is stale.

        ``whole``: read everything in one bulk batch.
        """
        assert self.view is not None
        if not self.isolation.allows(self.table):  # its file was fixed, and the newer version replaces it
            self.stopping.wait()
            return False
        if not whole:
            self._replay(plan, mode)
            if self.stopping.is_set():
                return False
        warming = mode == "live" and self.view.mode == "realtime" and not self.warm
        self.causes = ""
        if mode == "realtime":
            if not (self.has_slots and self.slots.enter(self.path.stem, self.table)):
                return self._follow(plan, "live")  # another version still uses them; retried meanwhile
            if spark.is_uncommitted(plan.checkpoint):
                # The uncommitted batch may have written rows and is not repeated unchanged: hold back
                # progress as above.
                self.untold = self.cluster.end_offsets(plan.topics)
            _realtime_mark(plan).touch()
        try:
            with self._marked("planning"):
                query = self._started(plan, mode, whole=whole)
        except BaseException:
            self.slots.leave(self.path.stem, self.table)
            raise
        if mode == "live" and self.label is not None:
            self._join(plan, query)
        self._say(mode, "warms up for real-time mode" if warming else self._beside(mode))
        reported = -1
        due = CommitWatch(plan.checkpoint / "commits").due
        check_at = time.monotonic() + _STALE_CHECK_S
        # Real-time mode plans only at checkpoints, and everything waits for it. Live batches first warm up
        # the JVM, so that its compiled code for planning is ready.
        warm_at = time.monotonic() + self.settings.realtime_warm_up_s
        running = ExitStack()
        running.enter_context(self._marked("running"))
        self.silence = StallClock(self._silence_limit_s(mode))
        try:
            while True:
                self.stopping.wait(_POLL_S if self.member is None else _POLL_IN_STEP_S)
                if due(reported, time.monotonic()):
                    if not query.isActive:
                        break
                    reported = self._report_last(plan, query, mode, reported)
                if self.stopping.is_set():
                    return False
                if warming and time.monotonic() >= warm_at:
                    warming, self.warm = False, True
                    if self._mode() != mode:
                        return True
                    self._say(mode, self._beside(mode))
                if time.monotonic() >= check_at:
                    check_at = time.monotonic() + _STALE_CHECK_S
                    self._look_for_life(query)
                    if mode != "bulk" and self._mode() != mode:
                        return True  # a swap: this version is served now, or no longer
                    if self.delta is not None:
                        self.delta.expire(self._live())
                    if self._stale(plan):
                        return mode != "bulk"
            failure = (self.delta.failure if self.delta is not None else None) or query.exception()
            if failure is None and self.delta is not None:
                self.delta.finish()
            self._report_last(plan, query, mode, reported)
            if failure is not None:
                self.causes = spark.causes(query)
                refused = isinstance(failure, PySparkException) and spark.refusal(self.path.stem, failure)
                raise refused or failure
            return False
        except BaseException as error:
            self._keep_marks(error)
            raise
        finally:
            self._leave()  # before the view's next query starts
            query.stop()
            running.close()
            self.slots.leave(self.path.stem, self.table)
            if self.delta is not None:
                self.delta.close()
                self.delta = None
            elif isinstance(plan, SqlPlan):
                sql_stream.keep(plan.checkpoint, self.swept)

    def _silence_limit_s(self, mode: Mode) -> float:
        """Return how long a batch may show no progress, in seconds; 0: no limit.

        Real-time mode commits only at its checkpoints, and the delta operator computes outside Spark.
        """
        limit_s = self.settings.stalled_batch_s
        if not limit_s or mode != "realtime":
            return limit_s * (_BLIND_PATIENCE if self.delta is not None else 1)
        return limit_s + 2 * self.settings.realtime_checkpoint_s

    def look_at_planning(self, now_s: float) -> None:
        """Ask for isolation of the view when planning takes too long: a file of Python functions may never
        finish."""
        since_s, limit_s = self.planning_since_s, self.settings.stalled_batch_s * _BLIND_PATIENCE
        if since_s is not None and limit_s and now_s - since_s > limit_s:
            self.stalled = f"was planned for {limit_s:g} s"

    def _look_for_life(self, query: StreamingQuery) -> None:
        """Ask for isolation of the view when its batch shows no progress for too long."""
        seen, now_s = self.isolation.marks.see(self.table), time.monotonic()
        if seen.at is None:
            self.silence.moved(now_s)
            return
        if self.silence.look((seen.at, seen.done), lambda: spark.life(self.session, query), now_s):
            self.stalled = f"did not move for {self.silence.limit_s:g} s"

    def _beside(self, mode: Mode) -> str | None:
        """Return why a version of a real-time view runs in micro-batches; None if it does not or needs no
        reason."""
        assert self.view is not None
        if mode != "live" or self.view.mode != "realtime" or self.served:
            return None
        return "in micro-batches: real-time mode is for the version that is served"

    def _started(self, plan: AnyPlan, mode: Mode, *, whole: bool) -> StreamingQuery:
        spark.forget_state_of_no_batch(plan.checkpoint, mode)
        settings = paced(self.settings, len(view_files(self.settings.project)))
        if not isinstance(plan, SqlPlan):
            return spark.start(self.session, plan, settings, mode)
        if plan.delta is None:
            return sql_stream.start(self.session, plan, settings, mode, whole=whole)
        self._know_live(set(self._read_versions().values()))
        begins, ends = self.cluster.beginning_offsets(plan.topics), self.cluster.end_offsets(plan.topics)
        writer = self.cluster.writer()
        try:
            self.delta = delta_stream.start(self.session, plan, settings, mode, writer, begins, ends)
        except BaseException:
            writer.close()
            raise
        committed = spark.committed_batch(plan.checkpoint)
        if committed is not None and self.delta.computed:
            self._report(plan, committed, mode)  # a crash may have prevented the report
        return self.delta.query

    def _join(self, plan: AnyPlan, query: StreamingQuery) -> None:
        """Join the view's snapshot group: let it control how far this query reads."""
        assert self.view is not None
        committed = spark.committed_batch(plan.checkpoint)
        try:
            ends = SparkReadEnds(self.session, query, plan.checkpoint)
        except HubError as error:
            self.unheld = str(error)
            return
        self.unheld = None
        reached = committed.sources if committed is not None else Positions()
        views = tuple(changelog_of(table) for table in self._read_versions().values())
        self.member = Member(
            self.table,
            plan.generation,
            tuple(plan.topics),
            self.view.changelog,
            ends,
            reached,
            views=views,
        )

    def _leave(self) -> None:
        if self.member is not None:
            self.member.open = False
            self.member = None

    def _read_versions(self) -> dict[str, str]:
        """Return the version that is read of each source view, by view name."""
        sources = self.view.sources.values() if isinstance(self.view, SqlView) else ()
        return {
            source.view: table_of_changelog(source.topic) for source in sources if source.view is not None
        }

    def _live(self) -> dict[str, Progress]:
        """Return the latest live progress of the views that this one reads, by view name."""
        told = {name: self._told_live(table) for name, table in self._read_versions().items()}
        return {name: progress for name, progress in told.items() if progress is not None}

    def _told_live(self, table: str) -> Progress | None:
        """Return the latest live progress of a version, reported by this process or by its own process."""
        here, heard = self.board.live.get(table), self.ledger.told.get(table)
        if (
            heard is None
            or heard.mode == "bulk"
            or (here is not None and here.generation >= heard.generation)
        ):
            return here
        return heard

    def _know_live(self, tables: set[str]) -> None:
        """Load progress of ``tables`` from before this process started, for those that have not reported
        since."""
        for name in tables - self.board.live.keys():
            told = self._published(name)
            if told is not None and told.mode != "bulk":
                self.board.live.setdefault(name, told)

    def _report_last(self, plan: AnyPlan, query: StreamingQuery, mode: Mode, reported: int) -> int:
        batch = _timed(spark.last_batch(query, reported), self.last.get(plan.checkpoint))
        if batch is None:
            return reported
        if self.member is not None:
            self.member.reached = batch.sources
        self.doubt.cleared()
        if mode == "realtime":
            said = ", ".join(f"{part} {took}" for part, took in batch.parts.items())
            log.info("view %s: checkpoint %d, in ms: %s", self.table, batch.batch_id, said)
        self._report(
            plan,
            batch,
            mode,
            sql_stream.quiet_batches(query) if isinstance(plan, SqlPlan) and not plan.delta else None,
        )
        self.last = {plan.checkpoint: batch}
        return batch.batch_id

    def _report(
        self, plan: AnyPlan, batch: spark.CommittedBatch, mode: Mode, quiet: set[int] | None = None
    ) -> None:
        assert self.view is not None
        if self.replaced or not batch.sources.covers(self.untold):
            return
        # Times that real-time mode logs are not read times, and it may also have begun the first batch after
        # it.
        read_at_ms = (
            None
            if mode == "realtime" or _realtime_mark(plan).exists()
            else spark.logged_read_ms(plan.checkpoint, batch.batch_id)
        )
        if mode != "realtime":
            _realtime_mark(plan).unlink(missing_ok=True)
        if self.delta is not None:
            if not self.delta.computed:
                return  # its events are loaded, but the SQL has not run yet
            self.swept = Swept(dead=self.delta.left_out)
        elif isinstance(plan, SqlPlan):
            # Sweep before reporting progress: events that the view claims to cover must be in the view, its
            # DLQ or its late topic.
            self._sweep(plan, batch.batch_id, quiet or set())
        progress = Progress(
            self.table,
            plan.generation,
            batch.batch_id,
            mode,
            batch.sources,
            Positions(),
            batch.input_rows,
            batch.batch_ms,
            _now_ms(),
            self.swept.dead,
            self.swept.late,
            read_at_ms=read_at_ms,
        )
        self.board.report(progress, self.view.changelog)

    def _sweep(self, plan: SqlPlan, until: int, quiet: set[int]) -> None:
        before = self.swept
        if self.sweeping is None and not quiet.issuperset(range(before.batch_id + 1, until + 1)):
            self.sweeping = sql_stream.sweeping(self.session)
        self.swept = sql_stream.sweep(
            self.sweeping or self.session, plan, self.settings, before, until, quiet
        )
        if time.monotonic() >= self.noted_at + _NOTE_S:
            self.noted_at = time.monotonic()
            sql_stream.keep(plan.checkpoint, self.swept)
        if self.swept.late > before.late or self.swept.dead > before.dead:
            log.warning(
                "view %s: %d events too late, %d not taken so far",
                plan.view.name,
                self.swept.late,
                self.swept.dead,
            )

    def _stale(self, plan: AnyPlan) -> bool:
        try:
            if _stamp(self.path) != self.stamp and self._follows():
                return True
            topics = self.cluster.topics()
            if self._appeared():
                return True
        except FileNotFoundError:
            return True
        except HubError:
            self.silence.moved(time.monotonic())  # waiting for Kafka is not a stall
            return False
        found = [topics[name] for name in self.logs if name in topics]
        if {each.name: (each.topic_id, each.partitions) for each in found} != self.logs:
            return True  # a topic has more partitions, or was recreated
        if not self.pinned and any(
            table != self.ledger.served(view) for view, table in self._read_versions().items()
        ):
            return True  # another version of a source view is served now
        return any(
            tuple(sorted(topic for topic in topics if _feeds(each.source.topic, topic))) != each.topics
            for each in plan.inputs
        )

    def _say(self, state: EngineState, reason: str | None = None) -> None:
        if self.replaced:
            return
        entry = self.isolation.entry
        if entry is not None:
            now = f"now {state}" + (f": {reason}" if reason else "")
            state, reason = "isolated", isolation_message(entry, now)
        self.said = (state, reason)
        view = self.view
        sources = {name: source.topic for name, source in view.sources.items()} if view else {}
        self.board.say(
            ViewState(
                self.table,
                state,
                _now_ms(),
                reason or self.trouble,
                view.doc if view else "",
                view.owner if view else "",
                sources,
                view.ttl if view else None,
                self.label,
            )
        )


def _feeds(pattern: str, topic: str) -> bool:
    """Return True if a topic belongs to a source. A pattern never matches a dead-letter queue, which has
    copies of events."""
    return matches(pattern, topic) and (pattern == topic or kind_of(topic) is None)


def _timed(
    committed: spark.CommittedBatch | None, told: spark.CommittedBatch | None
) -> spark.CommittedBatch | None:
    """Return a batch with its event count and duration from ``told``, if that is the same batch. Its files do
    not have them."""
    if committed is None or told is None or committed.batch_id != told.batch_id:
        return committed
    return told if committed.sources == told.sources else committed


def _ensure_topic(
    cluster: KafkaCluster, name: str, partitions: int, config: Mapping[str, str], settings: Settings
) -> None:
    if cluster.partition_counts([name]):
        return
    # Another view's thread may have created it meanwhile: views of one topic share its dead-letter queue.
    with contextlib.suppress(Conflict):
        cluster.create_topic(
            name, partitions=partitions, config=config, replication_factor=settings.replication_factor
        )


def keep_short(cluster: KafkaCluster, topic: str, config: Mapping[str, str]) -> None:
    """Set the given topic settings where they are not set. Values that were set explicitly stay."""
    known = cluster.topic_config([topic])[topic]
    unset = {name: value for name, value in config.items() if name not in known}
    if unset:
        try:
            cluster.alter_config(topic, unset)
        except HubError as error:  # the topic still works, but takes longer to read
            log.warning('topic "%s" keeps its settings: %s', topic, error.message)


def _check_gone(reached: Positions, begin: Positions) -> None:
    """Raise HubError (HUB-3020) when retention has deleted events that a view has not read: continuing would
    lose them."""
    gone = [(tp, offset, begin.get(tp)) for tp, offset in sorted(reached) if begin.get(tp) > offset]
    if gone:
        said = ", ".join(
            f"{tp.topic} partition {tp.partition}: [{at}, {first})" for tp, at, first in gone[:5]
        )
        raise HubError(
            f"retention has taken offsets that the view has not read: {said}",
            hint="raise the topic's retention; to have the view of what is left, remove its folder under checkpoints",
            code="HUB-3020",
        )


def _largest_records(cluster: KafkaCluster, topics: Sequence[str]) -> dict[str, int]:
    """Return the largest allowed record size of each topic, in bytes."""
    known = cluster.topic_config(topics)
    return {topic: int(known[topic].get("max.message.bytes", _DEFAULT_LARGEST)) for topic in topics}


def _too_large(said: str, view: View | SqlView | None) -> ConfigError | None:
    """Return the error for a query whose row exceeds its changelog's record limit; None for any
    other error."""
    if view is None or "RecordTooLargeException" not in said:
        return None
    return ConfigError(
        f'view "{view.name}": a row of it is larger than its topic takes',
        hint=f"raise max.message.bytes of topic {view.changelog}, or keep less in a row: fewer of a list, shorter texts",
        code="HUB-2143",
    )


def _ensure_dead_letter_topic(cluster: KafkaCluster, name: str, largest: int, settings: Settings) -> None:
    """Ensure a DLQ topic without retention limit, whose records may be as large as the source's
    plus headers."""
    _ensure_room(cluster, name, 1, {"retention.ms": "-1"}, largest, settings)


def _ensure_room(
    cluster: KafkaCluster,
    name: str,
    partitions: int,
    config: Mapping[str, str],
    largest: int,
    settings: Settings,
) -> None:
    """Ensure a topic that accepts records of ``largest`` bytes plus headers. Otherwise one large event would
    stop the view."""
    room = largest + _HEADROOM
    if not cluster.partition_counts([name]):
        _ensure_topic(cluster, name, partitions, {**config, "max.message.bytes": str(room)}, settings)
    elif _largest_records(cluster, [name])[name] < room:
        cluster.alter_config(name, {"max.message.bytes": str(room)})


def _pins(made: _CompiledView) -> dict[str, Any]:
    """Return the schemas and topics that a version reads, so that it can continue when its topics have other
    schemas.

    ``resolves``: its columns have the defaults and aliases of these schemas. ``rules``: see
    entity_plan.RULES.
    """
    return {
        "resolves": True,
        "rules": made.rules,
        "latest": {each.source.name: each.latest for each in made.inputs},
        "reads": {name: source.topic for name, source in made.view.sources.items()},
    }


def _with_resolution(note: dict[str, Any]) -> dict[str, Any]:
    """Return a version's note with the schemas that its state was made with.

    In notes without ``resolves``, columns have neither defaults nor aliases. Such a version continues without
    them, and the next one is built beside it.
    """
    if "latest" not in note or "resolves" in note:
        return note
    plain = {name: without_defaults(schema) for name, schema in note["latest"].items()}
    return {**note, "latest": plain, "resolves": True}


def _write_note(note: Path, body: Mapping[str, Any]) -> None:
    beside = note.with_suffix(".tmp")
    beside.write_bytes(orjson.dumps(body))
    beside.replace(note)


def _generations(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]


def _fingerprint(compiled: EntityPlan, inputs: tuple[Input, ...]) -> str:
    """Return a hash that is equal for two plans exactly when one can continue from the other's checkpoint.

    Covers the expressions and the types that they read.
    """
    types = {each.source.name: field_types(each.latest) for each in inputs}
    used = {
        each.source.name: {name: types[each.source.name][name] for name in each.source.columns}
        for each in inputs
    }
    body: list[Any] = [
        [
            [s.name, s.topic, s.columns, s.key, s.order, s.unique, s.where, [astuple(e) for e in s.entries]]
            for s in compiled.sources
        ],
        compiled.aggregates,
        compiled.outputs,
        compiled.delete_when,
        used,
    ]
    if resolved := _resolved_columns(inputs):
        body.append(resolved)
    if compiled.expiry is not None:  # only whether there is a ttl: the fold does not depend on its length
        body.append([compiled.expiry.topic, compiled.expired])
    read = {each.source.name: how for each in inputs if (how := _own_way(each)) is not None}
    if read:
        body.append(read)
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _resolved_columns(inputs: Sequence[Input]) -> dict[str, dict[str, Any]]:
    """Return default and former names of the columns that are read, by source. Columns without either are
    left out."""
    found: dict[str, dict[str, Any]] = {}
    for given in inputs:
        for each in given.latest["fields"]:
            said = [each.get("default"), each.get("aliases") or []]
            if each["name"] in given.source.columns and said != [None, []]:
                found.setdefault(given.source.name, {})[each["name"]] = said
    return found


def _stamp(path: Path) -> tuple[int, ...]:
    """Return the modification times of the files that define a view, in nanoseconds."""
    return tuple(each.stat().st_mtime_ns for each in files_of(path))


def _with_functions(fingerprint: str, view: View | SqlView) -> str:
    """Return the fingerprint combined with the view's Python functions: a checkpoint fits only the code that
    it was made with."""
    if view.transforms is None:
        return fingerprint
    return hashlib.sha256(f"{fingerprint} {digest(view.transforms.text)}".encode()).hexdigest()


def _check_realtime(view: View | SqlView, inputs: Sequence[Input]) -> None:
    """Raise ConfigError (HUB-2108) for sources that need batches, which real-time mode does not have."""
    for given in inputs:
        if given.reading is not None and given.reading.form == "protobuf":
            raise ConfigError(
                f'view "{view.name}": source "{given.source.name}": Protobuf is read in batches, and real-time mode has none',
                hint="write `mode: live`",
                code="HUB-2108",
            )


def _own_way(given: Input) -> list[Any] | None:
    """Return how events without a schema id are read, as declared in the view's file; None if the registry
    defines it."""
    how = given.reading
    if how is None or how.framed:
        return None
    return [how.form, how.separator, how.null, list(field_types(given.latest)) if how.form == "csv" else []]


def _realtime_mark(plan: AnyPlan) -> Path:
    """Return the path of a file that exists while rows may be published that the checkpoint's state does not
    have yet."""
    return plan.checkpoint / "hub.realtime"


def _sql_fingerprint(
    classified: Classified, inputs: tuple[Input, ...], delta: DeltaPlan | None, rules: int
) -> str:
    """Return the fingerprint of a SQL view, as ``_fingerprint`` does. Spaces and comments in its SQL do not
    count."""
    view = classified.query.view
    types = {each.source.name: field_types(each.latest) for each in inputs}
    used = {
        each.source.name: {
            name: types[each.source.name].get(name) for name in each.source.columns if name not in META
        }
        for each in inputs
    }
    words = [token.text for token in classified.query.tokens]
    # The topic of a source view is that of the version that is read.
    topics = {each.source.name: each.source.topic for each in inputs}
    sources = {
        name: {
            **source.model_dump(mode="json", exclude=_unset_fields(source)),
            "topic": topics[name],
        }
        for name, source in view.sources.items()
    }
    body: list[Any] = [words, sources, classified.key, used]
    if rules and exact_sums.has_sums(classified):
        body.append(rules)
    if resolved := _resolved_columns(inputs):
        body.append(resolved)
    if delta is not None:
        body.append(delta_inputs.fingerprint(delta))
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _unset_fields(source: SqlSource) -> set[str]:
    """Return the fields that a source leaves unset and that were added later: they must not change its
    fingerprint."""
    return {name for name in ("table", "format", "columns", "csv") if not getattr(source, name)}


def _avro(version: RegisteredSchema) -> AvroType:
    """Return the schema that a version's events are decoded with; {} for formats whose newest schema reads
    them all."""
    return orjson.loads(version.schema) if version.schema_type == "AVRO" else {}


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0][:500]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
