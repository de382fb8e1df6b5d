"""[shell] Registry node: the state in memory, fed by the log; writes are fenced, appended, applied, then
answered.

Any number of nodes may accept writes. When another node has fenced its writer, a node opens the writer again,
catches up, and decides again. A decision is therefore always based on the end of the log: while the writer is
not fenced, no other node has written, and an append based on less fails. A producer that fences nobody may
write too: every record is applied in the log's order, and a registration whose id that producer took first is
decided again.

Reads answer from memory, even while Kafka is unavailable. If something is not found, the node reads the log
to the end that it had at the time of the request and looks again (``catching_up``): another node may have
registered it a moment ago.

Slow work, parsing and comparing schemas, is done before and outside the state's lock; the decision under the
lock then uses cached answers.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hub.errors import HubError, HubFault, PeerError
from hub.log import Log, Reader, Writer, WriterFenced
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.schema_registry.compat.compatibility import Incompatibility
from hub.schema_registry.describe import Warned, warnings
from hub.schema_registry.formats import InvalidSchema, known
from hub.schema_registry.formats.inline_tags import Tagged, retagged
from hub.schema_registry.model.data_contract import InvalidRules
from hub.schema_registry.model.facts import (
    SCHEMAS_TOPIC,
    Fact,
    SchemaStored,
    UnreadableFact,
    fact_of,
    record_of,
)
from hub.schema_registry.policy.policy_checks import PolicyViolation
from hub.schema_registry.registry import questions
from hub.schema_registry.registry.decide_register import as_judged, makes_version
from hub.schema_registry.registry.rulebook import Rulebook, view_of
from hub.schema_registry.registry.state_machine import (
    Command,
    CommandDecision,
    RegisterSchema,
    Registry,
    RequestRefused,
    refused_schema,
)
from hub.schema_registry.server.shared_run import SharedRun

log = logging.getLogger(__name__)
T = TypeVar("T")

WRITER_NAME = "hub.schema-registry"
_LOG = TopicPartition(SCHEMAS_TOPIC, 0)
_MOST_PAUSE_S = 0.2
_PAUSE_S = 0.001  # after an empty poll: an in-memory log does not wait by itself
_RECORDS_S = 0.05  # existing records have mostly arrived by then
_MARKS_S = 1.0
_CATCH_UP_S = 5.0  # longest wait of an unsuccessful read for the end of the log


class _IdTaken(Exception):
    """An earlier record of another producer has the id that was decided on."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """State of a node for operators.

    ``position`` is the next offset that it reads; ``warnings`` are sentences.
    """

    ready: bool
    position: int
    schemas: int
    unreadable: int
    conflicts: int
    warnings: tuple[str, ...]


class RegistryNode:
    """One registry node. Thread safe. Call ``start`` before use, ``stop`` after."""

    def __init__(
        self,
        cluster: Log,
        *,
        replication_factor: int = 1,
        timeout_s: float = 10.0,
        rules: Callable[[], Rulebook] | None = None,
    ) -> None:
        self.cluster = cluster
        self.replication_factor = replication_factor
        self.timeout_s = timeout_s
        self.registry = Registry()
        self.rules = rules
        self.position = 0
        self._appended = -1  # the position after this node's last append
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._passing = threading.Lock()  # held by the thread that skips transaction markers
        self._ends: SharedRun[int] = SharedRun(lambda: self._end(committed=False))
        self._writer: Writer | None = None
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._warnings: tuple[str, ...] = ()
        self._thread: threading.Thread | None = None

    def start(self, wait_s: float | None = None) -> bool:
        """Create the topic when it is missing, read it to its end and follow it, in a thread until ``stop``.

        Waits at most ``wait_s`` (default: the node's timeout) and returns whether the node is ready. Until it
        is, queries wait and then raise PeerError, so that a server can serve everything else while Kafka is
        unavailable. A topic that would lose schemas (cleanup.policy) is served with a warning in ``state``
        and in the log.
        """
        self._thread = threading.Thread(target=self._follow, name="schema-registry", daemon=True)
        self._thread.start()
        return self._ready.wait(self.timeout_s if wait_s is None else wait_s)

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self.timeout_s)
        if self._writer is not None:
            self._writer.close()

    @property
    def ready(self) -> bool:
        """True if queries are answered immediately."""
        return self._ready.is_set()

    def state(self) -> NodeStatus:
        """Return the node's state. Answers also while the node is not ready."""
        with self._changed:
            registry = self.registry
            return NodeStatus(
                self.ready,
                self.position,
                sum(len(each.ids) for each in registry.contexts.values()),
                registry.unreadable_count,
                registry.conflict_count,
                self._warnings,
            )

    def read(self, question: Callable[[Registry], T]) -> T:
        """Run a query on the state, which does not change while ``question`` runs."""
        self._be_ready()
        rulebook = self.rules() if self.rules is not None else None
        with self._changed:
            if rulebook is not None:
                self.registry.rulebook = rulebook
            return question(self.registry)

    def catching_up(self) -> Iterator[None]:
        """Read the log to its current end; yield whenever more was applied, so that the caller can query
        again.

        The end includes open transactions, because Kafka acknowledges a commit before readers may see its
        records. A transaction that stays open for the whole 5 s was not acknowledged, and is no longer waited
        for. Concurrent callers share one request for the end. Raises PeerError when Kafka does not answer:
        then something not found is unknown, not missing.
        """
        timeout_s = min(self.timeout_s, _CATCH_UP_S)
        deadline = time.monotonic() + timeout_s
        try:
            yield from self._reaching(self._ends.result(timeout_s), deadline)
        except PeerError:
            if self.position < self._end():
                raise

    def caught_up(self, question: Callable[[], T]) -> T:
        """Return the answer to a question; if something does not exist, ask again as the node catches up.

        Raises RequestRefused once the log is read to its end; PeerError as ``catching_up``.
        """
        try:
            return question()
        except RequestRefused as refused:
            if not refused.is_missing:
                raise
        for _ in self.catching_up():
            try:
                return question()
            except RequestRefused as refused:
                if not refused.is_missing:
                    raise
        return question()

    def lookup(self, command: RegisterSchema, *, deleted: bool = False) -> SchemaStored | None:
        """See Registry.lookup."""
        self._parse(command)
        return self.read(lambda registry: registry.lookup(command, deleted=deleted))

    def incompatibilities(
        self, command: RegisterSchema, version: int | str | None
    ) -> tuple[Incompatibility, ...]:
        """Return why a schema may not follow one version, or (version None) those that the level checks.

        Completes the command as a registration does, for the same result.
        """
        question = self.read(
            lambda registry: questions.compatibility_question(registry, as_judged(registry, command), version)
        )
        try:
            question.new.parsed()  # also when there is nothing to compare it with
            return question.answer()
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def violations(self, command: RegisterSchema) -> list[PolicyViolation]:
        """See questions.violations. Completes the command as a registration does, for the same result."""
        self._parse(command)

        def asked(registry: Registry) -> list[PolicyViolation]:
            is_new = makes_version(registry, command)
            return questions.violations(registry, as_judged(registry, command), is_new=is_new)

        return self.read(asked)

    def remarks(self, command: RegisterSchema) -> list[Warned]:
        """Return changes from the latest version to this schema that no level reports; they refuse nothing.

        Raises RequestRefused 42201.
        """
        self._parse(command)
        step = self.read(lambda registry: questions.latest_and_new(registry, command))
        if step is None:
            return []
        try:
            return warnings(*map(view_of, step))
        except InvalidSchema:  # a schema without a view has no warnings
            return []

    def formatted(self, stored: SchemaStored, name: str) -> str:
        """Return the schema's text for ``format=name``; the plain text if its format does not support it.

        Raises RequestRefused.
        """
        if name not in known.FORMATTED:
            return stored.schema
        source = self.read(lambda registry: registry.source_of(stored))
        try:
            return known.formatted(source.form, source.parsed(), name) or stored.schema
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def retagged(
        self, command: RegisterSchema, add: Sequence[Tagged], remove: Sequence[Tagged]
    ) -> RegisterSchema:
        """Write tags into the command's schema. Raises RequestRefused 42201 for a path that leads nowhere."""
        source = self.read(lambda registry: registry.source(command))
        try:
            return replace(command, schema=retagged(source.parsed(), add, remove))
        except InvalidSchema as error:
            raise refused_schema(error) from None

    def _parse(self, command: RegisterSchema) -> None:
        if command.schema.strip():
            source = self.read(lambda registry: registry.source(command))
            try:
                source.parsed()
            except InvalidSchema as error:
                raise refused_schema(error) from None
            for each in self.read(lambda registry: registry.other_spellings(command)):
                each.spelled()

    def _prepare(self, command: Command) -> None:
        """Answer in advance the questions of the decision.

        Errors are left to the decision, which reports them.
        """
        if not isinstance(command, RegisterSchema):
            return
        with contextlib.suppress(RequestRefused, InvalidSchema, InvalidRules):
            self._parse(command)
            question = self.read(lambda registry: questions.question_beforehand(registry, command))
            if question is not None:
                question.answer()

    def submit(self, command: Command) -> tuple[Any, int]:
        """Execute a command; return (its answer, the log position after it).

        For a command that changes nothing the position is the end of the log that it was decided on. Raises
        RequestRefused; PeerError when Kafka is unavailable.
        """
        self._be_ready()
        self._prepare(command)
        deadline = time.monotonic() + self.timeout_s
        # Bounded: while Kafka is unavailable each write is slow, and waiting ones hold threads.
        if not self._writing.acquire(timeout=self.timeout_s):
            raise PeerError(
                "the registry's earlier writes have not ended",
                hint="check Kafka with hub doctor; try again",
                code="HUB-3035",
            )
        try:
            return self._written(command, deadline)
        finally:
            self._writing.release()

    def _written(self, command: Command, deadline: float) -> tuple[Any, int]:
        """Execute ``submit`` in the one writing thread; tries at least once, and again until the deadline."""
        while True:
            try:
                return self._carry_out(command)
            except WriterFenced:
                # Another node wrote: catch up and decide again. A random pause ends mutual fencing.
                self._writer = None
                self._stop.wait(random.uniform(0.0, _MOST_PAUSE_S))
            except _IdTaken:
                pass  # the state has both records by now, and decides otherwise
            except PeerError:
                self._writer = None
                raise
            if time.monotonic() > deadline:
                raise PeerError(
                    "the registry's other nodes write without a pause", hint="try again", code="HUB-3030"
                )

    def _carry_out(self, command: Command) -> tuple[Any, int]:
        """Decide, append, apply.

        Raises WriterFenced when another node opened the writer's name since; _IdTaken.

        Opening the name fences all other nodes, and the node then reads to the end. From there on it has all
        records of nodes as long as its appends succeed. A command that appends nothing, such as a refusal, is
        decided on the log's end in any case.
        """
        opened = self._writer is None
        if self._writer is None:
            self._writer = self.cluster.writer(WRITER_NAME)
            known = self.position
            end = self._end()
            self._be_same_log(known, end)
            self._reach(end)
        try:
            decision = self.read(lambda registry: registry.decide(command))
        except RequestRefused:
            if opened:
                raise
            decision = CommandDecision((), None)
        if not decision.facts and not opened:
            self._reach(self._end())
            decision = self.read(lambda registry: registry.decide(command))
        if not decision.facts:
            return decision.answer, self.position
        records = [record_of(fact) for fact in decision.facts]
        known = self.position
        try:
            after = self._writer.append(records).get(_LOG)
        except HubError:  # reopening automatically would hide records written meanwhile
            self._writer = None
            raise
        self._be_same_log(known + len(records), after)
        self._take_in(records, after)
        self._be_kept(decision.facts)
        return decision.answer, after

    def _be_same_log(self, known: int, end: int) -> None:
        """Raise HubFault when the log ends before ``known``, the offset up to which it was read.

        Such a log is a different one: a decision made here would not fit it, and nobody would see the record.
        The node still serves its state, which may be the last copy.
        """
        if end < known:
            self._writer = None
            raise HubFault(
                f'topic "{SCHEMAS_TOPIC}" ends at {end}, and was read up to {self.position}: '
                "it is another one now",
                hint="check whether it was deleted or restored from a backup; restart the registry to "
                "continue with its current content",
            )

    def _take_in(self, records: Sequence[NewRecord], after: int) -> None:
        """Apply this node's appended records, in the log's order.

        ``after`` is the offset after the last of them.

        One record that directly follows the position is applied at once: it is committed, and readers get it
        only some milliseconds later. Otherwise records of other producers may precede it or lie between
        several, so all of it is read back from the log.
        """
        first = after - 1
        with self._changed:
            # An append ends with its transaction marker: a single offset between two appends is that marker.
            only_a_mark = self.position == self._appended == first - 1
            if len(records) == 1 and (self.position == first or only_a_mark):
                new = records[0]
                record = Record(SCHEMAS_TOPIC, 0, first, 0, new.key, new.value, tuple(new.headers))
                self.registry.apply(fact_of(record))
                self.position = after
            self._appended = after
            self._changed.notify_all()
        self._reach(after)

    def _be_kept(self, facts: Iterable[Fact]) -> None:
        """Raise _IdTaken when the state has another schema under the id of one of these facts."""

        def is_taken(registry: Registry) -> bool:
            return any(isinstance(fact, SchemaStored) and registry.contradicts(fact) for fact in facts)

        if self.read(is_taken):
            raise _IdTaken

    def _be_ready(self) -> None:
        if not self._ready.wait(self.timeout_s):
            raise PeerError(
                "the registry has not read its log yet",
                hint="check Kafka with hub doctor",
                code="HUB-3034",
            )

    def _end(self, *, committed: bool = True) -> int:
        return self.cluster.end_offsets([SCHEMAS_TOPIC], committed=committed).get(_LOG)

    def _reach(self, position: int) -> None:
        """Wait until the state covers a position of the log."""
        for _ in self._reaching(position, time.monotonic() + self.timeout_s):
            pass

    def _reaching(self, position: int, deadline: float) -> Iterator[None]:
        """``_reach`` in steps: yields whenever more was applied. Raises PeerError after ``deadline``."""
        while True:
            with self._changed:
                # An append ends with its transaction marker: a single offset after it is that marker.
                if self.position == self._appended == position - 1:
                    self.position = position
                before = self.position
                if before >= position:
                    return
                remaining = deadline - time.monotonic()
                moved = self._moves_past(before, min(_RECORDS_S, remaining))
            if moved and remaining > 0:
                yield
            elif remaining <= 0 or self._stop.is_set():
                raise PeerError(
                    f"the registry's log is read up to {self.position} of {position}",
                    hint="check Kafka with hub doctor",
                    code="HUB-3031",
                )
            else:
                self._pass_marks(min(_MARKS_S, remaining))

    def _moves_past(self, position: int, timeout_s: float) -> bool:
        """Wait until more is applied; requires the state's lock."""
        self._changed.wait_for(lambda: self.position > position or self._stop.is_set(), timeout_s)
        return self.position > position

    def _pass_marks(self, timeout_s: float) -> None:
        """Advance to the next record or the end of the log.

        A follower receives records at once, but notices offsets with only transaction markers late. One
        thread looks for all waiting ones.
        """
        if not self._passing.acquire(blocking=False):
            return
        try:
            before = self.position
            reached = self.cluster.next_records(Positions({_LOG: before}), timeout_s).get(_LOG)
            with self._changed:
                if self.position == before:
                    self.position = max(before, reached)
                    self._changed.notify_all()
        finally:
            self._passing.release()

    def _follow(self) -> None:
        """Read and apply the log until ``stop``; after an error try again in a second."""
        while not self._stop.is_set():
            try:
                self._ensure_topic()
                end = self._end()
                self._read_on(self.cluster.reader(), end)
                if self.position >= end:
                    self._ready.set()
                self._read_on(self.cluster.follower(), None)
            except HubError as error:
                log.warning("%s: read again in a second", error.message)
                self._stop.wait(1.0)

    def _read_on(self, reader: Reader, end: int | None) -> None:
        """Read up to ``end``; None: until ``stop``."""
        with contextlib.closing(reader):
            reader.assign(Positions({_LOG: self.position}))
            while not self._stop.is_set() and (end is None or self.position < end):
                self._take(reader)

    def _take(self, reader: Reader) -> None:
        records = reader.poll(1_000, 0.2)
        reached = reader.position().get(_LOG)
        if not records and reached <= self.position:
            self._stop.wait(_PAUSE_S)
            return
        with self._changed:
            for record in records:
                if record.offset < self.position:
                    continue  # this node's own, taken in already
                conflicts, unreadable = len(self.registry.conflicts), len(self.registry.unreadable)
                try:
                    self.registry.apply(fact_of(record))
                except Exception as error:  # one record must not end the registry
                    log.exception("%s offset %d", SCHEMAS_TOPIC, record.offset)
                    self.registry.apply(UnreadableFact(record.offset, f"{type(error).__name__}: {error}"))
                for conflict in self.registry.conflicts[conflicts:]:
                    log.error("%s offset %d: %s", SCHEMAS_TOPIC, record.offset, conflict)
                for each in self.registry.unreadable[unreadable:]:
                    log.warning("%s offset %d is not a fact: %s", SCHEMAS_TOPIC, record.offset, each.reason)
            self.position = max(self.position, reached)
            self._changed.notify_all()

    def _ensure_topic(self) -> None:
        if not self.cluster.partition_counts([SCHEMAS_TOPIC]):
            self.cluster.create_topic(
                SCHEMAS_TOPIC,
                partitions=1,
                config={"cleanup.policy": "compact"},
                replication_factor=self.replication_factor,
            )
            return
        warnings = []
        policy = self._policy()
        if policy is not None and policy != "compact":
            warnings.append(
                f'topic "{SCHEMAS_TOPIC}": cleanup.policy is "{policy}": schemas will vanish. '
                f"kafka-configs --alter --topic {SCHEMAS_TOPIC} --add-config cleanup.policy=compact"
            )
        partitions = self.cluster.topics()[SCHEMAS_TOPIC].partitions
        if partitions != 1:
            warnings.append(
                f'topic "{SCHEMAS_TOPIC}" has {partitions} partitions: only partition 0 is read and written'
            )
        for each in warnings:
            if each not in self._warnings:
                log.error("%s", each)
        self._warnings = tuple(warnings)

    def _policy(self) -> str | None:
        """Return the topic's cleanup policy; None when the topic leaves it to the broker (then it is not
        compact).
        """
        configs = getattr(self.cluster, "topic_config", None)
        if configs is None:
            return self.cluster.topics()[SCHEMAS_TOPIC].config.get("cleanup.policy")
        found: str = configs([SCHEMAS_TOPIC])[SCHEMAS_TOPIC].get("cleanup.policy", "delete")
        return found


__all__ = ["NodeStatus", "RegistryNode", "RequestRefused"]
