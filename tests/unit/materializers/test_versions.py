"""State machine of a view's versions: its transitions, and its invariants for any order of events."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.materializers.versions.transitions import broken, decide
from hub.materializers.versions.version_records import body_of, versions_of
from hub.materializers.versions.versions import (
    ACTIONS,
    CommandReceived,
    ComputationKept,
    DefinitionChanged,
    Event,
    SwapPolicy,
    TimePassed,
    VersionCaughtUp,
    VersionCompared,
    VersionDefinition,
    VersionLost,
    VersionOpened,
    VersionRemoved,
    Versions,
)
from hub.record import Positions

AT = Positions.of([("views.v.v2", 0, 7)])
SAME: dict[str, Any] = {"rows_before": 10, "rows_after": 10, "columns": ["a"], "differing_by_column": {}}


def definition(text: str, **policy: Any) -> VersionDefinition:
    return VersionDefinition(text, f'{{"view": "{text}"}}', text, SwapPolicy(**policy))


def after(*events: Event, state: Versions | None = None, now_ms: int = 1) -> Versions:
    for event in events:
        state = decide(state, event, "v", now_ms)
    assert state is not None
    return state


def opened() -> Versions:
    return after(VersionOpened(1, definition("one")))


def swapped() -> Versions:
    return after(
        DefinitionChanged(definition("two"), "changed"),
        VersionCaughtUp(2, AT),
        VersionCompared(2, SAME),
        state=opened(),
    )


def states(state: Versions) -> dict[int, str]:
    return {each.number: each.state for each in state.versions}


def test_a_change_is_built_beside_and_swapped_in_when_it_has_caught_up_and_was_compared() -> None:
    building = after(DefinitionChanged(definition("two"), "changed"), state=opened())
    assert states(building) == {1: "served", 2: "building"}
    assert [each.suffix for each in building.versions] == [None, 2]
    ready = after(VersionCaughtUp(2, AT), state=building)
    assert states(ready) == {1: "served", 2: "ready"} and ready.versions[1].at == str(AT)
    served = after(VersionCompared(2, SAME), state=ready, now_ms=1_000)
    assert states(served) == {1: "former", 2: "served"}
    assert served.versions[0].until_ms == 1_000 + SwapPolicy().keep_ms


def test_the_former_version_is_dropped_when_its_time_is_over_or_the_next_one_is_swapped_in() -> None:
    late = after(TimePassed(), state=swapped(), now_ms=SwapPolicy().keep_ms + 1)
    assert states(late) == {2: "served"} and late.dropping == (None,)
    assert after(VersionRemoved(None), state=late).dropping == ()
    third = after(
        DefinitionChanged(definition("three"), ""),
        VersionCaughtUp(3, AT),
        VersionCompared(3, SAME),
        state=swapped(),
    )
    assert states(third) == {2: "former", 3: "served"} and third.dropping == (None,)


def test_rollback_serves_the_former_version_at_once_and_the_file_does_not_bring_the_other_one_back() -> None:
    back = after(CommandReceived("a", "rollback"), state=swapped())
    assert states(back) == {1: "served", 2: "former"} and back.judged == "two"
    again = after(CommandReceived("b", "rollback"), state=back)
    assert states(again) == {1: "served", 2: "former"} and "already" in str(again.refusal)
    assert states(after(CommandReceived("c", "apply"), state=back)) == {1: "former", 2: "served"}
    assert states(after(TimePassed(), state=back, now_ms=10**12)) == {1: "served"}


def test_a_file_that_is_changed_back_swaps_back_without_building() -> None:
    back = after(DefinitionChanged(definition("one"), ""), state=swapped())
    assert states(back) == {1: "served", 2: "former"} and back.last == 2
    given_up = after(
        DefinitionChanged(definition("two"), ""), DefinitionChanged(definition("one"), ""), state=opened()
    )
    assert states(given_up) == {1: "served"} and given_up.dropping == (2,)


def test_a_change_during_a_build_gives_that_build_up_and_no_number_comes_twice() -> None:
    state = after(
        DefinitionChanged(definition("two"), ""), DefinitionChanged(definition("three"), ""), state=opened()
    )
    assert states(state) == {1: "served", 3: "building"} and state.dropping == (2,)


def test_a_lost_state_is_built_anew_beside_the_rows_that_are_served() -> None:
    state = after(VersionLost(1, "gone"), VersionLost(1, "gone"), state=opened())
    assert states(state) == {1: "served", 2: "building"}
    assert state.versions[1].definition == state.versions[0].definition
    whole = after(VersionCaughtUp(2, AT), VersionCompared(2, SAME), state=state)
    assert states(whole) == {2: "served"}  # a rollback to rows that no longer change is useless


def test_manual_and_broken_expectations_wait_for_apply() -> None:
    events = (VersionCaughtUp(2, AT), VersionCompared(2, {**SAME, "rows_after": 5}))
    manual = after(DefinitionChanged(definition("two", manual=True), ""), *events, state=opened())
    assert manual.versions[1].held == "swap: manual"
    held = after(DefinitionChanged(definition("two", rows_within=0.1), ""), *events, state=opened())
    assert "more than 10% apart" in str(held.versions[1].held)
    for waiting in (manual, held):
        assert states(waiting) == {1: "served", 2: "ready"}
        assert states(after(CommandReceived("a", "apply"), state=waiting)) == {1: "former", 2: "served"}


def test_expectations_are_about_columns_too() -> None:
    report = {**SAME, "differing_by_column": {"a": 3}}
    assert broken(SwapPolicy(same=("a",)), SAME) is None
    assert broken(SwapPolicy(same=("a",)), report) == 'column "a" differs in 3 rows'
    assert broken(SwapPolicy(same=("b",)), SAME) == 'column "b" is not in both'
    assert broken(SwapPolicy(rows_within=0.1), {**SAME, "rows_before": 0}) is not None
    assert broken(SwapPolicy(), {"error": "why"}) == "the comparison failed: why"


def test_what_is_asked_too_early_or_in_vain_is_refused_with_the_reason() -> None:
    building = after(DefinitionChanged(definition("two"), ""), state=opened())
    assert "still being built" in str(after(CommandReceived("a", "apply"), state=building).refusal)
    ready = after(VersionCaughtUp(2, AT), state=building)
    assert "not compared" in str(after(CommandReceived("a", "apply"), state=ready).refusal)
    assert "no former" in str(after(CommandReceived("a", "rollback"), state=opened()).refusal)
    assert "is served" in str(after(CommandReceived("a", "drop", 1), state=opened()).refusal)
    assert "is the newest" in str(after(CommandReceived("a", "apply"), state=opened()).refusal)
    assert states(after(CommandReceived("a", "drop"), state=building)) == {1: "served"}
    assert states(after(CommandReceived("a", "rewind"), state=opened())) == {1: "served", 2: "building"}


def test_an_erasure_serves_a_new_version_and_keeps_none_from_before() -> None:
    """Not even while swaps are manual, or the version that erases loses its state."""
    for start in (
        opened(),
        swapped(),
        opinion(SAME),
        after(VersionOpened(1, definition("one", manual=True))),
    ):
        building = after(CommandReceived("a", "erase"), state=start)
        number = building.last
        assert states(building)[number] == "building" and "former" not in states(building).values()
        lost = after(VersionLost(number, "why"), state=building)
        for state in (building, lost):
            done = after(VersionCaughtUp(state.last, AT), state=state)
            assert states(done) == {state.last: "served"} and done.recomputed is None
            assert done.versions[0].comparison is None and start.served.suffix in done.dropping


def test_a_command_is_carried_out_once() -> None:
    state = after(CommandReceived("a", "rewind"), CommandReceived("a", "rewind"), state=opened())
    assert states(state) == {1: "served", 2: "building"}


EVENTS = st.one_of(
    st.builds(VersionOpened, st.just(1), st.just(definition("one"))),
    st.builds(ComputationKept, st.integers(1, 6), st.sampled_from("abc").map(definition)),
    st.builds(DefinitionChanged, st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()).map(
        lambda drawn: definition(drawn[0], manual=drawn[1], compares=drawn[2])), st.just("why")),
    st.builds(VersionLost, st.integers(1, 6), st.just("why")),
    st.builds(VersionCaughtUp, st.integers(1, 6), st.just(AT)),
    st.builds(VersionCompared, st.integers(1, 6), st.just(SAME)),
    st.builds(CommandReceived, st.uuids().map(str), st.sampled_from(ACTIONS), st.none() | st.integers(1, 6)),
    st.just(TimePassed()),
    st.builds(VersionRemoved, st.none() | st.integers(1, 6)),
)  # fmt: skip


@settings(max_examples=fast_or(30, 150))
@given(st.lists(st.tuples(EVENTS, st.booleans(), st.integers(0, 2)), max_size=30))
def test_laws(steps: list[tuple[Event, bool, int]]) -> None:
    """Events may be late, repeated or out of order, and the process may die before or after a state is
    written.
    """
    state: Versions | None = after(VersionOpened(1, definition("one")))
    now_ms = 0
    given_out: dict[int, bool] = {1: True}
    for event, again, hours in steps:
        assert state is not None
        now_ms += hours * 3_600_000 * 12
        noted = versions_of(orjson.loads(orjson.dumps(body_of(state))))
        assert noted == state  # a process that starts here has the whole state
        done = decide(state, event, "v", now_ms)
        assert done is not None
        held = [each.state for each in done.versions]
        assert held.count("served") == 1
        assert held.count("former") <= 1 and held.count("building") + held.count("ready") <= 1
        numbers = [each.number for each in done.versions]
        assert numbers == sorted(set(numbers)) and max(numbers) <= done.last
        for number in numbers:
            if number not in given_out:
                assert number == max(given_out) + 1
                given_out[number] = True
        before = state.number(done.served.number)
        assert before is not None  # never one that was not there
        if before.number != state.served.number:
            plain = before.why == "erase" or not before.definition.policy.compares
            uncompared = isinstance(event, VersionCaughtUp) and plain
            assert before.state in ("ready", "former") or uncompared
        # A removed version is dropped once, and an existing one is not.
        here = {each.suffix for each in done.versions}
        assert not here & set(done.dropping) and len(set(done.dropping)) == len(done.dropping)
        gone = {each.suffix for each in state.versions} - here
        assert gone <= set(done.dropping)
        if again:
            assert decide(done, event, "v", now_ms) == done or isinstance(
                event, DefinitionChanged | VersionLost | CommandReceived
            )
        state = done


def opinion(report: dict[str, Any]) -> Versions:
    building = after(CommandReceived("r", "recompute"), state=opened())
    assert states(building) == {1: "served", 2: "building"} and building.versions[1].why == "recompute"
    return after(VersionCaughtUp(2, AT), VersionCompared(2, report), state=building, now_ms=5_000)


def test_a_second_opinion_is_compared_kept_and_never_served() -> None:
    same = {**SAME, "differing": 0, "only_before": 0, "only_after": 0, "same_positions": True}
    found = opinion(same)
    assert states(found) == {1: "served"} and found.dropping == (2,)
    assert found.recomputed is not None and (found.recomputed["state"], found.recomputed["at_ms"]) == (
        "MATCHES",
        5_000,
    )
    other = opinion({**same, "differing": 3, "only_before": 1})
    assert other.recomputed is not None and other.recomputed["state"] == "DIFFERS"
    assert other.recomputed["reason"].startswith("3 rows are others, 0 are new, 1 are gone")
    unlike = opinion({**same, "differing": 3, "same_positions": False})
    assert unlike.recomputed is not None and unlike.recomputed["state"] == "UNKNOWN"
    failed = opinion({"error": "no rows"})
    assert failed.recomputed is not None and "no rows" in failed.recomputed["reason"]
    assert versions_of(orjson.loads(orjson.dumps(body_of(other)))) == other


def test_a_second_opinion_comes_by_the_views_file_and_stands_in_nobodys_way() -> None:
    begun = after(VersionOpened(1, definition("one", recompute_ms=1_000)))
    assert states(after(TimePassed(), state=begun, now_ms=1_000)) == {1: "served"}
    due = after(TimePassed(), state=begun, now_ms=1_001)
    assert states(due) == {1: "served", 2: "building"}
    assert after(TimePassed(), state=due, now_ms=9_999) == due  # one at a time
    found = after(
        VersionCaughtUp(2, AT), VersionCompared(2, {"same_positions": True}), state=due, now_ms=5_000
    )
    assert states(after(TimePassed(), state=found, now_ms=5_999)) == {1: "served"}
    assert states(after(TimePassed(), state=found, now_ms=6_000)) == {1: "served", 3: "building"}
    # Any command drops it, and so does its own loss; its fingerprint is never refused for that.
    assert states(after(DefinitionChanged(definition("two"), "changed"), state=due)) == {
        1: "served",
        3: "building",
    }
    assert after(DefinitionChanged(definition("two"), "changed"), state=due).versions[1].why == "changed"
    assert states(after(VersionLost(2, "gone"), state=due)) == {1: "served"}
    dropped = after(CommandReceived("d", "drop"), state=due)
    assert states(dropped) == {1: "served"} and dropped.refused == ()
    assert (
        after(CommandReceived("e", "recompute"), state=due).refusal
        == "version 2 is being computed for that already"
    )
    assert after(CommandReceived("f", "apply"), state=due).refusal == "version 1 is the newest and is served"
    nobody = after(VersionOpened(1, definition("one", recompute_ms=1_000, compares=False)))
    assert states(after(TimePassed(), state=nobody, now_ms=9_999)) == {1: "served"}
    assert "cannot be compared" in (after(CommandReceived("g", "recompute"), state=nobody).refusal or "")
