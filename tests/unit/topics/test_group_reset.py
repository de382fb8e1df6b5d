"""A reset of a consumer group's positions: its target, plan, digest and refusals; over HTTP and as a page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.staged_estate import StagedEstate, estate
from browser.staged_groups import StagedGroups
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from staged_pages import pages_client

from hub.caller import CALLER, AccessDecision, Action, Caller, Forbidden, Resource
from hub.errors import CallerError, Conflict, NotFound
from hub.log import MemoryCluster
from hub.record import NewRecord, Positions, TopicPartition
from hub.topics.groups.reset import GroupPositions
from hub.topics.groups.reset_plan import LogOffsets, ResetTarget, plan_reset, reset_request, target_of

NOW = 1_800_000_000_000
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
LOG = LogOffsets(Positions({A0: 10, A1: 0}), Positions({A0: 50, A1: 0}), Positions({A0: 30}))
OWN = {"accept": "text/html", "sec-fetch-site": "same-origin"}


def rows(to: str, held: dict[TopicPartition, int]) -> list[tuple[int | None, int | None, int | None]]:
    plan = plan_reset(reset_request("g", (), to, NOW), Positions(held), LOG)
    return [(row.target, row.skipped, row.again) for row in plan.rows]


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", (10, 0, 10)),
        ("latest", (50, 30, 0)),
        ("45", (45, 25, 0)),
        ("999", (50, 30, 0)),
        ("3", (10, 0, 10)),
        ("+5", (25, 5, 0)),
        ("-15", (10, 0, 10)),
        ("2026-01-31T12:00", (30, 10, 0)),
    ],
)
def test_targets(to: str, expected: tuple[int, int, int]) -> None:
    assert rows(to, {A0: 20, A1: 0})[0] == expected


def test_without_a_position_the_counts_are_unknown() -> None:
    assert rows("latest", {A0: 20})[1] == (0, None, None)
    plan = plan_reset(reset_request("g", (), "latest", NOW), Positions({A0: 20}), LOG)
    assert plan.skipped is None and plan.again is None and plan.changes == 2


def test_records_that_retention_deleted_are_not_counted() -> None:
    assert rows("earliest", {A0: 4})[0] == (10, 0, 0)  # 4 to 9 are gone
    assert rows("latest", {A0: 4})[0] == (50, 40, 0)


@given(st.one_of(
    st.just(ResetTarget("earliest")), st.just(ResetTarget("latest")),
    st.builds(ResetTarget, st.just("offset"), st.integers(0, 10**15)),
    st.builds(ResetTarget, st.just("shift"), st.integers(-(10**15), 10**15)),
    st.builds(ResetTarget, st.just("time"), st.integers(0, 4 * 10**12)),
))  # fmt: skip
def test_a_targets_text_means_the_same_at_any_time(target: ResetTarget) -> None:
    assert target_of(str(target), NOW) == target


@given(st.integers(0, 80), st.integers(-100, 100))
def test_a_target_is_in_the_log_and_the_counts_are_its_distance(position: int, shift: int) -> None:
    (target, skipped, again), _ = rows(f"{shift:+d}", {A0: position, A1: 0})
    assert target is not None and skipped is not None and again is not None
    assert 10 <= target <= 50
    assert skipped - again == target - max(10, min(position, 50)) and min(skipped, again) == 0


@pytest.mark.parametrize("to", ["yesterday", "1.5", "--3", "15 weeks"])
def test_a_wrong_target_is_refused(to: str) -> None:
    with pytest.raises(CallerError, match="is not a place"):
        reset_request("g", (), to, NOW)


def test_a_wrong_topic_is_refused() -> None:
    for topic in ("a:x", "a b", "a:1,", ""):
        if topic:
            with pytest.raises(CallerError, match="is not a topic"):
                reset_request("g", (topic,), "latest", NOW)
    assert reset_request("g", (" a ", "a", ""), "latest", NOW).topics == ("a",)


def test_the_equal_command() -> None:
    request = reset_request("my group", ("a:0,1", "b"), "15m", NOW)
    assert request.command == (
        "hub group reset 'my group' --topic a:0,1 --topic b --to 2027-01-15T07:45:00.000Z"
    )


@pytest.fixture
def groups() -> GroupPositions:
    cluster = MemoryCluster()
    for topic in ("a", "b"):
        cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
        cluster.writer().append(
            [NewRecord(topic, None, b"x", timestamp_ms=n, partition=n % 2) for n in range(20)]
        )
    cluster.committed["g"] = {TopicPartition("a", 0): 4, TopicPartition("b", 1): 7}
    return GroupPositions(StagedGroups(cluster))


def committed(groups: GroupPositions) -> dict[TopicPartition, int]:
    return dict(groups.cluster.group_positions("g"))


def test_one_partition_is_reset_and_the_others_stay(groups: GroupPositions) -> None:
    request = reset_request("g", ("a:0",), "earliest", NOW)
    plan = groups.plan(request)
    assert committed(groups)[A0] == 4
    groups.reset(request, plan.digest)
    assert committed(groups) == {A0: 0, TopicPartition("b", 1): 7}


def test_a_plan_of_another_situation_is_refused(groups: GroupPositions) -> None:
    request = reset_request("g", (), "latest", NOW)
    digest = groups.plan(request).digest
    groups.cluster.publish_group("g", Positions({A0: 5}))
    with pytest.raises(Conflict) as refused:
        groups.reset(request, digest)
    assert refused.value.code == "HUB-1941" and committed(groups)[A0] == 5
    other = groups.plan(reset_request("g", (), "earliest", NOW)).digest
    with pytest.raises(Conflict):
        groups.reset(request, other)


def test_new_records_do_not_change_a_plan_to_the_end(groups: GroupPositions) -> None:
    request = reset_request("g", ("a",), "latest", NOW)
    fixed = reset_request("g", ("a",), "999", NOW)
    digest, other = groups.plan(request).digest, groups.plan(fixed).digest
    groups.cluster.cluster.writer().append([NewRecord("a", None, b"x", partition=0)])  # type: ignore[attr-defined]
    assert groups.plan(fixed).digest != other
    groups.reset(request, digest)
    assert committed(groups)[A0] == 11


def test_members_and_views_and_unknown_groups_are_refused(groups: GroupPositions) -> None:
    request = reset_request("g", (), "latest", NOW)
    groups.cluster.members["g"] = ("app-1",)  # type: ignore[attr-defined]
    assert groups.plan(request).members == ("app-1",)
    with pytest.raises(Conflict, match="has 1 member now: app-1") as refused:
        groups.reset(request)
    assert refused.value.code == "HUB-1940" and committed(groups)[A0] == 4
    with pytest.raises(CallerError, match="positions of a view"):
        groups.plan(reset_request("hub.view.orders", ("a",), "latest", NOW))
    with pytest.raises(NotFound, match="no position in any topic"):
        groups.plan(reset_request("nobody", (), "latest", NOW))
    with pytest.raises(NotFound, match="has no partition 7"):
        groups.plan(reset_request("g", ("a:7",), "latest", NOW))


def test_only_topics_that_the_caller_operates_are_reset(groups: GroupPositions) -> None:
    def decide(action: Action, what: Resource) -> AccessDecision:
        allowed = what.name == "a" or (what.name == "b" and action is Action.describe)
        return AccessDecision(allowed, f"{action} of {what}")

    before = CALLER.set(Caller("ana", frozenset(), decide))
    try:
        plan = groups.reset(reset_request("g", (), "latest", NOW))
        assert {row.topic for row in plan.rows} == {"a"} and "1 other topic" in plan.notes[0]
        assert committed(groups)[TopicPartition("b", 1)] == 7
        with pytest.raises(Forbidden):
            groups.plan(reset_request("g", ("b",), "latest", NOW))
        assert {row.topic for row in groups.plan(reset_request("g", (), "", NOW)).rows} == {"a", "b"}
    finally:
        CALLER.reset(before)


@pytest.fixture
def hub() -> StagedEstate:
    made = estate()
    made.cluster.committed["my/group"] = {TopicPartition("shop.orders", 0): 3}
    return made


@pytest.fixture
def client(hub: StagedEstate) -> Iterator[TestClient]:
    with pages_client(hub) as made:
        yield made


URL = "/groups/my%2Fgroup/offsets"


def test_the_page_shows_the_plan_and_then_does_it(hub: StagedEstate, client: TestClient) -> None:
    plan = client.get(f"/api{URL}", params={"to": "earliest", "topic": "shop.orders:0"}).json()
    page = client.get(URL, params={"to": "earliest", "topic": "shop.orders:0"}, headers=OWN).text
    assert "Read again: 3 offsets" in page and plan["digest"] in page and plan["command"].split()[0] in page
    form = {"to": "earliest", "topic": "shop.orders:0", "plan": plan["digest"]}
    foreign = client.post(URL, data=form, headers={**OWN, "sec-fetch-site": "cross-site"})
    unplanned = client.post(URL, data={**form, "plan": ""}, headers=OWN)
    assert (foreign.status_code, unplanned.status_code) == (400, 409)
    place = TopicPartition("shop.orders", 0)
    assert hub.cluster.committed["my/group"][place] == 3
    done = client.post(URL, data=form, headers=OWN)
    assert (done.status_code, done.headers["location"]) == (303, f"{URL}?done=1")
    assert hub.cluster.committed["my/group"][place] == 0


def test_programs_reset_a_group(hub: StagedEstate, client: TestClient) -> None:
    place = TopicPartition("shop.orders", 0)
    body = {"to": "+2", "topics": ["shop.orders:0"]}
    plan = client.post(f"/api{URL}", json={**body, "dry_run": True}).json()
    assert plan["skipped"] == 2 and hub.cluster.committed["my/group"][place] == 3
    hub.members["my/group"] = ("<b>app</b>",)
    assert client.post(f"/api{URL}", json=body).json()["error_code"] == "HUB-1940"
    page = client.get(URL, params={"to": "+2"}, headers=OWN).text
    assert "&lt;b&gt;app" in page and 'data-testid="confirm"' not in page
    hub.members.clear()
    assert client.post(f"/api{URL}", json={**body, "plan": "x"}).status_code == 409
    assert client.post(f"/api{URL}", json={**body, "plan": plan["digest"]}).json()["changes"] == 1
    assert hub.cluster.committed["my/group"][place] == 5
