"""First steps of a new hub: shown while nothing is there, never while it is not known what is."""

from __future__ import annotations

from dataclasses import replace

from hub.observability.overview.first_steps import first_steps
from hub.observability.overview.overview import KafkaHealth, Overview, TopicKind, TopicLine

NOW = 1_700_000_000_000
EMPTY = Overview(NOW, KafkaHealth("b:1", NOW, None), None, (), ())


def topic(name: str, kind: TopicKind, events: int) -> TopicLine:
    return TopicLine(name, kind, 1, events, None, 0, ())


def done(overview: Overview) -> list[bool]:
    return [step.done for step in first_steps(overview)]


def test_steps_are_done_one_after_the_other() -> None:
    assert done(EMPTY) == [True, False, False, False]
    assert done(replace(EMPTY, topics=(topic("views.v", TopicKind.changelog, 9),))) == [
        True,
        False,
        False,
        False,
    ]
    assert done(replace(EMPTY, topics=(topic("a.b", TopicKind.events, 0),))) == [True, True, False, False]
    assert done(replace(EMPTY, topics=(topic("a.b", TopicKind.events, 3),))) == [True, True, True, False]


def test_what_is_not_known_is_not_called_empty() -> None:
    assert done(replace(EMPTY, views_heard=False)) == []
    assert done(replace(EMPTY, error="the store is locked")) == []
    assert done(replace(EMPTY, kafka=KafkaHealth("b:1", None, None))) == []
    assert done(replace(EMPTY, kafka=KafkaHealth("b:1", NOW, "it does not answer"))) == []
