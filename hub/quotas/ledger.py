"""[core] Accounts: how much each principal and tenant has used. The time is an argument, in seconds.

Each operation costs O(1) for each account that it concerns. The accounts of addresses are kept apart from
those with a name: whoever asks from many addresses removes nobody's account but other addresses'. The
account that was used the longest time ago is removed first; accounts that hold something stay.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hub.quotas.buckets import BucketLevel, HourSum, refilled, spent, wait_s
from hub.quotas.kinds import KINDS, Quota
from hub.quotas.policy import Limit

MOST_NAMED, MOST_ADDRESSES = 20_000, 10_000
ADDRESS, TENANT = "address ", "tenant "
_HELD_WAIT_S = 5.0  # when something that is open may have ended
_NO_LEVEL = BucketLevel()


class Debtor(NamedTuple):
    """An account that an operation concerns, by its key (``user ana``, ``tenant nyc``), and its limits.
    ``groups``: of a principal, which has its limits by them."""

    key: str
    limits: Mapping[Quota, Limit]
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class UsedUp:
    """A refusal: whose limit is reached, and the seconds until there is room."""

    key: str
    limit: Limit
    wait_s: float


@dataclass(slots=True)
class Account:
    """Use by one principal or tenant. ``groups``: as of its last request."""

    groups: frozenset[str] = frozenset()
    levels: dict[Quota, BucketLevel] = field(default_factory=dict)
    held: dict[Quota, int] = field(default_factory=dict)
    used: dict[Quota, HourSum] = field(default_factory=dict)
    refused: dict[Quota, HourSum] = field(default_factory=dict)


@dataclass
class Ledger:
    """All accounts of a server. Thread safe."""

    named: OrderedDict[str, Account] = field(default_factory=OrderedDict)
    addresses: OrderedDict[str, Account] = field(default_factory=OrderedDict)
    refusals: dict[Quota, int] = field(default_factory=dict)  # by quotas of principals, since the start
    lock: threading.Lock = field(default_factory=threading.Lock)

    def spend(self, debtors: Sequence[Debtor], quota: Quota, amount: float, now_s: float) -> UsedUp | None:
        """Use an amount of a rate: of all debtors, or of none. ``amount`` 0: only look for room."""
        window_s = KINDS[quota].window_s
        assert window_s is not None
        with self.lock:
            accounts = [self._debited(each) for each in debtors]
            for debtor, account in zip(debtors, accounts, strict=True):
                if (limit := debtor.limits.get(quota)) is None or limit.value is None:
                    continue
                before = account.levels.get(quota, _NO_LEVEL)
                level = account.levels[quota] = refilled(before, limit.value, window_s, now_s)
                # To look for room is to ask for the smallest amount.
                wait = wait_s(level, limit.value, window_s, amount or limit.value * 1e-6)
                if wait:
                    return self._refused(debtor.key, account, quota, limit, wait, now_s)
            if amount:
                self._add(debtors, accounts, quota, amount, now_s)
        return None

    def charge(self, debtors: Sequence[Debtor], quota: Quota, amount: float, now_s: float) -> None:
        """Add an amount that is used already; it may exceed the limit, and delays what comes later."""
        window_s = KINDS[quota].window_s
        assert window_s is not None
        with self.lock:
            accounts = [self._debited(each) for each in debtors]
            for debtor, account in zip(debtors, accounts, strict=True):
                if (limit := debtor.limits.get(quota)) is not None and limit.value is not None:
                    before = account.levels.get(quota, _NO_LEVEL)
                    account.levels[quota] = refilled(before, limit.value, window_s, now_s)
            self._add(debtors, accounts, quota, amount, now_s)

    def hold(self, debtors: Sequence[Debtor], quota: Quota, now_s: float) -> UsedUp | None:
        """Open one more: for all debtors, or for none. Each is ended by ``release``."""
        with self.lock:
            accounts = [self._debited(each) for each in debtors]
            for debtor, account in zip(debtors, accounts, strict=True):
                limit = debtor.limits.get(quota)
                if limit is None or limit.value is None:
                    continue
                if account.held.get(quota, 0) + 1 > limit.value:
                    return self._refused(debtor.key, account, quota, limit, _HELD_WAIT_S, now_s)
            for account in accounts:
                account.held[quota] = account.held.get(quota, 0) + 1
                account.used.setdefault(quota, HourSum()).add(1, now_s)
        return None

    def release(self, keys: Sequence[str], quota: Quota) -> None:
        with self.lock:
            for key in keys:
                account = self._account(key)
                account.held[quota] = max(0, account.held.get(quota, 0) - 1)

    def accounts(self) -> list[tuple[str, Account]]:
        """Return all accounts by key."""
        with self.lock:
            return [*self.named.items(), *self.addresses.items()]

    def _add(
        self,
        debtors: Sequence[Debtor],
        accounts: Sequence[Account],
        quota: Quota,
        amount: float,
        now_s: float,
    ) -> None:
        for debtor, account in zip(debtors, accounts, strict=True):
            if (limit := debtor.limits.get(quota)) is not None and limit.value is not None:
                account.levels[quota] = spent(account.levels[quota], amount)
            account.used.setdefault(quota, HourSum()).add(amount, now_s)

    def _refused(
        self, key: str, account: Account, quota: Quota, limit: Limit, wait: float, now_s: float
    ) -> UsedUp:
        account.refused.setdefault(quota, HourSum()).add(1, now_s)
        if not key.startswith(TENANT):
            self.refusals[quota] = self.refusals.get(quota, 0) + 1
        return UsedUp(key, limit, wait)

    def _debited(self, debtor: Debtor) -> Account:
        account = self._account(debtor.key)
        account.groups = debtor.groups
        return account

    def _account(self, key: str) -> Account:
        accounts, most = (
            (self.addresses, MOST_ADDRESSES) if key.startswith(ADDRESS) else (self.named, MOST_NAMED)
        )
        account = accounts.get(key)
        if account is None:
            account = accounts[key] = Account()
            if len(accounts) > most:
                self._remove_oldest(accounts)
        else:
            accounts.move_to_end(key)
        return account

    @staticmethod
    def _remove_oldest(accounts: OrderedDict[str, Account]) -> None:
        """Remove the account that was used the longest time ago. Those that hold something become the newest;
        the server's limit of connections bounds their number."""
        for _ in range(len(accounts)):
            key, account = next(iter(accounts.items()))
            if not any(account.held.values()):
                del accounts[key]
                return
            accounts.move_to_end(key)
