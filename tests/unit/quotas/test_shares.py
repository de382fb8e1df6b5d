"""Test the share of each caller: nobody takes all subscriptions and queries,
and the hub itself has no limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from hub.caller import TooMany
from hub.materializers.queries.answering.admission import QueryGate
from hub.quotas.shares import AGAIN_S, ASKER, Shares


@contextmanager
def asking(who: str) -> Iterator[None]:
    token = ASKER.set(who)
    try:
        yield
    finally:
        ASKER.reset(token)


def test_a_caller_holds_its_share_and_leaves_the_others_theirs() -> None:
    shares = Shares(2, "subscriptions", "subscriptions_per_caller")
    with ExitStack() as held:
        for _ in range(2):
            with asking("user ana"):
                shares.require()
                held.enter_context(shares.holding())
        with asking("user ana"), pytest.raises(TooMany) as refused:
            shares.require()
        assert refused.value.message == "user ana: 2 subscriptions at once are the most of one caller"
        assert "subscriptions_per_caller" in str(refused.value.hint)
        assert refused.value.details["retry_after"] == str(AGAIN_S)
        with asking("address 10.0.0.7"):
            shares.require()
    with asking("user ana"):
        shares.require()


def test_the_hub_itself_has_no_share() -> None:
    shares = Shares(1, "queries", "queries_per_caller")
    with ExitStack() as held:
        for _ in range(5):
            shares.require()
            held.enter_context(shares.holding())


def test_queries_of_one_caller_do_not_fill_the_gate() -> None:
    gate = QueryGate(4, 32, Shares(3, "queries", "queries_per_caller"))
    with ExitStack() as held:
        with asking("user ana"):
            for _ in range(3):
                held.enter_context(gate.admitted())
            with pytest.raises(TooMany, match="3 queries at once"):
                held.enter_context(gate.admitted())
        with asking("user ben"):
            held.enter_context(gate.admitted())


def test_a_query_that_ends_gives_its_share_back() -> None:
    gate = QueryGate(4, 32, Shares(1, "queries", "queries_per_caller"))
    with asking("user ana"):
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), gate.admitted():
                raise ZeroDivisionError
