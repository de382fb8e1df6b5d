"""[core] Frames of a rule child process: a type byte, the payload's length in four bytes, the payload."""

from __future__ import annotations

READY = b"y"  # it has started
RULE = b"r"  # the rule with this name begins
ASK = b"a"  # the child lacks the schema: send it
KEY = b"k"  # the child needs a data key: JSON of a KeyQuestion
DONE = b"d"  # the requested bytes
REFUSED = b"e"  # JSON: message, hint, code; rule and dlq_topic if a rule refuses


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload
