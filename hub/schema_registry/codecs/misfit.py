"""[core] Shared parts of encoders: the error of a value that does not fit, its path, and the limits of the
work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from hub.errors import CallerError, did_you_mean
from hub.schema_registry.formats.exact_json import dumped

# Each level costs two of Python's 1,000 frames; schemas are at most 64 types deep.
MOST_DEPTH = 200
# Values visited in one encoding, including retries for union branches; 1 MiB of JSON has fewer.
MOST_STEPS = 2_000_000

# Names compared with an unknown one for a hint: each of a thousand records may have one.
_MOST_GUESSES = 200


class Unfit(CallerError):
    """The JSON value does not fit its schema; the message names the path and both types."""

    code = "HUB-1221"


class Out(bytearray):
    """Output buffer with the number of values that may still be visited."""

    steps_left = MOST_STEPS


Encode = Callable[[Any, Out, int], None]
"""Append the bytes of a JSON value at a depth. Raises Misfit."""

Hint = str | Callable[[], str] | None


class Misfit(Exception):
    """A value that does not fit; ``path`` is collected on the way up, innermost first.

    A callable hint is evaluated only when the error is shown, so tried branches do not pay for it.
    """

    def __init__(self, reason: str, hint: Hint = None, *, of_default: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.of_default = of_default
        self.path: list[str] = []


def wrong(value: Any, wanted: str, hint: Hint = None) -> Misfit:
    """Return the error of a value that is not of the type that the schema requires."""
    return Misfit(f"is {shown(value)}, the schema requires {wanted}", hint)


def shown(value: Any) -> str:
    """Describe a JSON value by its kind, with the value itself when it is short."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, str):
        value = value[:80].encode(errors="replace").decode()
    text = dumped(value).decode()
    article = {str: "the text", bool: "the boolean", int: "the integer", float: "the number"}[type(value)]
    return f"{article} {text if len(text) <= 60 else text[:57] + '…'}"


def step(out: Out, cost: int, depth: int) -> None:
    """Count the values that are visited. Raises Misfit beyond the limits."""
    out.steps_left -= cost
    if depth > MOST_DEPTH:
        raise Misfit(f"is nested deeper than {MOST_DEPTH} levels")
    if out.steps_left < 0:
        raise Misfit(
            "there are too many ways to read it", 'say the branches of unions: {"branch name": value}'
        )


def guess(unknown: str, names: Iterable[str], otherwise: str) -> str:
    """Return a hint for an unknown name."""
    return did_you_mean(unknown[:80], islice(names, _MOST_GUESSES), otherwise)
