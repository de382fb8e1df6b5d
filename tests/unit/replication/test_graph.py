"""Every record crosses every link once and comes back to nobody, or the graph is refused."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.errors import ConfigError
from hub.replication.config.label_classes import distinct_labels
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.config.topology import check, owners, representatives, route
from hub.topics.tree.tree import matches


def world(owns: dict[str, list[str]], *mirrors: tuple[str, str, list[str], str | None]) -> MirrorsFile:
    return MirrorsFile.model_validate(
        {
            "clusters": {name: {"bootstrap": "h:1", "owns": said} for name, said in owns.items()},
            "mirrors": {
                f"{source}-{target}-{at}": {
                    "source": source,
                    "target": target,
                    "topics": topics,
                    "owner": rule,
                }
                for at, (source, target, topics, rule) in enumerate(mirrors)
            },
        }
    )


def flooded(file: MirrorsFile, topic: str, born_at: str, most: int = 200) -> Counter[str]:
    """How often one record arrives in each cluster when every mirror copies all that comes to its source."""
    carrying = [file.mirrors[name] for name in route(file, topic).mirrors]
    arrived: Counter[str] = Counter()
    moving = [born_at]
    while moving and sum(arrived.values()) < most:
        here = moving.pop()
        for mirror in carrying:
            if mirror.source == here:
                arrived[mirror.target] += 1
                moving.append(mirror.target)
    return arrived


def carried(
    file: MirrorsFile, mirror: str, topics: list[str], acting: dict[str, str] | None = None
) -> list[str]:
    found = {topic: route(file, topic, acting) for topic in topics}
    return [topic for topic, each in found.items() if mirror in each.mirrors and not each.refusals]


@pytest.mark.parametrize("size", range(2, 9))
@pytest.mark.parametrize("shape", ["ring", "mesh"])
def test_rings_and_meshes_of_any_size_carry_each_record_once(size: int, shape: str) -> None:
    names = [f"r{at}" for at in range(size)]
    owns = {name: [f"{name}.**"] for name in names}
    if shape == "ring":
        links = [(name, names[(at + 1) % size], ["**"], "transit") for at, name in enumerate(names)]
    else:
        links = [(one, two, ["**"], "source") for one, two in itertools.permutations(names, 2)]
    file = world(owns, *links)
    assert check(file) == ()
    for name in names:
        arrived = flooded(file, f"{name}.chat", name)
        assert arrived == {other: 1 for other in names if other != name}


def test_a_cycle_without_an_owner_is_refused() -> None:
    file = world(
        {"a": [], "b": [], "c": []},
        ("a", "b", ["**"], None),
        ("b", "c", ["**"], None),
        ("c", "a", ["**.x"], None),
    )
    (refusal,) = check(file)
    assert "travel in a cycle: a -> b -> c -> a" in refusal.reason and "owns" in refusal.hint


def test_links_that_go_round_with_different_topics_are_no_cycle() -> None:
    assert check(world({"a": [], "b": []}, ("a", "b", ["x.**"], None), ("b", "a", ["y.**"], None))) == ()


def test_a_hub_in_a_ring_with_one_careless_link_is_refused() -> None:
    owns = {name: [f"{name}.**"] for name in "abc"}
    file = world(
        owns, ("a", "b", ["**"], "transit"), ("b", "c", ["**"], "transit"), ("c", "a", ["**"], "any")
    )
    assert any("owned by a, and the mirror would write it there" in each.reason for each in check(file))


def test_two_writers_of_one_target_topic_are_refused() -> None:
    file = world({"a": ["a.**"], "b": []}, ("a", "b", ["a.*"], None), ("a", "b", ["**.chat"], None))
    (refusal,) = check(file)
    assert (
        refusal.mirrors == ("a-b-0", "a-b-1") and refusal.topic == "a.chat" and "2 mirrors" in refusal.reason
    )


def test_topics_that_the_source_does_not_own() -> None:
    owns = {"nyc": ["nyc.**"], "lon": ["lon.**"]}
    (refusal,) = check(world(owns, ("lon", "nyc", ["lon.**", "nyc.chat"], None)))
    assert '"nyc.chat" can carry nothing' in refusal.reason
    both = world(owns | {"sgp": []}, ("lon", "sgp", ["**.chat"], "any"))
    assert any("not by lon, and no mirror brings it there" in each.reason for each in check(both))
    wide = world(owns, ("lon", "nyc", ["**"], None))
    assert check(wide) == ()
    assert carried(wide, "lon-nyc-0", ["lon.a", "nyc.a", "sgp.a"]) == ["lon.a"]
    assert route(wide, "nyc.a").left_out == {"lon-nyc-0": "nyc owns it, not lon"}


def test_the_closest_pattern_owns_and_a_tie_is_refused() -> None:
    file = world(
        {"nyc": ["nyc.**"], "lon": ["nyc.loan.*"], "hq": ["**.chat"]},
        ("nyc", "lon", ["**"], None),
    )
    assert owners(file, "nyc.loan.a") == ("lon",) and owners(file, "nyc.loan.a.b") == ("nyc",)
    assert owners(file, "nyc.chat") == ("hq", "nyc") and owners(file, "sgp.x") == ()
    assert any("owned by hq and nyc alike" in each.reason for each in check(file))


def test_after_a_failover_the_acting_owner_is_the_source() -> None:
    owns = {"nyc": ["nyc.**"], "lon": ["lon.**"]}
    file = world(owns, ("nyc", "lon", ["**"], None), ("lon", "nyc", ["**"], None))
    topics = ["nyc.a", "lon.a"]
    assert [carried(file, name, topics) for name in file.mirrors] == [["nyc.a"], ["lon.a"]]
    acting = {"nyc": "lon"}
    assert [carried(file, name, topics, acting) for name in file.mirrors] == [[], ["nyc.a", "lon.a"]]
    assert check(file, acting) == ()


PATTERNS = st.lists(
    st.lists(st.sampled_from(["a", "b", "ab", "a*", "*b", "a*a", "*", "**"]), min_size=1, max_size=3)
    .filter(lambda labels: labels.count("**") <= 1)
    .map(".".join),
    min_size=1,
    max_size=4,
)


LABELS = st.sampled_from(["a", "b", "c", "ab", "ba", "aa", "bb", "aba", "aab", "acb", "cb"])


@given(PATTERNS, st.lists(LABELS, min_size=1, max_size=6).map(".".join))
def test_every_name_is_like_a_representative(patterns: list[str], name: str) -> None:
    def case(topic: str) -> list[bool]:
        return [matches(pattern, topic) for pattern in patterns]

    assert case(name) in [case(topic) for topic in representatives(patterns)]


@given(
    st.lists(st.text("ab*", min_size=1, max_size=4).filter(lambda text: "**" not in text), max_size=5),
    st.text("abc", min_size=1, max_size=6),
)
@example(["*a", "a", "aa", "ba"], "cba")  # the shortest labels of a pattern are written out
def test_every_label_is_like_a_distinct_label(patterns: list[str], label: str) -> None:
    def case(each: str) -> list[bool]:
        return [matches(pattern, each) for pattern in patterns]

    found = distinct_labels(patterns, 1_000)
    assert case(label) in [case(each) for each in found]
    assert len({tuple(case(each)) for each in found}) == len(found)


def test_patterns_inside_labels_are_told_apart_for_every_name() -> None:
    owns = {"a": ["shop.**"], "b": [], "c": []}
    apart = world(owns, ("a", "c", ["shop.orders-*"], None), ("a", "c", ["shop.*-eu"], None))
    (refusal,) = check(apart)
    assert refusal.topic == "shop.orders-eu" and "written at c by 2 mirrors" in refusal.reason
    assert check(world(owns, ("a", "c", ["shop.orders-*"], None), ("a", "c", ["shop.bills-*"], None))) == ()


def test_a_label_that_is_partly_written_owns_more_closely_than_a_star() -> None:
    file = world({"a": ["shop.*"], "b": ["shop.orders-*"], "c": ["shop.orders-eu-*"], "d": ["shop.orders-x"]})
    names = ["shop.bills", "shop.orders-us", "shop.orders-eu-1", "shop.orders-x"]
    assert [owners(file, name) for name in names] == [("a",), ("b",), ("c",), ("d",)]


def test_too_many_overlaps_of_labels_are_refused() -> None:
    with pytest.raises(ConfigError) as error:
        distinct_labels([f"*{letter}*" for letter in "abcdefgh"], 200)
    assert error.value.code == "HUB-1604"


@settings(max_examples=fast_or(30, 150))
@given(
    st.dictionaries(st.sampled_from(["k", "l", "m"]), PATTERNS | st.just([]), min_size=2),
    st.lists(
        st.tuples(
            st.sampled_from(["k", "l", "m"]),
            st.sampled_from(["k", "l", "m"]),
            PATTERNS,
            st.sampled_from(["source", "transit", "any", None]),
        ),
        max_size=5,
    ),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join),
)
def test_a_graph_that_is_not_refused_brings_no_record_twice(
    owns: dict[str, list[str]], links: list[tuple[str, str, list[str], str | None]], topic: str
) -> None:
    owns = {"k": [], "l": [], "m": []} | owns
    file = world(owns, *(link for link in links if link[0] != link[1]))
    if check(file):
        return
    found = owners(file, topic)
    arrived = flooded(file, topic, found[0]) if found else Counter()
    assert all(count == 1 for count in arrived.values())
    assert not found or found[0] not in arrived
    if not found:
        for born in ("k", "l", "m"):
            assert flooded(file, topic, born)[born] == 0
