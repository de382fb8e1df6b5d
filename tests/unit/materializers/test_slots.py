"""Task slots: what is held, what is free, and when a session must become wider."""

from __future__ import annotations

import pytest

from hub.errors import ConfigError, PeerError
from hub.materializers.spark.slots import Slots, local_slots


@pytest.mark.parametrize(
    ("master", "slots"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[*]", 8),
        ("local[6,2]", 6),
        ("local[*, 3]", 8),
        ("spark://a:7077", None),
        ("k8s://x", None),
    ],
)
def test_slots_of_a_master(master: str, slots: int | None) -> None:
    assert local_slots(master, 8) == slots


def test_what_was_foreseen_is_there_when_it_is_claimed() -> None:
    slots = Slots(4, 4, 128)
    slots.foresee("a", 14, 2)
    slots.foresee("b", 2, 2)
    assert slots.widen() == 24
    slots.claim("a", 14, 2)
    slots.claim("b", 2, 2)


def test_a_claim_past_the_session_asks_for_a_wider_one_and_is_kept_for_it() -> None:
    slots = Slots(4, 4, 128)
    with pytest.raises(PeerError, match="with 14 task slots"):
        slots.claim("a", 8, 2)
    assert (slots.wanted, slots.widen()) == (14, 14)
    slots.claim("a", 8, 2)
    with pytest.raises(PeerError):
        slots.claim("a", 9, 2)  # its topics got a partition
    assert slots.wanted == 15


def test_released_slots_are_for_the_next_one_and_the_session_stays_wide() -> None:
    slots = Slots(14, 4, 14)
    slots.claim("a", 8, 2)
    with pytest.raises(ConfigError):
        slots.claim("b", 1, 1)
    slots.release("a")
    slots.claim("b", 1, 1)
    assert (slots.wanted, slots.widen()) == (6, 14)


def test_a_refusal_says_what_is_needed_what_is_free_and_the_way_out() -> None:
    slots = Slots(4, 4, 20)
    slots.foresee("far too wide", 100, 100)
    assert slots.wanted == 4
    slots.foresee("a", 8, 2)
    slots.widen()
    with pytest.raises(
        ConfigError, match="12 source partitions and 4 state partitions, 16 in all; 6"
    ) as said:
        slots.claim("b", 12, 4)
    assert "mode: live" in str(said.value)
    assert slots.wanted == 14


def test_a_cluster_cannot_be_made_wider() -> None:
    slots = Slots(8, 2, None)
    slots.claim("a", 4, 2)
    with pytest.raises(ConfigError, match="more cores"):
        slots.claim("b", 1, 1)


def test_a_versions_turn_comes_when_the_other_one_has_left() -> None:
    slots = Slots(14, 4, 14)
    slots.claim("a", 8, 2)
    assert slots.enter("a", "a") and slots.enter("b", "b")
    assert slots.open_to("a", "a") and not slots.open_to("a", "a@2")
    assert not slots.enter("a", "a@2")
    slots.leave("a", "a@2")  # it never was
    assert not slots.enter("a", "a@2")
    slots.leave("a", "a")
    assert slots.open_to("a", "a@2") and slots.enter("a", "a@2") and not slots.enter("a", "a")


def test_what_a_version_will_need_is_asked_before_its_swap_and_holds_nothing() -> None:
    slots = Slots(14, 4, 14)
    slots.claim("a", 8, 2)
    slots.check("a", 8, 2)  # instead of the view's own slots
    with pytest.raises(ConfigError, match="11 in all; 10 of Spark's 14 are free"):
        slots.check("a", 9, 2)
    assert slots.wanted == 14
