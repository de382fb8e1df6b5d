"""The web app's side of the server: mirrors are asked behind the reader's back,
and never keep a page waiting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mirror_statuses import board
from patience import wait_until
from ports import free_ports

from hub.api.page_facts.store_facts import StoreFacts
from hub.api.web import MEASURED_FOR_MS, Mirrors
from hub.errors import NotFound, PeerError
from hub.kafka import KafkaCluster
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.observability.web.pages.monitor.mirrors import MirrorFacts, mirrors_page
from hub.record import Positions, TopicPartition
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.load_mirrors import load
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.ownership.failover import Control, begin, done, ownership
from hub.times import epoch_ms


def heard(mirrors: Mirrors, seconds: float = 30.0) -> MirrorFacts:
    wait_until(lambda: mirrors.latest().asked_at_ms is not None, seconds)
    return mirrors.latest()


def test_without_a_file_there_are_no_mirrors(tmp_path: Path) -> None:
    own = KafkaCluster("127.0.0.1:1", 1.0)
    assert Mirrors(tmp_path / "mirrors.yaml", 1.0, own).latest() == MirrorFacts(declared=False)


def test_a_cluster_that_is_away_is_said_and_nobody_waits_for_it(tmp_path: Path) -> None:
    one, two = free_ports(2)
    file = tmp_path / "mirrors.yaml"
    file.write_text(
        f'clusters:\n  nyc: {{bootstrap: "127.0.0.1:{one}", owns: ["nyc.**"]}}\n'
        f'  lon: {{bootstrap: "127.0.0.1:{two}", owns: ["lon.**"]}}\n'
        'mirrors:\n  nyc-lon: {source: nyc, target: lon, topics: ["nyc.**"]}\n'
    )
    mirrors = Mirrors(file, 0.5, KafkaCluster(f"127.0.0.1:{two}", 0.5))
    assert mirrors.latest().asked_at_ms is None
    known = heard(mirrors)
    # By its address, also while it does not answer.
    assert (known.here, known.clusters["nyc"]) == (frozenset({"lon"}), f"127.0.0.1:{one}")
    page = mirrors_page(known)
    (mirror,) = page.mirrors
    assert (mirror.name, mirror.status["state"], mirror.checks[0].state) == ("nyc-lon", "unknown", "bad")


def test_a_file_that_cannot_be_read_is_an_error_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "mirrors.yaml"
    file.write_text("clusters: 7\n")
    assert "mirrors.yaml:1" in (heard(Mirrors(file, 0.5, KafkaCluster("127.0.0.1:1", 0.5))).error or "")


def test_series_are_of_what_was_heard_lately_and_none_of_what_is_old(tmp_path: Path) -> None:
    file = tmp_path / "mirrors.yaml"
    mirrors = Mirrors(file, 0.5, KafkaCluster("127.0.0.1:1", 0.5))
    assert list(mirrors.families()) == []
    file.write_text("clusters: 7\n")
    mirrors._asking.acquire()  # nobody asks meanwhile
    away = {"mirror": "m", "state": "unknown", "reason": "away", "ok": False}

    def up() -> list[float]:
        return [s.value for each in mirrors.families() if each.name == "hub_mirror_up" for s in each.samples]

    assert up() == []
    now_ms = epoch_ms()
    for known, wanted in (
        (MirrorFacts([away], now_ms), [0.0]),
        (MirrorFacts([away], now_ms - MEASURED_FOR_MS), []),
        (MirrorFacts([away], now_ms, error="mirrors.yaml:1"), []),
    ):
        mirrors._now = known
        assert up() == wanted
    rest = [{**away, "mirror": name, "state": name} for name in ("paused", "handed over", "trouble")]
    mirrors._now = MirrorFacts([*rest, {"mirror": "not told"}], now_ms)
    assert mirrors.resting() == {"paused", "handed over"}


def test_mirrors_are_asked_again_after_the_clock_was_set_back(tmp_path: Path) -> None:
    file = tmp_path / "mirrors.yaml"
    file.write_text("clusters: 7\n")
    mirrors = Mirrors(file, 0.5, KafkaCluster("127.0.0.1:1", 0.5))
    ahead_ms = epoch_ms() + 3_600_000
    mirrors._now = MirrorFacts([], ahead_ms)
    wait_until(lambda: mirrors.latest().asked_at_ms != ahead_ms)
    assert "mirrors.yaml:1" in (mirrors.latest().error or "")


HOME = """
clusters:
  nyc: {bootstrap: "127.0.0.1:1", owns: ["nyc.**"]}
  lon: {bootstrap: "127.0.0.1:2", owns: ["lon.**"]}
mirrors:
  nyc-lon: {source: nyc, target: lon, topics: ["nyc.**"]}
"""


@dataclass
class Told:
    """Fake reader of the hub's topics of one cluster (hub.replication.clusters.clusters.StatusReader)."""

    board: ControlState
    progress: WrittenState
    error: str | None = None

    def refresh(self) -> tuple[ControlState, WrittenState]:
        if self.error:
            raise PeerError(self.error)
        return self.board, self.progress


def test_a_way_back_is_told_of_while_its_target_acts_for_its_source(tmp_path: Path) -> None:
    path = tmp_path / "mirrors.yaml"
    path.write_text(HOME)
    operation = begin(
        Control(), "switchover", id="1", mirror="nyc-lon", home="nyc", new="lon", now_ms=0, tail="replay"
    )
    while (due := operation.next) is not None:
        operation = done(operation, due.name)
    place = TopicPartition("nyc.chat", 0)
    mark = Checkpoint("nyc-lon", 0, "nyc.chat", 0, "s", 100, 1, 110, target_topic_id="t")
    away = Told(
        board(operation.record(), ownership(operation, 1).record()), WrittenState({("nyc-lon", *place): mark})
    )
    home = Told(board(), WrittenState({("nyc-lon~back", *place): replace(mark, link="nyc-lon~back")}))
    mirrors = Mirrors(path, 0.5, KafkaCluster("127.0.0.1:2", 0.2))
    file = load(path)
    mirrors._readers = {"lon": away, "nyc": home}  # type: ignore[dict-item]
    reached: Any = {}

    def names() -> list[str]:
        return [str(each["mirror"]) for each in mirrors._status(file, reached)]

    assert names() == ["nyc-lon", "nyc-lon~back"]
    back = mirrors._status(file, reached)[1]
    assert (back["declared"], back["source"], back["target"], back["state"]) == (
        "nyc-lon",
        "lon",
        "nyc",
        "no worker",
    )
    page = mirrors_page(MirrorFacts([back], 1)).mirrors[0]
    assert page.back_of == "nyc-lon" and "hub mirror failback nyc-lon" in str(page.commands)
    # Home is gone: its mirror is reported by name, with state unknown.
    home.error = "nyc does not answer"
    assert mirrors._status(file, reached)[1]["state"] == "unknown"
    # So is it while the one that acts does not answer; and once it was given back nothing of it is left.
    away.error, home.error = "lon does not answer", None
    assert names() == ["nyc-lon", "nyc-lon~back"]
    away.error, away.board = None, board()
    assert names() == ["nyc-lon"]


def test_a_view_is_told_from_the_store(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    schema = {
        "type": "record",
        "name": "people",
        "fields": [{"name": "city", "type": ["null", "string"], "default": None}],
    }
    store.ensure_view("people", schema, ["city"], "topic-1")
    covered = Positions.of([("web.visits", 0, 3)])
    report = {
        "store": "main",
        "kind": "sqlite",
        "state": "live",
        "reason": None,
        "views": {"people": {"positions": "", "lag": 4, "stopped": None}},
    }
    batch = ViewBatch("people", [RowVersion("P-1", 1, 0, 0, {"city": "Oslo"})], Positions(), covered)
    store.apply([batch], {"store:main": report})
    told = StoreFacts(store).describe("people")
    assert "city" in told["fields"] and told["indexes"] == ["city"]
    assert (told["positions"], told["changelog"]) == ("web.visits:0:3", "views.people")
    assert [(each["store"], each["lag"]) for each in told["stores"]] == [("main", 4)]
    with pytest.raises(NotFound):
        StoreFacts(store).versions("people")
    assert StoreFacts(store).describe("starting")["fields"] == []
    store.close()
