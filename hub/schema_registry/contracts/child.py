"""[edge] Child process that executes rules: ``python -m hub.schema_registry.contracts.child CPU_SECONDS
MEMORY_MB``.

Requests arrive on standard input as length-prefixed pickles of the parent. Answers go to standard output
as a type byte, a length and plain bytes, so that the parent never unpickles data that an expression could
have made. The kernel ends the process when one request exceeds its processor time; the address space
limits its memory. The process ends when its standard input closes.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import sys
import time
from collections import OrderedDict
from typing import Any, BinaryIO

import orjson

from hub.errors import CallerError
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.executors import Contract
from hub.schema_registry.contracts.frames import ASK, DONE, KEY, READY, REFUSED, RULE, frame
from hub.schema_registry.contracts.rule_calls import RuleCall
from hub.schema_registry.contracts.rules import OVER_LIMIT, RuleAborted, RuleRefused
from hub.schema_registry.dek_registry.data_keys import DataKey, KeyQuestion

IDLE_S = 600.0
_MOST_CONTRACTS = 500
_KEY_S = 30.0  # how long a data key is kept here; the parent keeps it longer


class ContractCache:
    """Most recently used contracts by key."""

    def __init__(self, source: BinaryIO, out: BinaryIO, cpu_s: float) -> None:
        self._source = source
        self._out = out
        self._cpu_s = cpu_s
        self._contracts: OrderedDict[bytes, Contract] = OrderedDict()
        self._keys: dict[KeyQuestion, tuple[DataKey, float]] = {}

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self._out.write(frame(kind, payload))
        self._out.flush()

    def answer(self, request: tuple[str, bytes, SchemaSource | None, Any]) -> None:
        """Execute one request: (operation, contract key, schema if the child must learn it, arguments)."""
        operation, key, source, arguments = request
        contract = self._contracts.get(key)
        try:
            if contract is None:
                if source is None:
                    return self.send(ASK)
                contract = self._contracts[key] = Contract(source)
                if len(self._contracts) > _MOST_CONTRACTS:
                    self._contracts.popitem(last=False)
            self._contracts.move_to_end(key)
            signal.setitimer(signal.ITIMER_PROF, self._cpu_s)
            try:
                self.send(DONE, self._done(operation, contract, arguments))
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0.0)
        except RuleRefused as error:
            refusal = _error_answer(error, rule=error.rule, dlq_topic=error.dlq_topic)
            self.send(REFUSED, orjson.dumps(refusal))
        except (CallerError, BrokenValue) as error:
            self.send(REFUSED, orjson.dumps(_error_answer(error)))
        except MemoryError:
            self.send(
                REFUSED,
                orjson.dumps(
                    {"message": "the value needs more memory than its rules may take", "code": OVER_LIMIT}
                ),
            )

    def _done(self, operation: str, contract: Contract, arguments: Any) -> bytes:
        match operation, arguments:
            case "write", (value, place, most_steps, subject):
                return contract.write(value, place, most_steps, self._call(subject))
            case "write_body", (body, place, subject):
                return contract.write_body(body, place, self._call(subject))
            case "refusal", (data, start):
                return (contract.refusal(data, start, self._call("")) or "").encode("utf-8", "replace")
        raise CallerError(f"{operation} is nothing that rules do")

    def _call(self, subject: str) -> RuleCall:
        return RuleCall(self._began, subject, self._key)

    def _key(self, question: KeyQuestion) -> DataKey:
        """Ask the parent for a data key. Raises RuleAborted if it has none."""
        now_s = time.monotonic()
        known = self._keys.get(question)
        if known is not None and now_s < known[1]:
            return known[0]
        self.send(KEY, orjson.dumps(question))
        data_key: DataKey | None = read_request(self._source)
        if data_key is None:
            raise RuleAborted("it has no key")
        if len(self._keys) >= _MOST_CONTRACTS:
            self._keys.clear()
        self._keys[question] = data_key, now_s + _KEY_S
        return data_key

    def _began(self, rule: str) -> None:
        self.send(RULE, rule.encode("utf-8", "replace"))


def _error_answer(error: CallerError | BrokenValue, **more: Any) -> dict[str, Any]:
    if isinstance(error, BrokenValue):
        return {"message": str(error), "code": "", **more}
    return {"message": error.message, "hint": error.hint, "code": error.code, **more}


def read_request(source: BinaryIO) -> Any:
    """Return the parent's next object; None when it has closed the pipe."""
    head = source.read(4)
    return pickle.loads(source.read(int.from_bytes(head, "big"))) if len(head) == 4 else None


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    cpu_s, memory_mb = float(sys.argv[1]), int(sys.argv[2])
    with open("/proc/self/statm") as sizes:
        used = int(sizes.read().split()[0]) * resource.getpagesize()
    limit = used + (memory_mb << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source = os.fdopen(0, "rb")
    child = ContractCache(source, os.fdopen(os.dup(1), "wb"), cpu_s)
    os.dup2(2, 1)  # printed text goes to the log, not among the answers
    child.send(READY)
    while select.select([source], [], [], IDLE_S)[0]:
        request = read_request(source)
        if request is None:
            return
        child.answer(request)


if __name__ == "__main__":
    main()
