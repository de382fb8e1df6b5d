"""[shell] Let a sink act with the grants of its owner, and refuse sources that are masked for the owner.

A target cannot mask what it was sent before, so a sink is refused while a mask hides anything of its source
from the owner. What is hidden, the server knows: it has the tags of schemas and the origins of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hub.access.decide import Principal
from hub.access.live_config import AccessRules, LiveAccess
from hub.caller import CALLER, Action, Caller, Kind, Resource, require
from hub.errors import ConfigError
from hub.masking.shape import MaskRefused
from hub.sinks.sinks_file import VIEWS, SinkEntry

Explain = Callable[[Mapping[str, str]], list[Mapping[str, Any]]]
"""From the parameters of ``GET /api/access/explain`` to its rows. Raises PeerError."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Owners of a project's sinks."""

    access: LiveAccess
    explain: Explain

    def act(self, name: str, entry: SinkEntry) -> None:
        """Let this thread act as the sink's owner from now on. No effect while access is not controlled.

        Raises ConfigError (HUB-1828) without a known owner, Forbidden without its grants, MaskRefused if
        something of the source is masked for it, PeerError while that is not known.
        """
        self.access.refresh()
        rules = self.access.rules
        caller = None if rules is None else self._caller(name, entry, rules)
        CALLER.set(caller)
        for topic in entry.topics:
            require(Action.read, Resource(Kind.topic, topic))
        if entry.topic is not None:
            require(Action.write, Resource(Kind.topic, entry.topic.name))
        if caller is not None and caller.is_masked:
            self._require_open(name, entry)
            CALLER.set(replace(caller, is_masked=False))

    def _caller(self, name: str, entry: SinkEntry, rules: AccessRules) -> Caller:
        owner = entry.owner
        if owner in rules.file.users:
            return rules.caller(rules.user(owner))
        if owner in rules.file.tokens:
            groups = frozenset(rules.file.tokens[owner].groups)
            return rules.caller(Principal(owner, "token", groups))
        if owner in rules.file.groups:
            return rules.caller(Principal(owner, "group", frozenset({owner})))
        raise ConfigError(
            f'sink "{name}": its owner "{owner}" is not a user, token or group of access.yaml',
            hint="a sink acts with the grants of its owner: write one in sinks.yaml",
            code="HUB-1828",
        )

    def _require_open(self, name: str, entry: SinkEntry) -> None:
        for topic in entry.topics:
            source = {"view": topic.removeprefix(VIEWS)} if entry.of_view else {"topic": topic}
            for row in self.explain({"user": entry.owner, **source}):
                if row["what"] != "grant" and row["seen"] not in ("shown", "all"):
                    raise MaskRefused(
                        f'sink "{name}": "{row["what"]}" of {topic} is masked for its owner '
                        f'"{entry.owner}" ({row["seen"]})',
                        hint="send a view without that field, or let access.yaml show it to the owner",
                    )
