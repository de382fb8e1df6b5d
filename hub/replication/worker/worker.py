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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hub.errors import HubError, NotFound
from hub.kafka import KafkaSender
from hub.record import NewRecord, TopicPartition
from hub.replication.clusters.apply_plan import make_own
from hub.replication.clusters.clusters import ClusterHandle, own_topics, reach_all
from hub.replication.clusters.control_follower import ControlFollower
from hub.replication.clusters.control_state import (
    CHORES,
    STATUS_TOPIC,
    ControlState,
    LinkContents,
    PartitionStatus,
    WorkerHeartbeat,
    joined,
)
from hub.replication.config.mirrors import MirrorsFile, load, mask_secrets, stamp_of
from hub.replication.engine.rates import Arrivals, Rate
from hub.replication.engine.shard_start import ShardAssignment
from hub.replication.engine.shard_state import PartitionProgress
from hub.replication.engine.shard_thread import ShardRun
from hub.replication.ownership.failover import Control
from hub.replication.ownership.link_definitions import LinkDefinition, crews, definitions, in_force
from hub.replication.ownership.links import Link, carries, checked, links, opposite
from hub.replication.ownership.shards import Lease, Moves, Shard, Watch, moves_by_crew, watch
from hub.replication.worker.link_tasks import LinkTasks
from hub.runtime import Backoff

log = logging.getLogger(__name__)

TICK_S = 0.2
BEAT_S = 1.0
TTL_S = 6.0
DEAF_S = 10.0
STATUS_S = 1.0
STATUS_AGAIN_S = 10.0
FENCED_REST_S = 3.0
PATIENCE_MS = 60_000
HUNG_S = 120.0
FILE_S = 2.0


def run(path: Path, environ: Mapping[str, str], stop: threading.Event, timeout_s: float = 15.0) -> None:
    """Work until ``stop`` is set. Raises ConfigError when the file is wrong at the beginning."""
    file, stamp = checked(load(path)), stamp_of(path)
    secrets = mask_secrets(file, environ)
    clusters = reach_all(file, environ, path.parent, timeout_s)
    while not stop.is_set():
        worker = Worker(file, clusters, secrets=secrets, since_ms=stamp[0] // 1_000_000 if stamp else None)
        worker.start()
        try:
            while not stop.wait(FILE_S) and (now := stamp_of(path)) == stamp:
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
        every = links(file)
        defined = definitions(file, int(time.time() * 1000) if since_ms is None else since_ms)
        targets = {link.target for link in every.values()}
        self.listeners = {
            name: ControlFollower(reached, status=name in targets) for name, reached in clusters.items()
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
        self._watches: dict[Shard, Watch] = {}
        self._stuck: dict[Shard, WatchdogState] = {}
        self._meters: dict[tuple[str, str, int], _Meter] = {}
        self._said: dict[bytes, tuple[float, tuple[object, ...]]] = {}
        self._schemas_said: dict[Shard, int] = {}
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
                if now_s >= status_at_s or self._new_schemas():
                    self._watch(now_s)
                    self._tell(now_s)
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
        wanted = self._wanted()
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
        heard_s = self.listener.ask(lambda board: board.heard_s.get(self.worker, 0.0))
        if self._first_beat_s is None or now_s - max(heard_s, self._first_beat_s) < TTL_S:
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

    def _wanted(self) -> dict[Shard, ShardAssignment]:
        """Return every shard of every link with its current assignment."""
        control = self.control()
        found: dict[Shard, ShardAssignment] = {}
        for name, link in self.links.items():
            found[Shard(name, CHORES)] = ShardAssignment()
            said = self.listener.ask(lambda board, name=name: board.carries.get(name))  # type: ignore[misc]
            retry = self.listener.ask(lambda board, name=name: board.retries.get(name, 0))  # type: ignore[misc]
            if said is None:
                continue
            topics = set(carries(self.file, link, said.topics, control))
            opposites = self._opposites(link, topics, control)
            for shard, partitions in said.shards(link.mirror.shards).items():
                now = tuple(tp for tp in partitions if tp.topic in topics)
                if now:
                    names = {tp.topic for tp in now}
                    found[shard] = ShardAssignment(
                        now,
                        {topic: said.topics[topic] for topic in sorted(names)},
                        {topic: opposites[topic] for topic in sorted(names & opposites.keys())},
                        retry,
                        said.schemas_to >= 0,
                    )
        return found

    def _opposites(self, link: Link, topics: set[str], control: Control) -> dict[str, str]:
        """Return by topic the opposite link, for links whose ownership ever changed: records that the
        opposite link brought are not sent back.
        """
        if not control.operations:
            return {}
        return {topic: back for topic in topics if (back := opposite(self.file, link, topic)) is not None}

    def _moves(self, wanted: Mapping[Shard, ShardAssignment], now_s: float) -> Moves:
        said, leases = self.listener.ask(lambda board: (board.claims(now_s), board.leases(now_s)))
        claims = {**said, self.worker: self.defined}
        self._compare_definitions(in_force(claims))
        mine = {*self._runs, *self._chores, *self._ending}
        # What this worker holds is known here better than from its last heartbeat.
        others = [lease for lease in leases if lease.worker != self.worker]
        own = [Lease(shard, self.worker, int((now_s + TTL_S) * 1000)) for shard in mine]
        due = moves_by_crew(self.worker, crews(claims), wanted, [*others, *own], int(now_s * 1000))
        gone = tuple(sorted(shard for shard in mine - wanted.keys() if shard not in due.release))
        return Moves(
            due.take, tuple(each for each in (*due.release, *gone) if each not in self._ending), due.renew
        )

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
        if shard.number == CHORES:
            chores = LinkTasks(
                self.file,
                shard,
                link,
                self.clusters,
                self.control,
                lambda: self._snapshot(link.name),
                self.secrets,
            )
            chores.held = self._held(link)
            self._chores[shard] = chores
            chores.start()
            return
        run = ShardRun(
            shard, link, self.clusters, self._may, lambda: self._carries_now(link.name), self.secrets
        )
        run.held = self._held(link) or "starting"
        self._runs[shard] = run
        run.start()

    def _release(self, shard: Shard) -> None:
        thread = self._runs.pop(shard, None) or self._chores.pop(shard, None)
        self._watches.pop(shard, None)
        self._stuck.pop(shard, None)
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

        def copy(board: ControlState) -> ControlState:
            return ControlState(
                control=board.control,
                carries={key: each for key, each in board.carries.items() if key == link},
                synced={key: each for key, each in board.synced.items() if key[0] == link},
                subjects={key: each for key, each in board.subjects.items() if key[0] == link},
                rights={key: each for key, each in board.rights.items() if key == link},
                handed=dict(board.handed),
                marks={key: dict(each) for key, each in board.marks.items() if key[0] == link},
                verified={key: each for key, each in board.verified.items() if key[0] == link},
            )

        return self.listener.ask(copy)

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
        now_ms = int(time.time() * 1000)
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

    def _watch(self, now_s: float) -> None:
        for shard, run in list(self._runs.items()):
            live = [each for each in run.progress if each.error is None]
            positions = {TopicPartition(each.topic, each.partition): each.source_next for each in live}
            ends = {TopicPartition(each.topic, each.partition): each.source_stable_end for each in live}
            if run.held or run.throttled or not live:
                self._watches.pop(shard, None)
                verdict = "well"
            else:
                before = self._watches.get(shard) or Watch(int(now_s * 1000), {})
                self._watches[shard], verdict = watch(before, positions, ends, int(now_s * 1000), PATIENCE_MS)
            if now_s - run.ticked_at_s > HUNG_S:
                run.ticked_at_s = now_s
                verdict = "alarm"
            if verdict in ("restart", "alarm"):
                level = logging.ERROR if verdict == "alarm" else logging.WARNING
                log.log(level, "%s makes no progress: it is restarted", run.name)
                stuck = self._stuck.get(shard, WatchdogState(0, now_s))
                self._stuck[shard] = WatchdogState(
                    stuck.restarts + 1, now_s, stuck.alarmed or verdict == "alarm"
                )
                run.restart()
            # A thread that hung has recovered only when it ticks: its progress is outdated until then.
            elif verdict == "well" and run.ticked_at_s > self._stuck.get(shard, _NOT_STUCK).at_s:
                self._stuck.pop(shard, None)

    def _new_schemas(self) -> bool:
        """Return whether the link tasks here have carried schemas that shards on other workers
        may wait for.
        """
        said = {shard: each.carries.schemas_to for shard, each in self._chores.items() if each.carries}
        news = said != self._schemas_said
        self._schemas_said = said
        return news

    def _tell(self, now_s: float) -> None:
        """Publish the status of this worker's shards and link tasks, when it changed or every
        ``STATUS_AGAIN_S``.
        """
        records: list[NewRecord] = []
        for shard, run in self._runs.items():
            # Also before the first step: it must be visible that a shard is paused, or why it cannot begin.
            for each in run.progress or map(PartitionProgress.unknown, run.wish.partitions):
                records.append(self._status(shard, run, each, now_s).record())
        for chores in self._chores.values():
            if chores.carries is not None:
                records.append(_overdue(chores.carries, now_s - chores.ticked_at_s).record())
            records += [group.record() for group in chores.groups]
            if chores.ends is not None:
                records.append(chores.ends.record())
            for seen in list(chores.verified.values()):
                self._say(seen.record(), now_s, again=False)  # it does not expire
        for new in records:
            self._say(new, now_s)

    def _say(self, new: NewRecord, now_s: float, *, again: bool = True) -> None:
        """Send a status record unless only its time changed; with ``again``, also when the last one is
        ``STATUS_AGAIN_S`` old.
        """
        key, body = new.key or b"", _without_times(new)
        at_s, before = self._said.get(key, (0.0, ()))
        if before != body or (again and now_s - at_s >= STATUS_AGAIN_S):
            self._send(new)
            self._said[key] = now_s, body

    def _status(self, shard: Shard, run: ShardRun, each: PartitionProgress, now_s: float) -> PartitionStatus:
        place = shard.link, each.topic, each.partition
        meter = self._meters.setdefault(place, _Meter())
        if each.source_end >= 0:
            meter.arrivals.see(now_s, each.source_end)
        mean = each.bytes / each.records if each.records else meter.mean_bytes
        meter.mean_bytes = mean
        meter.engine = _engine_of(each) or meter.engine  # a new engine has carried nothing yet
        error, stuck = each.error, self._stuck.get(shard, _NOT_STUCK)
        state = "stopped" if error is not None else run.state
        if error is not None:
            reason = f"{error.message}; {error.hint}" if error.hint else error.message
        elif stuck.alarmed:
            state, more = "trouble", f": {run.reason}" if run.reason else ""
            reason = f"its shard makes no progress, and was restarted {stuck.restarts} times{more}"
        else:
            reason = run.reason
        return PartitionStatus(
            *place,
            shard.number,
            self.worker,
            state,
            reason,
            meter.engine,
            each.source_next,
            each.source_end,
            each.target_next,
            each.lag_records,
            int(max(0, each.lag_records) * mean),
            round(meter.arrivals.lag_s(now_s, each.source_next), 1) if each.source_end >= 0 else None,
            round(meter.records.see(now_s, each.records), 1),
            round(meter.bytes.see(now_s, each.bytes), 1),
            each.committed_at_ms,
            int(time.time() * 1000),
            stuck.restarts,
            each.source_heard_at_ms,
        )


def _overdue(carries: LinkContents, for_s: float) -> LinkContents:
    """Return the last plan, with an error once the thread that plans and carries groups has not ticked for
    ``HUNG_S``.
    """
    if for_s <= HUNG_S:
        return carries
    error = (
        f"its topics and groups were not looked at for more than {HUNG_S:.0f} s: a cluster or "
        "registry hardly answers"
    )
    return replace(carries, error=error, at_ms=int(time.time() * 1000))


class WatchdogState(NamedTuple):
    """Watchdog record of a shard since it last made progress."""

    restarts: int
    at_s: float
    alarmed: bool = False


_NOT_STUCK = WatchdogState(0, 0.0)


class _Meter:
    """Inputs of one partition's metrics."""

    def __init__(self) -> None:
        self.arrivals, self.records, self.bytes = Arrivals(), Rate(), Rate()
        self.mean_bytes, self.engine = 0.0, ""


def _engine_of(each: PartitionProgress) -> str:
    """Name how batches were carried: "batch" (unchanged), "record" (rewritten), "batch+record", or "" before
    the first.
    """
    if not each.batches_passed and not each.batches_rewritten:
        return ""
    if not each.batches_rewritten:
        return "batch"
    return "record" if not each.batches_passed else "batch+record"


def _without_times(new: NewRecord) -> tuple[object, ...]:
    """Return the key fields of a status record without its times: ``at_ms`` is the last field of every body,
    and headers may contain times, too.
    """
    body = None if new.value is None else new.value.rpartition(b',"at_ms":')[0]
    return body, *(each for each in new.headers if not each[0].endswith("_at_ms"))
