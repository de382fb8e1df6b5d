"""[core] State machine of one topic of a mirror: its state, and the commands that it accepts.

::

    mirroring ─pause─▶ paused ─resume─▶ mirroring           paused ─drop─▶ paused, nothing mirrored yet
    mirroring ─promote─▶ moving ─▶ promoted
    mirroring ─switchover─▶ moving ─▶ switched over ─┐
    mirroring, paused ─failover─▶ moving ─▶ failed over ─┴─failback─▶ moving ─▶ mirroring
    moving ─resume─▶ its next step; while ownership has not moved, ─resume --abort─▶ mirroring

No state is stored: it is computed from the pause, the ownership and the operation of the topic in the control
topics (failover.py), which a change writes step by step. So a state cannot contradict them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hub.errors import Conflict
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link
from hub.replication.ownership.operation_steps import Kind

State = Literal[
    "mirroring",
    "paused",
    "moving",
    "promoted",
    "switched over",
    "failed over",
    "moved with its home",
]
Action = Literal["pause", "resume", "drop", "promote", "switchover", "failover", "failback"]

_MOVED: Mapping[Kind, State] = {
    "promote": "promoted",
    "switchover": "switched over",
    "failover": "failed over",
    "failback": "failed over",  # aborted on its way home
    "drill": "failed over",
}
_ACCEPTS: Mapping[State, tuple[Action, ...]] = {
    "mirroring": ("pause", "resume", "promote", "switchover", "failover"),
    "paused": ("pause", "resume", "drop", "failover"),
    "moving": ("resume",),
    "promoted": (),
    "switched over": ("failback",),
    "failed over": ("failback",),
    "moved with its home": (),
}
_WITHOUT_OWNERSHIP: tuple[Action, ...] = ("pause", "resume", "drop")
_SHOWN: Mapping[State, tuple[Action, ...]] = {
    "mirroring": ("pause", "promote", "failover"),
    "paused": ("resume", "failover", "drop"),
}
_WAY_OUT: Mapping[State, str] = {
    "mirroring": "first: hub mirror pause {link} --topic {topic}",
    "paused": "first: hub mirror resume {link} --topic {topic}",
    "moving": "continue or abort it: hub mirror resume {link} --topic {topic} (--abort)",
    "promoted": "it stays with {owner} permanently: exclude it from the mirror",
    "switched over": "to return it: hub mirror failback {link} --topic {topic}",
    "failed over": "to return it: hub mirror failback {link} --topic {topic}",
    "moved with its home": "first return all of them: hub mirror failback {link}",
}


@dataclass(frozen=True, slots=True)
class TopicState:
    """State of one topic of a mirror. ``owner``: the cluster that may write it now, empty: none is declared.
    ``reason``: who paused it, or which step is next. ``movable`` False: its home is not the mirror's source,
    so this mirror does not move its ownership.
    """

    link: str
    topic: str
    state: State
    owner: str = ""
    reason: str = ""
    movable: bool = True

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that it accepts now, as a person types them."""
        shown = _SHOWN.get(self.state, _ACCEPTS[self.state])
        return tuple(
            f"hub mirror {action} {self.link} --topic {self.topic}"
            for action in shown
            if self.movable or action in _WITHOUT_OWNERSHIP
        )


def pause_key(link: str, topic: str) -> str:
    """Return the key of the pause of one topic of a declared mirror."""
    return f"{link}|{topic}"


def paused_topics(link: str, paused: Mapping[str, str]) -> frozenset[str]:
    """Return the topics of a declared mirror that are paused by themselves. ``paused``: the people who
    paused them, by key."""
    keys = (key.partition("|") for key in paused)
    return frozenset(topic for name, _, topic in keys if name == link and topic)


def topic_state(
    link: Link, topic: str, home: str | None, control: Control, paused: Mapping[str, str]
) -> TopicState:
    """Return the state of one topic of a mirror. ``home``: its owner by declaration, None: no single one.
    ``paused``: the people who paused topics, by ``pause_key``.
    """
    name, by = link.declared, paused.get(pause_key(link.declared, topic))
    rests: State = "mirroring" if by is None else "paused"
    why = "" if by is None else f"paused by {by}"
    if home is None:
        return TopicState(name, topic, rests, "", why, False)
    scope = control.scope(home, topic)
    owner, running, last = control.owner(scope).acting, control.running(scope), control.operations.get(scope)
    if home not in (link.source, link.target):
        return TopicState(name, topic, rests, owner, why, False)
    if running is not None and running.topics:
        due = running.next
        return TopicState(
            name, topic, "moving", owner, f"{running.kind}, next: {due.name if due else 'finish'}"
        )
    if owner == home:
        return TopicState(name, topic, rests, owner, why)
    if scope == home:
        return TopicState(name, topic, "moved with its home", owner, f"{owner} serves the topics of {home}")
    kind: Kind = last.kind if last is not None else "failover"
    return TopicState(name, topic, _MOVED[kind], owner, f"{owner} serves it")


def check_accepts(now: TopicState, action: Action) -> None:
    """Raise Conflict (HUB-1973) when a topic does not accept a command in its state."""
    if not now.movable and action not in _WITHOUT_OWNERSHIP:
        raise Conflict(
            f'topic "{now.topic}" of mirror "{now.link}": its home is not the source of this mirror, so no '
            f"{action}",
            hint="use the mirror of its home; `owns` of mirrors.yaml declares the owners of topics",
            code="HUB-1973",
        )
    if action in _ACCEPTS[now.state]:
        return
    why = f" ({now.reason})" if now.reason else ""
    raise Conflict(
        f'topic "{now.topic}" of mirror "{now.link}" is {now.state}{why}: no {action} from there',
        hint=_WAY_OUT[now.state].format(link=now.link, topic=now.topic, owner=now.owner),
        code="HUB-1973",
    )
