"""[core] Topic settings: which a mirror copies, which its copies need, and which values lose records."""

from __future__ import annotations

from collections.abc import Callable, Mapping

# Settings that are copied from the source. All others are left to the target.
COPIED_SETTINGS: frozenset[str] = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)


# Settings that the copy needs, whatever the source has: records keep their timestamps, and may be old.
NEEDED: Mapping[str, str] = {
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
}


NEVER: frozenset[str] = frozenset(NEEDED)


UNLIMITED = -1


WHY_NEEDED: Mapping[str, Callable[[str, str], tuple[str, str]]] = {
    "compression.type": lambda own, needed: (
        f"compression.type is {own} at the target: its brokers would compress every batch again",
        "set it to producer, or say `engine: record` for the mirror",
    ),
    "message.timestamp.type": lambda own, needed: (
        f"message.timestamp.type is {own} at the target: it would overwrite every record's time",
        "set it to CreateTime",
    ),
    "message.timestamp.before.max.ms": lambda own, needed: (
        f"message.timestamp.before.max.ms is {own} at the target: it would refuse older records",
        "remove the setting: the default is unlimited",
    ),
}


# Settings whose lower value is less durable: the target keeps the higher.
RAISED_ONLY: frozenset[str] = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})


# Settings whose lower value deletes records.
LOSING: frozenset[str] = frozenset({"retention.ms", "retention.bytes", "cleanup.policy", "max.message.bytes"})


def narrower(key: str, one: str, other: str) -> bool:
    """Return whether ``one`` retains or accepts less than ``other``."""
    if key == "cleanup.policy":
        return "delete" in one and "delete" not in other
    if key == "unclean.leader.election.enable":
        return one.lower() == "true" and other.lower() != "true"
    mine, theirs = whole(one), whole(other)
    if mine is None or theirs is None or mine == theirs:
        return False
    if key.startswith("retention."):
        return mine != UNLIMITED and (theirs == UNLIMITED or mine < theirs)
    return mine < theirs


def whole(text: str | None) -> int | None:
    """Parse a whole number; None for anything else."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
