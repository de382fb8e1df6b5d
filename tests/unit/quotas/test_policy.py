"""Test which limit applies: the most specific one, of principals and tenants; and the file's errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.access.access_yaml import AccessFile, load_access
from hub.access.decide import ANONYMOUS, Principal
from hub.access.quotas.kafka_quotas import desired_quotas, plan_quotas
from hub.access.quotas.principals import asker_of, spender_of
from hub.errors import ConfigError
from hub.kafka.protocol.client_quotas import ClientQuota
from hub.quotas.kinds import Quota
from hub.quotas.ledger import Ledger
from hub.quotas.policy import Limit

FILE = """\
contact: "#data-platform"
groups: {batch: [{role: read, topics: ["**"]}], slow: [{role: read, topics: ["**"]}]}
users: {ana: {groups: [batch, slow]}, bob: {}}
tokens: {checkout: {token: "sha256$0000000000000000000000000000000000000000000000000000000000000000"}}
quotas:
  defaults: {queries_per_s: 5, subscriptions: 10, kafka_bytes_out_per_s: 500}
  anonymous: {queries_per_s: 1}
  users: {ana: {queries_per_s: 50}, oidc@example.com: {queries_per_s: unlimited}}
  groups:
    batch: {sql_seconds_per_min: 30, subscriptions: 3}
    slow: {sql_seconds_per_min: 10, subscriptions: 4}
  tokens: {checkout: {events_in_per_s: 100, bytes_in_per_s: 2000, kafka_request_percentage: 50}}
  webhooks: {github: {events_in_per_s: 7}}
  tenant_defaults: {queries_per_s: 100}
  tenants:
    nyc: {views: [departures], events_in_per_s: 200}
    nyc.jfk: {queries_per_s: unlimited}
    europe: {topics: [lon, par]}
"""


@pytest.fixture
def file(tmp_path: Path) -> AccessFile:
    return load(tmp_path, FILE)


def load(folder: Path, text: str) -> AccessFile:
    (folder / "access.yaml").write_text(text)
    return load_access(folder / "access.yaml")


def test_the_most_specific_limit_applies_quota_by_quota(file: AccessFile) -> None:
    policy = file.quota_policy()
    ana = policy.limits_of("users", "ana", frozenset(["batch", "slow"]))
    assert ana[Quota.queries] == Limit(50.0, "quotas.users.ana.queries_per_s")
    assert ana[Quota.sql_seconds] == Limit(30.0, "quotas.groups.batch.sql_seconds_per_min"), "the largest"
    assert ana[Quota.subscriptions] == Limit(4.0, "quotas.groups.slow.subscriptions")
    bob = policy.limits_of("users", "bob")
    assert bob[Quota.queries] == Limit(5.0, "quotas.defaults.queries_per_s")
    assert Quota.events_in not in bob
    assert Quota.queries not in policy.limits_of("users", "oidc@example.com"), "unlimited lifts the default"
    assert policy.limits_of("anonymous", "10.0.0.7")[Quota.queries].value == 1.0
    assert policy.limits_of("webhooks", "github")[Quota.events_in].value == 7.0


def test_a_topic_counts_to_the_tenant_with_the_longest_subtree(file: AccessFile) -> None:
    policy = file.quota_policy()

    def names(**objects: list[str]) -> list[str]:
        return [each.name for each in policy.tenants_of(**objects)]

    assert names(topics=["nyc.lga.departures"]) == ["nyc"]
    assert names(topics=["nyc.jfk.departures.dlq"]) == ["nyc.jfk"]
    assert names(topics=["nycx.a", "lonely"]) == []
    assert names(topics=["par"], views=["departures@2"]) == ["europe", "nyc"]
    assert names(tables=["DEPARTURES", "lon.a", "other"]) == ["nyc", "europe"]
    nyc, jfk, _ = policy.tenants
    assert policy.tenant_limits(nyc) == {
        Quota.events_in: Limit(200.0, "quotas.tenants.nyc.events_in_per_s"),
        Quota.queries: Limit(100.0, "quotas.tenant_defaults.queries_per_s"),
    }
    assert policy.tenant_limits(jfk) == {}


def test_servers_share_the_limits(tmp_path: Path) -> None:
    text = "quotas: {servers: 4, defaults: {queries_per_s: 10, connections: 6}}\n"
    limits = load(tmp_path, text).quota_policy().limits_of("users", "ana")
    assert (limits[Quota.queries].value, limits[Quota.connections].value) == (2.5, 2.0)


def test_a_file_without_quotas_counts_nothing(tmp_path: Path) -> None:
    policy = load(tmp_path, "users: {ana: {}}\n").quota_policy()
    assert spender_of(Principal("ana", "user"), "user ana", policy, Ledger()) is None


def test_a_person_has_one_account_for_every_way_to_sign_in(file: AccessFile) -> None:
    ways = [Principal("ana", kind) for kind in ("user", "proxy", "oidc")]
    ways += [Principal("ana", "user", by_token=True), Principal("ana", "user", limits=())]
    assert {asker_of(each, "10.0.0.7") for each in ways} == {"user ana"}
    assert asker_of(Principal("ana", "token"), "") == "token ana"
    assert asker_of(Principal("x", "own"), "") == ""
    assert asker_of(ANONYMOUS, "2001:db8::/64") == "address 2001:db8::/64"
    assert spender_of(Principal("x", "own"), "", file.quota_policy(), Ledger()) is None


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ("{defaults: {queries_per_s: 0}}", "greater than 0"),
        ("{defaults: {queries_per_s: many}}", "queries_per_s"),
        ("{defaults: {queries: 1}}", "queries"),
        ("{defaults: {subscriptions: 1.5}}", "subscriptions"),
        ("{servers: 0}", "servers"),
        ('{tenants: {"nyc.*": {}}}', "not a subtree"),
        ("{tenants: {a: {topics: [x]}, b: {topics: [x]}}}", 'tenants "a" and "b" both have "x"'),
        ("{tenants: {a: {views: [x]}, b: {views: [x]}}}", 'tenants "a" and "b" both have "x"'),
        ("{tenants: {a: {kafka_bytes_out_per_s: 1}}}", "kafka_bytes_out_per_s"),
        ("{groups: {nobody: {queries_per_s: 1}}}", 'group "nobody" does not exist'),
        ("{tokens: {nobody: {queries_per_s: 1}}}", 'token "nobody" does not exist'),
    ],
)
def test_a_wrong_section_names_its_place(tmp_path: Path, section: str, why: str) -> None:
    with pytest.raises(ConfigError, match=".*access.yaml:1") as refused:
        load(tmp_path, f"quotas: {section}\n")
    assert why in str(refused.value)


def test_limits_of_bytes_are_client_quotas_of_kafka(file: AccessFile) -> None:
    policy = file.quota_policy()
    everybody = [Principal("bob", "user"), Principal("checkout", "token")]
    desired = desired_quotas(policy, everybody)
    assert desired == {
        ClientQuota("bob", "consumer_byte_rate", 500.0),
        ClientQuota("checkout", "consumer_byte_rate", 500.0),
        ClientQuota("checkout", "producer_byte_rate", 2000.0),
        ClientQuota("checkout", "request_percentage", 50.0),
    }
    existing = [
        ClientQuota("bob", "consumer_byte_rate", 400.0),  # another value
        ClientQuota("bob", "producer_byte_rate", 9.0),  # no limit any more
        ClientQuota("bob", "controller_mutation_rate", 1.0),  # a person's
        ClientQuota("checkout", "producer_byte_rate", 2000.0),
        ClientQuota("former", "producer_byte_rate", 1.0),
        ClientQuota("hub", "producer_byte_rate", 1.0),  # the hub itself
    ]
    made = plan_quotas(desired, existing, ["bob", "checkout", "hub"], own="hub")
    assert made.set == (
        ClientQuota("bob", "consumer_byte_rate", 500.0),
        ClientQuota("checkout", "consumer_byte_rate", 500.0),
        ClientQuota("checkout", "request_percentage", 50.0),
    )
    assert made.remove == (ClientQuota("bob", "producer_byte_rate", 9.0),)
    assert made.foreign == (ClientQuota("former", "producer_byte_rate", 1.0),)
    pruned = plan_quotas(desired, existing, ["bob", "checkout"], own="hub", prune=["former"])
    assert ClientQuota("former", "producer_byte_rate", 1.0) in pruned.remove and not pruned.foreign


def test_limits_for_kafka_are_not_divided_among_servers(tmp_path: Path) -> None:
    policy = load(tmp_path, "quotas: {servers: 2, defaults: {bytes_in_per_s: 100}}\n").quota_policy()
    assert desired_quotas(policy, [Principal("ana", "user")]) == {
        ClientQuota("ana", "producer_byte_rate", 100.0)
    }
