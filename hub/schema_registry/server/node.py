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
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hub.errors import HubError, HubFault, PeerError
from hub.log import Log, Writer, WriterFenced
from hub.schema_registry.compat.compatibility import Incompatibility
from hub.schema_registry.describe import Warned, warnings
from hub.schema_registry.formats import InvalidSchema, known
from hub.schema_registry.formats.inline_tags import Tagged, retagged
from hub.schema_registry.model.data_contract import InvalidRules
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, Fact, SchemaStored, record_of
from hub.schema_registry.policy.policy_checks import PolicyViolation
from hub.schema_registry.registry import questions
from hub.schema_registry.registry.decide_register import as_judged, makes_version
from hub.schema_registry.registry.preconditions import writable
from hub.schema_registry.registry.rulebook import Rulebook, view_of
from hub.schema_registry.registry.state_machine import (
    Command,
    CommandDecision,
    RegisterSchema,
    Registry,
    RequestRefused,
    refused_schema,
)
from hub.schema_registry.server.applied_log import LOG, AppliedLog
from hub.schema_registry.server.shared_run import SharedRun

T = TypeVar("T")

WRITER_NAME = "hub.schema-registry"
_MOST_PAUSE_S = 0.2
_CATCH_UP_S = 5.0  # longest wait of an unsuccessful read for the end of the log


class _IdTaken(Exception):
    """An earlier record of another producer has the id that was decided on."""


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
        self.timeout_s = timeout_s
        self.rules = rules
        self._log = AppliedLog(cluster, replication_factor, timeout_s)
        self._writing = threading.Lock()
        self._ends: SharedRun[int] = SharedRun(lambda: self._log.end(committed=False))
        self._writer: Writer | None = None
        self._thread: threading.Thread | None = None

    @property
    def registry(self) -> Registry:
        """The state. It changes while nobody holds it: see ``read``."""
        return self._log.registry

    @property
    def position(self) -> int:
        """Next offset of the log to read."""
        return self._log.position

    def start(self, wait_s: float | None = None) -> bool:
        """Create the topic when it is missing, read it to its end and follow it, in a thread until ``stop``.

        Waits at most ``wait_s`` (default: the node's timeout) and returns whether the node is ready. Until it
        is, queries wait and then raise PeerError, so that a server can serve everything else while Kafka is
        unavailable. A topic that would lose schemas (cleanup.policy) is served with a warning in ``state``
        and in the log.
        """
        self._thread = threading.Thread(target=self._log.follow, name="schema-registry", daemon=True)
        self._thread.start()
        return self._log.ready.wait(self.timeout_s if wait_s is None else wait_s)

    def stop(self) -> None:
        self._log.stopped.set()
        if self._thread is not None:
            self._thread.join(self.timeout_s)
        if self._writer is not None:
            self._writer.close()

    @property
    def ready(self) -> bool:
        """True if queries are answered immediately."""
        return self._log.ready.is_set()

    def read(self, question: Callable[[Registry], T]) -> T:
        """Run a query on the state, which does not change while ``question`` runs."""
        self._log.be_ready()
        rulebook = self.rules() if self.rules is not None else None
        with self._log.changed:
            if rulebook is not None:
                self.registry.rulebook = rulebook
            return question(self.registry)

    def writable(self, subject: str | None) -> None:
        """Raise RequestRefused 42205 if the mode of a subject, or (None) of the registry, is read-only."""
        self.read(lambda registry: writable(registry, subject))

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
            yield from self._log.reaching(self._ends.result(timeout_s), deadline)
        except PeerError:
            if self.position < self._log.end():
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

        def judge(registry: Registry) -> list[PolicyViolation]:
            is_new = makes_version(registry, command)
            return questions.violations(registry, as_judged(registry, command), is_new=is_new)

        return self.read(judge)

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
        self._log.be_ready()
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
                self._log.stopped.wait(random.uniform(0.0, _MOST_PAUSE_S))
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
            end = self._log.end()
            self._be_same_log(known, end)
            self._log.reach(end)
        try:
            decision = self.read(lambda registry: registry.decide(command))
        except RequestRefused:
            if opened:
                raise
            decision = CommandDecision((), None)
        if not decision.facts and not opened:
            self._log.reach(self._log.end())
            decision = self.read(lambda registry: registry.decide(command))
        if not decision.facts:
            return decision.answer, self.position
        records = [record_of(fact) for fact in decision.facts]
        known = self.position
        try:
            after = self._writer.append(records).get(LOG)
        except HubError:  # reopening automatically would hide records written meanwhile
            self._writer = None
            raise
        self._be_same_log(known + len(records), after)
        self._log.take_in(records, after)
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

    def _be_kept(self, facts: Iterable[Fact]) -> None:
        """Raise _IdTaken when the state has another schema under the id of one of these facts."""

        def is_taken(registry: Registry) -> bool:
            return any(isinstance(fact, SchemaStored) and registry.contradicts(fact) for fact in facts)

        if self.read(is_taken):
            raise _IdTaken


__all__ = ["RegistryNode", "RequestRefused"]
