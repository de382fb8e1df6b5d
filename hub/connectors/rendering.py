"""[core] From a declared connector to the settings that Connect gets: kind, converters, topics, secrets, dead
letters.

A source makes its topics as the tree says: each topic of the tree that it may write has a group of
``topic.creation`` settings (KIP-158), and topics that the tree does not name get the settings of the node
above. A sink with ``on_error: dead-letter`` writes what it cannot convert to ``<topic>.dlq``, with Connect's
headers; if it reads several topics, to ``connect.<name>.dlq``, because Connect knows one queue per connector
(KIP-298).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hub.connectors.connectors_file import REFERENCE, ConnectorSpec
from hub.connectors.kinds import CONVERTERS, kind_of
from hub.schema_registry.policy.label_patterns import fits, labels_of
from hub.topics.tree.tree import TopicSpec

# Kafka's own limits apply to both.
_MOST_GROUPS = 200
_NOT_EVENTS = "(?!.*[.](?:dlq|quarantine|late)$)"


@dataclass(frozen=True, slots=True)
class RenderContext:
    """Inputs of the settings besides the file: topics of the tree, the registry, and replicas."""

    topics: Sequence[TopicSpec]
    registry_url: str
    replication_factor: int
    above: Mapping[str, TopicSpec]
    """By pattern: the settings of a topic there that the tree does not name."""


def render(name: str, spec: ConnectorSpec, context: RenderContext) -> dict[str, str]:
    """Return the settings for ``PUT /connectors/<name>/config``, sorted by key; secrets stay references."""
    kind = None if spec.kind is None else kind_of(spec.kind, spec.config)
    found = {
        **(kind.defaults(name) if kind is not None else {}),
        **_converter("key.converter", spec.key_converter or spec.converter, context.registry_url),
        **_converter("value.converter", spec.converter, context.registry_url),
        **(_read(name, spec, context) if spec.direction == "sink" else _creation_settings(spec, context)),
        **{key: _text(value, spec.secrets) for key, value in spec.config.items()},
        "connector.class": spec.java_class,
        "tasks.max": str(spec.tasks),
    }
    return dict(sorted(found.items()))


def _text(value: str | float | bool, secrets: Mapping[str, str]) -> str:
    """Return a value as Connect reads it; ``${NAME}`` names the provider that has it (KIP-297)."""
    if isinstance(value, bool):
        return str(value).lower()
    return REFERENCE.sub(lambda found: f"${{{secrets.get(found[1]) or f'env:{found[1]}'}}}", str(value))


def _converter(prefix: str, name: str, registry_url: str) -> dict[str, str]:
    return {
        prefix + (f".{key}" if key else ""): registry_url if value == "REGISTRY" else value
        for key, value in CONVERTERS[name].items()
    }


def _read(name: str, spec: ConnectorSpec, context: RenderContext) -> dict[str, str]:
    """Return the settings of a sink's topics and of its dead letters."""
    several = len(spec.topics) > 1 or "*" in spec.topics[0]
    found = (
        {"topics.regex": topics_regex(spec.topics)}
        if any("*" in each for each in spec.topics)
        else {"topics": ",".join(spec.topics)}
    )
    if spec.on_error == "stop":
        return {**found, "errors.tolerance": "none"}
    queue = f"connect.{name}.dlq" if several else f"{spec.topics[0]}.dlq"
    return {
        **found,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": queue,
        "errors.deadletterqueue.topic.replication.factor": str(context.replication_factor),
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def topics_regex(patterns: Sequence[str]) -> str:
    """Return the regular expression of Java for patterns of the tree, without queues of dead letters.

    >>> topics_regex(["crm.*.orders", "shop.**"])
    '(?!.*[.](?:dlq|quarantine|late)$)(?:crm[.][^.]+[.]orders|shop(?:[.][^.]+)*)'
    """
    return f"{_NOT_EVENTS}(?:{'|'.join(map(_regex, patterns))})"


def _regex(pattern: str) -> str:
    """Return the expression of one pattern.
    ``**`` takes the dot before it along, or the one behind it if it is first."""
    first, *rest = labels_of(pattern)
    if first == "**":
        tail = "[.]".join(map(_label, rest))
        return f"(?:[^.]+[.])*{tail}" if rest else "[^.]+(?:[.][^.]+)*"
    return _label(first) + "".join("(?:[.][^.]+)*" if each == "**" else f"[.]{_label(each)}" for each in rest)


def _label(label: str) -> str:
    return "[^.]+" if label == "*" else re.escape(label).replace("\\-", "-")


def _creation_settings(spec: ConnectorSpec, context: RenderContext) -> dict[str, str]:
    """Return the settings of the topics that a source makes, as the tree has them."""
    default = context.above[spec.topics[0]]
    topics = [each for each in context.topics if covers(spec.topics, each.name)][:_MOST_GROUPS]
    found = _creation_of_group("default", default)
    if topics:
        found["topic.creation.groups"] = ",".join(f"t{number}" for number in range(len(topics)))
    for number, each in enumerate(topics):
        found[f"topic.creation.t{number}.include"] = _regex(each.name)
        found |= _creation_of_group(f"t{number}", each)
    return found


def _creation_of_group(group: str, spec: TopicSpec) -> dict[str, str]:
    settings = {"partitions": spec.partitions, "replication.factor": spec.replication_factor, **spec.config}
    return {f"topic.creation.{group}.{key}": str(value) for key, value in settings.items()}


def covers(patterns: Sequence[str], topic: str) -> bool:
    """Return whether one of the patterns matches a topic."""
    return any(fits(labels_of(each), labels_of(topic)) for each in patterns)
