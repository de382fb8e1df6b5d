"""[core] Objectives against measurements: lag, loss, freshness and latency as observations of alert rules.

Missing evidence gives UNKNOWN: no reading, Kafka away, a histogram without new counts, a topic polled for the
first time. A topic's freshness is proven as lag is: an end that has not moved since a poll is at least as old
as that poll.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hub.alerts.model.matching import Labels, labels_of
from hub.alerts.model.rules import (
    CLUSTER_RULES,
    FEW_FREE,
    Observation,
    Promise,
    RuleChanges,
    RuleObservations,
    Verdict,
)
from hub.log import LogDir
from hub.observability import format
from hub.observability.cluster.connect import Connect, Connector, ConnectState, ConnectWorkerStatus
from hub.observability.cluster.health import Broker, Health, free_of
from hub.observability.lag.anchors import Ring
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.states import LOSING, LagState
from hub.observability.latency.latency import SERVING, LatencyRow, freshness_of
from hub.outbox.relay_state import RelayState
from hub.topics.tree.tree import TopicSpec

# An answer of Kafka older than this is not used.
STALE_MS = 30_000

Tree = Mapping[str, TopicSpec]
Rings = Mapping[str, Mapping[int, Ring]]


def observe_readers(
    rows: Sequence[LagRow], tree: Tree, changes: RuleChanges, *, measured: bool
) -> list[RuleObservations]:
    """Return the observations of rules ``lag`` and ``loss`` for every reader of a topic with ``slo.lag``.

    Mirrors have rules of their own. ``measured``: all readers were measured at least once.
    """
    late: list[Observation] = []
    losing: list[Observation] = []
    for row in rows:
        spec = tree.get(row.topic or "")
        if spec is None or spec.slo.lag_ms is None or row.kind == "mirror":
            continue
        promised_s = spec.slo.lag_ms / 1000
        about = labels_of({"consumer": row.name, "kind": row.kind, "topic": spec.name})
        labels = _whose(spec, "slo.lag", row.owner)
        known = row.state != LagState.UNKNOWN
        reader = f"{row.kind} {row.name}"
        if not known or row.seconds is None or _may_be_more(row, promised_s):
            late.append(Observation(about, Verdict.UNKNOWN, labels=labels, detail=row.cause))
        else:
            if row.seconds <= promised_s:
                late.append(Observation(about, Verdict.GOOD, "", row.seconds, labels))
            else:
                behind = f"{format.seconds(row.seconds)} {format.bound(row.seconds, row.error_s)}".strip()
                message = (
                    f"{reader} is {behind} behind on {spec.name}; promised are {format.seconds(promised_s)}"
                )
                why = f"{row.state}: {row.cause}"
                late.append(Observation(about, Verdict.BAD, message, row.seconds, labels, why))
        verdict = Verdict.UNKNOWN if not known else Verdict.BAD if row.state in LOSING else Verdict.GOOD
        message = "lost records of" if row.state == LagState.LOST else "will lose records of"
        losing.append(
            Observation(about, verdict, f"{reader} {message} {spec.name}", row.loss_s, labels, row.cause)
        )
    return [
        RuleObservations(changes.rule("lag"), tuple(late), whole=measured),
        RuleObservations(changes.rule("loss"), tuple(losing), whole=measured),
    ]


def _may_be_more(row: LagRow, promised_s: float) -> bool:
    """Return whether a reader within its objective may really be later, since its lag has no upper bound.

    This happens right after a start. Reporting it as good would end a firing alert and start it again a
    minute later.
    """
    bounded = row.error_s is not None or row.state == LagState.OK
    return not bounded and row.seconds is not None and row.seconds <= promised_s


def observe_topics(rings: Rings, tree: Tree, changes: RuleChanges, now_ms: int) -> RuleObservations:
    """Return the observations of rule ``topic-freshness`` for every topic with ``slo.freshness``.

    ``rings``: anchors of at least these topics.
    """
    found = []
    for spec in tree.values():
        if spec.slo.freshness_ms is None:
            continue
        verdict, age_ms, detail = _freshness(rings.get(spec.name, {}), spec.slo.freshness_ms, now_ms)
        promised = format.seconds(spec.slo.freshness_ms / 1000)
        summary = "" if age_ms is None else f"{spec.name} had no event for {format.seconds(age_ms / 1000)}"
        found.append(
            Observation(
                labels_of({"topic": spec.name}),
                verdict,
                f"{summary}; promised is one every {promised}" if summary else "",
                None if age_ms is None else age_ms / 1000,
                _whose(spec, "slo.freshness"),
                detail,
            )
        )
    return RuleObservations(changes.rule("topic-freshness"), tuple(found), whole=bool(rings))


def _freshness(rings: Mapping[int, Ring], promised_ms: int, now_ms: int) -> tuple[Verdict, int | None, str]:
    """Return (verdict, minimum age of the last event in ms, reason)."""
    last = [ring[-1] for ring in rings.values() if ring]
    if not last:
        return Verdict.UNKNOWN, None, "the topic is not in Kafka"
    if now_ms - max(each.still_ms for each in last) > STALE_MS:
        return Verdict.UNKNOWN, None, "Kafka does not answer"
    age_ms = max(0, now_ms - max(each.observed_ms for each in last))
    if age_ms > promised_ms and now_ms - min(each.still_ms for each in last) > STALE_MS:
        return Verdict.UNKNOWN, None, "some of its partitions do not answer"
    if age_ms > promised_ms:
        return Verdict.BAD, age_ms, "its end has not moved since"
    came = any(len(ring) > 1 and now_ms - ring[-1].observed_ms <= promised_ms for ring in rings.values())
    return (
        (Verdict.GOOD, age_ms, "") if came else (Verdict.UNKNOWN, None, "not looked at for long enough yet")
    )


def observe_views(
    promises: Iterable[Promise],
    latency: Sequence[LatencyRow],
    lags: Sequence[LagRow],
    changes: RuleChanges,
    *,
    measured: bool,
) -> list[RuleObservations]:
    """Return the observations of rules ``latency`` and ``view-freshness``."""
    by_view = {
        row.view: row
        for row in latency
        if (row.stage, row.store, row.origin) == ("readable", SERVING, "live")
    }
    fresh = freshness_of(lags)
    slow: list[Observation] = []
    old: list[Observation] = []
    for promise in promises:
        about = labels_of({"view": promise.view})
        labels = labels_of({"owner": promise.owner, "node": promise.node})
        lag = fresh.get(promise.view)
        if promise.latency_ms is not None:
            slow.append(_latency(promise, by_view.get(promise.view), lag, about, labels))
        if promise.freshness_ms is not None:
            old.append(_age(promise, lag, promise.freshness_ms, about, labels))
    return [
        RuleObservations(changes.rule("latency"), tuple(slow), whole=measured),
        RuleObservations(changes.rule("view-freshness"), tuple(old), whole=measured),
    ]


def observe_connect(connect: Connect, changes: RuleChanges) -> list[RuleObservations]:
    """Return the observations of rules ``connect-failed`` (each connector) and ``connect-unreachable`` (each
    address).

    A connector whose workers do not answer is UNKNOWN; one that no worker reports is gone only when all
    workers answer.
    """
    by_name: dict[str, Connector] = {}
    # Worst first: of connectors with the same name in two clusters, report the worse.
    for one in connect.connectors:
        by_name.setdefault(one.name, one)
    by_url: dict[str, ConnectWorkerStatus] = {}
    # An address may be configured twice.
    for worker in sorted(connect.workers, key=lambda each: each.state != "down"):
        by_url.setdefault(worker.url, worker)
    return [
        RuleObservations(
            changes.rule("connect-failed"),
            tuple(map(_connector, by_name.values())),
            whole=connect.whole,
        ),
        RuleObservations(
            changes.rule("connect-unreachable"),
            tuple(map(_worker, by_url.values())),
        ),
    ]


def observe_outbox(relay: RelayState, changes: RuleChanges) -> list[RuleObservations]:
    """Return the observation of rule ``outbox-stopped``; without a relay nothing is observed."""
    if relay.state == "off":
        return [RuleObservations(changes.rule("outbox-stopped"))]
    verdict = {"failing": Verdict.BAD, "unknown": Verdict.UNKNOWN}.get(relay.state, Verdict.GOOD)
    observation = Observation((), verdict, "the relay of the outbox fails", detail=relay.found)
    return [RuleObservations(changes.rule("outbox-stopped"), (observation,))]


def observe_store(trouble: str | None, changes: RuleChanges, *, answered: bool) -> list[RuleObservations]:
    """Return the observation of rule ``store-away``.

    ``trouble``: why the server's store cannot be read. ``answered``: whether it has ever answered.
    """
    rule = changes.rule("store-away")
    if trouble is None and not answered:
        return [RuleObservations(rule, whole=False)]
    verdict = Verdict.GOOD if trouble is None else Verdict.BAD
    message = "" if trouble is None else "the server's store cannot be read: views are not served"
    return [RuleObservations(rule, (Observation(labels_of({}), verdict, message, detail=trouble or ""),))]


def observe_cluster(health: Health, changes: RuleChanges) -> list[RuleObservations]:
    """Return the observations of rules ``kafka-away``, ``partitions-offline``, ``under-replicated`` (the
    cluster) and ``disk-full`` (each folder of each broker). While Kafka does not answer, only
    ``kafka-away`` is known."""
    about = labels_of({})
    if health.answered_at_ms is None and health.error is None:
        return [RuleObservations(changes.rule(name), whole=False) for name in CLUSTER_RULES]
    away = health.error is not None
    kafka = Observation(
        about,
        Verdict.BAD if away else Verdict.GOOD,
        "Kafka does not answer the hub" if away else "",
        detail=health.error or "",
    )
    if away:
        unknown = Observation(about, Verdict.UNKNOWN, detail="Kafka does not answer")
        return [
            RuleObservations(changes.rule("kafka-away"), (kafka,)),
            RuleObservations(changes.rule("partitions-offline"), (unknown,)),
            RuleObservations(changes.rule("under-replicated"), (unknown,)),
            RuleObservations(changes.rule("disk-full"), whole=False),
        ]
    disks = [_disk(broker, folder) for broker in health.brokers for folder in broker.dirs or ()]
    all_reported = all(broker.dirs is not None for broker in health.brokers)
    return [
        RuleObservations(changes.rule("kafka-away"), (kafka,)),
        RuleObservations(changes.rule("partitions-offline"), (_offline(health, about),)),
        RuleObservations(changes.rule("under-replicated"), (_few(health, about),)),
        RuleObservations(changes.rule("disk-full"), tuple(disks), whole=all_reported),
    ]


def _offline(health: Health, about: Labels) -> Observation:
    if not health.offline:
        return Observation(about, Verdict.GOOD)
    message = f"{health.offline} of {health.partitions} partitions have no leader"
    return Observation(
        about, Verdict.BAD, message, float(health.offline), detail=_where(health, offline=True)
    )


def _few(health: Health, about: Labels) -> Observation:
    if not health.under_replicated and not health.away:
        return Observation(about, Verdict.GOOD)
    causes = []
    if health.away:
        ids = ", ".join(map(str, health.away[:10]))
        causes.append(
            f"broker{'s' * (len(health.away) > 1)} {ids} "
            f"{'are' if len(health.away) > 1 else 'is'} unreachable"
        )
    if health.under_replicated:
        causes.append(
            f"{health.under_replicated} of {health.partitions} partitions have too few replicas in sync"
        )
    count = float(health.under_replicated or len(health.away))
    return Observation(about, Verdict.BAD, "; ".join(causes), count, detail=_where(health, offline=False))


def _where(health: Health, *, offline: bool) -> str:
    """Format the first such partition."""
    first = next((each for each in health.troubles if (each.leader is None) == offline), None)
    if first is None:
        return ""
    replicas, in_sync = (", ".join(map(str, ids)) or "none" for ids in (first.replicas, first.in_sync))
    return f"{first.topic} partition {first.partition}: replicas {replicas}; in sync {in_sync}"


def _disk(broker: Broker, folder: LogDir) -> Observation:
    about = labels_of({"broker": str(broker.id), "folder": folder.path})
    where = f"broker {broker.id}, {folder.path}"
    if folder.error:
        return Observation(about, Verdict.BAD, f"{where}: its folder cannot be used", detail=folder.error)
    free = free_of(folder)
    if free is None:
        return Observation(
            about, Verdict.UNKNOWN, detail="the broker does not report the free space of its disk"
        )
    if free >= FEW_FREE:
        return Observation(about, Verdict.GOOD, value=free)
    left = format.size(folder.usable_bytes)
    return Observation(about, Verdict.BAD, f"{where}: {left} are free, {_percent(free)} of its disk", free)


def _connector(one: Connector) -> Observation:
    about = labels_of({"connector": one.name})
    if one.state is ConnectState.UNKNOWN:
        return Observation(about, Verdict.UNKNOWN, detail=one.reason)
    if one.state is not ConnectState.FAILED:
        return Observation(about, Verdict.GOOD)
    failed = sum(task.state is ConnectState.FAILED for task in one.tasks)
    itself = one.own is ConnectState.FAILED
    what = "the connector itself" if itself else f"{failed} of {len(one.tasks)} tasks"
    return Observation(
        about, Verdict.BAD, f"connector {one.name}: {what} failed", float(failed + itself), detail=one.reason
    )


def _worker(one: ConnectWorkerStatus) -> Observation:
    about = labels_of({"worker": one.url})
    if one.state == "connecting":
        return Observation(about, Verdict.UNKNOWN)
    if one.state == "up":
        return Observation(about, Verdict.GOOD)
    return Observation(
        about,
        Verdict.BAD,
        f"Kafka Connect at {one.url} does not answer: its connectors are not known",
        detail=one.error or "",
    )


def _latency(
    promise: Promise, row: LatencyRow | None, lag: LagRow | None, about: Labels, labels: Labels
) -> Observation:
    promised_s = (promise.latency_ms or 0) / 1000
    unknown = Observation(about, Verdict.UNKNOWN, labels=labels)
    if row is None or row.events is None or row.silent or row.objective_s != promised_s:
        return unknown
    if row.events == 0 or row.within is None:
        # A histogram shows nothing without events. If nothing waits either, nothing is late.
        idle = lag is not None and lag.state == LagState.OK
        return Observation(about, Verdict.GOOD if idle else Verdict.UNKNOWN, labels=labels)
    summary = (
        f"{promise.view}: {_percent(row.within)} of {row.events} events were readable within "
        f"{format.seconds(promised_s)}; promised are {_percent(promise.latency_share)}"
    )
    verdict = Verdict.GOOD if row.within >= promise.latency_share else Verdict.BAD
    tail = "" if row.p99_s is None else f"99 % took at most {format.seconds(row.p99_s)}"
    detail = f"{row.state}: {row.cause}" if row.state != LagState.OK else tail
    return Observation(about, verdict, summary, row.within, labels, detail)


def _age(
    promise: Promise, lag: LagRow | None, promised_ms: int, about: Labels, labels: Labels
) -> Observation:
    if (
        lag is None
        or lag.state == LagState.UNKNOWN
        or lag.seconds is None
        or _may_be_more(lag, promised_ms / 1000)
    ):
        return Observation(about, Verdict.UNKNOWN, labels=labels, detail=lag.cause if lag else "")
    summary = (
        f"{promise.view} does not show an event that is {format.seconds(lag.seconds)} old; promised are "
        f"{format.seconds(promised_ms / 1000)}"
    )
    verdict = Verdict.BAD if lag.seconds * 1000 > promised_ms else Verdict.GOOD
    return Observation(about, verdict, summary, lag.seconds, labels, f"{lag.state}: {lag.cause}")


def promise_of(
    view: str,
    owner: str,
    topics: Iterable[str],
    tree: Tree,
    *,
    latency_ms: int | None,
    latency_share: float,
    freshness_ms: int | None,
) -> Promise:
    """Return a view's objectives. Without a latency of its own it takes the shortest of its topics', as
    its histograms do."""
    if latency_ms is not None:
        return Promise(view, owner, "", latency_ms, latency_share, freshness_ms)
    specs = [spec for name in topics if (spec := tree.get(name)) is not None and spec.slo.latency_ms]
    if not specs:
        return Promise(view, owner, freshness_ms=freshness_ms)
    strictest = min(specs, key=lambda spec: (spec.slo.latency_ms or 0, spec.name))
    return Promise(
        view,
        owner or strictest.owner,
        strictest.set_by.get("slo.latency", ""),
        strictest.slo.latency_ms,
        strictest.slo.latency_share,
        freshness_ms,
    )


def _whose(spec: TopicSpec, objective: str, owner: str = "") -> Labels:
    return labels_of({"owner": spec.owner or owner, "node": spec.set_by.get(objective, spec.name)})


def _percent(share: float) -> str:
    """Format as a percentage, never rounded up to 100 %."""
    return f"{int(share * 100_000) / 1_000:g} %"
