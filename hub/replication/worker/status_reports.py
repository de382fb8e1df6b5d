"""[shell] Status of the shards and link tasks of one worker: watched for progress, and published when it
changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from hub.record import NewRecord, TopicPartition
from hub.replication.clusters.status_records import LinkContents, PartitionStatus
from hub.replication.engine.rates import Arrivals, Rate
from hub.replication.engine.shard_state import PartitionProgress
from hub.replication.engine.shard_thread import ShardRun
from hub.replication.ownership.shards import Shard, Watch, watch
from hub.replication.worker.link_tasks import LinkTasks
from hub.times import epoch_ms

log = logging.getLogger(__name__)

STATUS_AGAIN_S = 10.0
PATIENCE_MS = 60_000
HUNG_S = 120.0


class StatusReports:
    """Watchdog of the shards of one fleet, and its status records. ``send`` writes one to the status
    topic.
    """

    def __init__(self, worker: str, send: Callable[[NewRecord], None]) -> None:
        self.worker, self._send = worker, send
        self._watches: dict[Shard, Watch] = {}
        self._stuck: dict[Shard, WatchdogState] = {}
        self._meters: dict[tuple[str, str, int], _Meter] = {}
        self._sent: dict[bytes, tuple[float, tuple[object, ...]]] = {}
        self._schemas_reported: dict[Shard, int] = {}

    def forget(self, shard: Shard) -> None:
        """Forget the progress of a shard that this worker releases."""
        self._watches.pop(shard, None)
        self._stuck.pop(shard, None)

    def watch(self, runs: Mapping[Shard, ShardRun], now_s: float) -> None:
        """Restart shards whose partitions or thread make no progress, and remember how often."""
        for shard, run in list(runs.items()):
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

    def new_schemas(self, tasks: Mapping[Shard, LinkTasks]) -> bool:
        """Return whether the link tasks here have carried schemas that shards on other workers
        may wait for.
        """
        schemas = {shard: each.carries.schemas_to for shard, each in tasks.items() if each.carries}
        news = schemas != self._schemas_reported
        self._schemas_reported = schemas
        return news

    def report(self, runs: Mapping[Shard, ShardRun], tasks: Mapping[Shard, LinkTasks], now_s: float) -> None:
        """Publish the status of this worker's shards and link tasks, when it changed or every
        ``STATUS_AGAIN_S``.
        """
        records: list[NewRecord] = []
        for shard, run in runs.items():
            # Also before the first step: it must be visible that a shard is paused, or why it cannot begin.
            for each in run.progress or map(PartitionProgress.unknown, run.wish.partitions):
                records.append(self.status(shard, run, each, now_s).record())
        for chores in tasks.values():
            if chores.carries is not None:
                records.append(_overdue(chores.carries, now_s - chores.ticked_at_s).record())
            records += [group.record() for group in chores.groups]
            if chores.ends is not None:
                records.append(chores.ends.record())
            for verified in list(chores.verified.values()):
                self._send_if_new(verified.record(), now_s, again=False)  # it does not expire
        for new in records:
            self._send_if_new(new, now_s)

    def status(self, shard: Shard, run: ShardRun, each: PartitionProgress, now_s: float) -> PartitionStatus:
        """Return the status of one partition of a shard that runs here."""
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
            epoch_ms(),
            stuck.restarts,
            each.source_heard_at_ms,
        )

    def _send_if_new(self, new: NewRecord, now_s: float, *, again: bool = True) -> None:
        """Send a status record unless only its time changed; with ``again``, also when the last one is
        ``STATUS_AGAIN_S`` old.
        """
        key, body = new.key or b"", _without_times(new)
        at_s, before = self._sent.get(key, (0.0, ()))
        if before != body or (again and now_s - at_s >= STATUS_AGAIN_S):
            self._send(new)
            self._sent[key] = now_s, body


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
    return replace(carries, error=error, at_ms=epoch_ms())


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
