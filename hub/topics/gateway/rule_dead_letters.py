"""[core] The copy that a rule's action DLQ wants of a refused record: where it may go, and what it says.

As Confluent's ``DlqAction`` writes it: the value as JSON, with headers ``__rule.*`` that name the rule, its mode, the subject, the
topic and the reason. The topic is named by the rule (``dlq.topic`` of its params, or of the schema's metadata), that is, by whoever
registers schemas: it may not be one of the hub's own topics, and the writer needs the right to write it.
"""

from __future__ import annotations

from hub.caller import Action, Kind, Resource, may
from hub.errors import HubError
from hub.record import Headers, NewRecord, TopicPartition
from hub.schema_registry.contracts.rules import RuleRefused

_OWN = ("_", "views.")


def may_be_dead_in(topic: str) -> bool:
    """Return True if whoever asks may have a copy written to the topic."""
    return not topic.startswith(_OWN) and may(Action.write, Resource(Kind.topic, topic))


def dead_copy(error: RuleRefused, topic: str, key: bytes | None, value: bytes, headers: Headers) -> NewRecord:
    """The record for ``error.dlq_topic``. ``value`` is the JSON that was to be written to ``topic``."""
    assert error.dlq_topic
    part = error.message.partition(":")[0]
    said = {
        "__rule.name": error.rule,
        "__rule.mode": "WRITE",
        "__rule.subject": f"{topic}-{part}",
        "__rule.topic": topic,
        "__rule.exception": error.message,
    }
    added = tuple((name, text.encode("utf-8", "replace")) for name, text in said.items())
    return NewRecord(error.dlq_topic, key, value, (*headers, *added))


def error_with_copy(error: HubError, topic: str, place: tuple[TopicPartition, int] | None) -> HubError:
    """The refusal with the place of its copy in ``topic``; None: the copy was not written."""
    if not isinstance(error, RuleRefused):
        return error
    where = (
        f'a copy is in topic "{topic}" partition {place[0].partition} offset {place[1]}'
        if place is not None
        else f'its copy could not be written to topic "{topic}"'
    )
    return RuleRefused(f"{error.message}; {where}", error.rule, hint=error.hint, code=error.code)
