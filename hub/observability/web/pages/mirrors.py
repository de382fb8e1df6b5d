"""[core] Mirrors as a page: how each goes, and whether its target could take over now, point by point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hub.observability.web.format import count, seconds

MOST_PARTITIONS = 100
MOST_GROUPS = 100
SILENT_S = 10.0


@dataclass(frozen=True, slots=True)
class Check:
    """A point of the checklist: "ok", "bad", or "unknown"; and in words."""

    state: str
    what: str


@dataclass(frozen=True, slots=True)
class Mirror:
    """``status`` is what ``hub mirror status -o json`` tells; its partitions, worst first, are cut here. ``back_of``: the mirror
    whose way back it is, which nobody declares."""

    name: str
    status: Mapping[str, Any]
    checks: tuple[Check, ...]
    commands: tuple[tuple[str, str], ...]
    partitions: tuple[Mapping[str, Any], ...]
    more_partitions: int
    groups: tuple[Mapping[str, Any], ...] = ()
    more_groups: int = 0
    back_of: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """What was last heard. ``declared`` False: there is no mirrors.yaml. ``asked_at_ms`` None: not yet. ``here``: the file's
    names of this very cluster; ``clusters``: the first address of each."""

    mirrors: Sequence[Mapping[str, Any]] = ()
    asked_at_ms: int | None = None
    declared: bool = True
    error: str | None = None
    here: frozenset[str] = frozenset()
    clusters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MirrorsPage:
    """``asked_at_ms`` None: the clusters are being asked for the first time."""

    declared: bool
    asked_at_ms: int | None
    error: str | None
    mirrors: tuple[Mirror, ...]


def mirrors_page(known: Known) -> MirrorsPage:
    """The page's facts."""
    return MirrorsPage(
        known.declared, known.asked_at_ms, known.error, tuple(mirror(each) for each in known.mirrors)
    )


def mirror(status: Mapping[str, Any]) -> Mirror:
    """One mirror; ``status`` may be as short as that of a cluster that does not answer."""
    name = str(status["mirror"])
    declared = str(status.get("declared", name))
    partitions = sorted(
        status.get("partitions", ()),
        key=lambda row: (not row["reason"], -(row["lag_records"] or 0), row["topic"]),
    )
    groups = sorted(status.get("groups", ()), key=lambda row: (-row["rpo_records"], row["group"]))
    return Mirror(
        name,
        {key: value for key, value in status.items() if key not in ("partitions", "groups")},
        checks(status),
        (
            ("Rehearse it: changes nothing", f"hub mirror drill {declared} --kind failback"),
            ("Give it back", f"hub mirror failback {declared}"),
            ("It shall stay so", f"hub mirror promote {declared}"),
        )
        if declared != name
        else (
            ("Rehearse it: changes nothing", f"hub mirror drill {name}"),
            ("Hand over, the source is well", f"hub mirror switchover {name}"),
            ("Take over, the source is gone", f"hub mirror failover {name}"),
            ("Give it back", f"hub mirror failback {name}"),
        ),
        tuple(partitions[:MOST_PARTITIONS]),
        max(0, len(partitions) - MOST_PARTITIONS),
        tuple(groups[:MOST_GROUPS]),
        max(0, len(groups) - MOST_GROUPS),
        declared if declared != name else "",
    )


def checks(status: Mapping[str, Any]) -> tuple[Check, ...]:
    """Could the target take over now?"""
    if "workers" not in status:
        return (Check("bad", f"The target does not answer: {status.get('reason', '')}"),)
    found = []
    workers = status["workers"]
    found.append(
        Check("ok", f"{workers} worker{'s carry' if workers != 1 else ' carries'} it")
        if workers
        else Check("bad", "No worker carries it: hub mirror run")
    )
    waiting, late = status["lag_records"], status["lag_s"]
    if waiting is None:
        found.append(Check("unknown", "What the target lacks is not known"))
    elif waiting == 0:
        found.append(Check("ok", "The target has every record of the source"))
    else:
        found.append(
            Check(
                "bad",
                f"The target lacks {count(waiting)} record{'s' * (waiting != 1)} ({seconds(late)}):"
                " a failover would lose them",
            )
        )
    silent = max((beat["ago_s"] for beat in status["heartbeats"]), default=0.0)
    if silent > SILENT_S:
        found.append(Check("bad", f"A worker was not heard of for {seconds(silent)}"))
    if status["restarts"]:
        found.append(
            Check("bad", f"A shard does not get on: it was restarted {count(status['restarts'])} times")
        )
    still = [row for row in status.get("partitions", ()) if row["reason"]]
    found.append(
        Check("ok", "No partition stands still")
        if not still
        else Check(
            "bad",
            f"{len(still)} partition{'s stand' if len(still) != 1 else ' stands'} still, first {still[0]['topic']}: {still[0]['reason']}",
        )
    )
    gaps = status["gaps"]
    found.append(
        Check("ok", "No offsets are missing in between")
        if not gaps
        else Check("bad", f"{len(gaps)} stretches of offsets are missing in the target")
    )
    if status["different"]:
        found.append(
            Check(
                "bad",
                f"{count(status['different'])} partitions differ from the source: hub mirror verify {status['mirror']}",
            )
        )
    elif status["verified_s"] is None:
        found.append(Check("unknown", "Nothing was compared yet"))
    else:
        left = status["unverified_records"]
        but = f", {count(left)} offsets were not" if left else ""
        found.append(
            Check("ok", f"{count(status['verified_records'])} records were compared and are the same{but}")
        )
    groups = status["groups"]
    behind = [group for group in groups if group["rpo_records"]]
    if not groups:
        found.append(Check("unknown", "No consumer group is carried over"))
    elif behind:
        worst = max(behind, key=lambda group: group["rpo_s"])
        found.append(
            Check(
                "bad",
                f"{len(behind)} of {len(groups)} groups would lose unread records, "
                f"{worst['group']} most: {seconds(worst['rpo_s'])}",
            )
        )
    else:
        found.append(Check("ok", f"All {len(groups)} consumer groups go on where they are"))
    for each in status["operations"]:
        found.append(Check("bad", f"A {each['kind']} is under way, next: {each['next']}"))
    return tuple(found)
