"""[core] Values of the map of regions, computed from the statuses of the page *Mirrors*.

A mirror has the state that its status has, and a cluster is heard through the mirrors from and to it. What is
not heard, or was heard too long ago, is unknown, without a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.observability.overview.mirror_readers import MIRRORS_STALE_MS
from hub.observability.web.pages.monitor.mirror_checks import REPORT_MAX_AGE_S, ends_of_now, handed_over
from hub.observability.web.pages.monitor.mirrors import MirrorFacts

Status = Mapping[str, Any]
TONES: Mapping[str, str] = {
    "mirroring": "OK",
    "paused": "PAUSED",
    "handed over": "PAUSED",
    "no worker": "STOPPED",
    "trouble": "STOPPED",
}
"""Color of a mirror's state; any other is UNKNOWN."""
_WORST = ("STOPPED", "UNKNOWN", "PAUSED", "OK")


@dataclass(frozen=True, slots=True)
class RegionLink:
    """One mirror, or the way back of one (``back_of``). None: unknown.

    ``lag_s``: how old the oldest record is that the target lacks, within ``lag_error_s``; ``lag_is_least``:
    it is a lower bound. ``loss``: offsets that a failover now would lose; ``loss_is_least``: a lower bound,
    because the source does not answer. ``rehearsed``: result of the last complete rehearsal.
    ``rehearsal_due_s``: since when one is due.
    """

    mirror: str
    source: str
    target: str
    state: str
    reason: str
    tone: str
    back_of: str = ""
    records_per_s: float | None = None
    bytes_per_s: float | None = None
    lag_s: float | None = None
    lag_error_s: float | None = None
    lag_is_least: bool = False
    loss: int | None = None
    loss_is_least: bool = False
    rehearsed: str | None = None
    rehearsed_at_ms: int | None = None
    rehearsal_due_s: float | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """One cluster of mirrors.yaml. ``state``: answers, silent or unknown. ``here``: this server's own.
    ``served_by``: the cluster that serves its topics, if it is another one.
    """

    name: str
    address: str
    state: str
    reason: str
    here: bool = False
    served_by: str = ""


@dataclass(frozen=True, slots=True)
class RegionsPage:
    """Values of the page. ``asked_at_ms`` None: the clusters are being read for the first time."""

    declared: bool
    asked_at_ms: int | None
    error: str | None
    regions: tuple[Region, ...]
    mirrors: tuple[RegionLink, ...]


def regions_page(mirror_facts: MirrorFacts, now_ms: int) -> RegionsPage:
    """Return the page's values."""
    why = _not_current(mirror_facts, now_ms)
    named = {str(each[end]) for each in mirror_facts.mirrors for end in ("source", "target") if end in each}
    names = sorted(named | mirror_facts.clusters.keys())
    return RegionsPage(
        mirror_facts.declared,
        mirror_facts.asked_at_ms,
        mirror_facts.error,
        tuple(_region(name, mirror_facts, why) for name in names),
        tuple(region_link(each, why) for each in mirror_facts.mirrors if "source" in each),
    )


def region_link(status: Status, why: str = "") -> RegionLink:
    """Return one mirror's values. ``status``: also the short one of a target that does not answer. ``why``:
    why the statuses are not current; then everything is unknown.
    """
    name, declared = str(status["mirror"]), str(status.get("declared", status["mirror"]))
    ends = (name, str(status["source"]), str(status["target"]))
    back_of = declared if declared != name else ""
    if why or "workers" not in status:
        return RegionLink(*ends, "unknown", why or str(status.get("reason", "")), "UNKNOWN", back_of)
    state = str(status["state"])
    rests = handed_over(status)
    lag_s = None if rests else status["lag_s"]
    last = (status.get("rehearsal") or {}).get("last")
    return RegionLink(
        *ends,
        state,
        str(status["reason"]),
        TONES.get(state, "UNKNOWN"),
        back_of,
        status["records_per_s"],
        status["bytes_per_s"],
        lag_s,
        # Workers measure with a hundredth of the lag, and report tenths of a second.
        None if lag_s is None else round(lag_s / 100 + 0.05, 2),
        lag_s is not None and any(row["worker"] is None for row in _carried(status)),
        None if rests else status["lag_records"],
        not rests and not ends_of_now(status),
        last["state"] if last is not None else None,
        last["started_at_ms"] if last is not None else None,
        (status.get("rehearsal") or {}).get("overdue_s"),
    )


def worst_tone(links: Iterable[RegionLink]) -> str:
    """Return the color of several mirrors together: that of the worst, where unknown is worse than paused."""
    return min((each.tone for each in links), key=_WORST.index)


def _not_current(mirror_facts: MirrorFacts, now_ms: int) -> str:
    """Return why the statuses do not hold now; "": they do."""
    if mirror_facts.error is not None:
        return mirror_facts.error
    if mirror_facts.asked_at_ms is None:
        return "the clusters are being asked"
    age_ms = now_ms - mirror_facts.asked_at_ms
    return "" if age_ms <= MIRRORS_STALE_MS else f"the clusters last reported {age_ms // 1000} s ago"


def _carried(status: Status) -> list[Mapping[str, Any]]:
    return [row for row in status.get("partitions", ()) if row["state"] not in ("left", "paused")]


def _region(name: str, mirror_facts: MirrorFacts, why: str) -> Region:
    """Return what is heard of a cluster: by the mirrors to it, which were read there, and those from it."""
    acting = {
        str(home): str(at)
        for each in mirror_facts.mirrors
        for home, at in each.get("acting", {}).items()
        if not why
    }
    state, reason = ("unknown", why) if why else _reported_state(name, mirror_facts.mirrors)
    served_by = acting.get(name, "")
    return Region(
        name,
        mirror_facts.clusters.get(name, ""),
        state,
        reason,
        name in mirror_facts.here,
        served_by if served_by != name else "",
    )


def _reported_state(name: str, statuses: Sequence[Status]) -> tuple[str, str]:
    """Return state and reason of a cluster. Its answer to anybody counts."""
    to = [each for each in statuses if each.get("target") == name and not each.get("closed")]
    ages = [
        0.0 if any(row.get("source_end_s") == 0 for row in each["partitions"]) else each.get("source_heard_s")
        for each in statuses
        if each.get("source") == name and "workers" in each
    ]
    reported_s = min((age for age in ages if age is not None), default=None)
    if any("workers" in each for each in to) or (reported_s is not None and reported_s <= REPORT_MAX_AGE_S):
        return "answers", ""
    if to:
        return "silent", str(to[0].get("reason", ""))
    if reported_s is not None:
        return "silent", f"its last report was {reported_s:.0f} s ago"
    return "unknown", "nothing was heard of it"
