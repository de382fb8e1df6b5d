"""Status of a mirror, computed from its records without Kafka."""

from __future__ import annotations

from typing import Any

from hub.record import NewRecord, Record, TopicPartition
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.status_records import (
    CarriedTopic,
    LinkContents,
    PartitionStatus,
    WorkerHeartbeat,
)
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.ownership.links import Link, links
from hub.replication.ownership.shards import Shard
from hub.replication.status.mirror_status import summary_of

T = "nyc.chat"
PLACE = TopicPartition(T, 0)
FILE = MirrorsFile.model_validate(
    {
        "clusters": {"nyc": {"bootstrap": "a:1", "owns": ["nyc.**"]}, "lon": {"bootstrap": "b:1"}},
        "mirrors": {"m": {"source": "nyc", "target": "lon", "topics": ["nyc.**"]}},
    }
)
LINK: Link = links(FILE)["m"]
MARK = Checkpoint("m", 0, T, 0, "s", 100, 1, 110, target_topic_id="t", source_start=10, target_start=10)


def board(*records: NewRecord) -> ControlState:
    made = ControlState()
    for offset, new in enumerate(records):
        made.apply(Record(new.topic, 0, offset, 0, new.key, new.value, new.headers), 0.0, 50_000)
    return made


def status(*records: NewRecord, progress: WrittenState | None = None, now_ms: int = 50_000) -> dict[str, Any]:
    known = progress or WrittenState(checkpoints={("m", *PLACE): MARK})
    carried = LinkContents("m", {T: CarriedTopic(1, "s")}).record()
    beat = WorkerHeartbeat("w1", "host", 7, (Shard("m", 0), Shard("m", -1)), 6_000, 48_000).record()
    return summary_of(FILE, LINK, board(carried, beat, *records), known, now_ms)


def partition(**said: Any) -> NewRecord:
    """Return a worker's record about the one partition, one second old."""
    plain: dict[str, Any] = {
        "link": "m",
        "topic": T,
        "partition": 0,
        "shard": 0,
        "worker": "w1",
        "state": "mirroring",
        "reason": "",
        "engine": "batch",
        "source_next": 100,
        "source_end": 100,
        "target_next": 110,
        "lag_records": 0,
        "lag_bytes": 0,
        "lag_s": 0.0,
        "records_per_s": 0.0,
        "bytes_per_s": 0.0,
        "committed_at_ms": 49_000,
        "at_ms": 49_000,
    }
    return PartitionStatus(**{**plain, **said}).record()
