"""[core] Checklist of a mirror: whether its target could take over now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hub.observability.format import count, seconds

SILENT_S = 10.0
REPORT_MAX_AGE_S = 60.0  # the source's ends are read every few seconds


@dataclass(frozen=True, slots=True)
class ChecklistItem:
    """A point of the checklist. ``state``: "ok", "bad" or "unknown"."""

    state: str
    what: str


def checks(status: Mapping[str, Any]) -> tuple[ChecklistItem, ...]:
    """Return the checklist whether the target could take over now; for one that has taken over, that it
    has."""
    if "workers" not in status:
        return (_bad(f"The target does not answer: {status.get('reason', '')}"),)
    if handed_over(status):
        acts = _ok(f"{status['target']} serves the topics of {status['source']}")
        return (acts, *_under_way(status))
    return (
        *_carried(status),
        _lacking(status),
        *_not_reported(status),
        *_unreported(status),
        *_standing(status),
        *_copies(status),
        _groups(status),
        *_under_way(status),
    )


def _ok(text: str) -> ChecklistItem:
    return ChecklistItem("ok", text)


def _bad(text: str) -> ChecklistItem:
    return ChecklistItem("bad", text)


def _unknown(text: str) -> ChecklistItem:
    return ChecklistItem("unknown", text)


def _carried(status: Mapping[str, Any]) -> list[ChecklistItem]:
    workers = status["workers"]
    if not workers:
        return [_bad("No worker carries it: hub mirror run")]
    return [_ok(f"{workers} worker{'s carry' if workers != 1 else ' carries'} it")]


def _lacking(status: Mapping[str, Any]) -> ChecklistItem:
    """Return what the target lacks of its source."""
    waiting, late = status["lag_records"], status["lag_s"]
    if waiting is None:
        return _unknown("What the target lacks is not known")
    if waiting:
        return _bad(
            f"The target lacks {count(waiting)} record{'s' * (waiting != 1)} ({seconds(late)}):"
            " a failover would lose them"
        )
    if not ends_of_now(status):
        return _unknown("The target has all that was seen at the source; what came since is not known")
    reported_s = status.get("source_heard_s")
    if reported_s is not None and reported_s > REPORT_MAX_AGE_S:
        return _unknown(
            f"The target has all records that the source had {seconds(reported_s)} ago; the source "
            "has not reported since"
        )
    return _ok("The target has every record of the source")


def _not_reported(status: Mapping[str, Any]) -> list[ChecklistItem]:
    found = []
    silent = max((beat["ago_s"] for beat in status["heartbeats"]), default=0.0)
    if silent > SILENT_S:
        found.append(_bad(f"A worker has not reported for {seconds(silent)}"))
    if status["restarts"]:
        found.append(_bad(f"A shard makes no progress: it was restarted {count(status['restarts'])} times"))
    return found


def _standing(status: Mapping[str, Any]) -> list[ChecklistItem]:
    """Return stopped and excluded partitions, and copies that differ from the original."""
    still = [row for row in status.get("partitions", ()) if row["reason"] and row["state"] != "unknown"]
    checklist_items = [_ok("No partition is stopped")]
    if still:
        many = f"{len(still)} partition{'s stand' if len(still) != 1 else ' stands'} still"
        checklist_items = [_bad(f"{many}, first {still[0]['topic']}: {still[0]['reason']}")]
    left = status["trouble"]
    if left:
        topic, why = min(left.items())
        many = f"{len(left)} topic{'s are' if len(left) != 1 else ' is'} not mirrored"
        checklist_items.append(_bad(f"{many}, first {topic}: {why}"))
    masked = sorted(
        {row["topic"] for row in status.get("partitions", ()) if "mask " in row.get("engine_why", "")}
    )
    if masked:
        many = f"{len(masked)} cop{'ies are' if len(masked) != 1 else 'y is'} masked, first {masked[0]}"
        checklist_items.append(
            _bad(f"{many}: not a replacement for the original; records written there are not copied back")
        )
    return checklist_items


def _copies(status: Mapping[str, Any]) -> list[ChecklistItem]:
    """Return whether the copies are complete, and compared with their source."""
    gaps = status["gaps"]
    checklist_items = [
        _bad(f"{len(gaps)} stretches of offsets are missing in the target")
        if gaps
        else _ok("No offsets are missing in between")
    ]
    if status["different"]:
        checklist_items.append(
            _bad(
                f"{count(status['different'])} partitions differ from the source:"
                f" hub mirror verify {status['mirror']}"
            )
        )
    elif status["verified_s"] is None:
        checklist_items.append(_unknown("Nothing was compared yet"))
    else:
        rest = status["unverified_records"]
        but = f", {count(rest)} offsets were not" if rest else ""
        checklist_items.append(
            _ok(f"{count(status['verified_records'])} records were compared and are the same{but}")
        )
    return checklist_items


def _groups(status: Mapping[str, Any]) -> ChecklistItem:
    groups = status["groups"]
    behind = [group for group in groups if group["rpo_records"]]
    if not groups:
        return _unknown("No consumer group is carried over")
    if not behind:
        return _ok(f"All {len(groups)} consumer groups continue at their positions")
    worst = max(behind, key=lambda group: group["rpo_s"])
    return _bad(
        f"{len(behind)} of {len(groups)} groups would lose unread records, "
        f"{worst['group']} most: {seconds(worst['rpo_s'])}"
    )


def handed_over(status: Mapping[str, Any]) -> bool:
    """Return whether the target of a declared mirror owns the source's topics."""
    acting = status.get("acting", {})
    is_back = str(status.get("declared", status["mirror"])) != status["mirror"]
    return not is_back and "source" in status and acting.get(status["source"]) == status["target"]


def ends_of_now(status: Mapping[str, Any]) -> bool:
    """Return whether the lag is based on current source ends: they were just read, or workers run and no
    partition is blocked."""
    rows = [row for row in status.get("partitions", ()) if row["state"] != "left"]
    if rows and all(row.get("source_end_s") == 0 for row in rows):
        return True
    return bool(status["workers"]) and not any(row["reason"] for row in rows)


def _unreported(status: Mapping[str, Any]) -> list[ChecklistItem]:
    """Return a checklist item for the partitions that no worker reports, or []."""
    rows = [row for row in status.get("partitions", ()) if row["state"] == "unknown"]
    if not rows:
        return []
    many = len(rows) != 1
    first = f"{rows[0]['topic']} partition {rows[0]['partition']}: {rows[0]['reason']}"
    return [
        ChecklistItem(
            "unknown", f"No worker reports {len(rows)} partition{'s' if many else ''}, first {first}"
        )
    ]


def _under_way(status: Mapping[str, Any]) -> list[ChecklistItem]:
    return [
        ChecklistItem("bad", f"A {each['kind']} is under way, next: {each['next']}")
        for each in status["operations"]
    ]
