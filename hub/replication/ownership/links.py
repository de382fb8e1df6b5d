"""[core] Links: which link carries which topic now. Includes the ways back that a change of ownership needs.

A declared mirror is a link of the same name. When another cluster has the ownership of the topics of
``home``, records born there are sent home: through a declared mirror of that direction when one fits the
topic, else through ``<mirror>~back``, which needs no declaration. config/topology.py decides who carries what
while every home owns its own topics; failover.py decides which direction may run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hub.errors import CallerError, ConfigError, Conflict, NotFound, did_you_mean
from hub.log.topic_names import TopicNames
from hub.replication.config.mirrors import MIRRORS_FILE, Mirror, MirrorsFile
from hub.replication.config.renaming import renaming_refusals
from hub.replication.config.topic_names import names_of
from hub.replication.config.topology import check, owners, route
from hub.replication.ownership.failover import Control

BACK = "~back"


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two clusters; ``declared``: the mirror of the file that it is or reverses."""

    name: str
    mirror: Mirror
    declared: str

    @property
    def source(self) -> str:
        return self.mirror.source

    @property
    def target(self) -> str:
        return self.mirror.target

    @property
    def is_back(self) -> bool:
        """Return whether the link is the undeclared way back of a mirror."""
        return self.name != self.declared

    @property
    def names(self) -> TopicNames:
        """Return the names of the topics at ``renamed_end``."""
        return names_of(self.mirror.rename)

    @property
    def renamed_end(self) -> str:
        """Return the cluster that has the copies of the declared mirror."""
        return self.mirror.source if self.is_back else self.mirror.target


def rename_text(link: Link) -> str | None:
    """Return the template of the copies' names, such as ``nyc.{topic}``; None: they have the source's."""
    names = link.names
    return None if names.are_equal else f"{names.before}{{topic}}{names.after}"


def check_not_renamed(link: Link, what: str) -> None:
    """Raise CallerError where the link renames its copies, for features that do not translate names."""
    if (template := rename_text(link)) is not None:
        raise CallerError(
            f'mirror "{link.declared}" renames its copies to {template}; {what} do not do that yet',
            hint="the groups of the mirror are carried with their names and offsets (hub mirror status)",
        )


def links(file: MirrorsFile) -> dict[str, Link]:
    """Return every possible link, by name: the declared ones, and the ways back of those whose source owns
    anything.
    """
    found: dict[str, Link] = {}
    for name, mirror in file.mirrors.items():
        found[name] = Link(name, mirror, name)
        if file.clusters[mirror.source].owns:
            # Home gets everything that was born away: filters and masks of the copy do not apply to home.
            turned: dict[str, Any] = {
                "source": mirror.target,
                "target": mirror.source,
                "start": "earliest",
                "only": [],
                "mask": [],
                "rehearse": None,
                "acls": mirror.acls.model_copy(update={"principals": _turned(mirror.acls.principals)}),
            }
            back = mirror.model_copy(update=turned)
            found[name + BACK] = Link(name + BACK, back, name)
    return found


def _turned(principals: Mapping[str, str]) -> dict[str, str]:
    """Reverse the mapping of principals for the way back; leaves out those that share a name at
    the target.
    """
    there = list(principals.values())
    return {theirs: ours for ours, theirs in principals.items() if there.count(theirs) == 1}


def home_of(file: MirrorsFile, topic: str) -> str | None:
    """Return the cluster that owns the topic by its labels, whoever has the ownership now; None: no single
    owner.
    """
    found = owners(file, topic)
    return found[0] if len(found) == 1 else None


def topic_at(file: MirrorsFile, here: str, name: str) -> str | None:
    """Return the topic, by its name at its home, that has a name in the cluster ``here``; None: it is a topic
    of that cluster alone, where the mirrored topic of this name is renamed.
    """
    renamed = [each for each in file.mirrors.values() if each.target == here and each.rename is not None]
    for mirror in renamed:
        topic = names_of(mirror.rename).at_source(name)
        if topic is not None and mirror.selects(topic):
            return topic
    apart = any(mirror.selects(name) and home_of(file, name) == mirror.source for mirror in renamed)
    return None if apart else name


def is_guarded(file: MirrorsFile, name: str) -> bool:
    """Return whether a topic of this name may have an owner in some cluster."""
    if not any(each.rename for each in file.mirrors.values()):
        return home_of(file, name) is not None
    return any(
        home_of(file, topic) is not None
        for here in file.clusters
        if (topic := topic_at(file, here, name)) is not None
    )


def write_refusal(file: MirrorsFile, here: str, control: Control, name: str) -> Conflict | None:
    """Return why applications may not write the topic ``name`` in the cluster ``here`` now (HUB-1972); None:
    they may, or the topic has no owner.
    """
    topic = None if name.startswith("_") else topic_at(file, here, name)
    home = None if topic is None else home_of(file, topic)
    if topic is None or home is None or control.may_write(here, scope := control.scope(home, topic)):
        return None
    acting, running = control.owner(scope).acting, control.running(scope)
    if running is not None and here in (running.old, running.new):
        whose = "it" if running.topics else f"what {home} owns"
        return Conflict(
            f'topic "{name}": a {running.kind} of {whose} from {running.old} to '
            f"{running.new} is under way;"
            " nothing was written",
            hint=f"write it at {running.new} when that is complete (hub mirror status)",
            code="HUB-1972",
        )
    served = f"serves it since it was moved from {home}" if "|" in scope else f"serves the topics of {home}"
    why = f"{home} owns it" if acting == home else f"{acting} {served}, which owns it"
    return Conflict(
        f'topic "{name}": {why}, and here at {here} is a copy at most; nothing was written',
        hint=f"write it at {acting}; `owns` of mirrors.yaml defines the owners of topics",
        code="HUB-1972",
    )


def way_back(file: MirrorsFile, topic: str, home: str, away: str) -> str | None:
    """Return the link that takes records of a topic from ``away`` to its home. None when no link leads there
    and back, and where the copy is masked: records made from masked values must never replace originals.
    """
    forward = None
    if masked(file, topic, home, away):
        return None
    for name, mirror in file.mirrors.items():
        if (mirror.source, mirror.target) == (away, home) and mirror.selects(topic) and not mirror.rename:
            return name
        if (mirror.source, mirror.target) == (home, away) and name in route(file, topic).mirrors:
            forward = name
    return forward + BACK if forward is not None else None


def masked(file: MirrorsFile, topic: str, home: str, away: str) -> bool:
    """Return whether a mirror from ``home`` masks the copy of a topic that ``away`` has."""
    return any(
        (mirror.source, mirror.target) == (home, away) and mirror.selects(topic) and mirror.masks(topic)
        for mirror in file.mirrors.values()
    )


def opposite(file: MirrorsFile, link: Link, topic: str) -> str | None:
    """Return the link of the other direction that may have written the topic, or may in the future."""
    home = home_of(file, topic)
    if link.is_back and link.mirror.rename:
        return link.declared
    if home == link.source:
        return way_back(file, topic, home, link.target)
    if home == link.target:
        for name, mirror in file.mirrors.items():
            forward = (mirror.source, mirror.target) == (home, link.source)
            if forward and name in route(file, topic).mirrors:
                return name
    return None


def carries(file: MirrorsFile, link: Link, topics: Iterable[str], control: Control) -> tuple[str, ...]:
    """Return the topics that a link carries now, sorted."""
    return tuple(topic for topic in sorted(set(topics)) if _carries(file, link, topic, control))


def _carries(file: MirrorsFile, link: Link, topic: str, control: Control) -> bool:
    if not link.mirror.selects(topic):
        return False
    home = home_of(file, topic)
    if home is None:
        found = route(file, topic)
        return link.name in found.mirrors and not found.refusals
    scope = control.scope(home, topic)
    if not control.may_mirror(scope, link.source, link.target):
        return False
    last = control.operations.get(scope)
    changing = (
        last is not None and last.state != "aborted" and {link.source, link.target} == {last.old, last.new}
    )
    if link.target == home:
        acts = control.owner(scope).acting == link.source
        return (changing or acts) and link.name == way_back(file, topic, home, link.source)
    # Towards the new owner of a failover or failback, the routes without the change apply.
    settled = route(
        file, topic, None if changing and link.source == home else control.acting_for(home, topic)
    )
    return link.name in settled.mirrors and not settled.refusals


def back_of(file: MirrorsFile, link: Link, topics: Iterable[str], control: Control) -> Link | None:
    """Return the undeclared way back of a declared mirror, while it has any of the topics to carry; else
    None.
    """
    back = links(file).get(link.name + BACK)
    return back if back is not None and carries(file, back, topics, control) else None


def checked(file: MirrorsFile) -> MirrorsFile:
    """Return the file if its mirrors cannot send a record in a cycle or write one topic twice.

    Raises ConfigError (HUB-1605) with every problem.
    """
    found = (*check(file), *renaming_refusals(file))
    if found:
        first = found[0]
        more = "".join(f"\n{each}" for each in found[1:])
        raise ConfigError(
            f"mirrors {', '.join(first.mirrors)}: {first.reason}{more}", hint=first.hint, code="HUB-1605"
        )
    return file


def named(file: MirrorsFile, name: str) -> Mapping[str, Link]:
    """Return the links of one declared mirror: itself, and its way back."""
    return {key: link for key, link in links(file).items() if link.declared == name}


def declared_link(file: MirrorsFile, name: str, where: str = MIRRORS_FILE) -> Link:
    """Return a mirror of the file. ``where``: the file's name for messages.

    Raises NotFound, and CallerError for the way back of a mirror, which no command changes by itself.
    """
    found = links(file)
    if name in found and name not in file.mirrors:
        raise CallerError(
            f'"{name}" is the failback copy of mirror "{found[name].declared}", and goes where that goes',
            hint=f"use {found[name].declared}; hub mirror status and verify accept the failback copy, too",
        )
    if name not in file.mirrors:
        raise NotFound(
            f'mirror "{name}" does not exist in {where}',
            hint=did_you_mean(name, file.mirrors, f"known: {', '.join(file.mirrors) or 'none'}"),
        )
    return found[name]
