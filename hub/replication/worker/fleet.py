"""[shell] The part of a worker in all links that lead to one cluster: heartbeats, leases, threads of shards
and link
tasks."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence

from hub.errors import HubError, NotFound
from hub.kafka import KafkaSender
from hub.record import NewRecord
from hub.replication.clusters.carry_out import make_own
from hub.replication.clusters.clusters import ClusterHandle, own_topics
from hub.replication.clusters.control_follower import ControlFollower
from hub.replication.clusters.control_state import ControlState, joined
from hub.replication.clusters.renaming.link_view import seen_by
from hub.replication.clusters.status_records import CHORES, STATUS_TOPIC, LinkContents, WorkerHeartbeat
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.engine.shard_start import ShardAssignment
from hub.replication.engine.shard_thread import ShardRun
from hub.replication.ownership.failover import Control
from hub.replication.ownership.link_definitions import LinkDefinition, definitions, in_force
from hub.replication.ownership.links import Link, carries
from hub.replication.ownership.shards import Moves, Shard
from hub.replication.ownership.topic_state import paused_topics
from hub.replication.worker.leases import due_moves, wanted_shards
from hub.replication.worker.link_tasks import LinkTasks
from hub.replication.worker.status_reports import StatusReports
from hub.runtime import Backoff
from hub.times import epoch_ms

log = logging.getLogger(__name__)

TICK_S = 0.2
BEAT_S = 1.0
TTL_S = 6.0
DEAF_S = 10.0
STATUS_S = 1.0
FENCED_REST_S = 3.0


class Fleet(threading.Thread):
    """The part of this worker in all links that lead to one cluster."""

    def __init__(
        self,
        worker: str,
        file: MirrorsFile,
        mine: Mapping[str, Link],
        clusters: Mapping[str, ClusterHandle],
        listeners: Mapping[str, ControlFollower],
        secrets: Mapping[str, str],
        defined: Mapping[str, LinkDefinition] | None = None,
    ) -> None:
        self.target = next(iter(mine.values())).target
        super().__init__(name=f"fleet.{self.target}", daemon=True)
        self.worker, self.file, self.links = worker, file, mine
        self.clusters, self.listeners, self.secrets = clusters, listeners, secrets
        self.listener = listeners[self.target]
        every = definitions(file, 0) if defined is None else defined
        self.defined = {name: each for name, each in every.items() if name in mine}
        self._outdated: frozenset[str] = frozenset()
        self._first_beat_s: float | None = None
        self._relistened_s = 0.0
        self._halt = threading.Event()
        self._runs: dict[Shard, ShardRun] = {}
        self._chores: dict[Shard, LinkTasks] = {}
        self._ending: dict[Shard, ShardRun | LinkTasks] = {}
        self._rests: dict[Shard, float] = {}
        self._reports = StatusReports(worker, self._send)
        self._sender: KafkaSender | None = None

    def stop(self) -> None:
        self._halt.set()

    def run(self) -> None:
        backoff = Backoff(0.5, 10.0)
        beat_at_s = status_at_s = 0.0
        last_s = time.monotonic()
        while not self._halt.wait(TICK_S):
            now_s = time.monotonic()
            try:
                if now_s - last_s > TTL_S:
                    log.warning(
                        "%s: stood still for %.1f s: everything is given back", self.name, now_s - last_s
                    )
                    self._drop_everything()
                    # By the heartbeats read before, all other workers are dead; in fact, only nothing was
                    # read meanwhile.
                    self.listener.catch_up()
                    now_s = time.monotonic()
                last_s = now_s
                if not self.listener.caught_up:
                    self._first()
                    continue
                self._reap(now_s)
                if self._lead(now_s) or now_s >= beat_at_s:
                    self._beat()
                    beat_at_s = now_s + BEAT_S
                if now_s >= status_at_s or self._reports.new_schemas(self._chores):
                    self._reports.watch(self._runs, now_s)
                    self._reports.report(self._runs, self._chores, now_s)
                    status_at_s = now_s + STATUS_S
                backoff.reset()
            except HubError as error:
                log.warning("%s: %s", self.name, error.message)
                self._halt.wait(backoff.next_s())
            except Exception:
                log.exception("%s", self.name)
                self._halt.wait(max(1.0, backoff.next_s()))
        self._leave()

    def _first(self) -> None:
        """Create the mirrors' own topics before anybody writes to them."""
        if self.listener.is_alive() and self.listener.trouble:
            target = self.clusters[self.target]
            missing = own_topics(target)
            make_own([(self.target, step) for step in missing], self.clusters)

    # ---- leases

    def _lead(self, now_s: float) -> bool:
        """Take and release shards by the leases; return whether anything changed."""
        held = {name: self._held(link) for name, link in self.links.items()}
        wanted = wanted_shards(self.file, self.links, self.control(), self._contents, self._resting)
        due = Moves() if self._deaf(now_s) else self._moves(wanted, now_s)
        for shard in due.release:
            self._release(shard)
        for shard in due.take:
            if shard in self._ending or self._rests.get(shard, 0.0) > now_s:
                continue
            self._take(shard)
        for shard, run in self._runs.items():
            run.wish = wanted.get(shard, ShardAssignment())
            run.held = held[shard.link]
            run.shards_here = len(self._runs)
            run.shards_of_link = sum(
                1 for each in wanted if each.link == shard.link and each.number != CHORES
            )
        for shard, chores in self._chores.items():
            chores.held = held[shard.link]
        return bool(due.take or due.release)

    def _deaf(self, now_s: float) -> bool:
        """Return whether this worker has not received its own heartbeats for ``TTL_S``: it then wrongly sees
        all others as dead. It takes no shards meanwhile, and reconnects its follower.
        """
        beat_s = self.listener.ask(lambda board: board.heard_s.get(self.worker, 0.0))
        if self._first_beat_s is None or now_s - max(beat_s, self._first_beat_s) < TTL_S:
            self._relistened_s = 0.0
            return False
        if now_s - self._relistened_s > DEAF_S:
            log.warning(
                "%s: its own heartbeats do not arrive: it reopens its reader, and takes no shards meanwhile",
                self.name,
            )
            self.listener.reconnect()
            self._relistened_s = now_s
        return True

    def _contents(self, link: str) -> tuple[LinkContents | None, int]:
        return self.listener.ask(lambda board: (board.carries.get(link), board.retries.get(link, 0)))

    def _moves(self, wanted: Mapping[Shard, ShardAssignment], now_s: float) -> Moves:
        claims_made, leases = self.listener.ask(lambda board: (board.claims(now_s), board.leases(now_s)))
        claims = {**claims_made, self.worker: self.defined}
        self._compare_definitions(in_force(claims))
        shards = {*self._runs, *self._chores, *self._ending}
        now_ms, ttl_ms = int(now_s * 1000), int(TTL_S * 1000)
        return due_moves(self.worker, claims, leases, shards, self._ending, wanted, now_ms, ttl_ms)

    def _compare_definitions(self, chosen: Mapping[str, LinkDefinition]) -> None:
        """Log, once for each change, which links other workers have a newer definition of."""
        outdated = frozenset(
            name for name, mine in self.defined.items() if chosen[name].digest != mine.digest
        )
        for name in sorted(outdated - self._outdated):
            log.warning(
                "%s: a worker with a newer mirrors.yaml carries mirror %s with other rules: this worker "
                "releases it until its file is the same",
                self.name,
                name,
            )
        for name in sorted(self._outdated - outdated):
            log.info("%s: mirror %s is carried with the rules of this file", self.name, name)
        self._outdated = outdated

    def _take(self, shard: Shard) -> None:
        link = self.links[shard.link]
        clusters = seen_by(link, self.clusters)
        if shard.number == CHORES:
            chores = LinkTasks(
                self.file,
                shard,
                link,
                clusters,
                self.control,
                lambda: self._snapshot(link.name),
                self.secrets,
                self.worker,
            )
            chores.held = self._held(link)
            self._chores[shard] = chores
            chores.start()
            return
        run = ShardRun(shard, link, clusters, self._may, lambda: self._carries_now(link.name), self.secrets)
        run.held = self._held(link) or "starting"
        self._runs[shard] = run
        run.start()

    def _release(self, shard: Shard) -> None:
        thread = self._runs.pop(shard, None) or self._chores.pop(shard, None)
        self._reports.forget(shard)
        if thread is not None:
            thread.stop()
            self._ending[shard] = thread

    def _reap(self, now_s: float) -> None:
        """Remove threads that ended, because they were stopped or because another worker has their shard."""
        for shard, thread in list(self._ending.items()):
            if not thread.is_alive():
                del self._ending[shard]
        gone = [shard for shard, run in self._runs.items() if not run.is_alive()]
        gone += [shard for shard, chores in self._chores.items() if not chores.is_alive()]
        for shard in gone:
            self._runs.pop(shard, None)
            self._chores.pop(shard, None)
            self._rests[shard] = now_s + FENCED_REST_S

    def _drop_everything(self) -> None:
        for shard in [*self._runs, *self._chores]:
            self._release(shard)
            self._rests[shard] = time.monotonic() + FENCED_REST_S

    def _leave(self) -> None:
        for shard in [*self._runs, *self._chores]:
            self._release(shard)
        deadline = time.monotonic() + 10.0
        for thread in self._ending.values():
            thread.join(max(0.1, deadline - time.monotonic()))
        try:
            self._send(NewRecord(STATUS_TOPIC, f"worker|{self.worker}".encode(), None))
            if self._sender is not None:
                self._sender.flush(3.0)
        except HubError as error:
            log.info("%s: no farewell: %s", self.name, error.message)

    # ---- state for the threads

    def control(self) -> Control:
        """Return owners and operations, as reported by all clusters of the file."""
        return joined(listener.control for listener in self.listeners.values())

    def _may(self, link: Link, topics: Sequence[str]) -> frozenset[str]:
        for end in (link.target, link.source):
            self.listeners[end].catch_up()
        return frozenset(carries(self.file, link, topics, self.control()))

    def _held(self, link: Link) -> str:
        if link.mirror.paused:
            return "paused in the file"
        by = self.listener.ask(lambda board: board.paused.get(link.declared))
        if by is None:  # a way back is paused with its mirror, whose pause is recorded at the other target
            there = self.listeners[link.source].ask(lambda board: board.paused.get(link.declared))
            by = there
        return "" if by is None else f"paused by {by}"

    def _pauses(self, link: Link) -> dict[str, str]:
        """Return who paused which topics of a mirror, by ``pause_key``; from both ends, as in ``_held``."""
        keys = f"{link.declared}|"
        found: dict[str, str] = {}
        for end in (link.source, link.target):
            every = self.listeners[end].ask(lambda board: dict(board.paused))
            found |= {key: by for key, by in every.items() if key.startswith(keys)}
        return found

    def _resting(self, link: Link) -> frozenset[str]:
        """Return the topics of a link that are paused by themselves."""
        return paused_topics(link.declared, self._pauses(link))

    def _carries_now(self, link: str) -> LinkContents | None:
        """Return the last report of the link tasks; of tasks on this worker, also before it is published."""
        chores = self._chores.get(Shard(link, CHORES))
        here = chores.carries if chores is not None else None
        return here or self.listener.ask(lambda board: board.carries.get(link))

    def _snapshot(self, link: str) -> ControlState:
        """Return a copy of the control state of one link, current as of the call, that its link tasks may
        keep.
        """
        self.listener.catch_up()
        pauses = self._pauses(self.links[link])
        return self.listener.ask(lambda board: board.of_link(link, pauses))

    # ---- heartbeats and status

    def _send(self, new: NewRecord) -> None:
        if self._sender is None:
            self._sender = self.clusters[self.target].kafka.sender(linger_ms=20, delivery_timeout_s=10.0)
        try:
            self._sender.send(new)
        except NotFound:
            raise
        except HubError:
            self._sender = None
            raise

    def _beat(self) -> None:
        holding = tuple(sorted({*self._runs, *self._chores, *self._ending}))
        now_ms = epoch_ms()
        beat = WorkerHeartbeat(
            self.worker,
            socket.gethostname(),
            os.getpid(),
            holding,
            int(TTL_S * 1000),
            now_ms,
            self.defined,
        )
        self._send(beat.record())
        if self._first_beat_s is None:
            self._first_beat_s = time.monotonic()
