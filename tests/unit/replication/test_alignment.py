"""The end of a copy, found by comparing: any copier that goes forward and resumes further back is read
right, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from hub.replication.maps.offset_map import OffsetMap, Run
from hub.replication.migration.alignment import Alignment, PartitionLog, Print, align, boundary


def log(records: Iterable[Print], begin: int | None = None, end: int | None = None) -> PartitionLog:
    held = list(records)

    def read(first: int, until: int) -> Iterator[Print]:
        return (each for each in held if first <= each[0] < until)

    first = held[0][0] if held else 0
    last = held[-1][0] + 1 if held else 0
    return PartitionLog(first if begin is None else begin, last if end is None else end, read)


def of(text: str, start: int = 0) -> PartitionLog:
    """One record per character; "." is an offset without one."""
    return log(
        [(start + at, ord(each)) for at, each in enumerate(text) if each != "."], start, start + len(text)
    )


def test_the_modules_example() -> None:
    found = boundary(of("abcdefgh"), of("abcdcdef"))
    assert found.refusal == ""
    assert (found.runs, found.source_next, found.duplicates) == ((Run(0, 0, 4), Run(4, 6, 2)), 6, 2)


def test_holes_of_both_sides_are_no_difference() -> None:
    found = boundary(of("ab..cd.ef"), of("abc.d.e"))
    assert (found.runs, found.source_next) == ((Run(0, 0, 2), Run(4, 2, 1), Run(5, 4, 1), Run(7, 6, 1)), 8)


def test_a_copy_that_is_whole_ends_behind_the_last_record() -> None:
    found = boundary(of("abc.."), of("abc"))
    assert (found.source_next, found.records, found.refusal) == (3, 3, "")


def test_a_record_that_the_copy_lacks_is_a_refusal_that_names_it() -> None:
    found = boundary(of("abcdef"), of("abdef"))
    assert found.refusal == "offset 2 of the source is not in the copy, later ones are"


def test_a_record_that_the_source_does_not_have_is_a_refusal_that_names_it() -> None:
    assert boundary(of("abcdef"), of("abXd")).refusal == "offset 2 of the copy is not at the source"
    assert boundary(of("ab"), of("abc")).refusal == "offset 2 of the copy is not at the source"


def test_records_in_another_order_are_refused() -> None:
    assert boundary(of("abcdef"), of("abdc")).refusal != ""


def test_compacted_sides_may_each_lack_what_the_other_has() -> None:
    found = boundary(of("a.cd.fgh"), of("abc.ef"), compacted=True)
    assert found.refusal == ""
    assert (found.source_next, found.records) == (6, 3)
    assert [run.source for run in found.runs] == [0, 2, 5]


def test_oldest_records_that_one_side_has_deleted() -> None:
    source_kept_less = boundary(of("defgh", 3), of("abcdef"))
    assert (source_kept_less.runs, source_kept_less.source_next) == ((Run(3, 3, 3),), 6)
    copy_kept_less = boundary(of("abcdefgh"), of("def", 3))
    assert (copy_kept_less.runs, copy_kept_less.source_next) == ((Run(3, 3, 3),), 6)
    assert (copy_kept_less.source_from, copy_kept_less.target_from) == (3, 3)


def test_a_search_ends_at_the_first_sync() -> None:
    """A record behind a sync cannot equal one before it at the other side."""
    found = boundary(of("xbcdef", 10), of("abcdx"), syncs=((11, 1),))
    assert found.refusal == "offset 4 of the copy is not at the source"
    assert found.source_from == 11


def test_a_sync_is_believed_only_when_the_records_are_equal() -> None:
    source, target = of("xbcdef", 10), of("ybcd")
    lies = boundary(source, target, syncs=((12, 1), (13, 3)))
    assert (lies.runs, lies.source_next) == ((Run(13, 3, 1),), 14)
    assert boundary(source, target, syncs=((12, 1),)).refusal.startswith("neither side's first record")


def test_a_record_before_all_that_the_source_ever_had_is_refused() -> None:
    """No record was deleted on either side, so only a foreign producer can have written it."""
    assert boundary(of("abc"), of("Xab"), syncs=((0, 1),)).refusal.startswith("neither side's first record")


def test_newest_begins_at_the_sync_before() -> None:
    source, target = of("a-cdefgh"), of("a+cdef")
    assert boundary(source, target).refusal != ""
    found = boundary(source, target, syncs=((0, 0), (2, 2), (5, 5)), newest=4)
    assert (found.source_from, found.source_next, found.runs) == (2, 6, (Run(2, 2, 4),))


def test_a_copy_of_what_is_deleted_at_the_source_goes_on_at_its_end() -> None:
    found = boundary(log([], 40, 40), of("abc"))
    assert (found.source_next, found.runs, found.refusal) == (40, (), "")


def test_nothing_was_copied_yet() -> None:
    assert boundary(of("abc", 5), log([], 0, 0)).source_next == 5
    assert boundary(of("abc", 5), log([], 0, 4)).source_next == 5  # an aborted record is not part of the copy
    assert "no record left" in boundary(of("abc", 5), log([], 0, 4), compacted=True).refusal


def test_a_copy_without_a_record_left_proves_nothing() -> None:
    assert "no record left" in boundary(of("abc"), log([], 7, 7)).refusal


def test_a_source_that_was_made_again_is_found_out() -> None:
    assert "recreated" in boundary(of("abc"), of("abcdef"), syncs=((5, 5),)).refusal


def test_a_stretch_that_came_again_is_known_only_so_far_back() -> None:
    source, copy = of("abcdefgh"), of("abcdeabcdef")
    assert align(source.read(0, 8), copy.read(0, 11)).source_next == 6
    assert align(source.read(0, 8), copy.read(0, 11), behind=3).refusal != ""


def sources(draw: st.DrawFn, kinds: st.SearchStrategy[int]) -> list[Print]:
    """Records with holes between them."""
    found: list[Print] = []
    at = draw(st.integers(0, 5))
    for kind in draw(st.lists(kinds, min_size=1, max_size=40)):
        at += draw(st.integers(0, 2))
        found.append((at, kind))
        at += 1
    return found


def copy_of(draw: st.DrawFn, source: list[Print], reached: int) -> list[Print]:
    """The first ``reached`` records, with markers between and stretches that come again: a copier that was
    killed a few times, and each time began again a little further back."""
    ends = [*sorted(draw(st.lists(st.integers(0, reached), max_size=4))), reached]
    found: list[Print] = []
    there = begin = 0
    for end in ends:
        for _, kind in source[begin:end]:
            there += draw(st.integers(0, 1))
            found.append((there, kind))
            there += 1
        begin = max(0, end - draw(st.integers(0, 6)))
    return found


@given(st.data())
def test_of_records_that_differ_the_boundary_is_where_the_copier_stopped(data: st.DataObject) -> None:
    plain = sources(data.draw, st.just(0))
    source = [(offset, 1000 + number) for number, (offset, _) in enumerate(plain)]
    reached = data.draw(st.integers(1, len(source)))
    target = copy_of(data.draw, source, reached)
    found = boundary(log(source), log(target))
    assert found.refusal == ""
    assert found.source_next == source[reached - 1][0] + 1
    assert found.duplicates == len(target) - found.records


@given(st.data())
def test_with_equal_records_what_the_mirror_adds_makes_the_copy_whole(data: st.DataObject) -> None:
    source = sources(data.draw, st.integers(0, 12))
    target = copy_of(data.draw, source, data.draw(st.integers(1, len(source))))
    found = boundary(log(source), log(target))
    if found.refusal:  # a stretch that came again looked like what comes next; then nothing is claimed
        assert len({kind for _, kind in source}) < len(source)
        return
    here, there = dict(source), dict(target)
    pairs = [(run.source + n, run.target + n) for run in found.runs for n in range(run.count)]
    assert all(here[one] == there[other] for one, other in pairs)
    assert [one for one, _ in pairs] == [offset for offset, _ in source if offset < found.source_next]
    assert OffsetMap.of(found.runs).source_next == found.source_next


def test_alignments_of_nothing() -> None:
    assert align([], []) == Alignment(0)
