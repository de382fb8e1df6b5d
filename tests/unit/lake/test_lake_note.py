"""The note of the lake's writer: unknown while it is silent, failing tables by name."""

from __future__ import annotations

from pathlib import Path

from hub.api.web import lake_line
from hub.cli.platform.status import PartState, lake
from hub.lake.note import STALE_MS, LakeNote, TopicInLake, families, read_note, write_note


def test_a_note_says_nothing_of_a_time_after_it_was_written(tmp_path: Path) -> None:
    note = LakeNote(1_000, {"a": TopicInLake("a", "topics.a", "WRITING", rows=3, behind=0)})
    write_note(tmp_path, note)
    assert read_note(tmp_path, 1_000 + STALE_MS) == note
    assert read_note(tmp_path, 1_001 + STALE_MS) is None


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert read_note(tmp_path, 0) is None
    (tmp_path / "lake.json").write_text('{"at_ms": 1, "topics": [{"what": 1}]}')
    assert read_note(tmp_path, 1) is None


def test_unknown_values_have_no_sample() -> None:
    assert [len(each.samples) for each in families(None)] == [0, 0, 0]
    note = LakeNote(1, {"a": TopicInLake("a", "topics.a", "FAILING", behind=None, lost=2)})
    up, behind, lost = families(note)
    assert [sample.value for sample in up.samples] == [0.0]
    assert behind.samples == []
    assert [sample.value for sample in lost.samples] == [2.0]


def test_the_status_is_unknown_without_a_writer_and_names_failing_topics() -> None:
    assert lake(["a"], None)[0].state is PartState.unknown
    written = TopicInLake("a", "topics.a", "WRITING")
    (part,) = lake(["a", "b"], LakeNote(1, {"a": written, "b": TopicInLake("b", "topics.b", "FAILING")}))
    assert (part.state, part.found) == (PartState.bad, "not written: b")
    (part,) = lake(["a", "b"], LakeNote(1, {"a": written}))
    assert (part.state, part.found) == (PartState.warn, "1 of 2 Iceberg tables are written")
    (part,) = lake(["a"], LakeNote(1, {"a": written}))
    assert part.state is PartState.ok


def test_a_topics_page_shows_its_table_or_unknown() -> None:
    known = TopicInLake("a", "topics.a", "WRITING", rows=3, behind=1, committed_at_ms=7)
    line = lake_line(LakeNote(1, {"a": known}), "a")
    assert (line.state, line.table, line.rows, line.behind) == ("WRITING", "topics.a", 3, 1)
    assert lake_line(None, "a").state == "UNKNOWN"
    assert lake_line(None, "a").rows is None
    assert lake_line(LakeNote(1, {}), "a").trouble == "its writer has not begun with it yet"
