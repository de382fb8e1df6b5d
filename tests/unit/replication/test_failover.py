"""Ownership changes once, in the right order, and the operation continues after a crash in any step;
reports count exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import Conflict, HubFault
from hub.record import NewRecord, Record
from hub.replication.clusters.control_state import joined
from hub.replication.ownership.failover import Control, abort, apply, begin, check_stands, done, ownership
from hub.replication.ownership.operation_steps import Kind, Ownership, OwnershipChange

KINDS: tuple[Kind, ...] = ("switchover", "failover", "promote")


def read(new: NewRecord) -> Record:
    return Record(new.topic, 0, 0, 0, new.key, new.value)


def begun(control: Control, kind: Kind, new: str = "lon", id: str = "1", **said: object) -> OwnershipChange:
    return begin(control, kind, id=id, mirror="nyc-lon", home="nyc", new=new, now_ms=5, **said)  # type: ignore[arg-type]


def carried_out(control: Control, operation: OwnershipChange, log: list[Record] | None = None) -> Control:
    """All steps, each record written; ownership where it is due."""
    log = [] if log is None else log
    while (step := operation.next) is not None:
        if step.name == "take_ownership":
            log.append(read(ownership(operation, 9).record()))
            control = apply(control, log[-1])
        operation = done(operation, step.name)
        log.append(read(operation.record()))
        control = apply(control, log[-1])
    return control


def test_of_two_that_were_asked_for_at_once_one_is_the_one() -> None:
    """Both prompts were open; each had seen that nobody else was about to."""
    first, second = begun(Control(), "failover", "lon", "1"), begun(Control(), "failover", "tok", "2")
    control = Control()
    check_stands(control, first)
    control = apply(control, read(first.record()))
    check_stands(control, first)
    with pytest.raises(Conflict, match='failover "1" of nyc is under way') as under_way:
        check_stands(control, second)
    assert under_way.value.code == "HUB-1961"
    taken = apply(control, read(ownership(first, 9).record()))
    check_stands(taken, first)  # it died between the step and the word of it, and goes on
    over = carried_out(control, first)
    with pytest.raises(Conflict, match="lon owns the topics of nyc") as changed:
        check_stands(over, second)
    assert changed.value.code == "HUB-1962"
    check_stands(over, begun(over, "failback", "nyc", "3"))
    check_stands(over, replace(second, kind="drill"))


def test_there_and_back_again() -> None:
    control = carried_out(Control(), begun(Control(), "failover", old_is_up=False))
    assert control.acting == {"nyc": "lon"} and control.owner("nyc").epoch == 1
    assert control.may_write("lon", "nyc") and not control.may_write("nyc", "nyc")
    assert control.fences("nyc", 0) and not control.fences("nyc", 1)
    control = carried_out(control, begun(control, "failback", "nyc", "2"))
    assert control.acting == {} and control.owner("nyc").epoch == 2
    assert control.may_write("nyc", "nyc") and not control.may_write("lon", "nyc")


@pytest.mark.parametrize("kind", [*KINDS, "failback"])
def test_the_order_that_matters(kind: Kind) -> None:
    control = carried_out(Control(), begun(Control(), "failover")) if kind == "failback" else Control()
    names = [step.name for step in begun(control, kind, "nyc" if kind == "failback" else "lon", "2").steps]
    assert names[0] == "claim" and names[-1] == "finish"
    assert names.index("fence_mirror") < names.index("place_groups") < names.index("take_ownership")
    assert names.index("take_ownership") < names.index("open_writers")
    if kind != "failover":
        assert names.index("stop_writers") < names.index("drain") < names.index("fence_mirror")


@pytest.mark.parametrize("kind", KINDS)
def test_never_two_sides_may_write_and_an_old_mirror_is_fenced(kind: Kind) -> None:
    log: list[Record] = []
    carried_out(Control(), begun(Control(), kind), log)
    control = Control()
    for record in log:
        control = apply(control, record)
        assert not (control.may_write("nyc", "nyc") and control.may_write("lon", "nyc"))
    assert control.may_write("lon", "nyc") and control.running("nyc") is None


@given(st.sampled_from(KINDS), st.randoms(use_true_random=False), st.integers(0, 30))
def test_the_state_is_the_same_in_whatever_order_two_clusters_tell_it(
    kind: Kind, chance: object, cut: int
) -> None:
    """Both clusters have the same records; a reader may have seen different prefixes, and records twice."""
    log: list[Record] = []
    end = carried_out(Control(), begun(Control(), kind), log)
    merged = [(at, record) for at, record in enumerate(log)] + [
        (at, record) for at, record in enumerate(log[:cut])
    ]
    control = Control()
    one, two = [r for _, r in merged[: len(log)]], [r for _, r in merged[len(log) :]]
    while one or two:
        side = one if (one and (not two or chance.random() < 0.5)) else two  # type: ignore[attr-defined]
        control = apply(control, side.pop(0))
    assert control == end


def test_a_step_again_changes_nothing_and_another_is_a_fault() -> None:
    operation = done(begun(Control(), "switchover"), "claim")
    assert done(operation, "claim") == operation and operation.next is not None
    assert operation.next.name == "stop_writers"
    with pytest.raises(HubFault, match="take_ownership was done, stop_writers was due"):
        done(operation, "take_ownership")


def test_of_two_who_begin_at_once_the_first_in_the_log_goes_on() -> None:
    first, second = begun(Control(), "switchover", id="1"), begun(Control(), "failover", id="2")
    control = apply(
        apply(Control(), read(done(first, "claim").record())), read(done(second, "claim").record())
    )
    assert control.running("nyc") == done(first, "claim")
    with pytest.raises(Conflict, match=r'switchover "1" of nyc is under way \(next: stop_writers\)'):
        begun(control, "failover", id="3")


def test_what_cannot_begin() -> None:
    away = carried_out(Control(), begun(Control(), "failover"))
    for control, kind, new, said in [
        (away, "failover", "lon", "owns the topics of nyc already"),
        (away, "switchover", "nyc", "home of these topics"),
        (away, "failback", "sgp", "goes home"),
    ]:
        with pytest.raises(Conflict, match=said):
            begun(control, kind, new)  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="does not answer"):
        begun(Control(), "switchover", old_is_up=False)
    assert begun(away, "drill", "sgp").steps == ()


def test_an_operation_is_aborted_until_ownership_may_have_changed() -> None:
    operation = begun(Control(), "switchover")
    undone = []
    while operation.next is not None and operation.next.name != "take_ownership":
        aborted, undo = abort(operation)
        assert aborted.next is None
        undone.append(undo)
        operation = done(operation, operation.next.name)
    assert undone == [
        (),
        ("open_writers",),
        ("open_writers",),
        ("start_mirror", "open_writers"),
        ("start_mirror", "open_writers"),
    ]
    with pytest.raises(Conflict, match="may own the topics already"):
        abort(operation)


def test_after_an_abort_another_may_begin() -> None:
    aborted, _ = abort(done(begun(Control(), "switchover"), "claim"))
    control = apply(Control(), read(aborted.record()))
    assert control.may_write("nyc", "nyc")
    again = done(begun(control, "switchover", id="2"), "claim")
    assert apply(control, read(again.record())).running("nyc") == again


@pytest.mark.parametrize("undone", [True, False])
def test_a_side_that_was_down_at_the_end_of_a_change_learns_of_the_next(undone: bool) -> None:
    """nyc goes in the middle of a switchover, which is undone and made a failover,
    or goes on to its end without nyc."""
    switch = begun(Control(), "switchover", id="1")
    while switch.next is not None and switch.next.name != ("drain" if undone else "take_ownership"):
        switch = done(switch, switch.next.name)
    nyc = lon = apply(Control(), read(switch.record()))
    if undone:
        lon = apply(lon, read(abort(switch)[0].record()))
        lon = carried_out(lon, begun(lon, "failover", id="2", old_is_up=False))
    else:
        lon = carried_out(lon, switch)
    for order in ((nyc, lon), (lon, nyc)):  # nyc is back, and nobody has told it anything
        control = joined(order)
        assert control.running("nyc") is None and control.acting == {"nyc": "lon"}
        assert not control.may_mirror("nyc", "nyc", "lon")
    told: list[Record] = []
    carried_out(lon, begun(joined((nyc, lon)), "failback", "nyc", "3"), told)
    for record in (read(lon.owner("nyc").record()), *told):
        nyc = apply(nyc, record)
    assert nyc.running("nyc") is None and nyc.may_write("nyc", "nyc")


def test_a_failover_needs_the_new_side_only() -> None:
    assert all(step.at == ("lon",) for step in begun(Control(), "failover", old_is_up=False).steps)
    home = carried_out(Control(), begun(Control(), "failover"))
    back = {step.name: step.does for step in begun(home, "failback", "nyc").steps}
    assert back["start_back"].startswith("mirror the new records from lon to nyc")
    assert back["start_mirror"] == "mirror from nyc to lon" and back["stop_writers"].endswith("at lon")


def test_records_of_other_kinds_and_damaged_ones() -> None:
    assert apply(Control(), Record("t", 0, 0, 0, b"group|a", b"{")) == Control()
    with pytest.raises(HubFault, match="offset 7"):
        apply(Control(), Record("t", 0, 7, 0, b"owner|nyc", b"{"))
    older = apply(Control(), read(Ownership("nyc", "lon", 4).record()))
    assert apply(older, read(replace(Ownership("nyc", "sgp", 4)).record())) == older


def states(
    kind: Kind, control: Control, new: str = "lon", **said: object
) -> dict[str, tuple[bool, bool, bool]]:
    """By the step that is due: (old may write, old → new may mirror, new → old may mirror)."""
    operation = begun(control, kind, new, "9", **said)
    found = {}
    while (step := operation.next) is not None:
        control = apply(control, read(operation.record()))
        old, other = operation.old, operation.new
        found[step.name] = (
            control.may_write(old, "nyc"),
            control.may_mirror("nyc", old, other),
            control.may_mirror("nyc", other, old),
        )
        if step.name == "take_ownership":
            control = apply(control, read(ownership(operation, 9).record()))
        operation = done(operation, step.name)
    control = apply(control, read(operation.record()))
    found["over"] = (
        control.may_write(operation.old, "nyc"),
        control.may_mirror("nyc", operation.old, operation.new),
        control.may_mirror("nyc", operation.new, operation.old),
    )
    return found


def test_what_may_run_in_each_step_of_a_switchover() -> None:
    assert states("switchover", Control()) == {
        "claim": (True, True, False),
        "stop_writers": (False, True, False),  # perhaps done, and only its record is missing
        "drain": (False, True, False),
        "fence_mirror": (False, False, False),
        "place_groups": (False, False, False),
        "take_ownership": (False, False, False),
        "start_mirror": (False, False, True),
        "open_writers": (False, False, True),
        "finish": (False, False, True),
        "over": (False, False, True),
    }


def test_after_a_failover_nothing_is_mirrored_until_the_failback_has_settled_the_tail() -> None:
    after = states("failover", Control())
    assert after["over"] == (False, False, False) and after["fence_mirror"] == (True, False, False)
    away = carried_out(Control(), begun(Control(), "failover"))
    for tail, replays in (("replay", True), ("discard", False)):
        back = states("failback", away, "nyc", tail=tail)
        assert back["settle_tail"] == (True, False, replays)
        # Not before whoever carried the tail is fenced, or what he had under way would be taken for born
        # away.
        assert back["start_back"] == (True, False, False)
        assert back["catch_up"] == (True, True, False)
        assert back["place_groups"] == (False, False, False)
        assert back["over"] == (False, False, True)


def test_a_promoted_cluster_mirrors_to_nobody_and_from_nobody() -> None:
    assert states("promote", Control())["over"] == (False, False, False)


def test_mirrors_to_others_follow_whoever_acts() -> None:
    away = carried_out(Control(), begun(Control(), "failover"))
    assert away.may_mirror("nyc", "lon", "sgp") and not away.may_mirror("nyc", "sgp", "lon")
