"""[core] Checks of mirrors that rename their copies, for all possible topics.

A renamed copy is another topic in its cluster, and only its mirror may write it: no other mirror may write a
topic of its name there, no cluster but the source may own its name, and no mirror carries it on, because it
could be renamed again and again. A topic that can fail over has one copy in each cluster, renamed or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hub.errors import ConfigError
from hub.replication.config.mirrors import Mirror, MirrorsFile
from hub.replication.config.topic_names import every_copy, names_of, pattern_at_target
from hub.replication.config.topology import MirrorRefusal, owners, representatives


def renaming_refusals(file: MirrorsFile) -> tuple[MirrorRefusal, ...]:
    """Return everything that is wrong with renamed copies, each problem once. Raises ConfigError (HUB-1604,
    HUB-1605).
    """
    found: dict[tuple[tuple[str, ...], str], MirrorRefusal] = {}
    for name, mirror in file.mirrors.items():
        if mirror.rename is None:
            continue
        for refusal in (*_of_copies(file, name, mirror), *_of_topics(file, name, mirror)):
            found.setdefault((refusal.mirrors, refusal.hint), refusal)
    return tuple(found.values())


def _of_copies(file: MirrorsFile, name: str, mirror: Mirror) -> Iterator[MirrorRefusal]:
    """Yield what is wrong with the names of the copies at the target."""
    names = names_of(mirror.rename)
    owned = [pattern for cluster in file.clusters.values() for pattern in cluster.owns]
    beside = {
        other: each
        for other, each in file.mirrors.items()
        if other != name and mirror.target in (each.source, each.target)
    }
    patterns = [*_copied(name, mirror), *owned]
    for other, each in beside.items():
        patterns += _copied(other, each) if each.target == mirror.target else [*each.topics, *each.exclude]
    for copy in representatives(patterns):
        topic = names.at_source(copy)
        if topic is None or not mirror.selects(topic):
            continue
        others = set(owners(file, copy)) - {mirror.source}
        if others:
            yield MirrorRefusal(
                (name,),
                topic,
                f'topic "{topic}" would be renamed to "{copy}", which {min(others)} owns',
                f"rename to a name that no cluster owns, or take it from what {min(others)} owns",
            )
        for other, each in beside.items():
            yield from _beside(name, topic, copy, other, each, mirror.target)


def _beside(
    name: str, topic: str, copy: str, other: str, mirror: Mirror, target: str
) -> Iterator[MirrorRefusal]:
    """Yield what another mirror into or out of the target would do with a copy."""
    if mirror.target == target:
        theirs = names_of(mirror.rename).at_source(copy)
        if theirs is not None and mirror.selects(theirs):
            yield MirrorRefusal(
                (name, other),
                topic,
                f'topic "{topic}" would be renamed to "{copy}" at {target}, which {other} writes, too',
                f"use another prefix in one of them, or exclude it from {other}",
            )
    elif mirror.selects(copy):
        yield MirrorRefusal(
            (name, other),
            topic,
            f'topic "{topic}" would be renamed to "{copy}" at {target}, and {other} would carry the copy on',
            f"exclude the copies from {other}: renamed topics go over one mirror",
        )


def _of_topics(file: MirrorsFile, name: str, mirror: Mirror) -> Iterator[MirrorRefusal]:
    """Yield the topics that can fail over and that other mirrors have at the target under their own name."""
    beside = {
        other: each
        for other, each in file.mirrors.items()
        if other != name and mirror.target in (each.source, each.target)
    }
    owned = [pattern for cluster in file.clusters.values() for pattern in cluster.owns]
    more = [pattern for each in beside.values() for pattern in (*each.topics, *each.exclude)]
    for topic in representatives([*mirror.topics, *mirror.exclude, *owned, *more]):
        if not mirror.selects(topic) or owners(file, topic) != (mirror.source,):
            continue
        for other, each in beside.items():
            if each.selects(topic):
                yield MirrorRefusal(
                    (name, other),
                    topic,
                    f'topic "{topic}" of {mirror.source} has another name at {mirror.target}, and {other} '
                    "means a topic of its own name there",
                    f"exclude it from {other}, or let {mirror.target} own topics of that name, too, "
                    "and give up failovers of both",
                )


def _copied(name: str, mirror: Mirror) -> Sequence[str]:
    """Return the patterns of a mirror as they are at its target. Raises ConfigError (HUB-1605)."""
    names = names_of(mirror.rename)
    try:
        copied = [pattern_at_target(names, each) for each in (*mirror.topics, *mirror.exclude)]
        return copied if names.are_equal else [*copied, *every_copy(names)]
    except ValueError as error:
        raise ConfigError(f"mirror {name}: rename: {error}", code="HUB-1605") from None
