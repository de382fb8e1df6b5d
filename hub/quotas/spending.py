"""[shell] Use by the current request. The guard and Postgres' protocol set the spender of each request.

Packages call ``spend``, ``charge`` and ``hold`` without knowing who asks. Without a spender (the hub's own
processes, no quotas in access.yaml) they do nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from hub.caller import TooMany
from hub.quotas.buckets import retry_after
from hub.quotas.kinds import KINDS, Quota, limit_text
from hub.quotas.ledger import Debtor, Ledger, UsedUp
from hub.quotas.policy import QuotaPolicy

MOST_DELAYED = 1_000
RATE_USED_UP, OPEN_USED_UP = "HUB-1730", "HUB-1731"


class QuotaExceeded(TooMany):
    """A quota of the caller or of a tenant is used up."""

    code = RATE_USED_UP


@dataclass(slots=True)
class QuotaHold:
    """Something that is open. ``release`` is idempotent."""

    spender: Spender
    quota: Quota
    keys: tuple[str, ...]
    _open: bool = True

    def release(self) -> None:
        if self._open:
            self._open = False
            self.spender.ledger.release(self.keys, self.quota)
            self.spender.holds.remove(self)


@dataclass(slots=True, eq=False)
class Spender:
    """The principal of one request or connection. ``refused``: a refusal was not delayed yet. Call ``close``
    at its end."""

    ledger: Ledger
    policy: QuotaPolicy
    principal: Debtor
    clock: Callable[[], float] = time.monotonic
    refused: bool = False
    holds: list[QuotaHold] = field(default_factory=list)

    def debtors(
        self, topics: Collection[str] = (), views: Collection[str] = (), tables: Collection[str] = ()
    ) -> list[Debtor]:
        """Return the principal and the tenants of these objects."""
        tenants = self.policy.tenants_of(topics, views, tables)
        return [
            self.principal,
            *(Debtor(f"tenant {each.name}", self.policy.tenant_limits(each)) for each in tenants),
        ]

    def spend(self, quota: Quota, amount: float, debtors: list[Debtor]) -> None:
        """Raises QuotaExceeded if one of the debtors has no room; then none is charged."""
        found = self.ledger.spend(debtors, quota, amount, self.clock())
        if found is not None:
            raise self._exceeded(quota, found)

    def hold(self, quota: Quota, debtors: list[Debtor]) -> QuotaHold:
        """Raises QuotaExceeded if one of the debtors has no room."""
        found = self.ledger.hold(debtors, quota, self.clock())
        if found is not None:
            raise self._exceeded(quota, found)
        held = QuotaHold(self, quota, tuple(each.key for each in debtors))
        self.holds.append(held)
        return held

    def close(self) -> None:
        """Release everything that is still open."""
        for each in [*self.holds]:
            each.release()

    def _exceeded(self, quota: Quota, found: UsedUp) -> QuotaExceeded:
        self.refused = True
        return exceeded(quota, found, self.policy)


SPENDER: ContextVar[Spender | None] = ContextVar("spender", default=None)


def spend(
    quota: Quota,
    amount: float = 1.0,
    *,
    topics: Collection[str] = (),
    views: Collection[str] = (),
    tables: Collection[str] = (),
) -> None:
    """Use an amount of a rate. ``amount`` 0: only require that there is room. Raises QuotaExceeded."""
    if (spender := SPENDER.get()) is not None:
        spender.spend(quota, amount, spender.debtors(topics, views, tables))


@contextmanager
def timed(quota: Quota, *, tables: Collection[str] = ()) -> Iterator[None]:
    """Charge the seconds that the block takes. They are known afterwards, so they may exceed the limit."""
    spender = SPENDER.get()
    if spender is None:
        yield
        return
    started = spender.clock()
    try:
        yield
    finally:
        now = spender.clock()
        spender.ledger.charge(spender.debtors(tables=tables), quota, max(0.0, now - started), now)


def hold(
    quota: Quota, *, topics: Collection[str] = (), views: Collection[str] = (), tables: Collection[str] = ()
) -> QuotaHold | None:
    """Open something; the hold is released by its caller, at the latest by the end of the request or
    connection. None without quotas. Raises QuotaExceeded."""
    spender = SPENDER.get()
    return None if spender is None else spender.hold(quota, spender.debtors(topics, views, tables))


@contextmanager
def holding(quota: Quota) -> Iterator[None]:
    """Hold one more of the principal while the block runs. Raises QuotaExceeded."""
    held = hold(quota)
    try:
        yield
    finally:
        if held is not None:
            held.release()


def exceeded(quota: Quota, found: UsedUp, policy: QuotaPolicy) -> QuotaExceeded:
    """Return the error: whose quota, its limit, when there is room, and who can raise it."""
    assert found.limit.value is not None
    is_rate = KINDS[quota].window_s is not None
    seconds = retry_after(found.wait_s)
    limit = limit_text(quota, found.limit.value)
    server = f" at each of {policy.servers} servers" if policy.servers > 1 else ""
    again = f"try again in {seconds} s" if is_rate else "end one of them"
    asks = f"ask {policy.contact}" if policy.contact else "ask those who keep access.yaml"
    error = QuotaExceeded(
        f"{found.key}: the quota {quota} is used up: {limit}{server}",
        hint=f"{again}; for more {asks} to raise {found.limit.source}",
        code=RATE_USED_UP if is_rate else OPEN_USED_UP,
    )
    error.details = {
        "retry_after": str(seconds),
        "quota": str(quota),
        "limit": f"{found.limit.value:.15g}",
        "used_by": found.key,
    }
    return error


@dataclass(slots=True)
class RefusalDelay:
    """Delays refusals, so that a client that repeats them at once costs little. At most ``MOST_DELAYED``
    requests wait; more are answered at once."""

    waiting: int = 0

    async def pause(self, spender: Spender) -> None:
        """Wait for the policy's delay if the spender was refused."""
        refused, spender.refused = spender.refused, False
        if not refused or not spender.policy.delay_s or self.waiting >= MOST_DELAYED:
            return
        self.waiting += 1
        try:
            await asyncio.sleep(spender.policy.delay_s)
        finally:
            self.waiting -= 1


DELAY = RefusalDelay()


async def pause_if_refused() -> None:
    """Wait if the current request was refused by a quota."""
    if (spender := SPENDER.get()) is not None:
        await DELAY.pause(spender)
