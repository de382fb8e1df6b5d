"""The one state of each view when the materializer, the applier or a file is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from hub.config import SERVING
from hub.log import MemoryCluster
from hub.materializers.engine.report_thread import ReportThread
from hub.materializers.progress.engine_reports import EngineReport, engine_report_of
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.progress.store_watch import ServerFacts, StoreWatch
from hub.materializers.progress.view_states import Links, judged
from hub.observability.lag.judge import LagRules, judge
from hub.observability.lag.states import LagReading, LagState
from hub.observability.overview.reports import UNAPPLIED, ViewReport, reports_of
from hub.record import NewRecord

ENGINE = EngineReport(1_000, frozenset({"people", "orders"}), "host:/project")
HEARD = Links(ENGINE, 2.0)
SILENT = Links(ENGINE, 420.0, process="the materializer process is alive (pid 7)")


def told(state: str = "live", view: str = "people", since_ms: int = 500, **more: Any) -> dict[str, Any]:
    return {
        f"state:{view}": {"view": view, "state": state, "reason": None, "since_ms": since_ms, **more},
        f"progress:{view}": {"view": view},
    }


def test_what_the_materializer_said_stands_while_it_is_heard() -> None:
    assert judged(told(), HEARD) == told()
    assert judged(told("isolated", reason="it eats memory"), HEARD) == told(
        "isolated", reason="it eats memory"
    )


def test_silence_is_unknown_and_names_the_link() -> None:
    state = judged(told(), SILENT)["state:people"]
    assert state["state"] == "unknown"
    assert state["reason"] == (
        "the materializer's reports in _hub.progress have been missing for 7 min; Kafka answers;"
        " the materializer process is alive (pid 7); it was live in its last report"
    )
    away = replace(SILENT, kafka="Connection refused", process="the materializer process does not run")
    assert (
        "Kafka does not answer: Connection refused; the materializer process does not run"
        in (judged(told(), away)["state:people"]["reason"])
    )


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_last_word_stands_in_silence(state: str) -> None:
    assert judged(told(state), SILENT)["state:people"]["state"] == state


@pytest.mark.parametrize("before", ["stopped", "failed", "live"])
def test_a_state_of_an_earlier_run_is_not_shown_as_that_of_now(before: str) -> None:
    again = Links(replace(ENGINE, run="second"), 2.0)
    state = judged(told(before, run="first"), again)["state:people"]
    assert (state["state"], state["reason"]) == (
        "starting",
        f"the materializer was started again; the view was {before} before",
    )
    assert judged(told(before, run="second"), again) == told(before, run="second")
    assert judged(told(before), again) == told(before)  # the serving store's own
    assert judged(told(before, run="first"), HEARD) == told(before, run="first")


def test_without_any_report_nothing_is_judged() -> None:
    assert judged(told(view="gone"), Links(files=frozenset(), folder="host:/project")) == told(view="gone")


def test_a_view_whose_file_is_gone_is_removed() -> None:
    found = judged(told(view="gone"), HEARD)["state:gone"]
    assert (found["state"], 'topic "views.gone" stays' in found["reason"]) == ("removed", True)
    # A removed view that never had a row is not listed.
    starting = {"state:gone": told("starting", "gone")["state:gone"]}
    assert judged(starting, HEARD) == {}
    # Added after the last report: it is not in it yet.
    assert judged(told("starting", "new", since_ms=1_500), HEARD)["state:new"]["state"] == "starting"


def test_files_are_believed_at_once_where_both_read_one_folder_also_in_silence() -> None:
    links = replace(SILENT, files=frozenset({"orders"}), folder="host:/project")
    assert judged(told(), links)["state:people"]["state"] == "removed"
    elsewhere = replace(links, folder="other:/project")
    assert judged(told(), elsewhere)["state:people"]["state"] == "unknown"


def test_reports_are_written_when_views_change_and_read_back() -> None:
    cluster = MemoryCluster()
    cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
    pulse = ReportThread(cluster.writer(), "host:/project")
    pulse.step()  # nothing to report yet
    for views in ({"people"}, {"people"}, {"people", "orders"}):
        pulse.set_views(frozenset(views))
        pulse.step()
    reader = cluster.reader()
    reader.assign(cluster.beginning_offsets([PROGRESS_TOPIC]))
    written = [engine_report_of(orjson.loads(each.value or b"")) for each in reader.poll(10, 0.0)]
    assert [sorted(each.views) for each in written] == [["people"], ["orders", "people"]]


class Told:
    """Records of a log, as the server receives them."""

    def __init__(self, around: ServerFacts | None = None) -> None:
        self.cluster = MemoryCluster()
        self.cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
        self.news = StoreWatch(self.cluster, around)
        self.reader = self.cluster.reader()
        self.reader.assign(self.cluster.beginning_offsets([PROGRESS_TOPIC]))
        self.take = self.news.begin(self.cluster.end_offsets([PROGRESS_TOPIC]))
        self.take((), True)

    def write(self, **bodies: Any) -> None:
        records = [
            NewRecord(PROGRESS_TOPIC, key.replace("__", ":").encode(), orjson.dumps(body))
            for key, body in bodies.items()
        ]
        self.cluster.writer().append(records)
        self.take(self.reader.poll(100, 0.0), True)


def test_states_are_heard_from_the_log_when_the_applier_stands() -> None:
    stage = Told()
    stage.write(
        engine__materializer={"at_ms": 1_000, "views": ["people"], "folder": "f"},
        state__people={"state": "retrying", "reason": "why", "since_ms": 900},
        progress__people={"committed_at_ms": 9_000},
    )
    found = stage.news.over(told(since_ms=500))
    assert (found["state:people"]["state"], found["told:people"]) == ("retrying", {"committed_at_ms": 9_000})
    # The store's newer record is kept.
    assert stage.news.over(told("bulk", since_ms=950))["state:people"]["state"] == "bulk"


def test_a_view_that_its_store_stopped_is_not_shown_as_its_engine_says() -> None:
    stage = Told()
    views = {"people": {"positions": "", "lag": 1, "stopped": "the store refuses it"}}
    stage.write(
        state__people={"state": "live", "reason": None, "since_ms": 900},
        **{f"store__{SERVING}": {"store": SERVING, "views": views}},
    )
    stopped = told("failed", reason="the store refuses it")
    assert stage.news.over(stopped)["state:people"]["state"] == "failed"


def test_versions_that_are_not_served_are_left_as_they_are() -> None:
    stage = Told(ServerFacts(served=lambda: {"people": "people@2"}))
    stage.write(
        state__people={"state": "failed", "reason": "old", "since_ms": 900},
        **{"state__people@2": {"state": "live", "reason": None, "since_ms": 901}},
    )
    assert stage.news.over({})["state:people"]["state"] == "live"


@pytest.mark.parametrize("body", [b"5", b"[]", b"{", b"null"])
def test_a_record_that_is_no_report_changes_nothing(body: bytes) -> None:
    stage = Told()
    records = [
        NewRecord(PROGRESS_TOPIC, key, body)
        for key in (b"engine:materializer", b"state:people", b"progress:x")
    ]
    stage.cluster.writer().append(records)
    stage.take(stage.reader.poll(100, 0.0), True)
    assert {
        key: each for key, each in stage.news.over(told()).items() if not key.startswith("told:")
    } == told()


def test_the_lag_of_a_view_that_is_not_heard_is_unknown_and_of_one_that_is_not_applied_the_appliers() -> None:
    waiting = LagReading(100_000, 10, 100, 90, 100.0, 100.0, idle_s=100.0)
    why = judged(told(), SILENT)["state:people"]["reason"]
    silent = ViewReport("people", "unknown", why, committed_at_ms=1).reader
    unheard = judge([waiting], [], silent, 100_000, LagRules())
    assert (unheard.state, unheard.cause) == (LagState.UNKNOWN, why)
    late = ViewReport("people", "live", committed_at_ms=99_000, unapplied=True).reader
    behind = judge([waiting], [], late, 100_000, LagRules())
    assert behind.state is LagState.STALLED and UNAPPLIED in behind.cause


def test_a_batch_that_the_log_has_and_the_store_has_not_is_unapplied() -> None:
    records = {**told(), "progress:people": {"committed_at_ms": 1}, "told:people": {"committed_at_ms": 2}}
    (report,) = reports_of(records)
    assert (report.unapplied, report.committed_at_ms) == (True, 2)
    (report,) = reports_of({**records, "told:people": {"committed_at_ms": 1}})
    assert (report.unapplied, report.committed_at_ms) == (False, 1)


def test_a_view_of_another_project_on_this_kafka_is_neither_removed_nor_unknown() -> None:
    links = replace(SILENT, others=frozenset({"theirs"}), files=frozenset({"people"}), folder=ENGINE.folder)
    assert judged(told(view="theirs"), links)["state:theirs"]["state"] == "live"
    assert judged(told(view="gone"), links)["state:gone"]["state"] == "removed"


def test_each_server_judges_by_the_materializer_of_its_own_project() -> None:
    stage = Told(ServerFacts(folder="host:/project"))
    stage.write(engine__materializer={"at_ms": 1_000, "views": ["people"], "folder": "host:/project"})
    stage.write(engine__materializer={"at_ms": 2_000, "views": ["theirs"], "folder": "host:/other"})
    links = stage.news.links()
    assert links.engine is not None and links.engine.folder == "host:/project"
    assert links.others == {"theirs"}


def test_another_project_on_this_machine_says_nothing_of_our_views() -> None:
    stage = Told(ServerFacts(folder="host:/project", files=lambda: frozenset({"people"})))
    stage.write(engine__materializer={"at_ms": 9_000, "views": ["theirs"], "folder": "host:/other"})
    assert stage.news.links().engine is None
    assert stage.news.over(told()) == told()
