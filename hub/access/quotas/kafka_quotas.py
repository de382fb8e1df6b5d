"""[core] Limits of access.yaml as client quotas of Kafka, for clients that connect to it directly.

::

    bytes_in_per_s             producer_byte_rate
    kafka_bytes_out_per_s      consumer_byte_rate
    kafka_request_percentage   request_percentage

Kafka delays a client that exceeds its quota, at each broker by itself. Tenants have no equivalent there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hub.access.decide import Principal
from hub.kafka.protocol.client_quotas import ClientQuota
from hub.quotas.kinds import Quota
from hub.quotas.policy import QuotaPolicy

KAFKA_KEYS: Final[Mapping[Quota, str]] = {
    Quota.bytes_in: "producer_byte_rate",
    Quota.kafka_bytes_out: "consumer_byte_rate",
    Quota.kafka_requests: "request_percentage",
}


@dataclass(frozen=True, slots=True)
class QuotasPlan:
    """Differences between access.yaml and the cluster. ``foreign``: of users that access.yaml does not name;
    they stay unless they are named to be removed."""

    set: tuple[ClientQuota, ...] = ()
    remove: tuple[ClientQuota, ...] = ()
    foreign: tuple[ClientQuota, ...] = ()


def desired_quotas(policy: QuotaPolicy, principals: Iterable[Principal]) -> frozenset[ClientQuota]:
    """Return the quotas of the users and tokens that have a limit. They are not divided among servers."""
    whole, client_quotas = replace(policy, servers=1), set[ClientQuota]()
    for who in principals:
        limits = whole.limits_of("tokens" if who.kind == "token" else "users", who.name, who.groups)
        for quota, key in KAFKA_KEYS.items():
            if quota in limits and (value := limits[quota].value) is not None:
                client_quotas.add(ClientQuota(who.name, key, value))
    return frozenset(client_quotas)


def plan_quotas(
    desired: Collection[ClientQuota],
    existing: Collection[ClientQuota],
    names: Iterable[str],
    *,
    own: str | None = None,
    prune: Collection[str] = (),
) -> QuotasPlan:
    """Compare. ``names``: users and tokens of access.yaml. ``own``: name of the hub itself at the cluster,
    whose quotas are left alone. ``prune``: users whose quotas are removed although access.yaml does not name
    them. Quotas with other keys are a person's.
    """
    named = {*names, *prune} - {own}
    managed = [each for each in existing if each.key in KAFKA_KEYS.values() and each.user != own]
    wanted = {(each.user, each.key) for each in desired}
    return QuotasPlan(
        tuple(sorted({each for each in desired if each.user in named} - {*managed})),
        tuple(sorted(each for each in managed if each.user in named and (each.user, each.key) not in wanted)),
        tuple(sorted(each for each in managed if each.user not in named)),
    )
