"""[core] Page of mirrors: the state of each mirror, and a checklist whether its target could take over
now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hub.observability.format import count, seconds

MOST_PARTITIONS = 100
MOST_GROUPS = 100
MOST_LOST = 10
SILENT_S = 10.0
HEARD_S = 60.0  # the source's ends are read every few seconds


@dataclass(frozen=True, slots=True)
class ChecklistItem:
    """A point of the checklist. ``state``: "ok", "bad" or "unknown"."""

    state: str
    what: str


@dataclass(frozen=True, slots=True)
class MirrorCommand:
    """A command, its purpose, and ``around``: the steps for people before and after it."""

    what: str
    command: str
    around: str = ""


@dataclass(frozen=True, slots=True)
class MirrorCard:
    """Values of one mirror.

    ``status``: as in ``hub mirror status -o json``, with its partitions limited, worst first. ``back_of``:
    the mirror of which this is the reverse link, which is not declared itself. ``handed_over``: the target
    owns the source's topics. ``commands``: commands that would be accepted now. ``lost``: lines on the
    records that the last failover left behind.
    """

    name: str
    status: Mapping[str, Any]
    checks: tuple[ChecklistItem, ...]
    commands: tuple[MirrorCommand, ...]
    partitions: tuple[Mapping[str, Any], ...]
    more_partitions: int
    groups: tuple[Mapping[str, Any], ...] = ()
    more_groups: int = 0
    back_of: str = ""
    handed_over: bool = False
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MirrorFacts:
    """Last known status of all mirrors.

    ``declared`` False: there is no mirrors.yaml. ``asked_at_ms`` None: not read yet. ``here``: the names of
    this cluster in the file; ``clusters``: the first address of each.
    """

    mirrors: Sequence[Mapping[str, Any]] = ()
    asked_at_ms: int | None = None
    declared: bool = True
    error: str | None = None
    here: frozenset[str] = frozenset()
    clusters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MirrorsPage:
    """Values of the page. ``asked_at_ms`` None: the clusters are being read for the first time."""

    declared: bool
    asked_at_ms: int | None
    error: str | None
    mirrors: tuple[MirrorCard, ...]


def mirrors_page(known: MirrorFacts) -> MirrorsPage:
    """Return the page's values."""
    return MirrorsPage(
        known.declared,
        known.asked_at_ms,
        known.error,
        tuple(mirror(each, known.clusters) for each in known.mirrors),
    )


def mirror(status: Mapping[str, Any], clusters: Mapping[str, str] | None = None) -> MirrorCard:
    """Return one mirror's values. ``status``: may be the short one of a cluster that does not answer.
    ``clusters``: addresses by name."""
    name = str(status["mirror"])
    declared = str(status.get("declared", name))
    partitions = sorted(
        status.get("partitions", ()),
        key=lambda row: (not row["reason"], -(row["lag_records"] or 0), row["topic"]),
    )
    groups = sorted(status.get("groups", ()), key=lambda row: (-row["rpo_records"], row["group"]))
    return MirrorCard(
        name,
        {key: value for key, value in status.items() if key not in ("partitions", "groups")},
        checks(status),
        commands(status, clusters or {}),
        tuple(partitions[:MOST_PARTITIONS]),
        max(0, len(partitions) - MOST_PARTITIONS),
        tuple(groups[:MOST_GROUPS]),
        max(0, len(groups) - MOST_GROUPS),
        declared if declared != name else "",
        _handed_over(status),
        tuple(left_behind_lines(status, MOST_LOST)),
    )


def left_behind_lines(status: Mapping[str, Any], most: int | None = None) -> Iterator[str]:
    """Return lines on the records that the last failover left at the source, and how to recover them; of
    at most ``most`` partitions."""
    lost, known, source = status.get("lost", ()), status.get("lost_known", True), status.get("source")
    rows = [row for row in lost if row["end"] > row["first"]]
    yield from (_lost_line(status, row) for row in rows[:most])
    if most is not None and len(rows) > most:
        yield f"{len(rows) - most} partitions more: hub mirror status {status['mirror']}"
    if not known:
        heard = status.get("lost_heard_at_ms")
        when = "was never heard" if heard is None else f"was last heard at {_clock(heard)}"
        yield (
            f"how much stayed at {source} is unknown: it did not answer and {when}. Start it again: hub mirror status then"
            " counts it"
        )
    elif rows:
        yield (
            f"only {source} has these records: look at them with hub mirror left-behind {status['mirror']}; hub mirror failback"
            f" {status['mirror']} carries them over (--tail replay) or declares them lost (--tail discard)"
        )
    took_over = f"when {status.get('target')} took over"
    again, least = status.get("redelivered", 0), status.get("redelivered_at_least", 0)
    if again:
        yield f"{again:,} record{'s were' if again != 1 else ' was'} read again {took_over}"
    elif again is None:
        most_again = status.get("redelivered_at_most")
        upper = "" if most_again is None else f" and at most {most_again:,}"
        yield f"at least {least:,}{upper} records were read again {took_over}"


def _lost_line(status: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    bound = "" if row["known"] else " at least"
    place = f"{row['topic']} partition {row['partition']}"
    stretch = f"offsets {row['first']} up to {row['end']}"
    return f"{place}: {stretch}{bound} stayed at {status['source']} when {status['target']} took over"


def _clock(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _handed_over(status: Mapping[str, Any]) -> bool:
    """Return whether the target of a declared mirror owns the source's topics."""
    acting = status.get("acting", {})
    is_back = str(status.get("declared", status["mirror"])) != status["mirror"]
    return not is_back and "source" in status and acting.get(status["source"]) == status["target"]


def commands(status: Mapping[str, Any], clusters: Mapping[str, str]) -> tuple[MirrorCommand, ...]:
    """Return the commands that are possible now.

    Others would be refused: an owner cannot take over, and a cluster that owns its topics cannot fail back.
    """
    declared = str(status.get("declared", status["mirror"]))
    if "workers" not in status:
        return (
            MirrorCommand(
                "Nobody can take over or give back while the target does not answer",
                f"hub mirror status {declared}",
            ),
        )
    for each in status["operations"]:
        return (
            MirrorCommand(
                f"Go on with the {each['kind']} that is under way", f"hub mirror resume {declared}"
            ),
            MirrorCommand(
                "Or undo it, while ownership is as it was", f"hub mirror resume {declared} --abort"
            ),
        )
    is_back = declared != status["mirror"]
    home, away = (status["target"], status["source"]) if is_back else (status["source"], status["target"])
    at_home, at_away = _address(home, clusters), _address(away, clusters)
    if is_back or _handed_over(status):
        return (
            MirrorCommand(
                "Rehearse the way home: changes nothing", f"hub mirror drill {declared} --kind failback"
            ),
            MirrorCommand(
                f"Give it back to {home}, which is well again",
                f"hub mirror failback {declared}",
                f"What {home} had and nobody mirrored is carried over behind what was born since; --tail discard declares it"
                f" lost. Stop writers and readers at {at_away} when it says so, start them at {at_home} when it is done.",
            ),
        )
    return (
        MirrorCommand("Rehearse a failover: changes nothing", f"hub mirror drill {declared}"),
        MirrorCommand(
            f"Take over: {home} is gone",
            f"hub mirror failover {declared}",
            f"It says what is lost and wants the name typed. Then point writers and readers to {at_away}: groups go on where they"
            f" were. Keep producers out of {home} by its access rules until it is given back.",
        ),
        MirrorCommand("Rehearse a switchover", f"hub mirror drill {declared} --kind switchover"),
        MirrorCommand(
            f"Hand over: {home} is well",
            f"hub mirror switchover {declared}",
            f"Stop writers and readers at {at_home} first: it waits until all is carried. Then start them at {at_away}: nothing is"
            " lost or read twice.",
        ),
    )


def _address(cluster: str, clusters: Mapping[str, str]) -> str:
    return f"{cluster} ({clusters[cluster]})" if cluster in clusters else cluster


def checks(status: Mapping[str, Any]) -> tuple[ChecklistItem, ...]:
    """Return the checklist whether the target could take over now; for one that has taken over, that it
    has."""
    if "workers" not in status:
        return (ChecklistItem("bad", f"The target does not answer: {status.get('reason', '')}"),)
    if _handed_over(status):
        acts = ChecklistItem("ok", f"{status['target']} acts for {status['source']}")
        return (acts, *_under_way(status))
    found = []
    workers = status["workers"]
    found.append(
        ChecklistItem("ok", f"{workers} worker{'s carry' if workers != 1 else ' carries'} it")
        if workers
        else ChecklistItem("bad", "No worker carries it: hub mirror run")
    )
    waiting, late = status["lag_records"], status["lag_s"]
    if waiting is None:
        found.append(ChecklistItem("unknown", "What the target lacks is not known"))
    elif waiting == 0 and not _ends_of_now(status):
        found.append(
            ChecklistItem(
                "unknown", "The target has all that was seen at the source; what came since is not known"
            )
        )
    elif waiting == 0 and (heard := status.get("source_heard_s")) is not None and heard > HEARD_S:
        found.append(
            ChecklistItem(
                "unknown",
                f"The target has all that the source had {seconds(heard)} ago; it was not heard since",
            )
        )
    elif waiting == 0:
        found.append(ChecklistItem("ok", "The target has every record of the source"))
    else:
        found.append(
            ChecklistItem(
                "bad",
                f"The target lacks {count(waiting)} record{'s' * (waiting != 1)} ({seconds(late)}):"
                " a failover would lose them",
            )
        )
    silent = max((beat["ago_s"] for beat in status["heartbeats"]), default=0.0)
    if silent > SILENT_S:
        found.append(ChecklistItem("bad", f"A worker was not heard of for {seconds(silent)}"))
    if status["restarts"]:
        found.append(
            ChecklistItem(
                "bad", f"A shard does not get on: it was restarted {count(status['restarts'])} times"
            )
        )
    found += _unreported(status)
    still = [row for row in status.get("partitions", ()) if row["reason"] and row["state"] != "unknown"]
    found.append(
        ChecklistItem("ok", "No partition stands still")
        if not still
        else ChecklistItem(
            "bad",
            f"{len(still)} partition{'s stand' if len(still) != 1 else ' stands'} still, first {still[0]['topic']}: {still[0]['reason']}",
        )
    )
    left = status["trouble"]
    if left:
        topic, why = min(left.items())
        found.append(
            ChecklistItem(
                "bad",
                f"{len(left)} topic{'s are' if len(left) != 1 else ' is'} not mirrored, first {topic}: {why}",
            )
        )
    masked = sorted(
        {row["topic"] for row in status.get("partitions", ()) if "mask " in row.get("engine_why", "")}
    )
    if masked:
        found.append(
            ChecklistItem(
                "bad",
                f"{len(masked)} cop{'ies are' if len(masked) != 1 else 'y is'} masked, first {masked[0]}: no stand-in for the"
                " original, and what is born there is not carried home",
            )
        )
    gaps = status["gaps"]
    found.append(
        ChecklistItem("ok", "No offsets are missing in between")
        if not gaps
        else ChecklistItem("bad", f"{len(gaps)} stretches of offsets are missing in the target")
    )
    if status["different"]:
        found.append(
            ChecklistItem(
                "bad",
                f"{count(status['different'])} partitions differ from the source: hub mirror verify {status['mirror']}",
            )
        )
    elif status["verified_s"] is None:
        found.append(ChecklistItem("unknown", "Nothing was compared yet"))
    else:
        rest = status["unverified_records"]
        but = f", {count(rest)} offsets were not" if rest else ""
        found.append(
            ChecklistItem(
                "ok", f"{count(status['verified_records'])} records were compared and are the same{but}"
            )
        )
    groups = status["groups"]
    behind = [group for group in groups if group["rpo_records"]]
    if not groups:
        found.append(ChecklistItem("unknown", "No consumer group is carried over"))
    elif behind:
        worst = max(behind, key=lambda group: group["rpo_s"])
        found.append(
            ChecklistItem(
                "bad",
                f"{len(behind)} of {len(groups)} groups would lose unread records, "
                f"{worst['group']} most: {seconds(worst['rpo_s'])}",
            )
        )
    else:
        found.append(ChecklistItem("ok", f"All {len(groups)} consumer groups go on where they are"))
    return (*found, *_under_way(status))


def _ends_of_now(status: Mapping[str, Any]) -> bool:
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
