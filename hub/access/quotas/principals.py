"""[core] The account of a principal.

A person has one account for every way to sign in: password, session, certificate, proxy, identity provider,
and each of their own tokens. So a new token or session brings no new limit.
"""

from __future__ import annotations

from hub.access.decide import Principal
from hub.quotas.ledger import ADDRESS, Debtor, Ledger
from hub.quotas.policy import QuotaPolicy
from hub.quotas.spending import Spender


def asker_of(who: Principal, network: str) -> str:
    """Return the key of a principal's account; "" for the hub's own processes, which have no limits.
    ``network``: the address, or its network, of a caller who is not signed in.

    >>> asker_of(Principal("ana", "oidc"), "10.0.0.7"), asker_of(Principal("", "anonymous"), "10.0.0.7")
    ('user ana', 'address 10.0.0.7')
    """
    if who.kind == "own":
        return ""
    if not who.name:
        return f"{ADDRESS}{network}"
    return f"{'token' if who.kind == 'token' else 'user'} {who.name}"


def spender_of(who: Principal, asker: str, policy: QuotaPolicy, ledger: Ledger) -> Spender | None:
    """Return what counts a request of the principal; None: nothing is counted."""
    if not policy.is_on or not asker:
        return None
    kind = "anonymous" if not who.name else "tokens" if who.kind == "token" else "users"
    return Spender(ledger, policy, Debtor(asker, policy.limits_of(kind, who.name, who.groups), who.groups))


def webhook_spender(name: str, policy: QuotaPolicy, ledger: Ledger) -> Spender | None:
    """Return what counts a request of a webhook, whose senders do not sign in."""
    if not policy.is_on:
        return None
    return Spender(ledger, policy, Debtor(f"webhook {name}", policy.limits_of("webhooks", name)))
