"""Copies of records that a data rule refused."""

from __future__ import annotations

from hub.errors import CallerError
from hub.record import TopicPartition
from hub.schema_registry.contracts.rules import RuleRefused
from hub.topics.gateway.rule_dead_letters import dead_copy, error_with_copy, may_be_dead_in

REFUSED = RuleRefused(
    "value: age is 3, not 18 \ud800", "adults", dlq_topic="people.dead", hint="h", code="HUB-1214"
)


def test_a_copy_has_the_record_and_the_rule_in_confluents_headers() -> None:
    record = dead_copy(REFUSED, "people", b"k", b'{"age":3}', (("trace", b"1"),))
    assert (record.topic, record.key, record.value) == ("people.dead", b"k", b'{"age":3}')
    assert dict(record.headers) == {
        "trace": b"1",
        "__rule.name": b"adults",
        "__rule.mode": b"WRITE",
        "__rule.subject": b"people-value",
        "__rule.topic": b"people",
        "__rule.exception": b"value: age is 3, not 18 ?",  # a lone surrogate does not lose the record
    }


def test_the_error_names_the_place_of_the_copy_or_that_there_is_none() -> None:
    written = error_with_copy(REFUSED, "people.dead", (TopicPartition("people.dead", 2), 7))
    assert 'a copy is in topic "people.dead" partition 2 offset 7' in written.message
    assert written.hint == "h" and written.code == "HUB-1214"
    assert "could not be written" in error_with_copy(REFUSED, "people.dead", None).message
    other = CallerError("no")
    assert error_with_copy(other, "people.dead", None) is other


def test_a_rule_cannot_write_to_the_hubs_own_topics() -> None:
    assert may_be_dead_in("people.dead")
    assert not may_be_dead_in("_schemas") and not may_be_dead_in("views.people")
