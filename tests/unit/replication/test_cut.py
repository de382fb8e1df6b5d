"""Laws of the cut: no transaction in two, nothing held without a reason."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hub.replication.engine.atomic_release import NONE, ReleaseState, releasable

txns = st.tuples(st.integers(0, 4), st.integers(0, 1))
pieces = st.lists(st.frozensets(txns, max_size=2), max_size=5)
partitions = st.dictionaries(
    st.sampled_from("ABC"),
    st.builds(ReleaseState, pieces, st.frozensets(txns, max_size=2), st.booleans()),
    min_size=1,
)


@given(partitions)
def test_what_is_released_has_nothing_left_behind(seen: dict[str, ReleaseState]) -> None:
    counts = releasable(seen)
    released = {
        txn for place, each in seen.items() for piece in each.staged[: counts[place]] for txn in piece
    }
    left = {txn for place, each in seen.items() for piece in each.staged[counts[place] :] for txn in piece}
    beyond = {txn for each in seen.values() for txn in each.beyond}
    assert not released & (left | beyond)
    if not all(each.whole for each in seen.values()):
        assert not released


@given(partitions)
def test_the_cut_is_the_furthest(seen: dict[str, ReleaseState]) -> None:
    """Every cut that leaves nothing behind is within it."""
    if not all(each.whole for each in seen.values()):
        return
    counts = releasable(seen)
    beyond = {txn for each in seen.values() for txn in each.beyond}
    for place, each in seen.items():
        if counts[place] < len(each.staged):
            assert each.staged[counts[place]]  # without a transaction no reason exists
    if not beyond:
        assert counts == {place: len(each.staged) for place, each in seen.items()}


def test_what_follows_a_held_transaction_waits_and_so_do_its_others() -> None:
    t, u, v = frozenset({(1, 0)}), frozenset({(2, 0)}), frozenset({(3, 0)})
    seen = {"A": ReleaseState([v, t, u]), "B": ReleaseState([NONE, u]), "C": ReleaseState([v], t)}
    assert releasable(seen) == {"A": 1, "B": 1, "C": 1}
