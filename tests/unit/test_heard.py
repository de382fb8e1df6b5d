"""Test the description of the materializer's process in the reason of an unknown view."""

from __future__ import annotations

from pathlib import Path

from hub.api.materializer_health import process_text
from hub.kafka.contact.notes import ContactNote
from hub.observability.overview.contact_watch import ContactWatch


def test_a_process_that_stands_still_is_not_called_cut_off_from_kafka(tmp_path: Path) -> None:
    """A frozen process writes no note, so the server has no report of its contact with Kafka."""
    watch = ContactWatch(tmp_path, notes=(ContactNote("materializer", 7, 0, None),))
    words = process_text(tmp_path, watch, "materializer")
    assert "Kafka" not in words
    assert "it runs (pid 7) and has written nothing for 30 s" in words


def test_a_process_with_contact_is_alive(tmp_path: Path) -> None:
    watch = ContactWatch(tmp_path, notes=(ContactNote("materializer", 7, 0, ()),))
    assert process_text(tmp_path, watch, "materializer") == "the materializer process is alive (pid 7)"
    applier = process_text(tmp_path, watch, "applier")
    assert applier == "whether the applier process runs is not known on this machine"
