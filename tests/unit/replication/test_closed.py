"""Closed regions: who connects to their clusters, and what the others do without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hub.errors import ConfigError, PeerError
from hub.kafka import KafkaCluster
from hub.record import TopicPartition
from hub.replication.clusters.clusters import OWN_BOOTSTRAP, closed_ends, name_by_id, reach, reach_all
from hub.replication.config.load_mirrors import load
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.link_definitions import digests_of
from hub.replication.ownership.links import links
from hub.replication.status.partition_rows import SourceEndOffsets
from hub.replication.status.source_ends import SourceEndsReader
from hub.replication.worker.worker import Worker

FOLDER = Path()
PLACE = TopicPartition("plant.a", 0)


def file_of(tmp_path: Path, **more: Any) -> MirrorsFile:
    plant = {"bootstrap": "plant:9092", "owns": ["plant.**"], "closed": True, **more}
    body = {
        "clusters": {
            "plant": plant,
            "hq": {"bootstrap": "hq:9092", "owns": ["hq.**"]},
            "lon": {"bootstrap": "lon:9092"},
        },
        "mirrors": {
            "plant-hq": {"source": "plant", "target": "hq", "topics": ["plant.**"]},
            "hq-plant": {"source": "hq", "target": "plant", "topics": ["hq.**"]},
            "hq-lon": {"source": "hq", "target": "lon", "topics": ["hq.**"]},
        },
    }
    path = tmp_path / "mirrors.yaml"
    path.write_text(yaml.safe_dump(body))
    return load(path)


INSIDE = {OWN_BOOTSTRAP: "plant:9092,plant-2:9092"}


@pytest.mark.parametrize(
    ("environ", "open_"),
    [(INSIDE, True), ({OWN_BOOTSTRAP: "hq:9092"}, False), ({}, False)],
    ids=["inside", "outside", "nowhere"],
)
def test_only_processes_inside_have_a_client(tmp_path: Path, environ: dict[str, str], open_: bool) -> None:
    clusters = reach_all(file_of(tmp_path), environ, FOLDER)
    assert clusters["plant"].closed is not open_
    assert not clusters["hq"].closed and not clusters["lon"].closed


def test_the_secrets_of_a_closed_region_are_needed_inside_alone(tmp_path: Path) -> None:
    sasl = {"mechanism": "PLAIN", "username": "hub", "password": "${PLANT_PASSWORD}"}
    file = file_of(tmp_path, sasl=sasl)
    assert reach(file, "plant", {}, FOLDER).closed
    with pytest.raises(ConfigError, match="PLANT_PASSWORD"):
        reach(file, "plant", INSIDE, FOLDER)


def test_every_call_is_refused_with_the_way_out(tmp_path: Path) -> None:
    kafka = reach(file_of(tmp_path), "plant", {}, FOLDER).kafka
    calls = [
        lambda: kafka.topics(),
        lambda: kafka.wait_ready(3_600.0),
        lambda: kafka.reader(),
        lambda: kafka.follower(),
        lambda: kafka.writer(),
        lambda: kafka.writer("id"),
        lambda: kafka.sender(),
        lambda: kafka.access_rules(),
        lambda: kafka.cluster_id(),
        lambda: kafka.ends_of([PLACE]),
    ]
    for call in calls:
        with pytest.raises(PeerError, match="only from inside") as refused:
            call()
        assert refused.value.code == "HUB-3623"
        assert "bootstrap: plant:9092" in str(refused.value.hint)


def test_a_worker_carries_the_links_whose_ends_it_reaches(tmp_path: Path) -> None:
    file = file_of(tmp_path)

    def carried(environ: dict[str, str]) -> set[str]:
        worker = Worker(file, reach_all(file, environ, FOLDER), "w")
        assert not any(each.reached.closed for each in worker.listeners.values())
        return {name for fleet in worker.fleets for name in fleet.links}

    assert carried({OWN_BOOTSTRAP: "hq:9092"}) == {"hq-lon", "hq-lon~back"}
    assert carried(INSIDE) == set(links(file))


def test_a_closed_source_is_no_caution_and_is_not_waited_for(tmp_path: Path) -> None:
    source = reach(file_of(tmp_path), "plant", {}, FOLDER)
    assert SourceEndsReader(wait_s=3_600.0).ask(source, {PLACE}, ()) == SourceEndOffsets()


def test_a_failover_needs_no_closed_side_and_other_changes_do(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    clusters = reach_all(file, {}, FOLDER)
    assert closed_ends(links(file)["plant-hq"], clusters) == ["plant"]
    sides = MirroredClusters(file, clusters)
    assert not sides.is_up("plant")
    for kind in ("failover", "drill"):
        sides.check_reach(kind, "plant", "hq")  # type: ignore[arg-type]
    for kind in ("switchover", "failback", "promote"):
        with pytest.raises(PeerError, match="only from inside"):
            sides.check_reach(kind, "plant", "hq")  # type: ignore[arg-type]


def test_a_mirror_between_two_closed_clusters_is_refused(tmp_path: Path) -> None:
    file_of(tmp_path)
    path = tmp_path / "mirrors.yaml"
    body = yaml.safe_load(path.read_text())
    body["clusters"]["hq"]["closed"] = True
    path.write_text(yaml.safe_dump(body))
    with pytest.raises(ConfigError, match="both closed") as refused:
        load(path)
    assert refused.value.code == "HUB-1601"


def test_workers_of_files_with_and_without_the_key_share_a_link(tmp_path: Path) -> None:
    assert digests_of(file_of(tmp_path)) == digests_of(file_of(tmp_path, closed=False))


def test_a_closed_cluster_is_not_asked_whether_it_is_ours(tmp_path: Path) -> None:
    class Ours(KafkaCluster):
        def cluster_id(self) -> str:
            return "ours"

    file = file_of(tmp_path)
    alone = file.model_copy(update={"clusters": {"plant": file.clusters["plant"]}})
    assert name_by_id(alone, Ours("other:9092"), {}, FOLDER, 1.0) == (None, {})
