"""Facts about topics and views for decisions about masks, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hub.access.access_yaml import AccessFile
from hub.access.decide import Principal
from hub.access.live_config import AccessRules
from hub.access.masking.facts import MaskSources, TopicFields, ViewColumns
from hub.caller import Caller

SECRET = b"k" * 32


@dataclass
class KnownFacts:
    topics: Mapping[str, TopicFields] = field(default_factory=dict)
    views: Mapping[str, ViewColumns] = field(default_factory=dict)

    def topic(self, name: str) -> TopicFields:
        return self.topics.get(name, TopicFields())

    def view(self, name: str) -> ViewColumns:
        return self.views[name]


def rules_of(facts: KnownFacts, masks: list[dict[str, Any]], **users: Any) -> AccessRules:
    """Return rules of a file with these masks, whose users may read everything."""
    everything = {"role": "read", "topics": ["**"], "views": ["**"]}
    file = AccessFile.model_validate(
        {
            "groups": {"support": [], "privacy": []},
            "users": {name: {"grants": [everything], **node} for name, node in users.items()},
            "masks": masks,
        }
    )
    return AccessRules.of(file, MaskSources(facts, SECRET))


def caller_of(rules: AccessRules, name: str) -> Caller:
    groups = frozenset(rules.file.users[name].groups)
    return rules.caller(Principal(name, "user", groups))
