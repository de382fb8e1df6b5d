"""[edge] ASGI: count a request against its caller's quotas, and delay refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from hub.access.decide import Principal
from hub.access.live_config import AccessRules
from hub.access.quotas.principals import spender_of, webhook_spender
from hub.api.quotas.route_quotas import ROUTE_QUOTAS, registered_subject, topics_of_subject
from hub.api.route_rules import SIGNED, RouteRule
from hub.quotas.kinds import KINDS, Quota
from hub.quotas.ledger import Ledger
from hub.quotas.spending import DELAY, SPENDER, QuotaExceeded, Spender

Scope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]
_BEGINS = ("http.response.start", "websocket.http.response.start")


@contextmanager
def counted(
    rule: RouteRule,
    given: Mapping[str, str],
    who: Principal,
    asker: str,
    rules: AccessRules,
    ledger: Ledger,
) -> Iterator[Spender | None]:
    """Set the spender of a request while the block runs; then release its holds. None: nothing is
    counted, as for open routes. A webhook is counted once its signature is verified."""
    if rule is SIGNED:
        spender = webhook_spender(given["name"], rules.quotas, ledger)
    else:
        spender = None if rule.is_open else spender_of(who, asker, rules.quotas, ledger)
    before = SPENDER.set(spender)
    try:
        yield spender
    finally:
        SPENDER.reset(before)
        if spender is not None:
            spender.close()


async def admit(
    spender: Spender | None, rule: RouteRule, template: str, given: Mapping[str, str], scope: Scope
) -> None:
    """Count a request before it is answered. Raises QuotaExceeded, after the delay of a refusal."""
    if spender is None or rule is SIGNED:
        return
    try:
        topics, views = ((given[each],) if each in given else () for each in ("topic", "view"))
        spender.hold(Quota.connections, spender.debtors(topics, views))
        route_quota = ROUTE_QUOTAS.get(template, {}).get(str(scope.get("method", "WEBSOCKET")))
        if route_quota is not None:
            debtors = spender.debtors(*route_quota.objects(given))
            if KINDS[route_quota.quota].window_s is None:
                spender.hold(route_quota.quota, debtors)
            else:
                spender.spend(route_quota.quota, 1.0, debtors)
        elif (subject := registered_subject(scope)) is not None:
            spender.spend(Quota.registrations, 1.0, spender.debtors(topics_of_subject(subject)))
    except QuotaExceeded:
        await DELAY.pause(spender)
        raise


def paused(spender: Spender | None, send: Send) -> Send:
    """Return a ``send`` that delays the answer to a request that was refused by a quota."""
    if spender is None:
        return send

    async def sent(message: Any) -> None:
        if spender.refused and message["type"] in _BEGINS:
            await DELAY.pause(spender)
        await send(message)

    return sent
