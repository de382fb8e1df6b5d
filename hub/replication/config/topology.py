"""[core] Topology: which mirror carries which topic, and the proof that no record travels in a cycle.

A topic has at most one owner: the cluster whose ``owns`` fits it most closely. For one topic, the mirrors
that carry it must form a tree rooted at its owner: none leads into the owner, at most one into each other
cluster, and each begins where the topic exists. Then every record crosses every link once and never returns,
for any links between the clusters, including rings and full meshes.

This is decided before any topic exists. Only the set of the file's patterns that fit a topic's name matters,
and the number of such sets is finite: ``representatives`` makes one name for each of them (product of
automata, one label per input symbol), and each is checked. So the result is exact, not a guess about patterns
that look alike. label_classes.py makes the input symbols: the labels that the patterns distinguish.

After a failover a cluster has the ownership of another one (``acting``); topics of the former owner are
checked as if the new one owned them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hub.replication.config.label_classes import distinct_labels, too_many_overlaps
from hub.replication.config.mirrors import Mirror, MirrorsFile
from hub.schema_registry.policy.label_patterns import Labels, labels_of
from hub.topics.tree.tree import matches

Acting = Mapping[str, str]

_MOST_STATES = 20_000


@dataclass(frozen=True, slots=True)
class MirrorRefusal:
    """Reason why mirrors may not run as configured: the ``mirrors``, an example ``topic``, and a hint."""

    mirrors: tuple[str, ...]
    topic: str
    reason: str
    hint: str

    def __str__(self) -> str:
        return f"✗ {', '.join(self.mirrors)}: {self.reason}\n  Hint: {self.hint}"


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The mirrors that carry one topic. ``owner`` None: no cluster owns it. ``left_out``: mirrors whose
    patterns fit and that do not carry it, with the reason.
    """

    topic: str
    owner: str | None
    mirrors: tuple[str, ...]
    left_out: Mapping[str, str]
    refusals: tuple[MirrorRefusal, ...]


def owners(file: MirrorsFile, topic: str, acting: Acting | None = None) -> tuple[str, ...]:
    """Return the clusters that own a topic: one, none, or several when their patterns fit it equally closely.

    ``acting``: by cluster, the one that has its ownership since a failover.
    """
    fitting = [
        (_closeness(pattern), (acting or {}).get(name, name))
        for name, cluster in file.clusters.items()
        for pattern in cluster.owns
        if matches(pattern, topic)
    ]
    closest = max((closeness for closeness, _ in fitting), default=None)
    return tuple(sorted({name for closeness, name in fitting if closeness == closest}))


def route(file: MirrorsFile, topic: str, acting: Acting | None = None) -> TopicRoute:
    """Return the mirrors that carry a topic. One without an owner may begin in every cluster that no mirror
    leads to.
    """
    found = owners(file, topic, acting)
    owner = found[0] if len(found) == 1 else None
    carrying: list[str] = []
    left_out: dict[str, str] = {}
    for name, mirror in file.mirrors.items():
        if not mirror.selects(topic):
            continue
        why = _why_not(file, name, found)
        if why is None:
            carrying.append(name)
        else:
            left_out[name] = why
    carrying, unreached = _reached(file, carrying, owner)
    refusals = list(_refused(file, topic, found, carrying, unreached))
    for name in unreached:
        left_out[name] = f"the topic does not come to {file.mirrors[name].source}"
    return TopicRoute(topic, owner, tuple(carrying), left_out, tuple(refusals))


def check(file: MirrorsFile, acting: Acting | None = None) -> tuple[MirrorRefusal, ...]:
    """Return everything that is wrong with the graph, for all possible topics; each problem once."""
    found: dict[tuple[tuple[str, ...], str], MirrorRefusal] = {}
    fitting: dict[str, set[str]] = {name: set() for name in file.mirrors}
    for topic in representatives(_patterns(file)):
        each = route(file, topic, acting)
        for name in each.mirrors:
            fitting[name].update(pattern for pattern in file.mirrors[name].topics if matches(pattern, topic))
        for refusal in each.refusals:
            kind = (refusal.mirrors, refusal.reason.replace(topic, ""))
            found.setdefault(kind, refusal)
    if not acting:
        for name, mirror in file.mirrors.items():
            for pattern in mirror.topics:
                if pattern not in fitting[name] and not any(name in each.mirrors for each in found.values()):
                    refusal = _carries_nothing(file, name, pattern)
                    found.setdefault((refusal.mirrors, refusal.reason), refusal)
    for name, mirror in file.mirrors.items():
        for key, rules in (("only", mirror.only), ("mask", mirror.mask)):
            for pattern in {each: None for rule in rules for each in rule.topics}:
                if not _meets(mirror, pattern):
                    found[(name,), f"{key} {pattern}"] = MirrorRefusal(
                        (name,),
                        pattern,
                        f'`{key}` of "{pattern}" is about no topic of this mirror: nothing would come of it',
                        "change its pattern: values that should be masked would pass unchanged",
                    )
    return tuple(found.values())


def _meets(mirror: Mirror, pattern: str) -> bool:
    """Return whether a topic can exist that the mirror selects and the pattern fits."""
    names = representatives([*mirror.topics, *mirror.exclude, pattern])
    return any(mirror.selects(name) and matches(pattern, name) for name in names)


def representatives(patterns: Iterable[str]) -> list[str]:
    """Return names such that every possible name fits the same patterns as one of them. Shortest first.

    Raises ConfigError (HUB-1604) when there are too many cases to distinguish.
    """
    parts = sorted({labels_of(pattern) for pattern in patterns})
    letters = distinct_labels({label for part in parts for label in part} - {"*", "**"}, _MOST_STATES)
    start = tuple(_closed(part, {0}) for part in parts)
    reached: dict[tuple[frozenset[int], ...], str] = {start: ""}
    cases: dict[tuple[bool, ...], str] = {}
    edge = [start]
    while edge:
        following: list[tuple[frozenset[int], ...]] = []
        for state in edge:
            name = reached[state]
            for letter in letters:
                after = tuple(_after(part, each, letter) for part, each in zip(parts, state, strict=True))
                longer = f"{name}.{letter}" if name else letter
                cases.setdefault(
                    tuple(len(part) in each for part, each in zip(parts, after, strict=True)), longer
                )
                if after not in reached:
                    reached[after] = longer
                    following.append(after)
        if len(reached) > _MOST_STATES:
            raise too_many_overlaps()
        edge = following
    return list(cases.values())


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """The parts of a file that decide about the topics that one mirror selects. ``mirrors``: all mirrors that
    select one of them, itself included. ``owners``: (cluster, pattern of its ``owns``) that fit one of them.
    """

    mirrors: frozenset[str]
    owners: frozenset[tuple[str, str]]


def neighborhoods(file: MirrorsFile) -> dict[str, Neighborhood]:
    """Return the neighborhood of every mirror, for any topics that there may ever be. Raises ConfigError
    (HUB-1604).
    """
    mirrors: dict[str, set[str]] = {name: {name} for name in file.mirrors}
    owned: dict[str, set[tuple[str, str]]] = {name: set() for name in file.mirrors}
    for topic in representatives(_patterns(file)):
        selecting = [name for name, mirror in file.mirrors.items() if mirror.selects(topic)]
        owning = [
            (name, pattern)
            for name, cluster in file.clusters.items()
            for pattern in cluster.owns
            if selecting and matches(pattern, topic)
        ]
        for name in selecting:
            mirrors[name].update(selecting)
            owned[name].update(owning)
    return {name: Neighborhood(frozenset(mirrors[name]), frozenset(owned[name])) for name in file.mirrors}


def _patterns(file: MirrorsFile) -> Iterable[str]:
    for cluster in file.clusters.values():
        yield from cluster.owns
    for mirror in file.mirrors.values():
        yield from (*mirror.topics, *mirror.exclude)


def _closed(part: Labels, states: Iterable[int]) -> frozenset[int]:
    """Return the states with those that ``**`` may skip to."""
    found = set(states)
    for state in sorted(found):
        at = state
        while at < len(part) and part[at] == "**":
            at += 1
            found.add(at)
    return frozenset(found)


def _after(part: Labels, states: frozenset[int], letter: str) -> frozenset[int]:
    found = set()
    for state in states:
        if state == len(part):
            continue
        if part[state] == "**":
            found.add(state)
        elif part[state] in ("*", letter) or ("*" in part[state] and matches(part[state], letter)):
            found.add(state + 1)
    return _closed(part, found)


def _closeness(pattern: str) -> tuple[int, int, int, int, int]:
    """Return the sort key of a pattern. More literal labels are closer, then more labels with a ``*``
    inside. Then no ``**``, then more ``*``: each fixes the number of labels. Then more written characters in
    those labels.
    """
    labels = labels_of(pattern)
    stars = labels.count("*")
    deep = labels.count("**")
    partly = [label for label in labels if "*" in label and label not in ("*", "**")]
    literal = len(labels) - stars - deep - len(partly)
    return literal, len(partly), -deep, stars, sum(len(label) - label.count("*") for label in partly)


def _why_not(file: MirrorsFile, name: str, owning: Sequence[str]) -> str | None:
    mirror, rule = file.mirrors[name], file.rule(name)
    if rule == "any":
        return None
    if not owning:
        return "it has no owner"
    if rule == "source" and mirror.source not in owning:
        return f"{owning[0]} owns it, not {mirror.source}"
    if rule == "transit" and mirror.target in owning:
        return f"{mirror.target} owns it"
    return None


def _reached(file: MirrorsFile, carrying: Sequence[str], owner: str | None) -> tuple[list[str], list[str]]:
    """Split the mirrors into those whose source the topic reaches, and the others."""
    plain = [name for name in carrying if file.mirrors[name].rename is None]
    into = {file.mirrors[name].target for name in plain}
    if owner is not None:
        have = {owner}
    else:
        sources = {file.mirrors[name].source for name in carrying}
        have = sources - into or sources
    waiting = list(carrying)
    moving: list[str] = []
    while ready := [name for name in waiting if file.mirrors[name].source in have]:
        moving += ready
        # A renamed copy is another topic there.
        have |= {file.mirrors[name].target for name in ready if name in plain}
        waiting = [name for name in waiting if name not in ready]
    return [name for name in carrying if name in moving], waiting


def _refused(
    file: MirrorsFile, topic: str, owning: Sequence[str], carrying: Sequence[str], unreached: Sequence[str]
) -> Iterable[MirrorRefusal]:
    plain = [name for name in carrying if file.mirrors[name].rename is None]
    if len(owning) > 1 and plain:
        yield MirrorRefusal(
            tuple(plain),
            topic,
            f'topic "{topic}" is owned by {" and ".join(owning)} alike',
            "let one of their patterns be closer (more labels written out), or take it from one of them",
        )
        return
    for name in plain:
        if (target := file.mirrors[name].target) in owning:
            yield MirrorRefusal(
                (name,),
                topic,
                f'topic "{topic}" is owned by {target}, and the mirror would write it there',
                "say `owner: source`, or exclude what the target owns",
            )
    for name in unreached:
        if file.rule(name) == "any":
            source, owner = file.mirrors[name].source, owning[0] if owning else "nobody"
            yield MirrorRefusal(
                (name,),
                topic,
                f'topic "{topic}" is owned by {owner}, not by {source}, and no mirror brings it there',
                f"exclude it, add it to what {source} owns, or mirror it to {source} first",
            )
    writers: dict[str, list[str]] = {}
    for name in plain:
        writers.setdefault(file.mirrors[name].target, []).append(name)
    for target, names in writers.items():
        if len(names) > 1:
            yield MirrorRefusal(
                tuple(names),
                topic,
                f'topic "{topic}" would be written at {target} by {len(names)} mirrors',
                "exclude it from all but one of them",
            )
    cycle = _cycle(file, plain)
    if cycle:
        around = " -> ".join([*(file.mirrors[name].source for name in cycle), file.mirrors[cycle[0]].source])
        yield MirrorRefusal(
            tuple(cycle),
            topic,
            f'topic "{topic}" would travel in a cycle: {around}',
            "say in `owns` which cluster owns which labels",
        )


def _cycle(file: MirrorsFile, carrying: Sequence[str]) -> list[str]:
    """Return the mirrors of one cycle, in order; [] when there is none."""
    leaving: dict[str, list[str]] = {}
    for name in carrying:
        leaving.setdefault(file.mirrors[name].source, []).append(name)
    done: set[str] = set()
    for start, first in leaving.items():
        path: list[str] = []
        on_path = [start]
        tries = [iter(first)]
        while tries:
            link = next(tries[-1], None)
            if link is None:
                done.add(on_path.pop())
                tries.pop()
                if path:
                    path.pop()
                continue
            target = file.mirrors[link].target
            if target in on_path:
                return [*path[on_path.index(target) :], link]
            if target not in done and target in leaving:
                path.append(link)
                on_path.append(target)
                tries.append(iter(leaving[target]))
    return []


def _carries_nothing(file: MirrorsFile, name: str, pattern: str) -> MirrorRefusal:
    mirror = file.mirrors[name]
    owned = ", ".join(file.clusters[mirror.source].owns) or "nothing"
    return MirrorRefusal(
        (name,),
        pattern,
        f'"{pattern}" can carry nothing: the rule is `owner: {file.rule(name)}`, and '
        f"{mirror.source} owns {owned}",
        f"change the pattern, what {mirror.source} owns, or the rule (transit: also "
        "what other mirrors bring)",
    )
