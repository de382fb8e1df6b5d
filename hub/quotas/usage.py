"""[core] Use against limits: rows of the page and of ``hub access usage``, and series by tenant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, Metric

from hub.metrics.gauges import gauge
from hub.quotas.buckets import BucketLevel, refilled
from hub.quotas.kinds import KINDS, OF_THE_SERVER, Quota
from hub.quotas.ledger import Account, Ledger
from hub.quotas.policy import Limit, QuotaPolicy

MOST_ROWS = 500
# Kinds of principals by the beginning of their accounts' keys, and the entries of their limits.
_SECTIONS = {"user": "users", "token": "tokens", "webhook": "webhooks", "address": "anonymous"}


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Use of one quota by a principal or tenant. ``now``: used and not refilled yet, or open. ``last_hour``:
    of the last 55 to 60 minutes; of subscriptions and connections, the number of openings. ``limit`` None:
    unlimited."""

    kind: str
    name: str
    quota: str
    per: str
    now: float
    limit: float | None
    last_hour: float
    refused_last_hour: int
    source: str

    @property
    def share(self) -> float:
        """The used part of the limit, 0 without one."""
        return 0.0 if self.limit is None else self.now / self.limit


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Values of the page. ``is_on``: whether access.yaml has quotas. ``whole``: everybody's rows, not only
    the caller's. ``left_out``: rows beyond the limit. ``servers``: by how many limits are divided."""

    rows: tuple[UsageRow, ...]
    is_on: bool
    whole: bool
    left_out: int = 0
    servers: int = 1
    contact: str = ""


def usage_rows(ledger: Ledger, policy: QuotaPolicy, now_s: float) -> list[UsageRow]:
    """Return the use of every account with its limits of now: refused ones first, then the nearest to their
    limit. Without quotas there are none."""
    if not policy.is_on:
        return []
    declared = {f"tenant {each.name}": policy.tenant_limits(each) for each in policy.tenants}
    accounts = dict(ledger.accounts())
    found: list[UsageRow] = []
    for key, limits in declared.items():
        found += _rows(key, accounts.get(key, Account()), limits, now_s)
    for key, account in accounts.items():
        kind, _, name = key.partition(" ")
        if kind in _SECTIONS:
            found += _rows(key, account, policy.limits_of(_SECTIONS[kind], name, account.groups), now_s)
    found.sort(key=lambda each: (-each.refused_last_hour, -each.share, each.kind, each.name, each.quota))
    return found


def usage_page(rows: Sequence[UsageRow], policy: QuotaPolicy, *, whole: bool) -> UsagePage:
    """Return the page of these rows."""
    shown = tuple(rows[:MOST_ROWS])
    return UsagePage(shown, policy.is_on, whole, len(rows) - len(shown), policy.servers, policy.contact)


def families(ledger: Ledger, policy: QuotaPolicy) -> Iterator[Metric]:
    """Yield the series of tenants, and of refusals by quota. Principals have no labels: they are many."""
    if not policy.is_on:
        return
    accounts = dict(ledger.accounts())
    limits = [
        ((tenant.name, str(quota)), limit.value)
        for tenant in policy.tenants
        for quota, limit in policy.tenant_limits(tenant).items()
    ]
    yield gauge("hub_tenant_quota", "Limit of a tenant at this server", ("tenant", "quota"), limits)
    used = CounterMetricFamily(
        "hub_tenant_used", "Use by a tenant, in units of its quota", labels=["tenant", "quota"]
    )
    refused = CounterMetricFamily(
        "hub_tenant_refused", "Requests that a tenant's quota refused", labels=["tenant", "quota"]
    )
    for tenant in policy.tenants:
        account = accounts.get(f"tenant {tenant.name}", Account())
        for family, sums in ((used, account.used), (refused, account.refused)):
            for quota, each in sums.items():
                family.add_metric((tenant.name, str(quota)), each.total)
    yield used
    yield refused
    total = CounterMetricFamily(
        "hub_quota_refused", "Requests that a quota of their caller refused", labels=["quota"]
    )
    for quota, number in ledger.refusals.items():
        total.add_metric([str(quota)], number)
    yield total


def _rows(key: str, account: Account, limits: Mapping[Quota, Limit], now_s: float) -> Iterator[UsageRow]:
    kind, _, name = key.partition(" ")
    for quota in OF_THE_SERVER:
        limit = limits.get(quota)
        used, refused = account.used.get(quota), account.refused.get(quota)
        if limit is None and used is None:
            continue
        yield UsageRow(
            kind,
            name,
            str(quota),
            f"{KINDS[quota].unit}{KINDS[quota].per}",
            _now(account, quota, limit, now_s),
            None if limit is None else limit.value,
            0.0 if used is None else used.hour(now_s),
            0 if refused is None else int(refused.hour(now_s)),
            "" if limit is None else limit.source,
        )


def _now(account: Account, quota: Quota, limit: Limit | None, now_s: float) -> float:
    window_s = KINDS[quota].window_s
    if window_s is None:
        return float(account.held.get(quota, 0))
    if limit is None or limit.value is None:
        return 0.0
    return refilled(account.levels.get(quota, BucketLevel()), limit.value, window_s, now_s).used
