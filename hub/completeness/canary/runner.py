"""[shell] Run canaries: one thread sends, and one per route reads; each recovers by itself when its peer is
back.

Sending does not wait for acknowledgements, so one failed partition does not delay the others; open probes are
bounded by their expiry. A route whose reader fails is *unknown* with the reason, and loses nothing meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hub.completeness.canary.probes import (
    CANARY_CONFIG,
    EVERY_S,
    FAIL_S,
    SCHEMA,
    SEVERITY,
    VIEW,
    Canary,
    CanaryRouteRow,
    CanaryState,
    Probe,
    probe_of,
    worst,
)
from hub.errors import Conflict, HubError, NotFound
from hub.kafka import KafkaCluster, KafkaSender
from hub.log import Reader, Unreadable
from hub.metrics.histogram import Histogram
from hub.record import Positions
from hub.runtime import Backoff
from hub.schema_registry.client.port import SchemaRegistry
from hub.times import epoch_ms

log = logging.getLogger(__name__)

_POLL_S = 0.25
_MOST_PARTITIONS = 24
_QUEUE_KB = 256
_STOP_S = 2.0
_WELL = (CanaryState.OK, CanaryState.LATE)


# (stream) → its row in the view, None if there is none; raises HubError if it cannot be read.
Rows = Callable[[str], Mapping[str, Any] | None]


@dataclass
class Canaries:
    """Canaries of one cluster. Use ``with canaries.running():``.

    ``mirrors`` maps each mirror to its target cluster. ``row`` reads the view ``hub_canary``, if there is
    one. ``headers`` are required by the mirrors' filters; ``closed`` maps each mirror that no canary passes
    to the reason.
    """

    cluster: KafkaCluster
    registry: SchemaRegistry
    topic: str
    mirrors: Mapping[str, KafkaCluster] = field(default_factory=dict)
    row: Rows | None = None
    every_s: float = EVERY_S
    replication_factor: int = 1
    headers: tuple[tuple[str, bytes], ...] = ()
    closed: Mapping[str, str] = field(default_factory=dict)
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    canary: Canary = field(init=False)
    error: str | None = "starting"
    partitions: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        now_s = time.monotonic()
        self.canary = Canary(self.run, now_s)
        for name in ("read", *(f"mirror:{each}" for each in self.mirrors), *(["view"] if self.row else [])):
            self.canary.way(name, now_s).blind("no reader yet")
        for name, why in self.closed.items():
            self.canary.way(f"mirror:{name}", now_s).blind(why)

    @contextmanager
    def running(self) -> Iterator[Canaries]:
        """Send and read canaries while the block runs."""
        jobs: list[tuple[str, Callable[[], None]]] = [
            ("send", self._send),
            ("read", lambda: self.read_events("read", self.cluster)),
        ]
        for name, target in self.mirrors.items():
            way = f"mirror:{name}"  # a mirror may have the name of another route
            jobs.append((way, lambda way=way, target=target: self.read_events(way, target)))  # type: ignore[misc]
        if self.row is not None:
            jobs.append(("view", self._look))
        threads = [
            threading.Thread(target=self.run_forever, args=job, name=f"canary-{job[0]}", daemon=True)
            for job in jobs
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self.stopping.set()
            deadline = time.monotonic() + _STOP_S
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def rows(self) -> list[CanaryRouteRow]:
        with self.lock:
            now_s = time.monotonic()
            self.canary.passed(now_s)
            rows, sent_s = self.canary.rows(now_s), self.canary.sent_s
        if sent_s is None or now_s - sent_s <= FAIL_S:
            return rows
        # While nothing is sent, the absence of losses does not show that a route is open.
        why = f"none was sent for {now_s - sent_s:.0f} s{f': {self.error}' if self.error else ''}"
        unknown = [
            replace(each, state=CanaryState.UNKNOWN, cause=why) if each.state in _WELL else each
            for each in rows
        ]
        return sorted(unknown, key=lambda row: (SEVERITY[row.state], row.way))

    def state(self) -> tuple[CanaryState, str]:
        """Return the overall state and cause; UNKNOWN with the error if nothing was sent."""
        rows = self.rows()
        if self.error is not None and not self.canary.sent:
            return CanaryState.UNKNOWN, self.error
        return worst(rows)

    def spans(self) -> dict[str, Histogram]:
        with self.lock:
            return {name: way.spans.copy() for name, way in self.canary.ways.items()}

    # ---- jobs

    def run_forever(self, name: str, job: Callable[[], None]) -> None:
        """Run a job until stopped. Failures are logged, and the job restarts after a growing pause."""
        backoff, logged_error = Backoff(first_s=0.5, most_s=5.0), ""
        while not self.stopping.is_set():
            began_s = time.monotonic()
            try:
                job()
            except HubError as error:
                self.mark_unknown(name, _why(name, error))
                if error.message != logged_error and not isinstance(error, NotFound):
                    log.warning("canary %s: %s", name, error.message)
                logged_error = error.message
            except Exception as error:
                self.mark_unknown(name, f"{type(error).__name__}: {error}")
                log.exception("canary %s", name)
            if time.monotonic() - began_s > backoff.most_s:
                backoff.reset()
            self.stopping.wait(backoff.next_s())

    def mark_unknown(self, job: str, why: str | None) -> None:
        with self.lock:
            if job == "send":
                self.error = why
                return
            self.canary.ways[job].blind(why)

    def _send(self) -> None:
        schema_id = self.registry.register(f"{self.topic}-value", json.dumps(SCHEMA))
        self.partitions = self._make()
        # Probes that are not acknowledged within this time count as lost for readers, too, because their
        # outcome comes too late.
        sender = self.cluster.sender(delivery_timeout_s=10.0)
        try:
            next_s = time.monotonic()
            while not self.stopping.is_set():
                for partition in range(self.partitions):
                    self._probe(sender, partition, schema_id)
                self.mark_unknown("send", None)
                next_s = max(next_s + self.every_s, time.monotonic())
                while (left_s := next_s - time.monotonic()) > 0 and not self.stopping.is_set():
                    sender.poll(min(left_s, 0.1))
                with self.lock:
                    self.canary.passed(time.monotonic())
        finally:
            sender.drop()

    def _probe(self, sender: KafkaSender, partition: int, schema_id: int) -> None:
        with self.lock:
            probe = self.canary.next(partition, epoch_ms(), time.monotonic())

        def acknowledged(_place: object, _offset: int, error: HubError | None) -> None:
            with self.lock:
                if error is None:
                    self.canary.acknowledged(probe, time.monotonic())
                else:
                    self.error = error.message
                    self.canary.refused(probe)

        try:
            sender.send(probe.record(self.topic, schema_id, self.headers), acknowledged)
        except HubError:
            with self.lock:
                self.canary.refused(probe)
            raise

    def _make(self) -> int:
        """Create the topic if it is missing, with one partition per broker. Returns its number of
        partitions.
        """
        description = self.cluster.topics().get(self.topic)
        if description is None:
            count = min(_MOST_PARTITIONS, max(1, len(self.cluster.brokers())))
            with contextlib.suppress(Conflict):  # another server created it first
                self.cluster.create_topic(
                    self.topic,
                    partitions=count,
                    config=CANARY_CONFIG,
                    replication_factor=self.replication_factor,
                )
            description = self.cluster.topics().get(self.topic)
        return min(_MOST_PARTITIONS, description.partitions) if description is not None else 1

    def read_events(self, way: str, cluster: KafkaCluster) -> None:
        """Read from the end of the topic. After a failure, resume at the last position, so that no probe is
        falsely lost.
        """
        reader: Reader | None = None
        at: Positions | None = None
        backoff = Backoff(first_s=0.2, most_s=5.0)
        try:
            while not self.stopping.is_set():
                try:
                    if reader is None:
                        if self.topic not in cluster.topics():
                            raise NotFound(f'topic "{self.topic}" is not there')
                        reader = cluster.reader(queue_kb=_QUEUE_KB)
                        reader.assign(at or cluster.end_offsets([self.topic]))
                        self.mark_unknown(way, None)
                    records = reader.poll(500, _POLL_S)
                    at = reader.position()
                    backoff.reset()
                except HubError as error:
                    if isinstance(error, Unreadable) and reader is not None:
                        # Skip the unreadable batch, whoever wrote it: canaries follow it.
                        at = reader.position().advanced(Positions({error.place: error.offset + 1}))
                    if at is None:
                        self.mark_unknown(way, error.message)
                    if reader is not None:
                        reader.close()
                        reader = None
                    if error.code == "HUB-3020":  # the log was truncated or recreated
                        at = None
                    self.stopping.wait(backoff.next_s())
                    continue
                now_s = time.monotonic()
                probes = [probe for record in records if (probe := probe_of(record)) is not None]
                with self.lock:
                    for probe in probes:
                        self.canary.came(way, probe, now_s)
        finally:
            if reader is not None:
                reader.close()

    def _look(self) -> None:
        """Poll the view's rows; each shows how far the view has read."""
        assert self.row is not None
        while not self.stopping.wait(_POLL_S):
            for partition in range(self.partitions):
                found = self.row(Probe(self.run, partition, 0, 0).stream)
                now_s = time.monotonic()
                with self.lock:
                    if found is not None and found.get("seq") is not None:
                        self.canary.ways["view"].blind(None)
                        self.canary.shown("view", partition, int(found["seq"]), int(found["seen"]), now_s)
                    elif self.canary.ways["view"].expected_count == 0:
                        self.canary.ways["view"].blind("the view has no row of it yet")


def _why(job: str, error: HubError) -> str:
    if job == "view" and isinstance(error, NotFound):
        return f"no view takes them: hub canary view > views/{VIEW}.yaml"
    return error.message


def body_of(canaries: Canaries | None) -> dict[str, Any]:
    """Return the state as a JSON-ready dict."""
    if canaries is None:
        hint = "canary: true in hub.yaml sends them"
        return {"enabled": False, "state": CanaryState.UNKNOWN, "cause": f"not sent: {hint}", "ways": []}
    state, cause = canaries.state()
    with canaries.lock:
        sent, failed = sum(canaries.canary.sent.values()), canaries.canary.failed
    return {
        "enabled": True,
        "topic": canaries.topic,
        "partitions": canaries.partitions,
        "state": state,
        "cause": cause,
        "error": canaries.error,
        "sent": sent,
        "failed": failed,
        "view": VIEW if canaries.row is not None else None,
        "ways": canaries.rows(),
    }


@dataclass(frozen=True)
class MirroredTopics:
    """Target clusters of the mirrors that copy a topic, by mirror, and how canaries pass their filters."""

    clusters: Mapping[str, KafkaCluster] = field(default_factory=dict)
    headers: tuple[tuple[str, bytes], ...] = ()
    closed: Mapping[str, str] = field(default_factory=dict)


def mirrored(project: Path, cluster: KafkaCluster, topic: str, timeout_s: float) -> MirroredTopics:
    """Find the mirrors in mirrors.yaml that copy the topic from this cluster. Raises HubError."""
    from hub.completeness.canary.filters import fitted
    from hub.replication.clusters.clusters import reach
    from hub.replication.config.load_mirrors import load
    from hub.replication.config.mirrors import MIRRORS_FILE
    from hub.replication.ownership.failover import Control
    from hub.replication.ownership.links import carries, links
    from hub.replication.rewriting.rules_of_schema import shape_of

    path = project / MIRRORS_FILE
    if not path.exists():
        return MirroredTopics()
    file = load(path)
    own_clusters = {name for name, each in file.clusters.items() if each.bootstrap == cluster.bootstrap}
    carrying = {
        name: link
        for name, link in links(file).items()
        if link.source in own_clusters and carries(file, link, [topic], Control())
    }
    shapes = {name: shape_of(link.mirror, topic) for name, link in carrying.items()}
    chosen = fitted({name: shape.only if shape is not None else () for name, shape in shapes.items()})
    open_ = {
        name: reach(file, link.target, os.environ, path.parent, timeout_s).kafka
        for name, link in carrying.items()
        if name not in chosen.closed
    }
    return MirroredTopics(open_, chosen.headers, chosen.closed)


__all__: Sequence[str] = ("Canaries", "MirroredTopics", "body_of", "mirrored")
