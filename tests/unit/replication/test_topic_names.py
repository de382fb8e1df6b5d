"""Names of copies: two topics never share one, and each leads back to its topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.log.topic_names import EQUAL_NAMES, TopicNames
from hub.replication.config.topic_names import every_copy, names_of_template, pattern_at_target
from hub.topics.tree.tree import matches

LABEL = st.text("ab-", min_size=1, max_size=3)
TOPIC = st.lists(LABEL, min_size=1, max_size=3).map(".".join)
NAMES = st.builds(
    TopicNames,
    st.sampled_from(["", "a", "a.", "a.b-", "a.a."]),
    st.sampled_from(["", "b", ".b", "-a.b", ".a.a"]),
)
PATTERN = st.lists(st.sampled_from(["a", "b", "a*", "*b", "*", "**"]), min_size=1, max_size=3).filter(
    lambda labels: labels.count("**") <= 1
)


@given(NAMES, TOPIC, TOPIC)
def test_names_lead_back_and_are_never_shared(names: TopicNames, one: str, two: str) -> None:
    assert names.at_source(names.at_target(one)) == one
    assert (names.at_target(one) == names.at_target(two)) == (one == two)


@given(NAMES, TOPIC)
def test_a_name_that_leads_back_is_the_copy_of_that_topic(names: TopicNames, name: str) -> None:
    source = names.at_source(name)
    assert source is None or names.at_target(source) == name


@given(NAMES, PATTERN.map(".".join), TOPIC)
def test_a_renamed_pattern_matches_the_copies(names: TopicNames, pattern: str, topic: str) -> None:
    cut = (pattern.startswith("**") and names.before[-1:] not in ("", ".")) or (
        pattern.endswith("**") and names.after[:1] not in ("", ".")
    )
    if cut:
        with pytest.raises(ValueError, match="any number of labels"):
            pattern_at_target(names, pattern)
        return
    assert matches(pattern, topic) == matches(pattern_at_target(names, pattern), names.at_target(topic))


@given(NAMES, TOPIC, TOPIC)
def test_patterns_tell_every_copy_from_other_names(names: TopicNames, one: str, two: str) -> None:
    def case(name: str) -> list[bool]:
        return [matches(pattern, name) for pattern in every_copy(names)]

    def is_copy(name: str) -> bool:
        topic = names.at_source(name)
        return topic is not None and all(topic.split("."))

    for copy in (one, names.at_target(one)):
        for name in (two, names.at_target(two), f"{names.before}{names.after}".strip(".") or two):
            assert case(copy) != case(name) or is_copy(copy) == is_copy(name)


def test_without_text_names_are_equal() -> None:
    assert EQUAL_NAMES.are_equal and EQUAL_NAMES.at_target("shop.a") == EQUAL_NAMES.at_source("shop.a")
    assert not names_of_template("nyc.{topic}").are_equal


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("nyc", "once"),
        ("{topic}.{topic}", "once"),
        ("n y.{topic}", "may have letters"),
        ("_nyc.{topic}", "belong to Kafka"),
        (".{topic}", "empty label"),
        ("{topic}.", "empty label"),
        ("a..b.{topic}", "empty label"),
    ],
)
def test_templates_that_are_refused(template: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        names_of_template(template)


def test_a_copy_has_a_name_that_kafka_accepts() -> None:
    names = names_of_template("nyc.{topic}.copy")
    assert len(names.at_target("a" * 240)) == 249
    with pytest.raises(ValueError, match="Kafka allows 249"):
        names.at_target("a" * 241)
    assert names.at_source("nyc..copy") is None and names.at_source("nyc.copy") is None
