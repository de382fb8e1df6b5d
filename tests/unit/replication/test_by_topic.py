"""Single topics move by themselves: their states, what each state accepts, and what stays with the home."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import Conflict
from hub.record import NewRecord, Record
from hub.replication.clusters.control_state import ControlState, joined, pause_record
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership.failover import (
    Control,
    abort,
    apply,
    begin,
    check_stands,
    done,
    ownership,
)
from hub.replication.ownership.links import carries, links, write_refusal
from hub.replication.ownership.operation_steps import Kind, OwnershipChange, scope_of
from hub.replication.ownership.topic_state import (
    Action,
    TopicState,
    check_accepts,
    pause_key,
    paused_topics,
    topic_state,
)
from hub.replication.status.mirror_rows import mark_paused, operation_rows, topic_rows

FILE = MirrorsFile.model_validate(
    {
        "clusters": {
            "nyc": {"bootstrap": "nyc:9092", "owns": ["nyc.**"]},
            "lon": {"bootstrap": "lon:9092", "owns": ["lon.**"]},
            "tok": {"bootstrap": "tok:9092"},
        },
        "mirrors": {
            "nyc-lon": {"source": "nyc", "target": "lon", "topics": ["nyc.**"]},
            "nyc-tok": {"source": "nyc", "target": "tok", "topics": ["nyc.**"]},
        },
    }
)
LINK = links(FILE)["nyc-lon"]
ORDERS, CARTS, CHAT = "nyc.orders", "nyc.carts", "nyc.chat"
EVERY = (CARTS, CHAT, ORDERS)


def read(new: NewRecord) -> Record:
    return Record(new.topic, 0, 0, 0, new.key, new.value)


def begun(control: Control, kind: Kind, *topics: str, id: str = "1") -> OwnershipChange:
    new = "nyc" if kind == "failback" else "lon"
    return begin(control, kind, id=id, mirror="nyc-lon", home="nyc", new=new, now_ms=5, topics=topics)


def log_of(operation: OwnershipChange) -> list[Record]:
    """Return every record that carrying out an operation writes."""
    log = [read(each) for each in operation.records()]
    while (step := operation.next) is not None:
        if step.name == "take_ownership":
            log += map(read, ownership(operation, 9).records())
        operation = done(operation, step.name)
        log += map(read, operation.records())
    return log


def taken_in(control: Control, log: list[Record]) -> Control:
    for record in log:
        control = apply(control, record)
    return control


def over(control: Control, kind: Kind, *topics: str, id: str = "1") -> Control:
    return taken_in(control, log_of(begun(control, kind, *topics, id=id)))


def state(control: Control, topic: str = ORDERS, paused: bool = False) -> TopicState:
    by = {pause_key("nyc-lon", topic): "ann"} if paused else {}
    return topic_state(LINK, topic, "nyc", control, by)


def carried(control: Control, link: str) -> tuple[str, ...]:
    return carries(FILE, links(FILE)[link], EVERY, control)


@pytest.mark.parametrize("kind", ["promote", "failover"])
def test_a_topic_moves_and_the_others_stay(kind: Kind) -> None:
    control = over(Control(), kind, ORDERS)
    assert control.may_write("lon", control.scope("nyc", ORDERS))
    assert not control.may_write("nyc", control.scope("nyc", ORDERS))
    assert control.may_write("nyc", control.scope("nyc", CHAT)) and control.acting == {}
    assert control.apart("nyc") == {ORDERS} and control.owner("nyc").epoch == 0
    assert carried(control, "nyc-lon") == carried(control, "nyc-tok") == (CARTS, CHAT)
    assert carried(control, "nyc-lon~back") == ()
    assert write_refusal(FILE, "lon", control, ORDERS) is None
    refused = write_refusal(FILE, "nyc", control, ORDERS)
    assert refused is not None and "lon serves it since it was moved from nyc" in refused.message
    assert state(control).state == {"promote": "promoted", "failover": "failed over"}[kind]
    assert state(control, CHAT).state == "mirroring"


def test_there_and_back_a_topic_belongs_to_its_home_again() -> None:
    control = over(Control(), "switchover", ORDERS, CHAT)
    assert carried(control, "nyc-lon~back") == (CHAT, ORDERS)
    control = over(control, "failback", ORDERS, id="2")
    assert control.apart("nyc") == {CHAT} and carried(control, "nyc-lon") == (CARTS, ORDERS)
    assert control.has_changed("nyc", ORDERS) and not control.has_changed("nyc", CARTS)
    # What is home again moves with its home; what is away by itself does not.
    control = over(control, "failover", id="3")
    assert control.scope("nyc", ORDERS) == "nyc" and control.scope("nyc", CHAT) == scope_of("nyc", CHAT)
    assert control.may_write("lon", "nyc") and control.may_write("lon", control.scope("nyc", CHAT))
    control = over(control, "failback", id="4")
    assert control.apart("nyc") == {CHAT} and carried(control, "nyc-lon~back") == (CHAT,)
    assert over(control, "failback", CHAT, id="5").apart("nyc") == frozenset()


@given(
    st.sampled_from(["promote", "failover", "switchover"]),
    st.integers(0, 60),
    st.randoms(use_true_random=False),
)
def test_a_crash_after_any_record_continues_to_the_same_end(kind: Kind, cut: int, chance: Any) -> None:
    """Killed anywhere, also between the records of two topics of one step; the new process reads what there
    is. At no record may two clusters write one topic.
    """
    log = log_of(begun(Control(), kind, CARTS, ORDERS))
    control = Control()
    for record in log[: max(2, cut)]:
        control = apply(control, record)
        for topic in EVERY:
            scope = control.scope("nyc", topic)
            assert not (control.may_write("nyc", scope) and control.may_write("lon", scope))
    for _ in range(chance.randint(1, 2)):  # and once more, by another person
        for running in control.moving("nyc"):
            check_stands(control, running)
            control = taken_in(control, log_of(running))
    whole = taken_in(Control(), log)
    for topic in (CARTS, ORDERS):
        scope = scope_of("nyc", topic)
        assert control.owner(scope) == whole.owner(scope) and control.operations[scope].state == "done"
    assert control.moving("nyc") == [] and control.owner("nyc").epoch == 0
    assert joined([control, whole]) == joined([whole, control])


def test_topics_of_one_call_go_on_as_one() -> None:
    operation = begun(Control(), "promote", CARTS, ORDERS)
    control = taken_in(Control(), [read(each) for each in operation.records()])
    further = done(operation, "claim")
    control = apply(control, read(further.record(ORDERS)))  # killed before the record of the other topic
    (running,) = control.moving("nyc")
    assert (running.topics, running.done, running.next and running.next.name) == (
        (CARTS, ORDERS),
        (),
        "claim",
    )
    (row,) = operation_rows(LINK, ControlState(control=control))
    assert (row["topics"], row["next"]) == ([CARTS, ORDERS], "claim")
    (furthest,) = control.moving("nyc", furthest=True)
    assert furthest.done == ("claim",)
    aborted, _ = abort(furthest)
    control = taken_in(control, [read(each) for each in aborted.records()])
    assert control.apart("nyc") == frozenset() and carried(control, "nyc-lon") == EVERY
    again = begun(control, "promote", ORDERS, id="2")
    assert again.epoch == 2  # a cluster that was down has the aborted one as running
    # One topic may have its new owner already: neither is taken back.
    due = "take_ownership"
    steps = [step.name for step in again.steps]
    late = replace(again, done=tuple(steps[: steps.index(due)]))
    early = replace(again, done=late.done[:-1])
    control = taken_in(control, [read(late.record(ORDERS)), read(early.record(CARTS))])
    (furthest,) = control.moving("nyc", furthest=True)
    with pytest.raises(Conflict, match="cannot be aborted"):
        abort(furthest)


@pytest.mark.parametrize(("first", "second"), [((ORDERS,), ()), ((), (ORDERS,)), ((ORDERS, CHAT), (CHAT,))])
def test_of_two_changes_that_meet_the_second_is_refused(
    first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    one, other = begun(Control(), "failover", *first), begun(Control(), "failover", *second, id="2")
    control = taken_in(Control(), [read(each) for each in one.records()])
    with pytest.raises(Conflict) as refused:
        begun(control, "failover", *second, id="2")
    assert refused.value.code == "HUB-1961"
    with pytest.raises(Conflict) as refused:
        check_stands(control, other)
    assert refused.value.code == "HUB-1961"
    check_stands(control, one)
    begun(control, "failover", CARTS, id="3") if first and CARTS not in first else None


def test_topics_move_together_only_from_one_owner() -> None:
    control = over(Control(), "failover", ORDERS)
    with pytest.raises(Conflict, match=r"lon serves nyc\.orders, and nyc nyc\.chat"):
        begun(control, "failback", CHAT, ORDERS, id="2")
    with pytest.raises(Conflict, match=r"lon owns nyc\.orders already"):
        begun(control, "promote", ORDERS, id="2")
    away = over(Control(), "failover")
    with pytest.raises(Conflict, match="lon serves all topics of nyc"):
        begun(away, "failback", ORDERS, id="2")


ACCEPTED: dict[str, set[Action]] = {
    "mirroring": {"pause", "resume", "promote", "switchover", "failover"},
    "paused": {"pause", "resume", "drop", "failover"},
    "moving": {"resume"},
    "promoted": set(),
    "switched over": {"failback"},
    "failed over": {"failback"},
    "moved with its home": set(),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_each_state_accepts_its_commands_and_says_the_way_out_of_others(name: str) -> None:
    home = over(Control(), "failover")
    moving = taken_in(Control(), [read(each) for each in begun(Control(), "promote", ORDERS).records()])
    made = {
        "mirroring": state(Control()),
        "paused": state(Control(), paused=True),
        "moving": state(moving),
        "promoted": state(over(Control(), "promote", ORDERS)),
        "switched over": state(over(Control(), "switchover", ORDERS)),
        "failed over": state(over(Control(), "failover", ORDERS), paused=True),
        "moved with its home": state(home),
    }[name]
    assert made.state == name
    actions: tuple[Action, ...] = ("pause", "resume", "drop", "promote", "switchover", "failover", "failback")
    for action in actions:
        if action in ACCEPTED[name]:
            check_accepts(made, action)
            continue
        with pytest.raises(Conflict) as refused:
            check_accepts(made, action)
        assert refused.value.code == "HUB-1973" and refused.value.hint
    for command in made.commands:
        assert command.split()[2] in ACCEPTED[name] and command.endswith("nyc-lon --topic nyc.orders")


def test_a_mirror_moves_only_what_its_source_is_the_home_of() -> None:
    for home in (None, "tok"):
        made = topic_state(LINK, "x", home, Control(), {})
        with pytest.raises(Conflict, match="its home is not the source"):
            check_accepts(made, "promote")
        check_accepts(made, "pause")
        assert not [each for each in made.commands if "promote" in each]


def test_the_status_has_the_state_of_each_topic() -> None:
    board = ControlState(control=over(Control(), "failover", ORDERS))
    board.apply(read(pause_record(pause_key("nyc-lon", CHAT), "ann@x", 1, paused=True)), 0.0, 0)
    assert paused_topics("nyc-lon", board.paused) == {CHAT} and paused_topics("nyc", board.paused) == set()
    rows = {row["topic"]: row for row in topic_rows(FILE, LINK, board, [CARTS])}
    assert {topic: row["state"] for topic, row in rows.items()} == {
        CARTS: "mirroring",
        CHAT: "paused",
        ORDERS: "failed over",
    }
    assert rows[ORDERS]["commands"] == ["hub mirror failback nyc-lon --topic nyc.orders"]
    partitions: list[dict[str, Any]] = [
        {"topic": CHAT, "state": "mirroring", "reason": ""},
        {"topic": CARTS, "state": "mirroring", "reason": ""},
    ]
    mark_paused(partitions, LINK, board)
    assert [row["state"] for row in partitions] == ["paused", "mirroring"]
    assert "hub mirror resume nyc-lon --topic nyc.chat" in partitions[0]["reason"]
    board.apply(read(pause_record(pause_key("nyc-lon", CHAT), "", 2, paused=False)), 0.0, 0)
    assert board.paused == {}


def test_a_record_of_a_topic_is_read_as_that_of_a_home_by_nobody() -> None:
    """Earlier releases read the key of a topic as the name of a home that no file has."""
    operation = begun(Control(), "promote", ORDERS)
    assert [record.key for record in operation.records()] == [b"operation|nyc|nyc.orders"]
    assert [record.key for record in ownership(operation, 1).records()] == [b"owner|nyc|nyc.orders"]
    assert replace(operation, topics=()).record().value == operation.record(ORDERS).value
