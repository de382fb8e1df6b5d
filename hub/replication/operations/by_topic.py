"""[shell] The topics of a mirror that a command means, and their states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hub.errors import CallerError, NotFound, PeerError, did_you_mean
from hub.replication.clusters.clusters import topics_of
from hub.replication.clusters.control_state import joined
from hub.replication.clusters.readers import read_progress
from hub.replication.config.mirrors import checked_pattern
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.links import Link, home_of
from hub.replication.ownership.topic_state import Action, TopicState, check_accepts, topic_state
from hub.topics.tree.tree import matches


def states_of(world: MirroredClusters, link: Link, patterns: Sequence[str]) -> list[TopicState]:
    """Return the states of a mirror's topics that fit any of the patterns, by name: those that exist at its
    source, and those that it mirrored before.

    Raises NotFound for a pattern that fits none, CallerError for an invalid one, PeerError when the target
    does not answer.
    """
    known = {tp.topic for tp in read_progress(world.clusters[link.target], maps=False).of(link.name)}
    there: set[str] = set()
    boards = world.control_states()
    if link.target not in boards:
        raise PeerError(
            f"{link.target} does not answer", hint="a mirror's state is at its target", code="HUB-3613"
        )
    for side in (link.source, link.target):
        if world.is_up(side):
            there |= topics_of(world.clusters[side]).keys()
    every = sorted(known | {topic for topic in there if link.mirror.selects(topic)})
    found = {topic for pattern in patterns for topic in _fitting(pattern, every, link)}
    control = joined(board.control for board in boards.values())
    paused = {key: by for board in boards.values() for key, by in board.paused.items()}
    return [topic_state(link, topic, home_of(world.file, topic), control, paused) for topic in sorted(found)]


def _fitting(pattern: str, topics: Sequence[str], link: Link) -> list[str]:
    try:
        checked_pattern(pattern)
    except ValueError as error:
        raise CallerError(f"--topic: {error}") from None
    found = [topic for topic in topics if matches(pattern, topic)]
    if not found:
        raise NotFound(
            f'mirror "{link.declared}" has no topic that fits "{pattern}"',
            hint=did_you_mean(pattern, topics, f"hub mirror status {link.declared} shows its topics"),
        )
    return found


def check_all(states: Iterable[TopicState], action: Action) -> list[str]:
    """Return the names of the topics. Raises Conflict (HUB-1973) if one of them does not accept the command:
    then nothing is done.
    """
    names = []
    for each in states:
        check_accepts(each, action)
        names.append(each.topic)
    return names
