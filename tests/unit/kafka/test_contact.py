"""Clients without answers: when they are cut off, when they are replaced, and the reports about them."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from patience import wait_until

from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.kafka.contact.notes import STALE_MS, notes, noting
from hub.kafka.contact.watchdog import Contact, Contacts, reports
from hub.observability.cluster.contact_series import family
from hub.observability.overview.contact_watch import is_cut_off, worst


class Stage:
    def __init__(self) -> None:
        self.well, self.probes = False, 0
        self.contacts = Contacts("kafka:9092", 30.0, self._probe)
        self.contacts.watch = lambda: None  # type: ignore[method-assign]  # a test takes the looks

    def _probe(self) -> bool:
        self.probes += 1
        return self.well

    def failing(self, client: str, since_s: float) -> Contact:
        made = self.contacts.open(client)
        made.failed("timed out")
        made.failing_since_s, made.failed_at_s = since_s, since_s + 20.0
        return made


def test_a_client_is_cut_off_after_its_time_and_replaced_when_a_fresh_one_is_answered() -> None:
    stage = Stage()
    lost, well = stage.failing("admin", 0.0), stage.contacts.open("reader")
    assert stage.contacts.step(29.9)
    assert (lost.blocked, stage.probes) == (False, 0)
    stage.contacts.step(30.0)
    assert (lost.blocked, stage.probes, lost.renewals) == (True, 1, 0)
    stage.contacts.step(31.0)
    assert stage.probes == 1  # not more often than every two seconds
    stage.well = True
    stage.contacts.step(32.0)
    assert (lost.blocked, lost.renewals, lost.failing_s(32.0)) == (False, 1, 0.0)
    assert (well.renewals, stage.contacts.step(33.0)) == (0, False)


def test_an_answer_ends_it_and_the_next_failure_begins_anew() -> None:
    stage = Stage()
    lost = stage.failing("admin", 0.0)
    lost.answered()
    lost.failed("timed out")
    lost.failing_since_s, lost.failed_at_s = 20.0, 40.0
    stage.contacts.step(49.0)
    assert not lost.blocked


def test_a_client_that_nobody_asked_again_is_not_cut_off_and_its_failure_is_forgotten() -> None:
    stage = Stage()
    once = stage.failing("admin", 0.0)
    once.failed_at_s = 0.0
    stage.contacts.step(60.0)
    assert (once.blocked, stage.probes, once.failing_s(60.0)) == (False, 1, 60.0)
    stage.well = True
    stage.contacts.step(62.0)
    assert (once.renewals, once.failing_s(62.0)) == (0, 0.0)


def test_a_client_whose_failures_are_further_apart_than_the_limit_is_replaced_at_the_second() -> None:
    stage = Stage()
    stage.well = True
    slow = stage.failing("sender", 0.0)
    slow.failed_at_s = 0.0
    stage.contacts.step(31.0)
    assert (slow.renewals, slow.failing_s(31.0)) == (0, 0.0), "forgotten"
    slow.failing_since_s = slow.failed_at_s = 60.0  # no answer in between
    stage.contacts.step(91.0)
    assert slow.renewals == 1
    slow.failing_since_s = slow.failed_at_s = 120.0  # of the new client, for the first time
    stage.contacts.step(151.0)
    assert slow.renewals == 1


def test_a_reader_that_hears_nothing_is_replaced_only_where_records_wait() -> None:
    stage, waits = Stage(), [False]

    def is_behind() -> bool:
        if not waits:
            raise PeerError("Kafka is away")
        return waits[0]

    reader = stage.contacts.open("reader", is_behind)
    for found, renewals in (([False], 0), ([], 0), ([True], 1)):
        waits[:] = found
        reader.doubt()
        stage.contacts.step(0.0)
        assert reader.renewals == renewals


def test_the_longest_failure_of_each_kind_is_told_and_closed_clients_are_not() -> None:
    stage = Stage()
    kept = [stage.failing("reader", 10.0), stage.failing("reader", 40.0), stage.contacts.open("admin")]
    gone = stage.failing("reader", 0.0)
    stage.contacts.close(gone)
    told = {each.client: each.cut_off_s for each in stage.contacts.reports(50.0)}
    assert told == {"reader": 40.0, "admin": 0.0}
    assert any(each.cluster == "kafka:9092" and each.client == "reader" for each in reports())
    assert kept


def test_notes_tell_of_processes_that_run_and_unknown_is_no_zero(tmp_path: Path) -> None:
    stage = Stage()
    lost = stage.failing("reader", 0.0)
    with noting(tmp_path, "applier"):
        _wait_for(tmp_path / "contact" / "applier.json")
        told = orjson.loads((tmp_path / "contact" / "applier.json").read_bytes())
        (note,) = notes(tmp_path, told["at_ms"])
        assert (note.process, note.pid) == ("applier", os.getpid())
        assert any(each.client == "reader" and each.cut_off_s > 0 for each in note.reports or ())
        assert is_cut_off(worst(note))
        assert any(sample.value > 0 for sample in family([note]).samples)
        (silent,) = notes(tmp_path, told["at_ms"] + STALE_MS + 1)
        assert silent.reports is None
        assert worst(silent).seconds is None and is_cut_off(worst(silent))
        assert not family([silent]).samples
    assert lost.blocked is False
    assert not notes(tmp_path, 0)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"pid": 1}', b'{"pid": 4194305, "began": "x", "at_ms": 1, "reports": []}']
)
def test_a_file_that_is_no_note_of_a_running_process_is_left_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "contact").mkdir()
    (tmp_path / "contact" / "applier.json").write_bytes(content)
    assert notes(tmp_path, 0) == []


def _wait_for(path: Path) -> None:

    wait_until(lambda: path.exists(), 10.0)


def test_there_is_one_admin_client_until_it_is_renewed() -> None:
    cluster = KafkaCluster("127.0.0.1:1", 0.1)
    first = cluster.admin
    assert cluster.admin is first
    cluster._contact.renew()
    second = cluster.admin
    assert second is not first and cluster.admin is second
