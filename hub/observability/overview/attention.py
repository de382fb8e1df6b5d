"""[core] Objects that need attention now: firing alerts, and views and connectors in trouble, worst first.

Kafka and the store away are not listed: each page says that at its top.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from hub.alerts.alerts_json import alert_row
from hub.alerts.model.alert_state import Alert
from hub.alerts.model.rules import Severity
from hub.alerts.snapshot import AlertSnapshot
from hub.observability.cluster.connect import Connect, ConnectState
from hub.observability.lag.states import LEVEL, Level
from hub.observability.overview.overview import Overview, ViewLine

# States in which a view does not follow its topics.
_BROKEN = ("failed", "stopped", "retrying", "isolated")
_RANK = {level: rank for rank, level in enumerate(Level)}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of one object. ``level``: bad, warn or unknown. ``state``: as text for people; ``cause``: the
    reason. ``since_ms``: epoch milliseconds, None: not known. ``href``: the page with details. ``view``: the
    affected view, if any."""

    level: Level
    kind: str
    name: str
    state: str
    cause: str
    since_ms: int | None
    href: str
    view: str = ""


def needs_attention(overview: Overview, snapshot: AlertSnapshot | None = None) -> tuple[Problem, ...]:
    """Return all problems, worst first, then oldest. ``snapshot`` None: alerts are off. The lag of a view is
    omitted where an alert about that view fires."""
    alerts = () if snapshot is None else tuple(_alerts(snapshot))
    alerted = {each.view for each in alerts if each.view}
    problems = [*alerts, *_views(overview.views, alerted), *_connect(overview.connect)]
    return tuple(sorted(problems, key=_order))


def _alerts(snapshot: AlertSnapshot) -> Iterator[Problem]:
    if snapshot.error is not None:
        yield Problem(Level.unknown, "alerts", "", "UNKNOWN", snapshot.error, None, "/alerts")
        return
    for each in snapshot.listing.open:
        if each.alert.firing and each.silence is None:
            yield _of_alert(each.alert, each.severity)


def _of_alert(alert: Alert, severity: str) -> Problem:
    row, labels = alert_row(alert, None), dict(alert.labels)
    view = labels.get("view") or (labels.get("consumer", "") if labels.get("kind") == "view" else "")
    level = Level.bad if severity == Severity.page else Level.warn
    # It fires until its end was observed.
    state = f"{alert.rule}, now UNKNOWN" if row["unknown"] else alert.rule
    return Problem(level, "alert", row["object"], state, alert.summary, alert.since_ms, row["link"], view)


def _order(problem: Problem) -> tuple[int, float, str]:
    since = float("inf") if problem.since_ms is None else problem.since_ms
    return _RANK[problem.level], since, problem.name


def _views(views: Iterable[ViewLine], alerted: set[str]) -> Iterator[Problem]:
    for view in views:
        href = f"/views/{quote(view.name, safe='')}"
        if view.state in _BROKEN:
            yield Problem(
                Level.bad, "view", view.name, view.state, view.reason or "", view.since_ms, href, view.name
            )
        elif view.state == "unknown":
            cause = view.reason or "nothing was reported about it"
            yield Problem(Level.unknown, "view", view.name, "UNKNOWN", cause, None, href, view.name)
        elif view.lag is not None and LEVEL[view.lag.state] is not Level.ok and view.name not in alerted:
            level, state = LEVEL[view.lag.state], view.lag.state.value
            message = state if level is Level.unknown else state.replace("_", " ").lower()
            cause = f"{view.lag.topic}: {view.lag.cause}" if view.lag.topic else view.lag.cause
            yield Problem(level, "view", view.name, message, cause, None, href, view.name)


def _connect(connect: Connect | None) -> Iterator[Problem]:
    if connect is None or connect.state == "connecting":
        return
    if connect.state == "down":
        answered_at_ms = [
            worker.answered_at_ms for worker in connect.workers if worker.answered_at_ms is not None
        ]
        cause = next((worker.error for worker in connect.workers if worker.error), "no worker answers")
        since_ms = max(answered_at_ms, default=None)
        yield Problem(Level.unknown, "Kafka Connect", "", "UNKNOWN", cause, since_ms, "/connect")
        return
    for each in connect.connectors:
        href = f"/connect/{quote(each.name, safe='')}"
        if each.state is ConnectState.FAILED:
            yield Problem(Level.bad, "connector", each.name, "failed", each.reason, None, href)
        elif each.state is ConnectState.UNKNOWN:
            yield Problem(Level.unknown, "connector", each.name, "UNKNOWN", each.reason, None, href)
