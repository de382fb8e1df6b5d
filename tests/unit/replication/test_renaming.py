"""Mirrors that rename their copies: who may write what, for every topic; subjects that follow topics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_sides import T, made, mark, side, topic
from samples import fast_or

from hub.errors import CallerError, ConfigError
from hub.log.topic_names import TopicNames
from hub.replication.config.mirrors import Mirror, MirrorsFile
from hub.replication.config.renaming import renaming_refusals
from hub.replication.config.topic_names import names_of
from hub.replication.config.topology import owners, route
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import (
    carries,
    check_not_renamed,
    checked,
    home_of,
    is_guarded,
    links,
    opposite,
    topic_at,
    way_back,
    write_refusal,
)
from hub.replication.planning.renamed_subjects import RenamedSubjects
from hub.replication.planning.schema_plan import (
    DeleteSchema,
    ImportSchema,
    RegistrySide,
    SchemaVersion,
    SubjectSettings,
    SyncedSubject,
)
from hub.replication.planning.steps import Remember
from hub.schema_registry.model.facts import Reference


def mirror(
    source: str, target: str, topics: list[str], prefix: str | None = None, **more: Any
) -> dict[str, Any]:
    rename = {} if prefix is None else {"rename": {"prefix": prefix}, "acls": {"copy": False}}
    return {"source": source, "target": target, "topics": topics, **rename, **more}


def file(owns: dict[str, list[str]], **mirrors: dict[str, Any]) -> MirrorsFile:
    return MirrorsFile.model_validate(
        {
            "clusters": {name: {"bootstrap": "h:1", "owns": each} for name, each in owns.items()},
            "mirrors": {name.replace("_", "-"): each for name, each in mirrors.items()},
        }
    )


OWNS = {"nyc": ["shop.**"], "lon": [], "fra": []}
NOBODY: dict[str, list[str]] = {"nyc": [], "lon": [], "fra": []}
ONE = file(OWNS, nyc_lon=mirror("nyc", "lon", ["shop.**"], "nyc."))
BOTH = file(
    {"nyc": ["shop.**"], "lon": ["shop.**"]},
    nyc_lon=mirror("nyc", "lon", ["shop.**"], "nyc."),
    lon_nyc=mirror("lon", "nyc", ["shop.**"], "lon."),
)


def test_a_renamed_topic_goes_out_and_home_over_its_own_link() -> None:
    every = links(checked(ONE))
    out, back = every["nyc-lon"], every["nyc-lon~back"]
    assert (out.renamed_end, back.renamed_end) == ("lon", "lon")
    assert carries(ONE, out, ["shop.a", "nyc.shop.a", "x"], Control()) == ("shop.a",)
    assert way_back(ONE, "shop.a", "nyc", "lon") == opposite(ONE, out, "shop.a") == "nyc-lon~back"
    assert opposite(ONE, back, "shop.a") == "nyc-lon"


def test_writers_are_kept_out_of_the_copy_and_not_of_the_topic_of_the_same_name() -> None:
    assert topic_at(ONE, "lon", "nyc.shop.a") == topic_at(ONE, "nyc", "shop.a") == "shop.a"
    assert topic_at(ONE, "lon", "shop.a") is None and topic_at(ONE, "lon", "x") == "x"
    refused = write_refusal(ONE, "lon", Control(), "nyc.shop.a")
    assert refused is not None and 'topic "nyc.shop.a"' in refused.message
    assert write_refusal(ONE, "lon", Control(), "shop.a") is None
    assert write_refusal(ONE, "nyc", Control(), "shop.a") is None
    assert is_guarded(ONE, "nyc.shop.a") and is_guarded(ONE, "shop.a") and not is_guarded(ONE, "x")


def test_a_mirror_that_renames_is_no_way_home_for_topics_of_others() -> None:
    owns = {"nyc": ["shop.**"], "lon": ["crm.**"]}
    both = file(owns, nyc_lon=mirror("nyc", "lon", ["shop.**"]), lon_nyc=mirror("lon", "nyc", ["**"], "lon."))
    assert way_back(checked(both), "shop.a", "nyc", "lon") == "nyc-lon~back"
    assert way_back(both, "crm.a", "lon", "nyc") == "lon-nyc~back"
    assert topic_at(both, "nyc", "lon.crm.a") == "crm.a" and topic_at(both, "nyc", "shop.a") == "shop.a"


def test_clusters_with_the_same_topics_mirror_them_both_ways_without_failover() -> None:
    every = links(checked(BOTH))
    for name, other in (("nyc-lon", "nyc"), ("lon-nyc", "lon")):
        assert carries(BOTH, every[name], ["shop.a", f"{other}.shop.a"], Control()) == ("shop.a",)
    assert home_of(BOTH, "shop.a") is None
    assert write_refusal(BOTH, "lon", Control(), "shop.a") is None


def test_the_example_of_the_reference_is_accepted() -> None:
    text = (Path(__file__).parents[3] / "docs/reference/mirrors.md").read_text()
    (block,) = [each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "rename" in each]
    mirrors = yaml.safe_load(block)["mirrors"]
    for owns in (["shop.**"], []):
        clusters = {name: {"bootstrap": "h:1", "owns": owns} for name in ("nyc", "lon")}
        accepted = checked(MirrorsFile.model_validate({"clusters": clusters, "mirrors": mirrors}))
        assert names_of(accepted.mirrors["nyc-lon"].rename).at_target("shop.orders") == "nyc.shop.orders"


@pytest.mark.parametrize(
    ("owns", "mirrors", "reason"),
    [
        # Two links whose names meet at one target.
        (
            NOBODY,
            {"a": mirror("nyc", "lon", ["a"], "x."), "b": mirror("fra", "lon", ["a"], "x.")},
            "b writes, too",
        ),
        (
            NOBODY,
            {"a": mirror("nyc", "lon", ["a"], "x."), "b": mirror("fra", "lon", ["x.*"])},
            "b writes, too",
        ),
        (
            NOBODY,
            {"a": mirror("nyc", "lon", ["a-*"], "x"), "b": mirror("fra", "lon", ["xa-b"])},
            "b writes, too",
        ),
        # A copy that is carried on: back, and to a third cluster.
        (
            NOBODY,
            {"a": mirror("nyc", "lon", ["a"], "x."), "b": mirror("lon", "nyc", ["**"], "y.")},
            "the copy on",
        ),
        (
            NOBODY,
            {"a": mirror("nyc", "lon", ["a"], "x."), "b": mirror("lon", "fra", ["x.**"])},
            "the copy on",
        ),
        # A name that another cluster owns.
        ({**OWNS, "lon": ["x.**"]}, {"a": mirror("nyc", "lon", ["shop.*"], "x.")}, "which lon owns"),
        ({**OWNS, "fra": ["x.**"]}, {"a": mirror("nyc", "lon", ["shop.*"], "x.")}, "which fra owns"),
        # A topic that fails over has one copy in a cluster.
        (
            OWNS,
            {"a": mirror("nyc", "lon", ["shop.a"], "x."), "b": mirror("nyc", "lon", ["shop.*"])},
            "another name",
        ),
        (
            OWNS,
            {"a": mirror("nyc", "lon", ["shop.a"], "x."), "b": mirror("lon", "fra", ["shop.*"], owner="any")},
            "another name",
        ),
    ],
)
def test_renames_that_are_refused(
    owns: dict[str, list[str]], mirrors: dict[str, dict[str, Any]], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as refusal:
        checked(file(owns, **mirrors))
    assert refusal.value.code == "HUB-1605" and refusal.value.hint


def test_a_renamed_copy_does_not_bring_the_topic_itself() -> None:
    owns = {"nyc": ["a"], "fra": [], "lon": [], "tyo": []}
    chain = {
        "nyc-fra": mirror("nyc", "fra", ["a"]),
        "fra-lon": mirror("fra", "lon", ["a"], "x.", owner="any"),
        "lon-tyo": mirror("lon", "tyo", ["a"], owner="any"),
    }
    with pytest.raises(ConfigError, match="no mirror brings it there"):
        checked(file(owns, **chain))
    del chain["lon-tyo"]
    assert route(checked(file(owns, **chain)), "a").mirrors == ("nyc-fra", "fra-lon")


def test_a_pattern_that_cannot_be_renamed_is_refused() -> None:
    with pytest.raises(ConfigError, match="any number of labels"):
        checked(file(OWNS, nyc_lon=mirror("nyc", "lon", ["**.a"], "nyc-")))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"rename": {"prefix": "x."}}, "copy: false"),
        ({"rename": {"prefix": "x.", "template": "{topic}"}, "acls": {"copy": False}}, "one of them"),
        ({"rename": {}, "acls": {"copy": False}}, "one of them"),
        ({"rename": {"prefix": ""}, "acls": {"copy": False}}, "changes no name"),
        ({"rename": {"template": "{topic}."}, "acls": {"copy": False}}, "empty label"),
    ],
)
def test_keys_that_are_refused(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Mirror.model_validate({"source": "nyc", "target": "lon", "topics": ["a"], **more})


def test_features_that_do_not_translate_names_refuse_them() -> None:
    with pytest.raises(CallerError, match=r"nyc\.\{topic\}"):
        check_not_renamed(links(ONE)["nyc-lon"], "imports")
    check_not_renamed(links(file(OWNS, nyc_lon=mirror("nyc", "lon", ["shop.**"])))["nyc-lon"], "imports")


PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "x.*", "x-*", "y.a", "**"]), min_size=1, max_size=2)
CLUSTERS = ["k", "l", "m"]
PREFIXES = ("", "x.", "y.", "x-")
TOPICS = [f"{first}{second}{last}" for first in PREFIXES for second in PREFIXES for last in "ab"]


@settings(max_examples=fast_or(60, 400))
@given(
    st.fixed_dictionaries({name: PATTERNS | st.just([]) for name in CLUSTERS}),
    st.lists(
        st.tuples(
            st.permutations(CLUSTERS),
            PATTERNS,
            st.sampled_from([None, "x.", "y.", "x.y.", "x-"]),
            st.sampled_from(["source", "any"]),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_in_a_file_that_is_accepted_nobody_writes_what_another_writes(
    owns: dict[str, list[str]], mirrors: list[tuple[list[str], list[str], str | None, str]]
) -> None:
    declared = {
        f"m{number}": mirror(ends[0], ends[1], topics, prefix, owner=rule)
        for number, (ends, topics, prefix, rule) in enumerate(mirrors)
    }
    try:
        accepted = checked(file(owns, **declared))
    except ConfigError:
        return
    assert renaming_refusals(accepted) == ()
    writers: dict[tuple[str, str], str] = {}
    renamed: set[tuple[str, str]] = set()
    for original in TOPICS:
        for name in route(accepted, original).mirrors:
            each = accepted.mirrors[name]
            place = each.target, names_of(each.rename).at_target(original)
            assert writers.setdefault(place, name) == name, place
            if each.rename is not None:
                renamed.add(place)
                assert set(owners(accepted, place[1])) <= {each.source}
    for at, copy in renamed:  # no record goes on under a third name, and none in a cycle
        for name in route(accepted, copy).mirrors:
            assert accepted.mirrors[name].source != at


# ---- subjects

NAMES = TopicNames("nyc.", "")
SUBJECTS = RenamedSubjects(NAMES, frozenset({"shop.a", "shop.b"}))


@given(
    st.sampled_from(["shop.a-value", "shop.b-key", "shop.a-acme.Order", "acme.Order", "other-value", "x y"])
)
def test_subjects_lead_back(subject: str) -> None:
    assert SUBJECTS.seen(SUBJECTS.there(subject)) == subject
    assert RenamedSubjects().there(subject) == subject == RenamedSubjects().seen(subject)


def test_subjects_follow_their_topics_and_those_of_records_stay() -> None:
    assert SUBJECTS.there("shop.a-value") == "nyc.shop.a-value"
    assert SUBJECTS.there("shop.a-acme.Order") == "nyc.shop.a-acme.Order"
    assert SUBJECTS.there("acme.Order") == "acme.Order"
    # The target's own subject of the same name is none of the mirror's.
    assert SUBJECTS.seen("shop.a-value") not in ("shop.a-value", "nyc.shop.a-value")


def test_a_plan_has_the_sources_subjects_and_its_steps_the_targets() -> None:
    refers = (Reference("M", "shop.b-value", 1),)
    version = SchemaVersion("nyc.shop.a-value", 1, 7, "AVRO", "{}", (Reference("M", "nyc.shop.b-value", 1),))
    wanted = SubjectSettings('{"compatibility":"NONE"}')
    seen = SUBJECTS.seen_side(RegistrySide((version,), {"nyc.shop.a-value": wanted}))
    (mine,) = seen.versions
    assert (mine.subject, mine.references, seen.settings) == (
        "shop.a-value",
        refers,
        {"shop.a-value": wanted},
    )
    synced = SyncedSubject("nyc-lon", "nyc.shop.a-value", wanted)
    assert SUBJECTS.seen_synced({synced.subject: synced})["shop.a-value"].subject == "shop.a-value"
    recorded = SyncedSubject("nyc-lon", "shop.a-value", wanted)
    steps = (
        ImportSchema("shop.a", mine),
        DeleteSchema("shop.a", mine.subject, 1),
        Remember("shop.a", recorded),
    )
    assert SUBJECTS.steps_there(steps) == (
        ImportSchema("shop.a", version),
        DeleteSchema("shop.a", "nyc.shop.a-value", 1),
        Remember("shop.a", synced),
    )
    assert RenamedSubjects().steps_there(steps) == steps


def test_a_copy_whose_name_would_be_too_long_is_refused() -> None:
    long = {"rename": {"prefix": "x" * 245}, "acls": {"copy": False}}
    (refusal,) = made(side(topic()), side(None), **long).refusals
    assert f"{245 + len(T)} characters" in refusal.reason and "shorter" in refusal.hint


def test_a_copy_under_its_former_name_is_not_mirrored_into_another() -> None:
    found = made(side(topic()), side(None, former={T: f"old.{T}"}), marks=(mark(),))
    (refusal,) = found.refusals
    assert f'"old.{T}"' in refusal.reason and "hub mirror drop" in refusal.hint
