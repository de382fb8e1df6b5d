"""Rows and progress of a view that a step applies: decided without a store, a reader or a registry."""

from __future__ import annotations

import pytest

from hub.errors import HubFault
from hub.log import MemoryCluster
from hub.materializers.applying.followed_view import (
    AppliedView,
    StepPart,
    due_records,
    next_batch,
    note_applied,
)
from hub.materializers.applying.progress_feed import ProgressFeed, parse_record
from hub.materializers.changelog.record import GENERATION_SHIFT
from hub.materializers.definition.entity_view import View
from hub.materializers.progress.engine_reports import PREFIX as ENGINE
from hub.materializers.progress.records import PROGRESS_TOPIC, Mode, Progress
from hub.materializers.stores.store import RowVersion
from hub.record import NewRecord, Positions, Record

VIEW = View.model_validate(
    {"view": "v", "sources": {"s": {"topic": "in", "key": "k"}}, "fields": {"k": "s.k"}}
)


def at(offset: int) -> Positions:
    return Positions.of([("views.v", 0, offset)])


def followed(offset: int = 0, **fields: int) -> AppliedView:
    return AppliedView(VIEW, at(offset), "id", {1}, **fields)


def progress(changelog: int, sources: int, *, generation: int = 1, mode: Mode = "live") -> Progress:
    covered = Positions.of([("in", 0, sources)])
    return Progress("v", generation, 1, mode, covered, at(changelog), 1, 1, 1)


def row(offset: int, generation: int = 1) -> RowVersion:
    return RowVersion("k", (generation << GENERATION_SHIFT) + offset, 0, offset, {}, None)


def test_nothing_new_is_no_batch() -> None:
    view = followed(5)
    view.take_progress(progress(9, 90))
    assert next_batch(view, StepPart(at(5)), []) is None
    assert len(view.waiting) == 1


def test_progress_waits_for_the_rows_that_it_describes() -> None:
    view = followed()
    view.take_progress(progress(3, 30))
    view.take_progress(progress(6, 60))
    batch = next_batch(view, StepPart(at(4)), [row(3)])
    assert batch is not None and batch.sources == Positions.of([("in", 0, 30)])
    assert batch.changelog == at(4) and [each.changelog for each in view.waiting] == [at(6)]
    batch = next_batch(view, StepPart(at(6)), [])
    assert batch is not None and batch.sources == Positions.of([("in", 0, 60)])


def test_progress_of_an_earlier_generation_does_not_cover_a_later_ones_rows() -> None:
    view = followed()
    view.take_progress(progress(3, 30))
    batch = next_batch(view, StepPart(at(4)), [row(3, generation=2)])
    assert batch is not None and not batch.sources and view.waiting == []


@pytest.mark.parametrize(("mode", "expires"), [("bulk", 0), ("live", 2), ("realtime", 2)])
def test_a_generation_replaces_the_earlier_one_when_it_has_every_key(mode: Mode, expires: int) -> None:
    view = followed(swept=1)
    view.take_progress(progress(3, 30, generation=2, mode=mode))
    part = StepPart(at(4))
    batch = next_batch(view, part, [row(3, generation=2)])
    assert batch is not None and batch.expire_below == expires << GENERATION_SHIFT
    note_applied(view, batch, part)
    assert view.swept == max(1, expires)
    view.take_progress(progress(5, 50, generation=2))
    view.swept = 2
    again = next_batch(view, StepPart(at(5)), [])
    assert again is not None and again.expire_below == 0, "once"


def test_at_most_64_progress_records_wait() -> None:
    view = followed()
    for number in range(70):
        view.take_progress(progress(100 + number, number))
    assert [each.changelog for each in view.waiting] == [at(100 + number) for number in range(6, 70)]


def test_outside_a_group_all_that_was_read_is_due() -> None:
    view = followed()
    view.ahead = [Record("views.v", 0, offset, 1, b"k", b"v") for offset in (1, 2, 9)]
    assert due_records(view, StepPart(at(5))) == view.ahead


def test_a_record_of_the_progress_topic_is_parsed() -> None:
    def heard(key: bytes | None, value: bytes | None) -> Record:
        return Record(PROGRESS_TOPIC, 0, 1, 1, key, value)

    assert parse_record(heard(None, b"{}")) is None
    assert parse_record(heard(ENGINE.encode(), b"{}")) is None
    state = parse_record(heard(b"state:v", b'{"state": "live"}'))
    assert state is not None and (state.name, state.body) == ("v", {"state": "live"})
    gone = parse_record(heard(b"state:v", None))
    assert gone is not None and gone.body is None
    for value, why in ((b"[]", "no JSON object"), (b"{", "unexpected end")):
        with pytest.raises(ValueError, match=why):
            parse_record(heard(b"state:v", value))
    with pytest.raises((HubFault, ValueError)):
        parse_record(heard(b"cut:g", b'{"state": "odd"}'))


def test_an_old_record_of_a_compacted_topic_is_not_handed_out() -> None:
    cluster = MemoryCluster()
    cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
    cluster.writer().append(
        [NewRecord(PROGRESS_TOPIC, b"versions:v", b"%d" % n, partition=0) for n in (1, 2)]
    )
    feed = ProgressFeed(cluster)
    start = feed.restart(exists=True)
    assert start == Positions.of([(PROGRESS_TOPIC, 0, 0)])
    records = [Record(PROGRESS_TOPIC, 0, offset, 1, b"state:v", b'{"n": %d}' % offset) for offset in range(2)]
    feed.take_record(records[0])
    assert feed.take(Positions.of([(PROGRESS_TOPIC, 0, 1)])) == {}
    feed.take_record(records[1])
    assert feed.take(Positions.of([(PROGRESS_TOPIC, 0, 2)])) == {"state:v": {"n": 1}}
    assert feed.take(Positions.of([(PROGRESS_TOPIC, 0, 2)])) == {}
