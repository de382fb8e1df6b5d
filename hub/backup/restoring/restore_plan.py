"""[core] Plan of a restore: topics to create, topics to continue, and obstacles. Nothing is done while one
topic is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hub.backup.storage.manifest import SavedTopic
from hub.errors import HubError
from hub.log import NewTopic, TopicDescription

# Until all records are back, whose timestamps are their own and may be old.
_WHILE_RESTORING: Mapping[str, str] = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
    "compression.type": "producer",
    # Kept whole until the end: retention would delete old records while others are still to come.
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
_IN_SYNC = "min.insync.replicas"
_REPLICA_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@dataclass(frozen=True, slots=True)
class TopicRefusal:
    """A topic that forbids the restore."""

    topic: str
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class TopicRestore:
    """One topic: its name at the target, and what is created; None: it exists. ``settings``: changes after
    all records are back; None resets a setting to the cluster's default.
    """

    saved: SavedTopic
    name: str
    create: NewTopic | None
    settings: Mapping[str, str | None]
    note: str = ""


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The target cluster. ``begun``: ids of topics that this restore has begun to write, by name. ``empty``:
    topics without a committed record. ``unfinished``: topics that still have the settings of a restore.
    ``forbidden``: errors of topics that may not be written there, by name, because another cluster owns them.
    """

    topics: Mapping[str, TopicDescription]
    brokers: int
    begun: Mapping[str, str]
    empty: frozenset[str]
    unfinished: frozenset[str]
    forbidden: Mapping[str, HubError] = field(default_factory=dict)


def plan_topics(
    topics: Iterable[SavedTopic], prefix: str, target: TargetFacts
) -> tuple[tuple[TopicRestore, ...], tuple[TopicRefusal, ...]]:
    """Return a step for each topic, and the refusals."""
    steps: list[TopicRestore] = []
    refusals: list[TopicRefusal] = []
    for saved in topics:
        name = prefix + saved.name
        there = target.topics.get(name)
        if (error := target.forbidden.get(name)) is not None:
            refusals.append(_forbidden(name, error))
            continue
        if there is None:
            steps.append(_created(saved, name, target.brokers))
            continue
        refusal = _refusal(saved, name, there, target)
        if refusal is not None:
            refusals.append(refusal)
            continue
        unfinished = name in target.unfinished
        settings = final_settings(saved, there.replication_factor)[0] if unfinished else {}
        note = "" if unfinished or name in target.begun else f"topic {name} exists and keeps its settings"
        steps.append(TopicRestore(saved, name, None, settings, note))
    return tuple(steps), tuple(refusals)


def _refusal(
    saved: SavedTopic, name: str, there: TopicDescription, target: TargetFacts
) -> TopicRefusal | None:
    if there.partitions != len(saved.partitions):
        return TopicRefusal(
            name,
            f"it has {there.partitions} partitions, and {len(saved.partitions)} in the backup",
            "delete it, or restore under other names with --prefix",
        )
    if name in target.begun and target.begun[name] != there.kafkas_id:
        return TopicRefusal(
            name,
            "it was deleted and made again since this restore began",
            "restore under other names with --prefix",
        )
    if name not in target.begun and name not in target.empty:
        return TopicRefusal(
            name,
            "it has records that are not of this backup",
            "delete it, restore under other names with --prefix, or leave it out with patterns",
        )
    return None


def _forbidden(name: str, error: HubError) -> TopicRefusal:
    reason = error.message.removeprefix(f'topic "{name}": ').removesuffix("; nothing was written")
    hint = "restore at its owner, or under other names with --prefix; --ignore-ownership writes it here"
    return TopicRefusal(name, reason, hint)


def _created(saved: SavedTopic, name: str, brokers: int) -> TopicRestore:
    replicas = min(max(1, saved.replication_factor), brokers)
    settings, note = final_settings(saved, replicas)
    now = {key: value for key, value in saved.config.items() if key in settings or key not in _REPLICA_LISTS}
    if settings.get(_IN_SYNC, "") is None:
        now.pop(_IN_SYNC, None)
    new = NewTopic(name, len(saved.partitions), replicas, {**now, **_WHILE_RESTORING})
    return TopicRestore(saved, name, new, settings, note)


def is_unfinished(config: Mapping[str, str]) -> bool:
    """Return whether a topic's settings are those of a restore that has not ended."""
    return all(config.get(key) == value for key, value in _WHILE_RESTORING.items())


def final_settings(saved: SavedTopic, replicas: int) -> tuple[dict[str, str | None], str]:
    """Return the settings that a topic gets when all of its records are back,
    and what differs from the backup."""
    found: dict[str, str | None] = {key: saved.config.get(key) for key in _WHILE_RESTORING}
    least = saved.config.get(_IN_SYNC, "")
    if least.isdigit() and int(least) > replicas:
        found[_IN_SYNC] = None
        return (
            found,
            f"topic {saved.name}: {_IN_SYNC}={least} is left out, because it has {replicas} replicas",
        )
    return found, ""
