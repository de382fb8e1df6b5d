"""[shell] Topics, views, readers and alerts, limited to what the caller may see. Later layers filter nothing
again.

Background tasks read the collector and the monitor directly: they have no caller, and nothing is filtered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hub.alerts.model.alert_state import Alert, Silence
from hub.alerts.model.matching import Matchers
from hub.alerts.model.rules import RULES
from hub.alerts.snapshot import AlertSnapshot, RuleStatus
from hub.caller import CALLER, HUB, Action, Kind, Resource, may, require, sees_topic, sees_view
from hub.errors import CallerError
from hub.observability.lag.consumers import LagRow
from hub.observability.overview.overview import BatchSummary, Overview, TopicLine
from hub.observability.web.pages.estate import HasTopics
from hub.observability.web.pages.monitor.completeness import CountedTopics
from hub.topics.tree.tree import TopicSpec


class HasLag(Protocol):
    round_s: float | None

    def rows(self) -> Sequence[LagRow]: ...


@dataclass(frozen=True)
class VisibleTopics:
    """Topics that the caller may see; see hub.observability.web.pages.estate.HasTopics."""

    collector: HasTopics

    def overview(self) -> Overview:
        return visible_overview(self.collector.overview())

    def line(self, topic: str) -> TopicLine | None:
        return self.collector.line(topic) if sees_topic(topic) else None

    def other_lines(self, kind: str) -> Sequence[TopicLine]:
        return [each for each in self.collector.other_lines(kind) if sees_topic(each.name)]

    def names(self) -> Sequence[str]:
        return [each for each in self.collector.names() if sees_topic(each)]

    def batches(self, view: str) -> Sequence[BatchSummary]:
        return self.collector.batches(view) if sees_view(view) else ()


@dataclass(frozen=True)
class VisibleLag:
    """Lag that the caller may see; see hub.observability.export.routes.HasLagRows."""

    monitor: HasLag

    @property
    def round_s(self) -> float | None:
        return self.monitor.round_s

    def rows(self) -> Sequence[LagRow]:
        return visible_rows(self.monitor.rows())


def visible_overview(overview: Overview) -> Overview:
    """Return the visible topics and views, with the visible sources of each; Kafka Connect only with a
    read grant on the hub."""
    if CALLER.get() is None:
        return overview
    views = []
    for view in overview.views:
        if sees_view(view.name):
            sources = tuple(each for each in view.sources if sees_topic(each.topic))
            lag = view.lag if view.lag is None or sees_topic(view.lag.topic) else replace(view.lag, topic="")
            views.append(replace(view, sources=sources, lag=lag))
    return replace(
        overview,
        topics=tuple(each for each in overview.topics if sees_topic(each.name)),
        views=tuple(views),
        connect=overview.connect if may(Action.read, HUB) else None,
    )


def visible_rows(rows: Sequence[LagRow]) -> Sequence[LagRow]:
    """Return readers of visible topics and views; readers of no topic only with a describe grant on the
    hub."""
    if CALLER.get() is None:
        return rows

    def is_visible(row: LagRow) -> bool:
        if row.topic is None and row.view is None:
            return may(Action.describe, HUB)
        return (row.topic is None or sees_topic(row.topic)) and (row.view is None or sees_view(row.view))

    return [row for row in rows if is_visible(row)]


def visible_tree(tree: Mapping[str, TopicSpec]) -> Mapping[str, TopicSpec]:
    return tree if CALLER.get() is None else {name: spec for name, spec in tree.items() if sees_topic(name)}


def visible_counts(ledger: CountedTopics) -> CountedTopics:
    if CALLER.get() is None:
        return ledger
    return replace(
        ledger,
        topics=[each for each in ledger.topics if sees_topic(each.topic)],
        minutes=lambda topic: ledger.minutes(topic) if sees_topic(topic) else None,
    )


# ---- alerts

# Labels of a silence that name a single object that can be granted.
_GRANTED = {"topic": Kind.topic, "view": Kind.view}


class UnfilteredAlerts(Protocol):
    """The alert manager (hub.alerts.alert_manager)."""

    def snapshot(self) -> AlertSnapshot: ...

    def firing(self) -> int | None: ...

    def silence(self, matchers: Matchers, reason: str, by: str, ends_ms: int) -> Silence: ...

    def unsilence(self, id: str) -> Silence: ...

    def test(self, channel: str) -> None: ...


@dataclass(frozen=True)
class VisibleAlerts:
    """The alert manager, limited to the caller. ``readable``: whether the caller may read everything that
    a statement reads; ``unmasked``: whether no mask hides anything of it from the caller."""

    desk: UnfilteredAlerts
    readable: Callable[[str], bool]
    unmasked: Callable[[str], bool] = lambda _sql: True

    def snapshot(self) -> AlertSnapshot:
        alert_snapshot = self.desk.snapshot()
        masked = {
            each.rule.name
            for each in alert_snapshot.rules
            if each.rule.kind == "query" and not self.unmasked(each.rule.query)
        }
        return visible_alerts(without_rules(alert_snapshot, masked), self.readable)

    def firing(self) -> int | None:
        return self.desk.firing() if may(Action.read, HUB) else self.snapshot().firing

    def silence(self, matchers: Matchers, reason: str, by: str, ends_ms: int) -> Silence:
        may_silence(matchers)
        return self.desk.silence(matchers, reason, by, ends_ms)

    def unsilence(self, id: str) -> Silence:
        silence = self.desk.snapshot().state.silences.get(id)
        if silence is None:
            require(Action.describe, HUB)  # do not reveal which ids exist
        else:
            may_silence(silence.matchers)
        return self.desk.unsilence(id)

    def test(self, channel: str) -> None:
        self.desk.test(channel)


def may_silence(matchers: Matchers) -> None:
    """Check whether the caller may silence these matchers.

    An operator of topics or views may silence alerts on these, each by its name; everything else needs the
    hub. Raises CallerError, Forbidden, Unauthenticated.
    """
    if may(Action.operate, HUB):
        return
    for label, values in matchers:
        kind = _GRANTED.get(label)
        if kind is None:
            continue
        if any("*" in value for value in values):
            raise CallerError(
                f'a pattern ("{label}={"|".join(values)}") would also silence objects that are not yours',
                hint=f"name each {label} by itself, with | between them",
                code="HUB-1715",
            )
        for value in values:
            require(Action.operate, Resource(kind, value))
        return
    require(Action.operate, HUB)


def without_rules(snapshot: AlertSnapshot, names: set[str]) -> AlertSnapshot:
    """Return the snapshot without the alerts of these rules: their labels and texts are rows that masks
    hide."""
    if not names:
        return snapshot
    state = snapshot.state
    alerts = {key: each for key, each in state.alerts.items() if each.rule not in names}
    past = {once: each for once, each in state.past.items() if each.rule not in names}
    rules = tuple(each for each in snapshot.rules if each.rule.name not in names)
    return replace(snapshot, state=replace(state, alerts=alerts, past=past), rules=rules)


def visible_alerts(snapshot: AlertSnapshot, readable: Callable[[str], bool]) -> AlertSnapshot:
    """Return the alerts on visible topics and views, and of queries over readable tables; all for readers of
    the hub.

    A rule's numbers cover everything that it checks, so other callers do not get them, nor channels and
    troubles.
    """
    if may(Action.read, HUB):
        return snapshot
    queries = {
        each.rule.name for each in snapshot.rules if each.rule.kind == "query" and readable(each.rule.query)
    }
    state = snapshot.state
    alerts = {key: each for key, each in state.alerts.items() if _sees(each, queries)}
    past = {once: each for once, each in state.past.items() if _sees(each, queries)}
    quiet = {each.id for key, each in state.quiet(snapshot.at_ms).items() if key in alerts}
    silences = {
        id: each for id, each in state.silences.items() if id in quiet or _about_visible(each.matchers)
    }
    firing = Counter(each.rule for each in alerts.values() if each.firing)
    rules = [
        RuleStatus(each.rule, None, None, None, firing[each.rule.name])
        for each in snapshot.rules
        if each.rule.kind != "query" or each.rule.name in queries
    ]
    return replace(
        snapshot,
        state=replace(state, alerts=alerts, past=past, silences=silences, groups={}, left_out=0),
        rules=tuple(rules),
        channels=(),
        problems=(),
        listed=None,
        whole=False,
    )


def _sees(alert: Alert, queries: set[str]) -> bool:
    """Return whether the caller sees all objects of an alert; False for an alert on objects that cannot be
    granted."""
    if alert.rule not in RULES:
        return alert.rule in queries
    about = dict(alert.object)
    topic, view = about.get("topic"), about.get("view")
    if about.get("kind") == "view":
        view = about.get("consumer")
    if topic is None and view is None:
        return False
    return (topic is None or sees_topic(topic)) and (view is None or sees_view(view))


def _about_visible(matchers: Matchers) -> bool:
    named = [(label, value) for label, values in matchers if label in _GRANTED for value in values]
    sees = {"topic": sees_topic, "view": sees_view}
    return bool(named) and all("*" not in value and sees[label](value) for label, value in named)
