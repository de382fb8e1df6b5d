"""Every mirrored offset is translated exactly, both ways; nothing else is claimed to be exact."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import HubFault
from hub.replication.maps.offset_map import OffsetMap, Run, Translation, decode_runs, encode_runs

STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), min_size=0, max_size=30)


def laid_out(steps: list[tuple[int, int, int]], source: int = 7, target: int = 3) -> list[Run]:
    """Runs one after the other, each some offsets after the last on either side."""
    runs = []
    for source_gap, target_gap, count in steps:
        run = Run(source + source_gap, target + target_gap, count)
        runs.append(run)
        source, target = run.source_end, run.target_end
    return runs


def pairs(runs: list[Run]) -> list[tuple[int, int]]:
    return [(run.source + at, run.target + at) for run in runs for at in range(run.count)]


@given(STEPS)
def test_every_mirrored_offset_is_exact_in_both_directions(steps: list[tuple[int, int, int]]) -> None:
    runs = laid_out(steps)
    table = OffsetMap.of(runs)
    for source, target in pairs(runs):
        assert table.translate(source) == Translation("exact", target)
        assert table.reverse(target) == Translation("exact", source)


@given(STEPS, st.integers(0, 5), st.integers(0, 5))
def test_a_position_leads_to_the_first_record_that_was_not_read(
    steps: list[tuple[int, int, int]], more_source: int, more_target: int
) -> None:
    runs = laid_out(steps)
    known = pairs(runs)
    source_next = (runs[-1].source_end if runs else 7) + more_source
    target_next = (runs[-1].target_end if runs else 3) + more_target
    table = OffsetMap.of(
        runs, source_start=5, target_start=3, source_next=source_next, target_next=target_next
    )
    for position in range(source_next + 4):
        found = table.translate(position)
        unread = [target for source, target in known if source >= position]
        assert found.offset == (min(unread) if unread else target_next)
        if position > source_next:
            assert found == Translation("pending", target_next, position - source_next)
        elif position < 5:
            assert found.kind == "clamped_low" and found.distance == 5 - position
        else:
            mirrored = position in dict(known) or position == source_next
            assert found.kind == ("exact" if mirrored else "hole")


@given(STEPS)
def test_the_bytes_say_the_runs(steps: list[tuple[int, int, int]]) -> None:
    runs = laid_out(steps)
    assert list(decode_runs(encode_runs(runs))) == runs


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 2**40)), max_size=5))
def test_the_bytes_say_any_numbers(rows: list[tuple[int, int, int]]) -> None:
    runs = [Run(*row) for row in rows]
    assert list(decode_runs(encode_runs(runs))) == runs


@given(STEPS, st.randoms(use_true_random=False))
def test_folding_and_order_change_no_answer(steps: list[tuple[int, int, int]], random: object) -> None:
    runs = laid_out(steps)
    single = [Run(source, target, 1) for source, target in pairs(runs)]
    random.shuffle(single)  # type: ignore[attr-defined]
    table, again = OffsetMap.of(runs), OffsetMap.of(single + single[: len(single) // 2])
    assert table.runs == again.runs
    for position in range(table.source_next + 3):
        assert table.translate(position) == again.translate(position)
    for position in range(table.target_next + 3):
        assert table.reverse(position) == again.reverse(position)
    assert all(one.source_end < two.source or one.delta != two.delta for one, two in pairwise(table.runs))


@given(STEPS)
def test_reverse_is_the_translation_of_the_map_with_its_sides_exchanged(
    steps: list[tuple[int, int, int]],
) -> None:
    table = OffsetMap.of(laid_out(steps))
    exchanged = OffsetMap.of([Run(run.target, run.source, run.count) for run in table.runs])
    for position in range(table.target_next + 3):
        assert exchanged.translate(position) == table.reverse(position)


@given(STEPS, st.integers(0, 100), st.integers(0, 100))
def test_records_are_counted(steps: list[tuple[int, int, int]], begin: int, end: int) -> None:
    runs = laid_out(steps)
    table = OffsetMap.of(runs)
    assert table.target_records_between(begin, end) == sum(begin <= target < end for _, target in pairs(runs))


def test_a_mirror_that_has_carried_nothing() -> None:
    table = OffsetMap()
    assert table.translate(0) == Translation("exact", 0)
    assert table.translate(5) == Translation("pending", 0, 5)


def test_a_transaction_costs_few_bytes() -> None:
    runs = laid_out([(0, 1, 300)] * 1000)
    assert len(encode_runs(runs)) < 5 * 1000


@pytest.mark.parametrize("run", [Run(3, 40, 2), Run(20, 5, 1), Run(5, 6, 1), Run(-1, 9, 1), Run(30, 30, 0)])
def test_what_contradicts_is_refused(run: Run) -> None:
    table = OffsetMap.of([Run(0, 0, 10)])
    with pytest.raises(HubFault, match="offset map"):
        table.add(run)


@pytest.mark.parametrize(
    "encoded", [b"", b"\x02\x00", b"\x01", b"\x01\x01\x00", b"\x01\x00\x00", b"\x01" + b"\xff" * 11]
)
def test_other_bytes_are_refused(encoded: bytes) -> None:
    with pytest.raises(HubFault, match="where runs were expected"):
        decode_runs(encoded)


def test_a_long_map_is_printed_without_its_columns() -> None:
    table = OffsetMap.of([Run(2 * n, 3 * n, 1) for n in range(1_000)])
    assert len(repr(table)) < 150 and "array" not in repr(table)
