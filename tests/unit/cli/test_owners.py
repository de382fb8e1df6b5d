"""A command leaves alone what another cluster owns, as the server does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from hub.cli.mirror import write_guard
from hub.config import Settings
from hub.errors import ConfigError, HubError, PeerError
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.log import MemoryCluster, MemoryReader
from hub.record import Positions
from hub.replication.clusters import clusters
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.maps.checkpoint import CONTROL_TOPIC
from hub.replication.ownership import failover
from hub.replication.ownership.failover import Control


class Cluster(MemoryCluster):
    """One that knows its address and its id."""

    bootstrap, id = "nyc-1:1,nyc-2:1", "N"

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        return super().end_offsets(topics)

    def reader(self, **_how: Any) -> MemoryReader:
        return super().reader()

    def cluster_id(self) -> str:
        return self.id


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def refusals(cluster: Cluster, tmp_path: Path) -> Callable[..., Callable[[str], HubError | None]]:
    """Owners for a command, with a file in which this cluster has that address."""

    def asked(nyc: str = "nyc-1:1") -> Callable[[str], HubError | None]:
        there = {
            "nyc": {"bootstrap": nyc, "owns": ["nyc.**"]},
            "lon": {"bootstrap": "lon:1", "owns": ["lon.**"]},
        }
        mirrors = {"nyc-lon": {"source": "nyc", "target": "lon", "topics": ["nyc.**"]}}
        (tmp_path / "mirrors.yaml").write_bytes(orjson.dumps({"clusters": there, "mirrors": mirrors}))
        return write_guard.write_refusals(Settings(project=tmp_path, home=tmp_path), cluster)  # type: ignore[arg-type]

    return asked


def said(found: HubError | None) -> str:
    return "" if found is None else f"{found.code} {found.message} {found.hint}"


def test_what_another_cluster_owns_is_not_written(refusals: Any) -> None:
    refused = said(refusals()("lon.chat"))
    assert "HUB-1972" in refused and "lon owns it" in refused and "write it at lon" in refused
    assert refusals()("nyc.chat") is None and refusals()("other") is None


def test_what_another_cluster_acts_for_by_now_is_not_written(refusals: Any, cluster: Cluster) -> None:
    cluster.create_topic(CONTROL_TOPIC, partitions=1, config={}, replication_factor=1)
    change = failover.begin(
        Control(), "switchover", id="1", mirror="nyc-lon", home="nyc", new="lon", now_ms=0
    )
    while change.next is not None:
        change = failover.done(change, change.next.name)
    cluster.writer().append([change.record(), failover.ownership(change, 1).record()])
    assert "lon serves the topics of nyc" in said(refusals()("nyc.chat"))


def test_without_a_file_all_is_written_and_a_wrong_one_is_told_of_what_is_written(
    refusals: Any, cluster: Cluster, tmp_path: Path
) -> None:
    refusals()
    (tmp_path / "mirrors.yaml").write_text("clusters: [")
    asked = write_guard.write_refusals(Settings(project=tmp_path, home=tmp_path), cluster)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"mirrors\.yaml"):
        asked("lon.chat")
    (tmp_path / "mirrors.yaml").unlink()
    assert write_guard.write_refusals(Settings(project=tmp_path), cluster)("lon.chat") is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ids", "refused"),
    [
        ({"nyc": "N", "lon": "L"}, "HUB-1972"),
        ({"nyc": "another", "lon": "L"}, ""),  # it is none of the file's
    ],
)
def test_where_addresses_differ_a_cluster_is_known_by_what_kafka_calls_itself(
    refusals: Any, monkeypatch: pytest.MonkeyPatch, ids: dict[str, str], refused: str
) -> None:
    def reach(_file: Any, name: str, *_how: Any) -> ClusterHandle:
        there = Cluster()
        there.id = ids[name]
        return ClusterHandle(name, there, ClusterAccess(bootstrap=""))  # type: ignore[arg-type]

    monkeypatch.setattr(clusters, "reach", reach)
    assert refused in said(refusals("elsewhere:1")("lon.chat"))
    assert bool(refusals("elsewhere:1")("lon.chat")) == bool(refused)


def test_one_that_may_be_this_and_does_not_tell_keeps_owned_topics_from_being_written(
    refusals: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_asked: Any) -> ClusterHandle:
        raise PeerError("nobody answers")

    monkeypatch.setattr(clusters, "reach", away)
    asked = refusals("elsewhere:1")
    assert asked("other") is None
    with pytest.raises(PeerError, match=r"is not known: nobody answers; nothing was written") as told:
        asked("lon.chat")
    assert "bootstrap" in str(told.value.hint)
