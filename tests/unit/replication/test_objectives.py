"""Alerts of mirrors: what is BAD, what GOOD, and all that is UNKNOWN; and that each fires and ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from mirror_statuses import MARK, PLACE, T, partition, status

from hub.alerts.config.alerts_yaml import AlertsFile
from hub.alerts.delivery.payloads import object_name, object_path
from hub.alerts.model.alert_state import AlertingState, NotificationRoute
from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import Observation, RuleChange, RuleChanges, RuleObservations, Verdict
from hub.alerts.model.state_machine import step
from hub.replication.clusters.control_state import pause_record
from hub.replication.clusters.status_records import (
    GroupPlace,
    GroupStatus,
    LinkContents,
    VerifiedRange,
    copy_of,
)
from hub.replication.clusters.written_state import WrittenState
from hub.replication.maps.checkpoint import Gap
from hub.replication.ownership.topic_state import pause_key
from hub.replication.status.metrics import families
from hub.replication.status.objectives import RULES, observe_mirrors
from hub.topics.tree.tree import Slo, TopicSpec

BAD, GOOD, UNKNOWN = Verdict.BAD, Verdict.GOOD, Verdict.UNKNOWN
NOW = 50_000
AWAY = {"mirror": "m", "state": "unknown", "reason": "lon does not answer", "ok": False, "topics_known": [T]}
PROMISED = {
    T: TopicSpec(T, "chat-team", "", 1, 1, {}, None, None, (), {"slo.lag": "nyc"}, Slo(lag_ms=30_000))
}


def seen(
    *told: dict[str, Any], tree: Any = None, changes: RuleChanges | None = None, **more: Any
) -> dict[str, RuleObservations]:
    found = observe_mirrors(told, tree or {}, changes or RuleChanges(), **more)
    assert [each.rule.name for each in found] == list(RULES)
    return {each.rule.name: each for each in found}


def one(found: RuleObservations) -> Observation:
    (only,) = found.observations
    return only


def verdicts(*told: dict[str, Any], **more: Any) -> dict[str, list[Verdict]]:
    found = seen(*told, **more)
    return {
        name.removeprefix("mirror-"): [o.verdict for o in each.observations] for name, each in found.items()
    }


def compared(differs_at: int | None = None) -> Any:
    why = "" if differs_at is None else "the records differ"
    return VerifiedRange("m", T, 0, copy_of(MARK), 90, 70, 0, differs_at, why, 45_000).record()


def lost(found_at_ms: int, first: int = 5, end: int = 9, reason: Any = "retention") -> WrittenState:
    gap = Gap("m", *PLACE, "s", first, end, reason, found_at_ms)
    return WrittenState(checkpoints={("m", *PLACE): MARK}, gaps={b"%d" % first: gap})


def test_a_mirror_that_goes_well_is_good_in_all() -> None:
    found = verdicts(status(partition(), compared()))
    none: dict[str, list[Verdict]] = {
        name: [] for name in ("gap", "drift", "rehearsal-failed", "rehearsal-overdue")
    }
    assert found == {"trouble": [GOOD], "unknown": [GOOD], "lag": [GOOD], "differs": [GOOD], **none}


def test_what_stands_still_is_trouble_with_its_reason() -> None:
    row = partition(state="stopped", reason="the topic was made again", source_end=101, lag_s=3.0)
    found = one(seen(status(row))["mirror-trouble"])
    assert (found.verdict, found.value) == (BAD, 1.0)
    assert found.summary == "mirror m: 1 of its partitions are stopped"
    assert found.detail == f"{T} partition 0: the topic was made again"

    refused = LinkContents("m", {}, {"nyc.a": "it is full of others' records"}).record()
    found = one(seen(status(refused))["mirror-trouble"])
    assert (found.verdict, found.detail) == (BAD, "nyc.a: it is full of others' records")

    late = status(now_ms=500_000)
    assert late["state"] == "no worker"
    found = one(seen(late)["mirror-trouble"])
    assert (found.verdict, found.summary) == (BAD, "mirror m: no worker carries it")


def test_what_is_paused_is_no_trouble_and_its_lag_is_not_judged() -> None:
    paused = status(partition(source_end=900), pause_record("m", "ada", NOW, paused=True), now_ms=9_000_000)
    assert paused["state"] == "paused" and paused["lag_s"] > 1_000
    found = verdicts(paused, tree=PROMISED)
    assert (found["trouble"], found["unknown"], found["lag"]) == ([GOOD], [GOOD], [UNKNOWN, UNKNOWN])


def test_the_lag_of_a_topic_that_is_paused_by_itself_is_not_judged() -> None:
    pause = pause_record(pause_key("m", T), "ada", NOW, paused=True)
    found = status(partition(source_end=900, lag_s=900.0), pause)
    assert found["state"] == "mirroring" and not found["lag_records"]
    assert verdicts(found, tree=PROMISED)["lag"] == [GOOD, UNKNOWN] and verdicts(found)["lag"] == [GOOD]
    lags = [each for each in families([found]) if each.name == "hub_mirror_lag_seconds"]
    assert [sample for each in lags for sample in each.samples] == []


@pytest.mark.parametrize(
    ("row", "promised", "rest"),
    [
        ({"source_end": 130, "lag_s": 29.0}, GOOD, GOOD),
        ({"source_end": 130, "lag_s": 31.0}, BAD, GOOD),
        ({"source_end": 130, "lag_s": None}, UNKNOWN, GOOD),
        # 20 s late when it was last told of, 40 s ago: at least 60 by now.
        ({"source_end": 130, "lag_s": 20.0, "at_ms": NOW - 40_000}, BAD, GOOD),
        # It got on since: what it lacks it lacks for 32 s at least.
        ({"source_end": 130, "lag_s": 900.0, "source_next": 99, "at_ms": NOW - 32_000}, BAD, GOOD),
        ({"source_end": 130, "lag_s": 0.0, "source_next": 99, "at_ms": NOW - 30_000}, UNKNOWN, GOOD),
        # It lacked nothing when it was last told of: nothing is known.
        ({"source_end": 100, "lag_s": 0.0, "at_ms": NOW - 40_000}, UNKNOWN, GOOD),
    ],
)
def test_lag_of_a_topic_with_a_promise(row: dict[str, Any], promised: Verdict, rest: Verdict) -> None:
    found = seen(status(partition(**row)), tree=PROMISED)["mirror-lag"].observations
    by_object = {dict(each.object).get("topic"): each for each in found}
    assert {topic: each.verdict for topic, each in by_object.items()} == {T: promised, None: rest}
    assert dict(by_object[T].labels) == {"owner": "chat-team", "node": "nyc"}


def test_without_a_promise_the_rules_own_limit_holds() -> None:
    late = status(partition(source_end=130, lag_s=301.0))
    assert one(seen(late)["mirror-lag"]).verdict is BAD
    (found,) = seen(late)["mirror-lag"].observations
    assert found.summary == "mirror m is 0:05:01 behind; at most 0:05:00 may it be" and found.value == 301.0
    file = AlertsFile.model_validate(
        {"rules": {"mirror-lag": {"limit": "10m"}, "mirror-gap": {"limit": "1h"}}}
    )
    assert verdicts(late, changes=file.changes())["lag"] == [GOOD]
    assert verdicts(status(partition(source_end=130, lag_s=601.0)), changes=file.changes())["lag"] == [BAD]
    with pytest.raises(
        ValueError,
        match='"lag" has no limit of its own; mirror-lag and mirror-gap and rehearsal-overdue have one',
    ):
        AlertsFile.model_validate({"rules": {"lag": {"limit": "1m"}}})


def test_lag_tells_what_a_failover_would_cost() -> None:
    places = (GroupPlace(T, 0, "pending", "", 120, 110, 7, 2),)
    groups = [GroupStatus("m", name, places, 49_000).record() for name in ("readers", "writers")]
    (found,) = seen(status(partition(source_end=130, lag_s=301.0), *groups))["mirror-lag"].observations
    assert found.detail == (
        f"{T} partition 0 lacks 30 offsets; a failover now would lose 7 records to group readers and "
        "1 more group something"
    )


def test_of_a_promised_topic_only_its_own_readers_are_named() -> None:
    elsewhere = GroupPlace("nyc.other", 0, "pending", "", 120, 110, 90, 2)
    here = GroupPlace(T, 0, "pending", "", 120, 110, 7, 2)
    groups = [
        GroupStatus("m", name, places, 49_000).record()
        for name, places in (("readers", (here, elsewhere)), ("others", (elsewhere,)))
    ]
    late = status(partition(source_end=130, lag_s=301.0), *groups)
    by_topic = {
        dict(each.object).get("topic", ""): each
        for each in seen(late, tree=PROMISED)["mirror-lag"].observations
    }
    assert by_topic[T].detail.endswith("a failover now would lose 7 records to group readers")


def test_a_way_back_is_a_mirror_of_its_own_in_rules_and_series() -> None:
    back = {**status(partition(state="stopped", reason="it is full")), "mirror": "m~back"}
    (trouble,) = seen(back)["mirror-trouble"].observations
    assert (dict(trouble.object), trouble.verdict) == ({"mirror": "m~back"}, BAD)
    assert "mirror m~back: 1 of its partitions are stopped" in trouble.summary
    told = {s.labels.get("mirror") for each in families([status(partition()), back]) for s in each.samples}
    assert {"m", "m~back"} <= told


def test_what_a_mirror_has_left_has_no_lag_in_series() -> None:
    def late(**more: Any) -> list[float]:
        row = partition(source_end=130, lag_s=301.0, **more)
        found = families([status(row)])
        return [s.value for each in found if each.name == "hub_mirror_lag_seconds" for s in each.samples]

    assert late() == [301.0]
    assert late(state="left", reason="lon acts for nyc now") == []


def test_a_copy_that_differs_is_told_once_and_not_as_trouble() -> None:
    bad = status(partition(), compared(33))
    assert bad["state"] == "trouble" and not bad["stands"]
    found = seen(bad)
    assert one(found["mirror-trouble"]).verdict is GOOD
    wrong = one(found["mirror-differs"])
    assert (wrong.verdict, wrong.value) == (BAD, 1.0)
    assert wrong.detail == f"{T} partition 0 at offset 33: the records differ"
    assert one(seen(status(partition()))["mirror-differs"]).verdict is UNKNOWN  # nothing was compared yet


def test_a_gap_is_news_for_a_day() -> None:
    found = one(seen(status(partition(), progress=lost(NOW - 1_000)), tree=PROMISED)["mirror-gap"])
    assert (found.verdict, found.value) == (BAD, 4.0)
    assert found.summary == f"mirror m will never have 4 offsets of {T}"
    assert found.detail == "partition 0 from offset 5 on: the source deleted them before they were mirrored"
    assert dict(found.object) == {"mirror": "m", "topic": T}
    assert dict(found.labels)["owner"] == "chat-team"
    day = 86_400_000
    assert verdicts(status(partition(), progress=lost(NOW), now_ms=NOW + day - 1_000))["gap"] == [BAD]
    assert verdicts(status(partition(), progress=lost(NOW), now_ms=NOW + day))["gap"] == [GOOD]
    anew = one(seen(status(progress=lost(NOW, 5, -1, "recreated")))["mirror-gap"])
    assert (anew.value, anew.summary) == (None, f"mirror m will never have some offsets of {T}")


def test_who_does_not_answer_is_unknown_in_all_and_an_alert_only_of_that() -> None:
    found = verdicts(AWAY, tree=PROMISED)
    assert found == {
        "trouble": [UNKNOWN],
        "unknown": [BAD],
        "lag": [UNKNOWN, UNKNOWN],
        "differs": [UNKNOWN],
        "gap": [],
        "drift": [UNKNOWN],
        "rehearsal-failed": [UNKNOWN],
        "rehearsal-overdue": [UNKNOWN],
    }
    # The same when nobody could be asked, whatever was heard before.
    before = status(partition(), compared(33), progress=lost(NOW))
    found = verdicts(before, tree=PROMISED, error="mirrors.yaml:3: no such cluster")
    assert (found["trouble"], found["unknown"], found["differs"]) == ([UNKNOWN], [BAD], [UNKNOWN])
    assert (found["lag"], found["gap"]) == ([UNKNOWN, UNKNOWN], [UNKNOWN])
    alone = seen(error="mirrors.yaml:3: no such cluster")
    assert not any(each.whole for each in alone.values())
    only = one(alone["mirror-unknown"])
    assert (only.verdict, dict(only.object)) == (BAD, {"mirror": "mirrors.yaml"})
    starting = {**status(), "state": "starting"}
    assert one(seen(starting)["mirror-unknown"]).verdict is BAD


def fires(rounds: Sequence[tuple[dict[str, Any], int]], changes: RuleChanges | None = None) -> list[set[str]]:
    """Which rules fire after each round; so many seconds lie before each."""
    state, at_ms, found = AlertingState(), NOW, []
    for told, seconds in rounds:
        at_ms += seconds * 1000
        state, _ = step(
            state, list(seen(told, changes=changes).values()), (NotificationRoute((), ("ops",)),), at_ms
        )
        found.append({alert.rule for alert in state.firing})
    return found


def test_each_fires_and_ends_and_silence_ends_nothing() -> None:
    well = status(partition(), compared())
    stopped = status(partition(state="stopped", reason="why"), compared())
    both = {"mirror-trouble", "mirror-unknown"}
    assert fires([(stopped, 0), (stopped, 61), (AWAY, 61), (AWAY, 301), (well, 61), (well, 61)]) == [
        *(set(), {"mirror-trouble"}, {"mirror-trouble"}, both, both, set())
    ]
    # A target that does not answer for a minute is nobody's alert.
    assert fires([(well, 0), (AWAY, 61), (AWAY, 60), (well, 60)]) == [set()] * 4
    different = status(partition(), compared(33))
    assert fires([(different, 0), (well, 61), (well, 61)]) == [{"mirror-differs"}, {"mirror-differs"}, set()]
    gap = status(partition(), compared(), progress=lost(NOW))
    old = status(partition(at_ms=NOW + 90_000_000), compared(), progress=lost(NOW), now_ms=NOW + 90_000_000)
    assert {"mirror-gap"} <= fires([(gap, 0)])[0] and "mirror-gap" not in fires(
        [(gap, 0), (old, 61), (old, 61)]
    )[2]
    late = status(partition(source_end=130, lag_s=400.0), compared())
    assert fires([(late, 0), (late, 61), (well, 61), (well, 61)]) == [
        *(set(), {"mirror-lag"}, {"mirror-lag"}, set())
    ]
    off = RuleChanges({"mirror-lag": RuleChange(off=True)})
    assert fires([(late, 0), (late, 61)], off) == [set(), set()]


def test_an_alert_leads_to_the_mirrors() -> None:
    labels = labels_of({"alertname": "mirror-lag", "severity": "warning", "mirror": "m", "topic": T})
    assert (object_path(labels), object_name(labels)) == ("/mirrors", f"{T} in m")
    assert object_name(labels_of({"alertname": "mirror-trouble", "mirror": "m"})) == "m"
