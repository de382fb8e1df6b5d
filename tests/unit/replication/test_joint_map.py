"""No unread record is skipped, whichever side wrote it; with equal order, no record is read twice."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hub.replication.maps.offset_map import OffsetMap, Run, Translation
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap, foreign_ranges


def test_a_topic_written_in_turns() -> None:
    forward = OffsetMap.of([Run(0, 0, 3)])
    back = OffsetMap.of([Run(4, 3, 2)])  # away 3 is the marker of the transaction
    both = TwoWayOffsetMap(forward, back)
    assert [both.reverse(away) for away in range(7)] == [
        Translation("exact", 0),
        Translation("exact", 1),
        Translation("exact", 2),
        Translation("hole", 3),
        Translation("exact", 3),
        Translation("exact", 4),
        Translation("exact", 5),
    ]
    assert both.translate(3) == Translation("exact", 4)
    assert both.reverse(8) == Translation("pending", 5, 2)


def test_a_position_before_the_first_mirrored_record_is_clamped_to_it() -> None:
    both = TwoWayOffsetMap(OffsetMap.of([Run(10, 3, 5)]), OffsetMap.of([]))
    assert both.translate(4) == Translation("clamped_low", 3, 6)


def test_a_tail_that_was_carried_over_late_is_never_skipped() -> None:
    """Home has h0 h1 h2 h3 t0 t1, away has h0 h1 h2 t0 t1 h3."""
    both = TwoWayOffsetMap(OffsetMap.of([Run(0, 0, 3), Run(3, 5, 1)]), OffsetMap.of([Run(3, 4, 2)]))
    assert both.reverse(5) == Translation("bounded", 3, 2)  # has read t0 and t1, not h3
    assert both.reverse(6) == Translation("exact", 6)
    assert both.translate(4) == Translation("bounded", 3, 1)  # has read h3, not t0


@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(0, 12), st.booleans())
def test_the_position_is_before_all_that_was_not_read(seed: int, steps: int, cut: int, sorted_: bool) -> None:
    chance = random.Random(seed)
    forward, back, home, away = [], [], 0, 0
    pairs: list[tuple[int, int]] = []
    held: list[int] = []  # home offsets that were not mirrored at once
    for _ in range(steps):
        step = chance.choice("fbg" if sorted_ else "fbgth")
        if step == "f" and not held:
            forward.append(Run(home, away, 1))
            pairs.append((home, away))
            home, away = home + 1, away + 1
        elif step == "b":
            back.append(Run(away, home, 1))
            pairs.append((home, away))
            home, away = home + 1, away + 1
        elif step == "g":
            home, away = home + chance.randint(0, 1), away + chance.randint(0, 1)
        elif step == "t":
            held.append(home)
            home += 1
        elif step == "h" and held:
            for offset in held:
                forward.append(Run(offset, away, 1))
                pairs.append((offset, away))
                away += 1
            held.clear()
    both = TwoWayOffsetMap(
        OffsetMap.of(forward, source_start=0, target_start=0, source_next=home, target_next=away),
        OffsetMap.of(back, source_start=0, target_start=0, source_next=away, target_next=home),
    )
    for position in range(away + 1):
        found = both.reverse(position)
        unread = [h for h, a in pairs if a >= position]
        assert all(h >= found.offset for h in unread)
        again = [h for h, a in pairs if a < position and h >= found.offset]
        assert len(again) == (found.distance if found.kind == "bounded" else 0)
        if unread:
            assert found.offset == min(unread)
        if sorted_:
            assert found.kind != "bounded"


def test_what_the_mirror_back_wrote_is_left_out() -> None:
    back = OffsetMap.of([Run(0, 10, 5), Run(6, 20, 2)])
    assert foreign_ranges(back, 0, 9) == []
    assert foreign_ranges(back, 12, 21) == [(12, 15), (20, 21)]
    assert foreign_ranges(back, 22, 30) == []
