"""Test the decision of the fault suite: which reported states are wrong while one part is silent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from fault_suite.model import CHECKED
from fault_suite.states import LIMITS_S, Part, States, violations

_SILENT = "the materializer's reports in _hub.progress have been missing for 42 s"
_FROZEN = (
    f"{_SILENT}; Kafka answers; the materializer process gives no sign of life: it runs "
    "(pid 7) and has written "
    "nothing for 30 s: it hangs, or its disk is full; it was live in its last report"
)
_NO_KAFKA = (
    f"{_SILENT}; Kafka does not answer: list topics: timed out; the materializer process is "
    "alive (pid 7) and cut off "
    "from Kafka: materializer: no answer for 40 s (reader at kafka:9092: all of its connections are down)"
)
_STORES = (("serving", "live", None), ("warehouse", "live", None))
_SILENT = "the applier's reports in _hub.progress have been missing for 45 s; Kafka answers"
_UNKNOWN_STORES = (("serving", "unknown", _SILENT), ("warehouse", "unknown", _SILENT))
MIRRORING = {"mirror": "home-away", "state": "mirroring", "reason": "", "ok": True}


def states(
    state: str = "live",
    reason: str | None = None,
    *,
    lag: str = "OK",
    mirror: dict[str, Any] | None = None,
    stores: tuple[tuple[str, str, str | None], ...] = _STORES,
    failed: dict[str, str] | None = None,
) -> States:
    """Build answers with one state for every view; ``lag``: state of each view's lag on its topic."""
    kept = [{"store": name, "state": known, "reason": why} for name, known, why in stores]
    views = [{"view": view, "state": state, "reason": reason, "stores": kept} for view in CHECKED]
    rows = [
        {"kind": "view", "view": view, "topic": "home.orders", "state": lag, "records": 7} for view in CHECKED
    ]
    return States(views, rows, [MIRRORING if mirror is None else {**MIRRORING, **mirror}], failed)


def wrong(hurt: Part, answers: States, seconds: float = 60.0) -> str:
    return "\n".join(violations(hurt, seconds, answers))


RIGHT: list[tuple[Part, States]] = [
    ("materializer", states("unknown", _FROZEN, lag="UNKNOWN")),
    ("applier", states(lag="STALLED", stores=_UNKNOWN_STORES)),
    ("home Kafka", states("unknown", _NO_KAFKA, lag="UNKNOWN", mirror={"state": "trouble", "ok": False})),
    ("away Kafka", states(mirror={"state": "unknown", "reason": "b:1 does not answer", "ok": False})),
    ("mirror", states(mirror={"state": "no worker", "reason": "last reported 20 s ago", "ok": False})),
    ("Postgres", states(stores=(("serving", "live", None), ("warehouse", "down", None)))),
]


@pytest.mark.parametrize(("hurt", "answers"), RIGHT)
def test_states_that_name_what_is_hurt_are_right(hurt: Part, answers: States) -> None:
    assert wrong(hurt, answers) == ""


@pytest.mark.parametrize("hurt", LIMITS_S)
def test_nothing_is_wrong_before_the_limit(hurt: Part) -> None:
    assert wrong(hurt, states(), LIMITS_S[hurt] - 1) == ""


@pytest.mark.parametrize("hurt", LIMITS_S)
def test_answers_as_if_nothing_were_hurt_are_wrong(hurt: Part) -> None:
    assert wrong(hurt, states())


@pytest.mark.parametrize("hurt", ["materializer", "home Kafka"])
def test_views_may_not_be_shown_live_while_nobody_can_know_it(hurt: Part) -> None:
    found = wrong(hurt, states(lag="UNKNOWN"))
    assert found.count("it must be unknown") == len(CHECKED)


@pytest.mark.parametrize(
    ("hurt", "reason", "expected"),
    [
        ("materializer", _NO_KAFKA, "names home Kafka, which is well"),
        ("materializer", f"{_SILENT}; Kafka answers", "does not name materializer"),
        ("home Kafka", _FROZEN, "names materializer, which is well"),
        ("home Kafka", f"{_SILENT}; Kafka answers", "does not name home Kafka"),
    ],
)
def test_the_reason_names_what_is_hurt_and_nothing_else(hurt: Part, reason: str, expected: str) -> None:
    assert expected in wrong(hurt, states("unknown", reason, lag="UNKNOWN"))


def test_a_frozen_process_is_not_cut_off_from_kafka() -> None:
    reason = _FROZEN.replace("gives no sign of life", "is alive (pid 7) and cut off from Kafka")
    assert "names home Kafka" in wrong("materializer", states("unknown", reason, lag="UNKNOWN"))


@pytest.mark.parametrize("hurt", ["applier", "away Kafka", "mirror", "Postgres"])
def test_views_whose_materializer_is_well_stay_live(hurt: Part) -> None:
    assert "although its materializer and Kafka are well" in wrong(hurt, states("unknown", _FROZEN))


@pytest.mark.parametrize("hurt", ["materializer", "applier", "Postgres"])
def test_a_mirror_that_is_well_is_not_in_trouble(hurt: Part) -> None:
    answers = states(mirror={"state": "trouble", "reason": "its worker", "ok": False})
    assert "although both clusters and its workers are well" in wrong(hurt, answers)


def test_workers_that_run_are_not_missed_while_their_source_is_away() -> None:
    answers = states("unknown", _NO_KAFKA, lag="UNKNOWN", mirror={"state": "no worker", "ok": False})
    assert "its workers run" in wrong("home Kafka", answers)


def test_only_the_store_that_is_away_is_down() -> None:
    both = states(stores=(("serving", "down", None), ("warehouse", "down", None)))
    assert "store serving is down" in wrong("Postgres", both)
    assert "store warehouse" not in wrong("Postgres", both)


def test_a_route_without_an_answer_and_a_view_that_is_missing_are_wrong() -> None:
    found = wrong("Postgres", States(failed={"/api/lag": "503 no"}))
    assert "/api/lag does not answer: 503 no" in found
    assert found.count("is not listed") == len(CHECKED)
