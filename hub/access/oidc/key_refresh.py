"""[core] Pure decisions on when to fetch the issuer's keys. Times are seconds of a steady clock.

A token with an unknown key may be the first one after a rotation, so it causes a fetch; anyone can invent
such tokens, so there is at most one fetch in ``UNKNOWN_EVERY_S``.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN_EVERY_S = 30.0
RETRY_EVERY_S = 5.0
REFRESH_EVERY_S = 900.0
LONGEST_S = 24 * 3600.0  # without an answer of the issuer

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Fetches:
    """Times of the last attempt and of the last success."""

    tried_at: float = _NEVER
    got_at: float = _NEVER

    @property
    def failing(self) -> bool:
        return self.tried_at > self.got_at


def usable(fetches: Fetches, now: float) -> bool:
    """Return whether the known keys may still be used."""
    return now - fetches.got_at <= LONGEST_S


def must_fetch(fetches: Fetches, now: float, *, unknown: bool) -> bool:
    """Return whether to fetch before the answer:
    there are no usable keys, or the token's key is ``unknown``."""
    waited = now - fetches.tried_at
    if not usable(fetches, now):
        return waited >= RETRY_EVERY_S
    return unknown and waited >= UNKNOWN_EVERY_S


def may_refresh(fetches: Fetches, now: float) -> bool:
    """Return whether to fetch in the background, to notice removed keys."""
    return now - fetches.got_at >= REFRESH_EVERY_S and now - fetches.tried_at >= UNKNOWN_EVERY_S
