"""Requests for access as values: the commands, and what time alone does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.access_requests.log import record_of, stored_request
from hub.access_requests.model import (
    DAY_MS,
    MOST_OPEN_OF_ONE,
    AccessRequest,
    AccessRequestRefused,
    NoRequest,
    approve,
    checked_request,
    find_request,
    outdated,
    passed,
    put,
    refuse,
    withdraw,
)
from hub.errors import HubFault
from hub.record import Record

NEW = AccessRequest(
    "r1", "read", "shop.orders", "", "user", "ana", 7.0, {}, "report", "ana", 1_000, 10 * DAY_MS
)
NEVER = 10**15


def test_a_grant_lasts_from_the_approval_and_ends_at_a_whole_second() -> None:
    approved = approve(NEW, "ben", "fine", 1_234, needs_second=True)
    assert (approved.status, approved.answered_by, approved.until_ms) == (
        "approved",
        "ben",
        7 * DAY_MS + 2_000,
    )
    assert passed(approved, approved.until_ms - 1, NEVER) == approved
    done = put(approved, "written", done=True, now_ms=2_000)
    assert passed(done, approved.until_ms - 1, NEVER).status == "done"
    assert passed(done, approved.until_ms, NEVER).status == "ended"


@pytest.mark.parametrize(
    ("request_", "by"),
    [(NEW, "ana"), (replace(NEW, requested_by="cleo"), "cleo"), (replace(NEW, requested_by="cleo"), "ana")],
)
def test_nobody_approves_what_they_asked_for_or_gain_by(request_: AccessRequest, by: str) -> None:
    with pytest.raises(AccessRequestRefused, match="somebody else answers"):
        approve(request_, by, "", 2_000, needs_second=True)
    assert approve(request_, by, "", 2_000, needs_second=False).status == "approved"


def test_a_member_of_the_group_that_gains_may_approve() -> None:
    for_group = replace(NEW, grantee_kind="group", grantee="ben")
    assert approve(for_group, "ben", "", 2_000, needs_second=True).status == "approved"


def test_an_answer_is_given_once_and_a_refusal_has_a_reason() -> None:
    with pytest.raises(AccessRequestRefused, match="with a reason"):
        refuse(NEW, "ben", "", 2_000)
    over = [refuse(NEW, "ben", "no", 2_000), withdraw(NEW, 2_000), passed(NEW, 10 * DAY_MS, NEVER)]
    assert [each.status for each in over] == ["refused", "withdrawn", "expired"]
    for each in [*over, approve(NEW, "ben", "", 2_000, needs_second=True)]:
        for act in (
            lambda one: approve(one, "ben", "", 3_000, needs_second=True),
            lambda one: refuse(one, "ben", "no", 3_000),
            lambda one: withdraw(one, 3_000),
        ):
            with pytest.raises(AccessRequestRefused, match=each.status):
                act(each)
    with pytest.raises(AccessRequestRefused, match="expired"):  # before the runner noticed it
        approve(NEW, "ben", "", 10 * DAY_MS, needs_second=True)


@given(st.integers(0, 30 * DAY_MS), st.integers(0, 30 * DAY_MS), st.floats(0.01, 20))
def test_time_decides_the_same_in_one_step_and_in_two(first: int, then: int, days: float) -> None:
    early, late = sorted((first, then))
    approved = approve(replace(NEW, days=days), "ben", "", 5_000, needs_second=True)
    for request in (NEW, approved, put(approved, "", done=True, now_ms=5_000)):
        latest = 12 * DAY_MS
        step = passed(passed(request, early, latest), late, latest)
        assert step.status == passed(request, late, latest).status
        if request.until_ms is not None and late >= request.until_ms:
            assert step.status in ("ended", "expired")


def test_an_approval_without_effect_expires_with_the_reason() -> None:
    approved = put(approve(NEW, "ben", "", 2_000, needs_second=True), "read-only", done=False, now_ms=3_000)
    expired = passed(approved, 4_000, 4_000)
    assert (expired.status, expired.detail) == ("expired", "without effect: read-only")
    assert put(expired, "late", done=True, now_ms=5_000) == expired


def test_the_same_request_waits_once_and_their_number_is_limited() -> None:
    with pytest.raises(AccessRequestRefused, match="r1 for the same"):
        checked_request(replace(NEW, id="r2"), {"r1": NEW})
    assert checked_request(replace(NEW, id="r2"), {"r1": withdraw(NEW, 2_000)})
    many = {f"m{n}": replace(NEW, id=f"m{n}", topic=f"t{n}") for n in range(MOST_OPEN_OF_ONE)}
    with pytest.raises(AccessRequestRefused, match="at most"):
        checked_request(NEW, many)
    assert checked_request(replace(NEW, requested_by="cleo"), many)


def test_requests_that_are_over_are_kept_for_a_time() -> None:
    ended, open_ = withdraw(NEW, 2_000), replace(NEW, id="r2")
    assert outdated({"r1": ended, "r2": open_}, 12_000, 10_000) == []
    assert outdated({"r1": ended, "r2": open_}, 12_001, 10_000) == ["r1"]
    with pytest.raises(NoRequest, match="r9"):
        find_request({}, "r9")


def test_a_record_survives_and_a_foreign_one_is_a_fault() -> None:
    made = approve(NEW, "ben", "ok", 2_000, needs_second=True)
    record = record_of(made)

    def stored(value: bytes) -> AccessRequest:
        return stored_request(Record(record.topic, 0, 7, 0, record.key, value))

    assert stored(record.value or b"") == made
    newer = (record.value or b"{}").replace(b'"id":', b'"added_later":1,"id":', 1)
    assert stored(newer) == made
    for wrong in (b"[]", b"x", b"{}"):
        with pytest.raises(HubFault, match="offset 7"):
            stored(wrong)
