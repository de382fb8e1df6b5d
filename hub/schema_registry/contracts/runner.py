"""[shell] Execute rules in child processes: started on first use, one value at a time, replaced when they
die.

A value whose rules take more than ``CPU_S`` of processor time, or more memory than a child has, is refused
with the rule's name. A schema whose rules exceed a limit twice within a minute is refused for ``PAUSE_S``
without execution, so that its values do not delay those of others. Processor time does not depend on the
machine's load; a timeout in real time is not blamed on the rule.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson

from hub.errors import CallerError, HubError, HubFault, PeerError
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.misfit import MOST_STEPS, Unfit
from hub.schema_registry.codecs.values import Encoder
from hub.schema_registry.codecs.values import encoder_of as plain_encoder_of
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.frames import ASK, DONE, KEY, READY, REFUSED, RULE
from hub.schema_registry.contracts.rules import (
    Mode,
    RulePlan,
    RuleRefused,
    judged_by,
    must_be_executable,
    over_limit,
    plan_of,
)
from hub.schema_registry.dek_registry.data_keys import DataKey, KeyQuestion, KeySource

CPU_S = 2.0  # per value: a thousand times the usual
MEMORY_MB = 1_024
PAUSE_S = 30.0
_WITHIN_S = 60.0
_MOST_CHILDREN = 2
_WALL_S = 60.0
_START_S = 120.0
_MOST_ANSWER = 1 << 30
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "VIRTUAL_ENV")


class KeyUnavailable(PeerError):
    """The key of a rule cannot be had now; the code is that of its reason."""


class _Died(Exception):
    """A child ended during a request; the argument is the rule it was executing, if any."""


class _RuleProcess:
    """One child process. Not thread safe."""

    def __init__(self, cpu_s: float, memory_mb: int) -> None:
        env = {
            name: value
            for name, value in os.environ.items()
            if name in _ENVIRONMENT or name.startswith("PYTHON")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hub.schema_registry.contracts.child", str(cpu_s), str(memory_mb)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        self._known: set[bytes] = set()
        self.is_ready = False

    def ask(
        self, operation: str, key: bytes, source: SchemaSource, arguments: Any, keys: KeySource | None
    ) -> bytes:
        """Send a request and return its result. ``keys`` has the data keys that the child asks for.

        Raises the child's CallerError; _Died; PeerError when the child does not answer in time; the error of
        ``keys`` with the rule's name.
        """
        if not self.is_ready:
            if self._frame(time.monotonic() + _START_S)[0] != READY:
                raise _Died("")
            self.is_ready = True
        rule, failed = "", None
        self._send((operation, key, None if key in self._known else source, arguments))
        deadline = time.monotonic() + _WALL_S
        while True:
            try:
                kind, payload = self._frame(deadline)
            except _Died:
                raise _Died(rule) from None
            if kind == RULE:
                rule = payload.decode("utf-8", "replace")
            elif kind == ASK:
                self._known.discard(key)
                self._send((operation, key, source, arguments))
            elif kind == KEY:
                try:
                    self._send(_data_key(keys, arguments[-1], payload))
                except HubError as error:
                    self._send(None)
                    failed = _without_key(rule, error)
            elif kind == DONE:
                self._known.add(key)
                return payload
            elif kind == REFUSED:
                self._known.add(key)  # otherwise it asks again
                raise failed or _refused(orjson.loads(payload))

    def _send(self, request: Any) -> None:
        pickled = pickle.dumps(request)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(pickled).to_bytes(4, "big") + pickled)
            self._process.stdin.flush()
        except OSError:
            raise _Died("") from None

    def _frame(self, deadline: float) -> tuple[bytes, bytes]:
        head = self._read(5, deadline)
        size = int.from_bytes(head[1:], "big")
        if size > _MOST_ANSWER:
            raise _Died("")
        return head[:1], self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        parts = bytearray()
        while len(parts) < size:
            if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise PeerError("the rules of the schema were not executed in time", hint="try again")
            part = os.read(fd, size - len(parts))
            if not part:
                raise _Died("")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """End the process. Blocks for a moment."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _data_key(keys: KeySource | None, subject: Any, payload: bytes) -> DataKey | None:
    """Return the data key that a child asks for; None for any other subject than that of its request: what
    runs there was written by authors of schemas. Raises HubError.
    """
    question = KeyQuestion(**orjson.loads(payload))
    return None if keys is None or question.subject != subject else keys.key(question)


def _without_key(rule: str, error: HubError) -> HubError:
    """Return the error of a rule whose key cannot be had: the caller's, or one to try again."""
    message = f'rule "{rule}" cannot encrypt or decrypt: {error.message}'
    if error.retriable:
        return KeyUnavailable(message, hint=error.hint, code=error.code)
    return RuleRefused(message, rule, hint=error.hint, code=error.code)


def _refused(refusal: Any) -> Exception:
    message, hint, code = str(refusal["message"]), refusal.get("hint"), str(refusal.get("code") or "")
    if "rule" in refusal:
        return RuleRefused(
            message, str(refusal["rule"]), dlq_topic=refusal.get("dlq_topic"), hint=hint, code=code
        )
    if code == Unfit.code:
        return Unfit(message, hint=hint)
    return CallerError(message, hint=hint, code=code) if code else BrokenValue(message, 0)


class RuleRunner:
    """Executes rules of any number of schemas. Thread safe. Call ``close`` after use."""

    def __init__(
        self, *, cpu_s: float = CPU_S, memory_mb: int = MEMORY_MB, most: int = _MOST_CHILDREN
    ) -> None:
        self._cpu_s, self._memory_mb = cpu_s, memory_mb
        self._room = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._idle: list[_RuleProcess] = []
        self._killed: dict[bytes, list[float]] = {}
        self._is_closed = False
        self.keys: KeySource | None = None
        """Data keys of rules that encrypt; None: the process has none, and such rules refuse."""

    def encoder_of(self, source: SchemaSource, subject: str | None = None) -> Encoder:
        """Return ``values.encoder_of(source)``; for a schema with write rules the encoder also executes them.
        ``subject`` has the data keys of rules that encrypt. None: fields of a value may be encrypted already,
        as those of a stored event, so rules that encrypt refuse it.

        Raises InvalidSchema, Unfit.
        """
        plain = plain_encoder_of(source)
        return _Encoder(self, source, subject) if has_write_rules(source) else plain

    def rewritten(self, source: SchemaSource, subject: str, body: bytes, place: str = "value") -> bytes:
        """Apply the write rules to an encoded value and return its new bytes.

        Raises RuleRefused, Unfit, PeerError.
        """
        _must_be_executable(source, place, has_keys=self.keys is not None)
        try:
            return self.ask("write_body", source, (body, place, subject))
        except RuleRefused as error:
            raise error.of(place) from None

    def refusal_of(self, source: SchemaSource) -> Callable[[bytes, int], str | None] | None:
        """Return a check of stored bodies that returns the broken rule or None; None when no rule can be
        checked.
        """
        write, read = plan_of(source.rule_set, Mode.WRITE), plan_of(source.rule_set, Mode.READ)
        if has_encoding_rules(source) or not (judged_by(write) or read):
            return None
        return lambda data, start: self.ask("refusal", source, (data, start)).decode() or None

    def ask(self, operation: str, source: SchemaSource, arguments: Any) -> bytes:
        """Execute one request.

        Raises the child's errors; RuleRefused when the rule ended the child; PeerError.
        """
        key = contract_key(source)
        self._may_be_tried(key)
        if not self._room.acquire(timeout=_WALL_S):
            raise PeerError("rules of other schemas are being executed", hint="try again")
        try:
            return self._ask_child(operation, key, source, arguments)
        finally:
            self._room.release()

    def _ask_child(self, operation: str, key: bytes, source: SchemaSource, arguments: Any) -> bytes:
        child, was_used = self._take()
        try:
            answer = child.ask(operation, key, source, arguments, self.keys)
        except _Died as died:
            child.close()
            rule = str(died)
            if not rule and was_used:  # the child ended while it was idle
                return self._ask_child(operation, key, source, arguments)
            if not child.is_ready:
                raise HubFault(
                    "the process that executes rules of schemas does not start",
                    hint="the reason is in its log",
                ) from None
            raise self._ended(key, rule) from None
        except (CallerError, BrokenValue, KeyUnavailable):
            self._give_back(child)
            raise
        except BaseException:
            child.close()
            raise
        self._give_back(child)
        return answer

    def _take(self) -> tuple[_RuleProcess, bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        return _RuleProcess(self._cpu_s, self._memory_mb), False

    def _give_back(self, child: _RuleProcess) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(child)
                return
        child.close()

    def _ended(self, key: bytes, rule: str) -> RuleRefused:
        now_s = time.monotonic()
        with self._lock:
            self._killed = {
                each: times for each, times in self._killed.items() if now_s - times[-1] < _WITHIN_S
            }
            self._killed[key] = [*self._killed.get(key, [])[-1:], now_s]
        why = (
            f"it takes more than {self._cpu_s:g} s of processor time, or more than "
            f"{self._memory_mb} MB of memory"
        )
        return over_limit(f'rule "{rule}"' if rule else "the schema's rules", rule, why)

    def _may_be_tried(self, key: bytes) -> None:
        with self._lock:
            times = self._killed.get(key, [])
        if len(times) == 2 and times[1] - times[0] < _WITHIN_S and time.monotonic() - times[1] < PAUSE_S:
            raise over_limit(
                "the schema's rules", "", f"they took too much twice, and are not tried for {PAUSE_S:g} s"
            )

    def close(self) -> None:
        """End the children. Later requests each start a child of their own."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.close()


class _Encoder:
    """See Encoder."""

    def __init__(self, runner: RuleRunner, source: SchemaSource, subject: str | None) -> None:
        self._runner, self._source, self._subject = runner, source, subject

    def body(self, value: Any, place: str = "value", most_steps: int = MOST_STEPS) -> bytes:
        """See Encoder. Raises RuleRefused, PeerError."""
        has_keys = self._subject is not None and self._runner.keys is not None
        _must_be_executable(self._source, place, has_keys=has_keys)
        try:
            return self._runner.ask("write", self._source, (value, place, most_steps, self._subject or ""))
        except RuleRefused as error:
            raise error.of(place) from None


def has_write_rules(source: SchemaSource) -> bool:
    """Return True if the schema has rules to execute before a write, or rules that cannot be understood."""
    try:
        return any(_write_plans(source))
    except RuleRefused:
        return True


def has_encoding_rules(source: SchemaSource) -> bool:
    """Return True if the written bytes are an encryption of the schema's encoding."""
    return bool(plan_of(source.rule_set, Mode.WRITE, "encodingRules"))


def _write_plans(source: SchemaSource) -> tuple[RulePlan, RulePlan]:
    return plan_of(source.rule_set, Mode.WRITE), plan_of(source.rule_set, Mode.WRITE, "encodingRules")


def _must_be_executable(source: SchemaSource, place: str, *, has_keys: bool) -> None:
    """Raise RuleRefused for a write rule that the hub cannot execute."""
    try:
        must_be_executable(*_write_plans(source), has_keys=has_keys)
    except RuleRefused as error:
        raise error.of(place) from None


def contract_key(source: SchemaSource) -> bytes:
    """Return the cache key of a contract: the schema with its references, its rules and its metadata."""
    more = orjson.dumps([source.rule_set, source.metadata], option=orjson.OPT_SORT_KEYS)
    return source.digest + hashlib.sha256(more).digest()


RUNNER = RuleRunner()
"""The process's own."""
atexit.register(RUNNER.close)
