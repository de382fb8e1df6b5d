"""Grants with `until`: in force before their time, and not from then on, in HTTP and in Kafka's rules."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub.access import live_config
from hub.access.access_yaml import AccessFile, load_access
from hub.access.decide import Principal, decide, grant_text
from hub.access.kafka_grants import plan_rules, timed_plan
from hub.access.live_config import LiveAccess
from hub.access.personal_tokens import checked_grants
from hub.caller import Action, Kind, Resource
from hub.errors import CallerError, ConfigError
from hub.kafka.acls import AccessRule

ORDERS = Resource(Kind.topic, "shop.orders")
END_MS = 1_798_070_400_000  # 2026-12-24
ANA = Principal("ana", "user")
TEXT = """\
users:
  ana: {grants: [{role: read, topics: ["shop.**"], until: 2026-12-24T00:00:00Z}]}
"""


def load(folder: Path, text: str = TEXT) -> AccessFile:
    (folder / "access.yaml").write_text(text)
    return load_access(folder / "access.yaml")


def test_a_grant_ends_at_its_time(tmp_path: Path) -> None:
    file = load(tmp_path)
    before = decide(file.policy(END_MS - 1), ANA, Action.read, ORDERS)
    assert before.allowed and "until 2026-12-24T00:00:00Z" in before.reason
    after = decide(file.policy(END_MS), ANA, Action.read, ORDERS)
    assert not after.allowed and "hub access request read shop.orders" in str(after.hint)
    assert after.ask == "read shop.orders"
    assert file.ends_ms() == [END_MS]


def test_a_time_needs_its_zone_and_a_personal_token_has_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"until.*timezone"):
        load(tmp_path, TEXT.replace("00:00:00Z", "00:00:00"))
    with pytest.raises(CallerError, match="the grants of a token have no `until`"):
        checked_grants([{"role": "read", "topics": ["a"], "until": "2026-12-24T00:00:00Z"}])


def test_live_rules_end_without_a_change_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(tmp_path)
    now = [END_MS - 1]
    monkeypatch.setattr(live_config, "epoch_ms", lambda: now[0])
    live = LiveAccess(tmp_path)
    first = live.rules
    assert first is not None and first.decide(ANA, Action.read, ORDERS).allowed
    assert live.rules is first
    now[0] = END_MS  # nobody calls refresh
    second = live.rules
    assert second is not None and second is not first
    assert not second.decide(ANA, Action.read, ORDERS).allowed
    assert live.rules is second  # made once
    now[0] = END_MS - 1_000  # a clock that was set back opens nothing
    assert live.rules is second


ROLES = st.sampled_from(["read", "write", "operate", "admin"])
PATTERNS = st.sampled_from(["shop.orders", "shop.**", "nyc.*", "shop.returns"])
TIMES = st.one_of(st.none(), st.integers(1, 9))
GRANTS = st.lists(st.tuples(ROLES, PATTERNS, TIMES), max_size=5)
TOPICS = ("shop.orders", "shop.returns", "nyc.gates", "shop")


def file_of(
    grants: list[tuple[str, str, int | None]], group: list[tuple[str, str, int | None]]
) -> AccessFile:
    def nodes(found: list[tuple[str, str, int | None]]) -> list[dict[str, Any]]:
        return [
            {
                "role": role,
                "topics": [pattern],
                **({} if until is None else {"until": datetime.fromtimestamp(until, UTC)}),
            }
            for role, pattern, until in found
        ]

    return AccessFile.model_validate(
        {"groups": {"g": nodes(group)}, "users": {"ana": {"groups": ["g"], "grants": nodes(grants)}}}
    )


@settings(deadline=None, max_examples=150)
@given(GRANTS, GRANTS, st.integers(0, 10_000))
def test_at_any_time_a_file_is_the_file_without_the_ended_grants(
    grants: list[tuple[str, str, int | None]], group: list[tuple[str, str, int | None]], now_ms: int
) -> None:
    def left(found: list[tuple[str, str, int | None]]) -> list[tuple[str, str, int | None]]:
        return [(role, pattern, None) for role, pattern, end in found if end is None or now_ms < end * 1_000]

    who = Principal("ana", "user", frozenset(["g"]))
    now, plain = file_of(grants, group).policy(now_ms), file_of(left(grants), left(group)).policy(0)
    for topic in TOPICS:
        for action in Action:
            what = Resource(Kind.topic, topic)
            assert decide(now, who, action, what).allowed == decide(plain, who, action, what).allowed


@settings(deadline=None, max_examples=100)
@given(GRANTS, GRANTS, st.lists(st.integers(0, 10_000), min_size=1, max_size=4))
def test_kafka_follows_the_time_from_any_state_of_apply(
    grants: list[tuple[str, str, int | None]],
    group: list[tuple[str, str, int | None]],
    times: list[int],
) -> None:
    """After `hub access apply` once, steps at any later times leave nothing that apply would change."""
    file, times = file_of(grants, group), sorted(times)
    everybody = file.principals()
    by_hand = AccessRule("shop.orders", "LITERAL", "User:zoe", "*", "READ", "ALLOW")

    def applied(existing: set[AccessRule], now_ms: int) -> set[AccessRule]:
        from hub.access.kafka_grants import desired_rules

        made = plan_rules(desired_rules(file.policy(now_ms), everybody, TOPICS), existing, everybody)
        return (existing | {*made.add}) - {*made.remove}

    rules = applied({by_hand}, times[0])
    for now_ms in times:
        made = timed_plan(file, now_ms, TOPICS, rules, None)
        rules = (rules | {*made.add}) - {*made.remove}
        assert rules == applied(rules, now_ms)
        again = timed_plan(file, now_ms, TOPICS, rules, None)
        assert not again.add and not again.remove
    assert by_hand in rules


def test_rules_that_only_apply_decides_are_left_alone() -> None:
    file = file_of([("read", "shop.orders", 5), ("write", "nyc.*", None)], [])
    made = timed_plan(file, 1_000, TOPICS, [], None)
    assert {each.operation for each in made.add} == {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}
    assert not any(each.name.startswith("nyc") for each in made.add)  # `apply` adds these
    assert not timed_plan(file, 1_000, TOPICS, [], "ana").add  # the hub's own user
    ended = timed_plan(file, 5_000, TOPICS, made.add, None)
    assert {*ended.remove} == {*made.add}


def test_the_end_of_a_grant_is_in_its_text(tmp_path: Path) -> None:
    (grant,) = load(tmp_path).policy(0).by_name["ana"]
    assert grant_text(grant) == "topics shop.** until 2026-12-24T00:00:00Z"
