"""[core] What a child that executes rules sends: one letter, the payload's length in four bytes, the payload."""

from __future__ import annotations

READY = b"y"  # it has started
RULE = b"r"  # the rule of this name begins
ASK = b"a"  # it does not know the schema: send it along
DONE = b"d"  # the bytes that were asked for
REFUSED = b"e"  # JSON: message, hint, code; rule and dlq_topic where a rule refuses


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload
