"""[core] Limits of principals and tenants: the most specific one applies.

For a user: its own entry, then the entries of its groups (the largest), then the defaults. For a service's
token, a webhook or an address likewise, without groups where it has none. For a tenant: its own entry, then
the defaults of tenants. Each quota is looked up by itself. ``None`` is unlimited.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from hub.quotas.kinds import KINDS, Quota

_MOST_REMEMBERED = 10_000
Limits = Mapping[Quota, float | None]


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of one quota at this server. ``value`` None: unlimited. ``source``: the entry of access.yaml
    that sets it."""

    value: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant: subtrees of topics by their first labels, and views by name."""

    name: str
    topics: tuple[str, ...]
    views: tuple[str, ...] = ()
    limits: Limits = field(default_factory=dict)


@dataclass(frozen=True)
class QuotaPolicy:
    """The section ``quotas`` of access.yaml. ``own``: limits by kind (``users``, ``tokens``, ``webhooks``)
    and name. ``servers``: by how many the limits are divided. ``delay_s``: pause before a refusal is
    answered. ``contact``: who can raise limits.
    """

    defaults: Limits = field(default_factory=dict)
    anonymous: Limits = field(default_factory=dict)
    own: Mapping[tuple[str, str], Limits] = field(default_factory=dict)
    groups: Mapping[str, Limits] = field(default_factory=dict)
    tenant_defaults: Limits = field(default_factory=dict)
    tenants: tuple[Tenant, ...] = ()
    servers: int = 1
    delay_s: float = 0.5
    contact: str = ""
    is_on: bool = False
    _by_topic: dict[str, Tenant] = field(default_factory=dict, repr=False, compare=False)
    _by_view: dict[str, Tenant] = field(default_factory=dict, repr=False, compare=False)
    _of_tenants: dict[str, Mapping[Quota, Limit]] = field(default_factory=dict, repr=False, compare=False)
    _known: dict[tuple[str, str, frozenset[str]], Mapping[Quota, Limit]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for tenant in self.tenants:
            self._by_topic.update(dict.fromkeys(tenant.topics, tenant))
            self._by_view.update(dict.fromkeys(tenant.views, tenant))
            self._of_tenants[tenant.name] = self._limits_of_tenant(tenant)

    def limits_of(self, kind: str, name: str, groups: frozenset[str] = frozenset()) -> Mapping[Quota, Limit]:
        """Return the limit of each quota that has one. ``kind``: users, tokens, webhooks or anonymous."""
        key = (kind, "" if kind == "anonymous" else name, groups)
        limits = self._known.get(key)
        if limits is None:
            limits = {
                quota: limit for quota in Quota if (limit := self._limit(*key, quota)).value is not None
            }
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = limits
        return limits

    def tenant_limits(self, tenant: Tenant) -> Mapping[Quota, Limit]:
        """Return the limit of each quota of a tenant that has one."""
        return self._of_tenants[tenant.name]

    def _limits_of_tenant(self, tenant: Tenant) -> Mapping[Quota, Limit]:
        found: dict[Quota, Limit] = {}
        for quota in Quota:
            for source, limits in (
                (f"quotas.tenants.{tenant.name}", tenant.limits),
                ("quotas.tenant_defaults", self.tenant_defaults),
            ):
                if quota in limits:
                    value = self._at_this_server(quota, limits[quota])
                    if value is not None:
                        found[quota] = Limit(value, f"{source}.{quota}")
                    break
        return found

    def tenant_of_topic(self, topic: str) -> Tenant | None:
        """Return the tenant with the longest subtree that has the topic."""
        name = topic
        while name:
            if (found := self._by_topic.get(name)) is not None:
                return found
            name = name.rpartition(".")[0]
        return None

    def tenants_of(
        self, topics: Collection[str] = (), views: Collection[str] = (), tables: Collection[str] = ()
    ) -> tuple[Tenant, ...]:
        """Return the tenants of these objects, each once. ``tables``: names in SQL, views or topics."""
        if not self.tenants or not (topics or views or tables):
            return ()
        tenants = [self.tenant_of_topic(each) for each in topics]
        tenants += [self._by_view.get(each.partition("@")[0]) for each in views]
        tenants += [self._tenant_of_table(each) for each in tables]
        return tuple({each.name: each for each in tenants if each is not None}.values())

    def _tenant_of_table(self, name: str) -> Tenant | None:
        """Return the tenant of a table in SQL, where names of views may be written in other case."""
        view = name.partition("@")[0]
        return self._by_view.get(view) or self._by_view.get(view.lower()) or self.tenant_of_topic(name)

    def _limit(self, kind: str, name: str, groups: frozenset[str], quota: Quota) -> Limit:
        for source, value in self._entries(kind, name, groups, quota):
            return Limit(self._at_this_server(quota, value), f"{source}.{quota}")
        return Limit(None, "")

    def _entries(
        self, kind: str, name: str, groups: frozenset[str], quota: Quota
    ) -> Iterator[tuple[str, float | None]]:
        """Yield (source, limit), the most specific first."""
        own = self.anonymous if kind == "anonymous" else self.own.get((kind, name), {})
        if quota in own:
            yield f"quotas.{kind}" + (f".{name}" if kind != "anonymous" else ""), own[quota]
        if (of_group := self._largest(groups, quota)) is not None:
            yield f"quotas.groups.{of_group}", self.groups[of_group][quota]
        if quota in self.defaults:
            yield "quotas.defaults", self.defaults[quota]

    def _largest(self, groups: Collection[str], quota: Quota) -> str | None:
        named = [each for each in sorted(groups) if quota in self.groups.get(each, {})]

        def size(group: str) -> float:
            value = self.groups[group][quota]
            return math.inf if value is None else value

        return max(named, key=size, default=None)

    def _at_this_server(self, quota: Quota, value: float | None) -> float | None:
        if value is None or self.servers == 1:
            return value
        share = value / self.servers
        return float(math.ceil(share)) if KINDS[quota].window_s is None else share


NO_QUOTAS = QuotaPolicy()
