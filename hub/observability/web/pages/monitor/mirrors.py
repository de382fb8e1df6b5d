"""[core] Page of mirrors: the state of each mirror, and a checklist whether its target could take over
now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hub.observability.web.pages.mirror_actions import offered
from hub.observability.web.pages.monitor.mirror_checks import ChecklistItem, checks, handed_over

MOST_PARTITIONS = 100
MOST_GROUPS = 100
MOST_TOPICS = 100
MOST_LOST = 10


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
    records that the last failover left behind. ``topics``: state of each topic and the commands that it
    accepts, those that are not just mirrored first.
    ``actions``: operations of the whole mirror that fit its state.
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
    topics: tuple[Mapping[str, Any], ...] = ()
    more_topics: int = 0
    actions: tuple[str, ...] = ()


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
    topics = sorted(
        status.get("topic_states", ()), key=lambda row: (row["state"] == "mirroring", row["topic"])
    )
    return MirrorCard(
        name,
        {key: value for key, value in status.items() if key not in ("partitions", "groups", "topic_states")},
        checks(status),
        commands(status, clusters or {}),
        tuple(partitions[:MOST_PARTITIONS]),
        max(0, len(partitions) - MOST_PARTITIONS),
        tuple(groups[:MOST_GROUPS]),
        max(0, len(groups) - MOST_GROUPS),
        declared if declared != name else "",
        handed_over(status),
        tuple(left_behind_lines(status, MOST_LOST)),
        tuple(topics[:MOST_TOPICS]),
        max(0, len(topics) - MOST_TOPICS),
        offered(status, handed_over=handed_over(status)),
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
        reported_ms = status.get("lost_heard_at_ms")
        when = "never reported" if reported_ms is None else f"last reported at {_clock(reported_ms)}"
        yield (
            f"how much stayed at {source} is unknown: it did not answer and {when}. Start it again: "
            "hub mirror status then"
            " counts it"
        )
    elif rows:
        yield (
            f"only {source} has these records: look at them with hub mirror left-behind {status['mirror']}; "
            f"hub mirror failback {status['mirror']} carries them over (--replay, --merge), declares "
            "them lost (--discard) or removes them (--restore)"
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


def commands(status: Mapping[str, Any], clusters: Mapping[str, str]) -> tuple[MirrorCommand, ...]:
    """Return the commands that are possible now.

    Others would be refused: an owner cannot take over, and a cluster that owns its topics cannot fail back.
    """
    declared = str(status.get("declared", status["mirror"]))
    if "workers" not in status:
        return (
            MirrorCommand(
                "No failover or failback is possible while the target does not answer",
                f"hub mirror status {declared}",
            ),
        )
    for each in status["operations"]:
        return (
            MirrorCommand(
                f"Continue the {each['kind']} that is in progress", f"hub mirror resume {declared}"
            ),
            MirrorCommand(
                "Or undo it, while ownership has not moved", f"hub mirror resume {declared} --abort"
            ),
        )
    is_back = declared != status["mirror"]
    home, away = (status["target"], status["source"]) if is_back else (status["source"], status["target"])
    at_home, at_away = _address(home, clusters), _address(away, clusters)
    if is_back or handed_over(status):
        return _ways_home(declared, home, at_home, at_away)
    return _ways_away(declared, home, at_home, at_away)


def _ways_home(mirror: str, home: str, at_home: str, at_away: str) -> tuple[MirrorCommand, ...]:
    """Return the commands that give ownership back, in the order of the checklist."""
    return (
        MirrorCommand(
            f"Look at the records that only {home} has",
            f"hub mirror left-behind {mirror}",
            "Then choose what becomes of them: --replay (the default), --merge, --discard or --restore. With "
            "--export DIR they are written to files first, with a signed report.",
        ),
        MirrorCommand(
            "Rehearse the way home: changes nothing",
            f"hub mirror failback {mirror} --merge --dry-run",
            "It counts the records that only one side has, in each partition.",
        ),
        MirrorCommand(
            f"Give it back to {home}, which is well again",
            f"hub mirror failback {mirror}",
            f"Records of {home} that were not mirrored are appended after the records written since. "
            f"With --merge superseded records of compacted topics are left out; --discard declares all "
            f"lost; --restore --export DIR makes the topics of {home} again from the other side. Stop "
            f"writers and readers at {at_away} when the command asks for it (with --merge before), "
            f"start them at {at_home} when it is done.",
        ),
    )


def _ways_away(mirror: str, home: str, at_home: str, at_away: str) -> tuple[MirrorCommand, ...]:
    """Return the commands that take or hand over ownership."""
    return (
        MirrorCommand("Rehearse a failover: changes nothing", f"hub mirror drill {mirror}"),
        MirrorCommand(
            f"Fail over: {home} is gone",
            f"hub mirror failover {mirror}",
            f"It reports the losses and asks for the name. Then point writers and readers to {at_away}: "
            f"groups continue at their positions. Keep producers out of {home} with its access rules until "
            f"the failback.",
        ),
        MirrorCommand("Rehearse a switchover", f"hub mirror drill {mirror} --kind switchover"),
        MirrorCommand(
            f"Hand over: {home} is well",
            f"hub mirror switchover {mirror}",
            f"Stop writers and readers at {at_home} first: it waits until all is carried. Then start them "
            f"at {at_away}: nothing is"
            " lost or read twice.",
        ),
    )


def _address(cluster: str, clusters: Mapping[str, str]) -> str:
    return f"{cluster} ({clusters[cluster]})" if cluster in clusters else cluster
