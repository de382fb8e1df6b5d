"""[core] Mirrors as readers of their sources: positions out of their checkpoints, ends as far as they are known here.

Where a mirror's source is this cluster, the rounds measure it like a group, with this cluster's own proofs. How far another
cluster's topics reach is asked when the mirrors' status is; where that cluster does not answer, it is as its workers told last. Each
such end is an anchor, as a poll is, so the same laws hold, and what was there before the first one has no upper bound. A worker that
has told nothing for longer than its rhythm allows is not believed any more: its mirror is UNKNOWN, and lacks what the ends show at
the least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hub.observability.lag.anchors import Ring, arrival, observed
from hub.observability.lag.consumers import Consumer, ConsumerId
from hub.observability.lag.status import LagReading, ReaderState

# What mirrors told longer ago says nothing of now.
MIRRORS_STALE_MS = 60_000


# A mirror's worker tells of each partition every ten seconds when nothing changes, looking once a second. Half of that again is
# for clocks and links: who has not told for longer carries it no more, or cannot say so.
MIRROR_SILENT_S = 15.0


@dataclass(frozen=True, slots=True)
class MirrorStatuses:
    """What mirrors told: ``mirrors`` as ``hub mirror status -o json`` has them; one whose target does not answer has the
    ``topics_known`` of before. ``here``: the names that mirrors.yaml has for this cluster; ``clusters``: every cluster's first
    address. ``at_ms`` None: they were not asked yet."""

    mirrors: Sequence[Mapping[str, Any]] = ()
    here: frozenset[str] = frozenset()
    clusters: Mapping[str, str] = field(default_factory=dict)
    at_ms: int | None = None


# A worker looks at the source's end at least so often while its shard gets on.
LOOK_MS = 2_000
# The clusters are asked again every ten seconds, by who looks every ten: what was heard before that is no word of now.
HEARD_S = 30.0
_STANDS = ("paused", "no worker")
_BROKEN = ("stopped", "trouble")

Rings = Mapping[int, Ring]


class MirrorReader(NamedTuple):
    """``ends``: by topic and partition how far the source reaches, and as of when (epoch ms); None: the source is this
    cluster, which can be asked."""

    consumer: Consumer
    ends: Mapping[str, Mapping[int, tuple[int, int]]] | None


def readers_of(mirrored: MirrorStatuses, now_ms: int) -> Iterator[MirrorReader]:
    """Every mirror that carries anything, ways back too, as its status was told last."""
    old = mirrored.at_ms is None or now_ms - mirrored.at_ms > MIRRORS_STALE_MS
    for status in mirrored.mirrors:
        id = ConsumerId("mirror", str(status["mirror"]))
        here = status["source"] in mirrored.here
        if old:
            trouble = "the clusters of mirrors.yaml were not heard lately"
            yield MirrorReader(Consumer(id, {}, trouble=trouble), None if here else {})
        elif "workers" not in status:
            trouble = f"its target does not answer: {status.get('reason', '')}"
            yield MirrorReader(Consumer(id, {}, trouble=trouble), None if here else {})
        else:
            by_topic: dict[str, list[Mapping[str, Any]]] = {}
            for row in status["partitions"]:
                if row["state"] != "left":
                    by_topic.setdefault(str(row["topic"]), []).append(row)
            if by_topic:
                told_ms = mirrored.at_ms or now_ms
                age_s = max(0, now_ms - told_ms) / 1000
                consumer = _consumer(id, status, by_topic, age_s, here=here)
                yield MirrorReader(consumer, None if here else _ends(by_topic, told_ms))


def _consumer(
    id: ConsumerId,
    status: Mapping[str, Any],
    by_topic: Mapping[str, Sequence[Mapping[str, Any]]],
    age_s: float,
    *,
    here: bool,
) -> Consumer:
    """``age_s``: how long ago the status was heard."""
    positions = {
        topic: found
        for topic, rows in by_topic.items()
        if (found := {row["partition"]: row["source_next"] for row in rows if row["source_next"] is not None})
    }
    missing = {topic: "nothing of it is mirrored yet" for topic in by_topic if topic not in positions}
    if not here:
        untold = "no worker has told lately how far its source reaches"
        missing = {**dict.fromkeys(positions, untold), **missing}
    stands = status["state"] in _STANDS
    # That nobody mirrors it is known, whatever waits; that somebody paused it is no trouble of its own.
    said = "stopped" if status["state"] == "no worker" else None
    reader = ReaderState(said, status["reason"] if stands else None, 0 if stands else status["workers"])
    silent = {
        topic: replace(reader, silent=f"{why} ({status['reason']})" if stands else why)
        for topic, rows in by_topic.items()
        if (why := _silent(rows, age_s) or ("" if stands else _unreported(rows)))
    }
    broken = {
        topic: ReaderState("failed", f"partition {row['partition']}: {row['reason']}", status["workers"])
        for topic, rows in by_topic.items()
        for row in rows
        if row["state"] in _BROKEN
    }
    return Consumer(id, positions, reader, missing=missing, readers={**silent, **broken})


def _silent(rows: Sequence[Mapping[str, Any]], age_s: float) -> str:
    """For how long nobody has told of a topic's partitions, once that is longer than it may be; else ""."""
    told_s = max((float(row["seen_s"]) for row in rows if row["seen_s"] is not None), default=0.0)
    if told_s > MIRROR_SILENT_S:
        return f"its worker has not told for {told_s + age_s:.0f} s"
    return f"its target was not heard for {age_s:.0f} s" if age_s > HEARD_S else ""


def _unreported(rows: Sequence[Mapping[str, Any]]) -> str:
    """Why one of a topic's partitions is not known to be carried, though others are; "": all are reported."""
    unknown = [row for row in rows if row["state"] == "unknown"]
    return f"partition {unknown[0]['partition']}: {unknown[0]['reason']}" if unknown else ""


def _ends(
    by_topic: Mapping[str, Sequence[Mapping[str, Any]]], told_ms: int
) -> dict[str, dict[int, tuple[int, int]]]:
    return {
        topic: {
            row["partition"]: (row["source_end"], told_ms - int(age_s * 1000))
            for row in rows
            if row["source_end"] is not None and (age_s := row.get("source_end_s", row["seen_s"])) is not None
        }
        for topic, rows in by_topic.items()
    }


def update_rings(rings: Rings, ends: Mapping[int, tuple[int, int]]) -> dict[int, Ring]:
    """The rings of one topic after what a worker said of its partitions' ends."""
    found = dict(rings)
    for partition, (end, at_ms) in ends.items():
        found[partition] = observed(found.get(partition, ()), end, at_ms - LOOK_MS, at_ms)
    return found


def at_least(positions: Mapping[int, int], rings: Rings, now_ms: int) -> LagReading | None:
    """What a mirror lacks at the least, where nobody has told of its source for a while: what was there then waits. None:
    nobody ever told of all its partitions, or nothing waited."""
    if not positions or any(not rings.get(partition) for partition in positions):
        return None
    records, low_s = 0, 0.0
    for partition, position in positions.items():
        ring = rings[partition]
        if position < ring[-1].end:
            records += ring[-1].end - position
            low_s = max(low_s, arrival(ring, position).waited(position, now_ms)[0])
    if not records:
        return None
    end = sum(rings[partition][-1].end for partition in positions)
    return LagReading(now_ms, sum(positions.values()), end, records, low_s, None, idle_s=low_s)
