"""[core] W3C Trace Context (https://www.w3.org/TR/trace-context/): what ``traceparent`` and ``tracestate`` say.

What is no valid header is none at all: a trace begins anew, no request or record is refused for it.
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
    """A place in a trace: 32 and 16 hexadecimal digits. ``sampled``: whoever began it wants it recorded."""

    trace_id: str
    span_id: str
    sampled: bool = True
    state: str = ""

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def headers(self) -> tuple[tuple[str, str], ...]:
        """As headers of HTTP."""
        state = ((TRACESTATE, self.state),) if self.state else ()
        return ((TRACEPARENT, self.traceparent), *state)


# The trace of the request that is answered now.
ACTIVE: ContextVar[Trace | None] = ContextVar("hub.trace", default=None)


def parse(traceparent: str | bytes | None, tracestate: str | bytes | None = None) -> Trace | None:
    """The context that headers say; None when they say none that is valid.

    >>> parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").trace_id[:8]
    '4bf92f35'
    """
    text = _text(traceparent).strip()
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    # Of later versions what comes behind is not ours to judge.
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = _text(tracestate).strip()
    return Trace(trace_id, span_id, bool(int(flags, 16) & 1), state if len(state) <= _MOST_STATE else "")


def of_headers(headers: Iterable[tuple[str, bytes | None]]) -> Trace | None:
    """The context of a record; of several the last, as Kafka's clients read headers."""
    told = dict(headers)
    return parse(told.get(TRACEPARENT), told.get(TRACESTATE))


def with_trace(headers: Headers, trace: Trace | None) -> Headers:
    """A record's headers with the context, once: headers that name one already are the application's, and stay."""
    if trace is None or any(name == TRACEPARENT for name, _ in headers):
        return headers
    kept = tuple(each for each in headers if each[0] != TRACESTATE)  # of no trace: it would be read as ours
    return (*kept, *((name, value.encode()) for name, value in trace.headers()))


def _text(value: str | bytes | None) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value or ""
