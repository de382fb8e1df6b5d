"""[core] W3C Trace Context (https://www.w3.org/TR/trace-context/): ``traceparent`` and ``tracestate``.

An invalid header counts as none: a new trace begins, and no request or record is refused for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from hub.record import Headers

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MOST_STATE = 512


@dataclass(frozen=True, slots=True)
class Trace:
    """A position in a trace: ids of 32 and 16 hexadecimal digits. ``sampled``: the initiator wants it
    recorded."""

    trace_id: str
    span_id: str
    sampled: bool = True
    state: str = ""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the HTTP headers."""
        state = ((TRACESTATE, self.state),) if self.state else ()
        return ((TRACEPARENT, self.traceparent), *state)


# The trace of the current request.
ACTIVE: ContextVar[Trace | None] = ContextVar("hub.trace", default=None)


def parse(traceparent: str | bytes | None, tracestate: str | bytes | None = None) -> Trace | None:
    """Return the context in the headers; None without a valid one.

    >>> parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").trace_id[:8]
    '4bf92f35'
    """
    text = _text(traceparent).strip()
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    # Later versions may append fields, which are not checked.
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = _text(tracestate).strip()
    return Trace(trace_id, span_id, bool(int(flags, 16) & 1), state if len(state) <= _MOST_STATE else "")


def of_headers(headers: Iterable[tuple[str, bytes | None]]) -> Trace | None:
    """Return the context of a record; if a header is repeated the last one counts, as in Kafka's clients."""
    last_values = dict(headers)
    return parse(last_values.get(TRACEPARENT), last_values.get(TRACESTATE))


def with_trace(headers: Headers, trace: Trace | None) -> Headers:
    """Return a record's headers with the context. A context that the application has set stays."""
    if trace is None or any(name == TRACEPARENT for name, _ in headers):
        return headers
    # Drop a tracestate without a traceparent: it would be taken as part of this context.
    kept = tuple(each for each in headers if each[0] != TRACESTATE)
    return (*kept, *((name, value.encode()) for name, value in trace.headers()))


def _text(value: str | bytes | None) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value or ""
