"""[core] Copy of a record that a data rule refused, for the rule's DLQ action.

The format is that of Confluent's ``DlqAction``: the value as JSON, with ``__rule.*`` headers for the rule,
its mode, the subject, the topic and the reason. The rule names the topic (``dlq.topic`` in its params or in
the schema's metadata), so anybody who registers schemas can choose it. It must not be one of the hub's own
topics, and the producer needs write access to it.
"""

from __future__ import annotations

from hub.caller import Action, Kind, Resource, may
from hub.errors import HubError
from hub.record import Headers, NewRecord, TopicPartition
from hub.schema_registry.contracts.rules import RuleRefused

_OWN = ("_", "views.")


def may_be_dead_in(topic: str) -> bool:
    """Return True if the caller may have a copy written to the topic."""
    return not topic.startswith(_OWN) and may(Action.write, Resource(Kind.topic, topic))


def dead_copy(error: RuleRefused, topic: str, key: bytes | None, value: bytes, headers: Headers) -> NewRecord:
    """Build the record for ``error.dlq_topic``. ``value`` is the JSON that was to be written to ``topic``."""
    assert error.dlq_topic
    part = error.message.partition(":")[0]
    rule_headers = {
        "__rule.name": error.rule,
        "__rule.mode": "WRITE",
        "__rule.subject": f"{topic}-{part}",
        "__rule.topic": topic,
        "__rule.exception": error.message,
    }
    added = tuple((name, text.encode("utf-8", "replace")) for name, text in rule_headers.items())
    return NewRecord(error.dlq_topic, key, value, (*headers, *added))


def error_with_copy(error: HubError, topic: str, place: tuple[TopicPartition, int] | None) -> HubError:
    """Add the position of the copy in ``topic`` to the error. ``place`` None: the copy was not written."""
    if not isinstance(error, RuleRefused):
        return error
    where = (
        f'a copy is in topic "{topic}" partition {place[0].partition} offset {place[1]}'
        if place is not None
        else f'its copy could not be written to topic "{topic}"'
    )
    return RuleRefused(f"{error.message}; {where}", error.rule, hint=error.hint, code=error.code)
