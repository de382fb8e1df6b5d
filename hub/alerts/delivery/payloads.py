"""[core] Notification formats: Alertmanager's webhook (version 4), a Slack message, an e-mail.

Webhook format: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config. Receivers of
Alertmanager accept it unchanged. ``groupKey`` is the same for all notifications of a group, ``fingerprint``
for all of an alert.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, formataddr
from typing import Any
from urllib.parse import quote, urlencode

from hub.alerts.model.alert_state import Alert, Notification
from hub.alerts.model.matching import Labels
from hub.alerts.model.rules import CLUSTER_RULES
from hub.times import iso

NEVER = "0001-01-01T00:00:00Z"
_SHOWN = 20
_COLOURS = {"page": "#c0392b", "warning": "#d68910", "info": "#2471a3"}


def _iso_or_never(at_ms: int | None) -> str:
    """Format as RFC 3339 in UTC; None becomes Alertmanager's zero time."""
    return NEVER if at_ms is None else iso(at_ms)


def object_path(labels: Labels) -> str:
    """Return the web app's path for the object of an alert."""
    label = dict(labels)
    if "mirror" in label:
        return "/mirrors"
    if "consumer" in label:
        return f"/lag?{urlencode({'name': label['consumer'], 'prefix': label.get('topic', '')})}"
    if "view" in label:
        return f"/views/{quote(label['view'], safe='')}"
    if "topic" in label:
        return f"/topics/{quote(label['topic'], safe='')}"
    if label.get("alertname") in (*CLUSTER_RULES, "kafka-cut-off", "canary"):
        return "/cluster"
    if label.get("alertname") == "store-away":
        return "/views"
    if "connector" in label or label.get("alertname") == "connect-unreachable":
        return f"/connect?{urlencode({'q': label['connector']})}" if "connector" in label else "/connect"
    return f"/alerts?{urlencode({'name': label.get('alertname', '')})}"


def runbook_path(runbook: str) -> str:
    """Return the path of a runbook page, or the URL if the runbook is one."""
    return runbook if runbook.startswith(("http://", "https://")) else f"/alerts/runbooks/{runbook}"


def object_name(labels: Labels) -> str:
    """Return a short name for the object of an alert."""
    label = dict(labels)
    if "consumer" in label:
        return f"{label['consumer']} on {label.get('topic', '')}"
    if "mirror" in label:
        return f"{label['topic']} in {label['mirror']}" if "topic" in label else label["mirror"]
    rest = [value for name, value in labels if name not in ("alertname", "severity", "owner", "node", "kind")]
    return label.get("view") or label.get("topic") or ", ".join(rest)


def title(notification: Notification) -> str:
    """Return the title, such as ``FIRING 2, resolved 1: lag (shop-team)``."""
    if notification.test:
        return "Test of the hub's alerts"
    firing = sum(each.firing for each in notification.alerts) + notification.left_out
    over = sum(not each.firing for each in notification.alerts)
    counts = [f"FIRING {firing}"] if firing else []
    counts += [f"resolved {over}"] if over else []
    rules = sorted({each.rule for each in notification.alerts})
    group = ", ".join(value for _, value in notification.group.labels)
    more = "" if len(rules) <= 3 else f" and {len(rules) - 3} more"
    return f"{', '.join(counts)}: {', '.join(rules[:3])}{more}" + (f" ({group})" if group else "")


def webhook_body(notification: Notification, link: str) -> dict[str, Any]:
    """Build the body of Alertmanager's webhook, version 4."""
    alerts = [_alert(each, link) for each in notification.alerts]
    return {
        "version": "4",
        "groupKey": f"{notification.group.route}:{dict(notification.group.labels)}",
        "truncatedAlerts": notification.left_out,
        "status": "firing" if notification.firing else "resolved",
        "receiver": notification.channel,
        "groupLabels": dict(notification.group.labels),
        "commonLabels": _common([each["labels"] for each in alerts]),
        "commonAnnotations": _common([each["annotations"] for each in alerts]),
        "externalURL": link,
        "alerts": alerts,
    }


def slack_body(notification: Notification, link: str) -> dict[str, Any]:
    """Build a message with a colored block per alert. Text is escaped for Slack (&, <, >)."""
    blocks = []
    for each in notification.alerts[:_SHOWN]:
        severity = dict(each.labels).get("severity", "warning")
        state = f"*{_escaped(severity)}*" if each.firing else "resolved"
        places = (
            f"<{link}{object_path(each.labels)}|look> · "
            f"<{_absolute(runbook_path(each.runbook), link)}|what to do>"
        )
        headline = f"{state} {_escaped(each.rule)}: {_escaped(each.summary)}"
        blocks.append(
            {
                "color": _COLOURS.get(severity, "#888888") if each.firing else "#1e8449",
                "text": f"{headline}\n{places}" if link else headline,
                "mrkdwn_in": ["text"],
                "fallback": f"{each.rule}: {each.summary}"[:1_000],
            }
        )
    left = len(notification.alerts) - len(blocks) + notification.left_out
    text = _escaped(title(notification)) + (f" — and {left} more" if left else "")
    return {"text": text, "attachments": blocks}


def mail(notification: Notification, link: str, sender: str, to: list[str]) -> EmailMessage:
    """Build a plain-text e-mail. Its message id is the notification's id, so that duplicates can be
    detected.
    """
    message = EmailMessage()
    message["Subject"] = " ".join(f"[hub] {title(notification)}".split())[:200]
    message["From"] = formataddr(("Event hub", sender))
    message["To"] = ", ".join(to)
    message["Date"] = format_datetime(datetime.fromtimestamp(notification.at_ms / 1000, UTC))
    message["Message-ID"] = f"<{notification.id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    lines = []
    for each in notification.alerts:
        labels = dict(each.labels)
        state = f"FIRING ({labels.get('severity', '')})" if each.firing else f"resolved ({each.ended})"
        lines += [f"{state}  {each.rule}: {each.summary}"]
        if each.detail:
            lines.append(f"  why:     {each.detail}")
        if labels.get("owner"):
            lines.append(f"  owner:   {labels['owner']}")
        lines.append(f"  since:   {_iso_or_never(each.fired_at_ms)}")
        if link:
            lines.append(f"  look:    {link}{object_path(each.labels)}")
            lines.append(f"  to do:   {_absolute(runbook_path(each.runbook), link)}")
        lines.append("")
    if notification.left_out:
        lines.append(f"… and {notification.left_out} more: {link}/alerts")
    message.set_content("\n".join(lines))
    return message


def _alert(alert: Alert, link: str) -> dict[str, Any]:
    annotations = {"summary": alert.summary, "runbook_url": _absolute(runbook_path(alert.runbook), link)}
    if alert.detail:
        annotations["description"] = alert.detail
    if alert.ended:
        annotations["ended"] = alert.ended
    return {
        "status": "firing" if alert.firing else "resolved",
        "labels": dict(alert.labels),
        "annotations": annotations,
        "startsAt": _iso_or_never(alert.fired_at_ms),
        "endsAt": _iso_or_never(alert.ended_at_ms),
        "generatorURL": f"{link}{object_path(alert.labels)}",
        "fingerprint": alert.key,
    }


def _absolute(place: str, link: str) -> str:
    return f"{link}{place}" if place.startswith("/") else place


def _common(those: list[dict[str, str]]) -> dict[str, str]:
    first, *others = those or [{}]
    return {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
