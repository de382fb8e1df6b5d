"""Ids that no registry knows are remembered, within limits, and learned when one appears."""

from __future__ import annotations

from hub.materializers.engine.plans.unknown_schema_ids import MOST_IDS, UnknownIds


def test_an_id_is_refused_until_the_registry_has_it() -> None:
    unknown = UnknownIds()
    assert not unknown
    unknown.refuse(7, {1, 2}, 0.0)
    assert unknown and unknown.ids == {7} and unknown.above is None
    assert unknown.appeared({1, 2, 3}) == frozenset()
    assert unknown.appeared({1, 2, 7}) == {7}
    assert not unknown


def test_many_ids_in_a_short_time_have_all_far_ones_refused_until_one_of_them_appears() -> None:
    unknown = UnknownIds()
    for number in range(3):
        unknown.refuse(10**6 + number, {1, 2}, float(number))
    assert unknown.above is not None and 2 < unknown.above < 10**6
    assert unknown.appeared({1, 2, 3}) == frozenset()
    assert unknown.appeared({1, 2, 2_000_000}) == {2_000_000}
    assert unknown.above is None and unknown.ids == {10**6, 10**6 + 1, 10**6 + 2}
    slow = UnknownIds()
    for number in range(9):
        slow.refuse(10**6 + number, {1}, 40.0 * number)
    assert slow.above is None


def test_what_is_remembered_is_bounded() -> None:
    unknown = UnknownIds()
    for number in range(3 * MOST_IDS):
        unknown.refuse(number, (), 100.0 * number)
    assert len(unknown.ids) == MOST_IDS and 3 * MOST_IDS - 1 in unknown.ids
