"""Test use against limits: rows, their order and bounds, and series by tenant."""

from __future__ import annotations

from hub.quotas.kinds import Quota
from hub.quotas.ledger import Debtor, Ledger
from hub.quotas.policy import QuotaPolicy, Tenant
from hub.quotas.usage import MOST_ROWS, families, usage_page, usage_rows

POLICY = QuotaPolicy(
    defaults={Quota.queries: 4.0},
    groups={"batch": {Quota.queries: 8.0}},
    tenants=(Tenant("nyc", ("nyc",), (), {Quota.events_in: 10.0}),),
    is_on=True,
)
ANA = Debtor("user ana", POLICY.limits_of("users", "ana", frozenset(["batch"])), frozenset(["batch"]))
NYC = Debtor("tenant nyc", POLICY.tenant_limits(POLICY.tenants[0]))


def used() -> Ledger:
    ledger = Ledger()
    for _ in range(10):
        ledger.spend([ANA], Quota.queries, 1, 100.0)
    ledger.spend([ANA, NYC], Quota.events_in, 6, 100.0)
    ledger.hold([ANA], Quota.connections, 100.0)
    return ledger


def test_rows_have_the_limits_of_now_and_begin_with_the_refused() -> None:
    rows = usage_rows(used(), POLICY, 100.5)
    assert [(each.kind, each.name, each.quota) for each in rows] == [
        ("user", "ana", "queries_per_s"),
        ("tenant", "nyc", "events_in_per_s"),
        ("user", "ana", "connections"),
        ("user", "ana", "events_in_per_s"),
    ]
    queries, events, connections, _ = rows
    assert (queries.now, queries.limit, queries.last_hour, queries.refused_last_hour) == (4.0, 8.0, 8.0, 2)
    assert queries.source == "quotas.groups.batch.queries_per_s"
    assert (events.now, events.limit, events.share) == (1.0, 10.0, 0.1)
    assert (connections.now, connections.limit, connections.last_hour) == (1.0, None, 1.0)
    other = QuotaPolicy(defaults={Quota.queries: 16.0}, is_on=True)
    (first, *_) = usage_rows(used(), other, 100.0)
    assert (first.limit, first.source) == (16.0, "quotas.defaults.queries_per_s")


def test_without_quotas_there_are_no_rows_and_no_series() -> None:
    assert usage_rows(used(), QuotaPolicy(), 100.0) == []
    assert list(families(used(), QuotaPolicy())) == []


def test_many_rows_are_cut_and_counted() -> None:
    ledger = Ledger()
    for number in range(MOST_ROWS + 7):
        ledger.spend([Debtor(f"user u{number}", {})], Quota.queries, 1, 0.0)
    page = usage_page(usage_rows(ledger, POLICY, 0.0), POLICY, whole=True)
    assert len(page.rows) == MOST_ROWS and page.left_out == 8


def test_series_name_tenants_and_no_principals() -> None:
    samples = [
        (sample.name, sample.labels, sample.value)
        for family in families(used(), POLICY)
        for sample in family.samples
    ]
    assert ("hub_tenant_used_total", {"tenant": "nyc", "quota": "events_in_per_s"}, 6.0) in samples
    assert ("hub_tenant_quota", {"tenant": "nyc", "quota": "events_in_per_s"}, 10.0) in samples
    assert ("hub_quota_refused_total", {"quota": "queries_per_s"}, 2.0) in samples
    assert "ana" not in repr(samples)
