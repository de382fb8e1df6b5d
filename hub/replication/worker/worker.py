"""[shell] ``hub mirror run``: a worker. Any number of them, on any machines, without a leader.

::

    Worker ─ one ControlFollower a cluster: control and status topics, folded
           └ one Fleet a target cluster ─ heartbeat, leases ─┬ ShardRun  a shard: an engine, in a thread
                                                             └ LinkTasks a link's shard -1: topics, groups

Shards are leased by heartbeats in the target's status topic, not by membership of a consumer group: a group's
rebalance would pause every worker, its protocol knows one kind of lease (partitions of a subscribed topic)
and its coordinator one timeout. Here each target has its own fleet, and the pure ``shards.moves`` decides
what a worker keeps. A lease only spares workers from fencing each other; the transactional id guarantees that
a shard has one writer.

Each heartbeat names the links that its worker carries, and their definitions (ownership/link_definitions.py):
workers with different files share a target, and a changed file is rolled out worker by worker.

A worker that was suspended for longer than its heartbeats are valid releases everything it holds before it
sends anything. A changed file is read again; if it is invalid, the worker logs that and keeps the former one.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from hub.errors import HubError
from hub.files import stamp_if_there
from hub.replication.clusters.clusters import ClusterHandle, closed_ends, reach_all
from hub.replication.clusters.control_follower import ControlFollower
from hub.replication.config.load_mirrors import load, mask_secrets
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership.link_definitions import definitions
from hub.replication.ownership.links import Link, checked, links
from hub.replication.worker.fleet import Fleet
from hub.times import epoch_ms

log = logging.getLogger(__name__)

FILE_S = 2.0


def run(path: Path, environ: Mapping[str, str], stop: threading.Event, timeout_s: float = 15.0) -> None:
    """Work until ``stop`` is set. Raises ConfigError when the file is wrong at the beginning."""
    file, stamp = checked(load(path)), stamp_if_there(path)
    secrets = mask_secrets(file, environ)
    clusters = reach_all(file, environ, path.parent, timeout_s)
    while not stop.is_set():
        worker = Worker(file, clusters, secrets=secrets, since_ms=stamp[2] // 1_000_000 if stamp else None)
        worker.start()
        try:
            while not stop.wait(FILE_S) and (now := stamp_if_there(path)) == stamp:
                pass
            if stop.is_set():
                return
            stamp = now
            try:
                changed = checked(load(path))
                # A variable or a file that it names may not exist yet: everything is tried before anything is
                # replaced.
                reached = reach_all(changed, environ, path.parent, timeout_s)
                file, clusters, secrets = changed, reached, mask_secrets(changed, environ)
                log.info("%s has changed: restarting with it", path)
            except HubError as error:
                log.error("%s has changed and is wrong, the former one stays: %s", path, error.message)
        finally:
            worker.stop()


def _log_left_out(file: MirrorsFile, mine: Mapping[str, Link], clusters: Mapping[str, ClusterHandle]) -> None:
    """Log which mirrors are carried by workers inside of closed regions alone."""
    for name in sorted(file.mirrors.keys() - mine.keys()):
        inside = ", ".join(closed_ends(links(file)[name], clusters))
        log.info("mirror %s: not carried here: %s accepts only workers inside of its region", name, inside)


class Worker:
    """All fleets of one process. Call ``start`` and ``stop`` from one thread."""

    def __init__(
        self,
        file: MirrorsFile,
        clusters: Mapping[str, ClusterHandle],
        name: str | None = None,
        secrets: Mapping[str, str] | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Create the fleets. ``since_ms``: modification time of the file, epoch milliseconds; None: now."""
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:4]}"
        every = {name: link for name, link in links(file).items() if not closed_ends(link, clusters)}
        _log_left_out(file, every, clusters)
        defined = definitions(file, epoch_ms() if since_ms is None else since_ms)
        targets = {link.target for link in every.values()}
        self.listeners = {
            name: ControlFollower(reached, status=name in targets)
            for name, reached in clusters.items()
            if not reached.closed
        }
        self.fleets = [
            Fleet(
                self.name,
                file,
                {name: link for name, link in every.items() if link.target == target},
                clusters,
                self.listeners,
                secrets or {},
                defined,
            )
            for target in sorted(targets)
        ]

    def start(self) -> None:
        for thread in (*self.listeners.values(), *self.fleets):
            thread.start()
        log.info("worker %s: %d fleets", self.name, len(self.fleets))

    def stop(self, timeout_s: float = 15.0) -> None:
        """Release everything and end; threads that hang are left to their timeouts."""
        deadline = time.monotonic() + timeout_s
        for fleet in self.fleets:
            fleet.stop()
        for fleet in self.fleets:
            fleet.join(max(0.1, deadline - time.monotonic()))
        for listener in self.listeners.values():
            listener.stop()
        for listener in self.listeners.values():
            listener.join(2.0)
