"""[core] Alerts as JSON: the body of ``/api/alerts``, which the web page and ``hub alert`` show, too."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import asdict
from itertools import islice
from typing import Any

from hub.alerts.delivery.payloads import object_name, object_path, runbook_path
from hub.alerts.model.alert_state import PAST, Alert, Silence
from hub.alerts.model.listing import ListedAlert
from hub.alerts.model.matching import Matchers
from hub.alerts.model.rules import Verdict
from hub.alerts.model.state_machine import MOST_ALERTS
from hub.alerts.snapshot import AlertSnapshot


def alert_row(alert: Alert, silence: Silence | None, *, nobody: bool = False) -> dict[str, Any]:
    """Return an alert as a JSON-ready dict; unknown values are null. ``unknown``: the current state cannot be
    determined. ``nobody``: no channel for it is usable.
    """
    labels = dict(alert.labels)
    return {
        "key": alert.key,
        "alert": alert.rule,
        "state": alert.phase,
        "severity": labels.get("severity", ""),
        "owner": labels.get("owner", ""),
        "object": object_name(alert.labels),
        "summary": alert.summary,
        "detail": alert.detail,
        "value": alert.value,
        "labels": labels,
        "since_ms": alert.since_ms,
        "fired_at_ms": alert.fired_at_ms,
        "ended_at_ms": alert.ended_at_ms,
        "ended": alert.ended,
        "unknown": alert.phase != PAST and alert.last is Verdict.UNKNOWN,
        "nobody": nobody,
        "silenced_by": None if silence is None else silence.id,
        "link": object_path(alert.labels),
        "runbook": runbook_path(alert.runbook),
    }


def silence_row(silence: Silence, now_ms: int) -> dict[str, Any]:
    return {
        "id": silence.id,
        "matchers": matchers_text(silence.matchers),
        "reason": silence.reason,
        "by": silence.by,
        "starts_ms": silence.starts_ms,
        "ends_ms": silence.ends_ms,
        "holds": silence.starts_ms <= now_ms < silence.ends_ms,
    }


def rows_of(those: Iterable[ListedAlert], unheard: Container[str] = ()) -> list[dict[str, Any]]:
    """Return one row per alert, in order. ``unheard`` holds the keys of alerts without a usable channel."""
    return [alert_row(each.alert, each.silence, nobody=each.alert.key in unheard) for each in those]


def silences_of(snapshot: AlertSnapshot) -> list[dict[str, Any]]:
    """Return active silences first, then ended ones, latest first."""
    rows = [silence_row(each, snapshot.at_ms) for each in snapshot.state.silences.values()]
    return sorted(rows, key=lambda row: (not row["holds"], -row["ends_ms"], row["id"]))


def rules_of(snapshot: AlertSnapshot) -> list[dict[str, Any]]:
    return [
        {
            "alert": each.rule.name,
            "kind": each.rule.kind,
            "doc": each.rule.doc,
            "severity": str(each.rule.severity),
            "for_s": each.rule.for_ms / 1000,
            "keep_s": each.rule.keep_ms / 1000,
            "limit_s": None if each.rule.limit_ms is None else each.rule.limit_ms / 1000,
            "on": each.rule.on,
            "good": each.good,
            "bad": each.bad,
            "unknown": each.unknown,
            "firing": each.firing,
            "error": each.error,
            "nobody": each.nobody,
            "query": each.rule.query or None,
            "runbook": runbook_path(each.rule.runbook),
        }
        for each in snapshot.rules
    ]


def body_of(
    snapshot: AlertSnapshot, fits: Callable[[ListedAlert], bool] = lambda _: True, limit: int = MOST_ALERTS
) -> dict[str, Any]:
    """Return the full body. ``fits`` filters the open alerts, of which at most ``limit`` are included."""
    return {
        "at_ms": snapshot.at_ms,
        "whole": snapshot.whole,
        "error": snapshot.error,
        "troubles": list(snapshot.problems),
        "firing": snapshot.firing,
        "alerts": rows_of(islice(filter(fits, snapshot.listing.open), limit), snapshot.unheard),
        "past": rows_of(snapshot.listing.past),
        "silences": silences_of(snapshot),
        "rules": rules_of(snapshot),
        "channels": [asdict(each) for each in snapshot.channels],
    }


def matchers_text(matchers: Matchers) -> str:
    """Format matchers as ``severity=page, topic=shop.**|crm.**``, the syntax of ``hub alert silence``."""
    return ", ".join(f"{name}={'|'.join(values)}" for name, values in matchers)


def matchers_from(texts: Iterable[str]) -> Matchers:
    """Parse ``topic=shop.**``, ``severity=page|warning`` into matchers. Raises ValueError naming the text."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.strip().partition("=")
        options = tuple(each.strip() for each in values.split("|") if each.strip())
        if not equals or not name.strip().isidentifier() or not options:
            raise ValueError(f'"{text[:80]}" is not LABEL=VALUE such as severity=info or topic=shop.**')
        if name.strip() in found:
            raise ValueError(f'label "{name.strip()[:60]}" occurs twice: write {name.strip()[:60]}=one|other')
        found[name.strip()] = options
    return tuple(sorted(found.items()))
