"""[edge] Alerts over the running hub: measurements of all packages against topics.yaml, views and
alerts/*.yaml.

In this package because sibling packages do not import each other. All sources are read from memory; queries
of alerts/*.yaml run in a thread of their own, one at a time, each when it is due, with the limits of every
query.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

from hub.alerts import routes
from hub.alerts.alert_manager import AlertManager, Source
from hub.alerts.config.alerts_yaml import Channel, QueryAlert, filled, unknown_columns
from hub.alerts.config.live_config import LiveAlerts
from hub.alerts.config.read_entries import observe_files
from hub.alerts.delivery.channels import send
from hub.alerts.delivery.notification_queues import NotificationQueues
from hub.alerts.model.alert_state import Notification
from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import Observation, RuleChanges, RuleObservations, Verdict
from hub.api.visibility import VisibleAlerts
from hub.api.web import Measurers, Mirrors
from hub.completeness.canary.probes import CanaryRouteRow
from hub.completeness.counts_follower import CountsFollower
from hub.completeness.objectives import observe_canaries, observe_completeness
from hub.config import Settings
from hub.connectors.postgres.slots import observe_slots
from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.materializers.applying.view_files import ViewFiles
from hub.materializers.verification.verification_status import observe_unverified, observe_verifications
from hub.observability.export.objectives import (
    observe_cluster,
    observe_connect,
    observe_outbox,
    observe_readers,
    observe_store,
    observe_topics,
    observe_views,
    promise_of,
)
from hub.observability.overview.contact_watch import ContactWatch, observe_contact
from hub.outbox.note import read_note
from hub.outbox.relay_state import relay_state
from hub.runtime import repeating
from hub.sinks.note import known_rows
from hub.sinks.observe import observe_sinks
from hub.topics.tree.tree import LiveTree

LOOK_S = 0.5
MOST_ROWS = 200
QUERY_MS = 5_000
# Largest share of the time that queries may take.
BUSY_SHARE = 0.2

# A query's columns and rows, and whether it has more rows. Raises HubError.
Rows = tuple[Sequence[str], Sequence[Sequence[Any]], bool]
Ask = Callable[[str, int, int], Rows]


@dataclass
class QueryWatch:
    """Runner of query alerts: runs each query when it is due and keeps its result. Use ``with
    watch.running():``."""

    live: LiveAlerts
    ask: Ask
    now_s: Callable[[], float] = time.monotonic
    observed: dict[str, tuple[QueryAlert, RuleObservations]] = field(default_factory=dict)
    due_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[QueryWatch]:
        with repeating(
            self.step,
            name="alert-queries",
            pause_s=lambda took_s: max(LOOK_S, took_s / BUSY_SHARE - took_s),
            failed="queries of alerts could not be run",
        ):
            yield self

    def step(self) -> None:
        """Run the query that has been due for longest."""
        alerts = {each.alert: each for each in self.live.queries()}
        for gone in self.observed.keys() - alerts.keys():
            self.observed.pop(gone, None)
            self.due_s.pop(gone, None)
        now_s = self.now_s()
        waiting = [
            name for name in alerts if self.due_s.get(name, 0.0) <= now_s or self._changed(alerts[name])
        ]
        if not waiting:
            return
        alert = alerts[min(waiting, key=lambda name: self.due_s.get(name, 0.0))]
        self.observed[alert.alert] = (alert, run(alert, self.ask))
        self.due_s[alert.alert] = self.now_s() + alert.every / 1000

    def _changed(self, alert: QueryAlert) -> bool:
        known = self.observed.get(alert.alert)
        return known is not None and known[0] != alert

    def observations(self, _changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        """Return the last results; a query that has not run yet is unknown."""
        return [
            known[1]
            if (known := self.observed.get(each.alert)) is not None
            else RuleObservations(each.rule, whole=False)
            for each in list(self.live.queries())
        ]


def run(alert: QueryAlert, ask: Ask) -> RuleObservations:
    """Return one query's result as observations: one per row if ``by`` names its columns, else one for all
    rows."""
    try:
        columns, rows, more = ask(alert.query, MOST_ROWS, QUERY_MS)
    except HubError as error:
        return RuleObservations(alert.rule, whole=False, error=error.message)
    wrong = unknown_columns(alert, columns)
    if wrong is not None:
        return RuleObservations(alert.rule, whole=False, error=wrong)
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    if alert.when == "no rows":
        verdict = Verdict.GOOD if named else Verdict.BAD
        return RuleObservations(alert.rule, (Observation((), verdict, alert.summary or alert.rule.doc),))
    if not alert.by:
        if not named:
            return RuleObservations(alert.rule, (Observation((), Verdict.GOOD),))
        rest = f" (and {'at least ' if more else ''}{len(named) - 1} more)" if len(named) > 1 else ""
        summary = filled(alert.summary, named[0]) if alert.summary else alert.rule.doc
        return RuleObservations(
            alert.rule, (Observation((), Verdict.BAD, summary + rest, float(len(named))),)
        )
    observations = [
        Observation(
            labels_of({name: "" if row[name] is None else str(row[name])[:200] for name in alert.by}),
            Verdict.BAD,
            filled(alert.summary, row)
            if alert.summary
            else ", ".join(f"{k}: {v}" for k, v in row.items())[:500],
        )
        for row in named
    ]
    # If rows were cut off, a missing row may be among them.
    return RuleObservations(
        alert.rule,
        tuple(observations),
        absent=Verdict.UNKNOWN if more else Verdict.GOOD,
        whole=not more,
        error=f"more than {MOST_ROWS} rows: the others are not looked at" if more else None,
    )


def make_alert_manager(
    settings: Settings, cluster: KafkaCluster, environ: Mapping[str, str] = os.environ
) -> AlertManager:
    """Return an alert manager for this project, without sources yet."""
    live = LiveAlerts(settings.project)

    def sent(name: str, channel: Channel, notification: Notification) -> None:
        send(name, channel, notification, (live.file.link or settings.url).rstrip("/"), environ)

    def done(notification: Notification) -> None:
        desk.sent(notification)

    desk = AlertManager(
        cluster,
        live,
        NotificationQueues(sent, done),
        every_s=settings.alert_every_s,
        replication_factor=settings.replication_factor,
    )
    return desk


@dataclass
class AlertSources:
    """Sources that the alert manager reads in each round, all from memory.

    ``canaries`` None: not enabled. Each method returns the observations of one part of the hub.
    """

    settings: Settings
    measurers: Measurers
    ledger: CountsFollower
    mirrors: Mirrors
    canaries: Callable[[], Sequence[CanaryRouteRow]] | None
    live: LiveAlerts
    contact: ContactWatch

    def __post_init__(self) -> None:
        self._tree = LiveTree(self.settings.project / "topics.yaml")
        self._files = ViewFiles(self.settings.project)

    def all(self) -> list[Source]:
        """Return the sources in the order in which they are read."""
        own = [self.readers, self.topics, self.completeness, self.views, self.verifications]
        return [
            *own,
            self.store,
            self.cluster,
            self.cut_off,
            self.connect,
            self.slots,
            self.outbox,
            self.sinks,
            self.mirrored,
            self.probed,
            self.files,
        ]

    def readers(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        monitor = self.measurers.monitor
        measured = monitor.round_s is not None and monitor.error is None
        return observe_readers(monitor.rows(), self._tree.topics(), changes, measured=measured)

    def topics(self, changes: RuleChanges, now_ms: int) -> list[RuleObservations]:
        topic_specs, collector = self._tree.topics(), self.measurers.collector
        promised = [name for name, spec in topic_specs.items() if spec.slo.freshness_ms is not None]
        with collector.lock:
            rings = {name: dict(collector.rings[name]) for name in promised if name in collector.rings}
        return [observe_topics(rings, topic_specs, changes, now_ms)]

    def completeness(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        return [observe_completeness(self.ledger.latest(), self._tree.topics(), changes)]

    def views(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        monitor = self.measurers.monitor
        promises = [
            promise_of(
                view.name,
                view.owner,
                [source.topic for source in view.sources.values()],
                self._tree.topics(),
                latency_ms=view.slo.latency_ms,
                latency_share=view.slo.latency_share,
                freshness_ms=view.slo.freshness_ms,
            )
            for view in self._files.views()
        ]
        latency, measured = self.measurers.latency.rows(), monitor.round_s is not None
        return observe_views(promises, latency, monitor.rows(), changes, measured=measured)

    def verifications(self, changes: RuleChanges, now_ms: int) -> list[RuleObservations]:
        owners = {view.name: view.owner for view in self._files.views()}
        records, on = self.measurers.collector.records, self.settings.proof_core_share > 0
        return [
            observe_verifications(records, changes, now_ms, owners),
            observe_unverified(records, changes, now_ms, owners, on=on),
        ]

    def store(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        collector = self.measurers.collector
        return observe_store(collector.store_trouble(), changes, answered=collector.store_answered)

    def connect(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        known = self.measurers.collector.connect()
        return [] if known is None else observe_connect(known, changes)

    def slots(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        return [observe_slots(self.measurers.slots.latest(), self.settings.slot_wal_mb, changes)]

    def outbox(self, changes: RuleChanges, now_ms: int) -> list[RuleObservations]:
        declared = self.settings.outbox_database is not None
        relay = relay_state(read_note(self.settings.home, now_ms), declared=declared)
        return observe_outbox(relay, changes)

    def sinks(self, changes: RuleChanges, now_ms: int) -> list[RuleObservations]:
        return [observe_sinks(known_rows(self.settings.project, self.settings.home, now_ms), changes)]

    def cluster(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        return observe_cluster(self.measurers.health.latest(), changes)

    def mirrored(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        return self.mirrors.observations(self._tree.topics(), changes)

    def probed(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        if self.canaries is None:
            return []
        return [observe_canaries(self.canaries(), changes, self.mirrors.resting())]

    def cut_off(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        health, contact = self.measurers.health.latest(), self.contact
        answers = health.error is None and health.answered_at_ms is not None
        return observe_contact(contact.notes, changes, cut_off_s=contact.cut_off_s, kafka_answers=answers)

    def files(self, changes: RuleChanges, _now_ms: int) -> list[RuleObservations]:
        return [observe_files(self.live.faults(), changes)]


def add_alerts(
    app: FastAPI,
    desk: AlertManager,
    visible: VisibleAlerts,
    ask: Ask,
    sources: Sequence[Source],
    opened: AsyncExitStack,
) -> None:
    """Start evaluating alerts, and serve ``/api/alerts``, filtered by what the caller may see."""
    watch = QueryWatch(desk.live, ask)
    desk.sources = [*sources, watch.observations]
    opened.enter_context(watch.running())
    opened.enter_context(desk.running())
    app.include_router(routes.create_router(visible))
