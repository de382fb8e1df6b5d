"""Topics of each link before, during and after a change of ownership."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hub.errors import ConfigError
from hub.record import Record
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership import failover
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import (
    back_of,
    carries,
    checked,
    home_of,
    links,
    opposite,
    way_back,
    write_refusal,
)
from hub.replication.ownership.operation_steps import Kind, OwnershipChange, StepName, Tail


def file(**mirrors: dict[str, Any]) -> MirrorsFile:
    owns = {"nyc": ["nyc.**"], "lon": ["lon.**"], "sgp": []}
    return MirrorsFile.model_validate(
        {
            "clusters": {name: {"bootstrap": "h:1", "owns": said} for name, said in owns.items()},
            "mirrors": {name.replace("_", "-"): said for name, said in mirrors.items()},
        }
    )


ONE = file(nyc_lon={"source": "nyc", "target": "lon", "topics": ["nyc.**"]})
TOPICS = ["nyc.chat", "lon.chat", "other"]


def done(operation: OwnershipChange, *names: StepName) -> Control:
    for name in names:
        operation = failover.done(operation, name)
    return taken_in(operation)


def taken_in(operation: OwnershipChange) -> Control:
    control = Control()
    records = [operation.record()]
    if "take_ownership" in operation.done:
        records.append(failover.ownership(operation, 1).record())
    for new in records:
        control = failover.apply(control, Record(new.topic, 0, 0, 0, new.key, new.value))
    return control


def over(kind: Kind, control: Control, new: str, tail: Tail = "replay") -> OwnershipChange:
    operation = failover.begin(
        control, kind, id="1", mirror="nyc-lon", home="nyc", new=new, now_ms=0, tail=tail
    )
    while (step := operation.next) is not None:
        operation = failover.done(operation, step.name)
    return operation


def carried(control: Control, name: str, said: MirrorsFile = ONE) -> tuple[str, ...]:
    return carries(said, links(said)[name], TOPICS, control)


def test_a_mirror_carries_what_its_source_owns_and_its_way_back_nothing() -> None:
    assert set(links(ONE)) == {"nyc-lon", "nyc-lon~back"}
    assert carried(Control(), "nyc-lon") == ("nyc.chat",)
    assert carried(Control(), "nyc-lon~back") == ()
    assert home_of(ONE, "other") is None


def test_after_a_switchover_only_the_way_back_carries() -> None:
    control = taken_in(over("switchover", Control(), "lon"))
    assert control.acting == {"nyc": "lon"}
    assert carried(control, "nyc-lon") == ()
    assert carried(control, "nyc-lon~back") == ("nyc.chat",)


def test_a_way_back_is_told_of_only_while_it_carries_anything() -> None:
    forward, away = links(ONE)["nyc-lon"], taken_in(over("switchover", Control(), "lon"))
    assert back_of(ONE, forward, TOPICS, Control()) is None
    back = back_of(ONE, forward, TOPICS, away)
    assert back is not None and (back.name, back.declared, back.target) == ("nyc-lon~back", "nyc-lon", "nyc")
    assert back_of(ONE, forward, ["lon.chat"], away) is None
    assert back_of(ONE, forward, TOPICS, taken_in(over("failover", Control(), "lon"))) is None
    both = file(
        nyc_lon={"source": "nyc", "target": "lon", "topics": ["nyc.**"]},
        lon_nyc={"source": "lon", "target": "nyc", "topics": ["nyc.**", "lon.**"]},
    )
    # Home goes what a declared mirror of that direction takes: it is told of by its own name.
    assert back_of(both, links(both)["nyc-lon"], TOPICS, away) is None


def test_after_a_failover_nothing_goes_home_before_the_failback() -> None:
    control = taken_in(over("failover", Control(), "lon"))
    assert carried(control, "nyc-lon") == carried(control, "nyc-lon~back") == ()


@pytest.mark.parametrize("tail", ["replay", "discard"])
def test_a_failback_settles_the_tail_then_goes_home_then_on_as_before(tail: Tail) -> None:
    away = taken_in(over("failover", Control(), "lon"))
    back = failover.begin(
        away, "failback", id="2", mirror="nyc-lon", home="nyc", new="nyc", now_ms=0, tail=tail
    )
    settling = replace(away, operations={"nyc": failover.done(failover.done(back, "claim"), "fence_home")})
    assert carried(settling, "nyc-lon") == (("nyc.chat",) if tail == "replay" else ())
    assert carried(settling, "nyc-lon~back") == ()
    operation = back
    for name in ("claim", "fence_home", "settle_tail", "start_back"):
        operation = failover.done(operation, name)
    going = replace(away, operations={"nyc": operation})
    assert carried(going, "nyc-lon") == ()
    assert carried(going, "nyc-lon~back") == ("nyc.chat",)
    home = taken_in(over("failback", away, "nyc", tail))
    assert home.acting == {}
    assert carried(home, "nyc-lon") == ("nyc.chat",)
    assert carried(home, "nyc-lon~back") == ()


def test_a_declared_mirror_of_the_other_direction_is_the_way_back_where_it_fits() -> None:
    both = file(
        nyc_lon={"source": "nyc", "target": "lon", "topics": ["**"]},
        lon_nyc={"source": "lon", "target": "nyc", "topics": ["**"]},
    )
    assert way_back(both, "nyc.chat", "nyc", "lon") == "lon-nyc"
    assert opposite(both, links(both)["nyc-lon"], "nyc.chat") == "lon-nyc"
    assert opposite(both, links(both)["lon-nyc"], "nyc.chat") == "nyc-lon"
    control = taken_in(over("switchover", Control(), "lon"))
    assert carried(control, "lon-nyc", both) == ("lon.chat", "nyc.chat")
    assert carried(control, "nyc-lon~back", both) == ()
    assert opposite(ONE, links(ONE)["nyc-lon~back"], "nyc.chat") == "nyc-lon"


def test_a_file_that_would_write_a_topic_twice_is_refused() -> None:
    twice = file(
        one={"source": "nyc", "target": "lon", "topics": ["nyc.**"]},
        two={"source": "nyc", "target": "lon", "topics": ["nyc.chat"]},
    )
    with pytest.raises(ConfigError, match="written at lon by 2 mirrors"):
        checked(twice)
    assert checked(ONE) is ONE


def refused(control: Control, here: str, topic: str = "nyc.chat") -> str | None:
    found = write_refusal(ONE, here, control, topic)
    return None if found is None else found.message


def test_applications_write_where_the_owner_is_and_nowhere_else() -> None:
    quiet = Control()
    assert refused(quiet, "nyc") is refused(quiet, "lon", "lon.chat") is None
    assert "nyc owns it" in (refused(quiet, "lon") or "")
    # Nobody's topics, and the hub's own, are nobody's affair.
    assert refused(quiet, "lon", "other") is refused(quiet, "lon", "_hub.audit") is None


def test_during_a_switchover_nobody_writes_and_then_only_the_new_side() -> None:
    operation = failover.begin(
        Control(), "switchover", id="1", mirror="nyc-lon", home="nyc", new="lon", now_ms=0
    )
    may: list[tuple[str, set[str]]] = []
    while (step := operation.next) is not None:
        operation = failover.done(operation, step.name)
        control = taken_in(operation)
        may.append((step.name, {here for here in ("nyc", "lon") if refused(control, here) is None}))
        if step.name == "drain":
            assert "switchover" in (refused(control, "nyc") or "") and "under way" in (
                refused(control, "nyc") or ""
            )
    assert dict(may)["open_writers"] == dict(may)["finish"] == {"lon"}
    before = [who for name, who in may if name not in ("open_writers", "finish")]
    assert before == [set()] * len(before)
    assert "lon serves the topics of nyc" in (refused(taken_in(operation), "nyc") or "")
    failed = taken_in(over("failover", Control(), "lon"))
    assert refused(failed, "lon") is None and refused(failed, "nyc") is not None


def test_every_problem_of_a_file_is_named_once() -> None:
    twice = file(
        one={"source": "nyc", "target": "lon", "topics": ["nyc.**"]},
        two={"source": "nyc", "target": "lon", "topics": ["nyc.chat"]},
        three={"source": "lon", "target": "nyc", "topics": ["lon.**"]},
        four={"source": "lon", "target": "nyc", "topics": ["lon.chat"]},
    )
    with pytest.raises(ConfigError) as refused:
        checked(twice)
    said = refused.value.message
    assert (said.count("at nyc by 2 mirrors"), said.count("at lon by 2 mirrors")) == (1, 1)
