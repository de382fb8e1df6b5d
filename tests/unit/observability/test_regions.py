"""The map of regions: states as on the page of mirrors, unknown without numbers, arrows apart."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from browser.staged_estate import StagedEstate
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from hub.observability.lineage.drawing import HIGH
from hub.observability.web.pages.monitor.mirrors import MirrorFacts
from hub.observability.web.pages.regions.drawing import columns, region_map
from hub.observability.web.pages.regions.facts import (
    Region,
    RegionLink,
    RegionsPage,
    region_link,
    regions_page,
)

HTML = {"accept": "text/html"}
NOW = 1_000_000


def row(**more: Any) -> dict[str, Any]:
    return {"topic": "nyc.a", "state": "mirroring", "reason": "", "worker": "w1", "source_end_s": 0, **more}


def status(name: str = "nyc-lon", source: str = "nyc", target: str = "lon", **more: Any) -> dict[str, Any]:
    found = {
        "mirror": name,
        "declared": name,
        "source": source,
        "target": target,
        "state": "mirroring",
        "reason": "",
        "workers": 1,
        "records_per_s": 12.5,
        "bytes_per_s": 900.0,
        "lag_s": 2.0,
        "lag_records": 7,
        "source_heard_s": 1.0,
        "acting": {},
        "partitions": [row()],
        "rehearsal": None,
    }
    return {**found, **more}


def away(name: str = "lon-tyo", source: str = "lon", target: str = "tyo") -> dict[str, Any]:
    short = {"mirror": name, "declared": name, "source": source, "target": target}
    return {**short, "state": "unknown", "reason": f"cluster {target} does not answer", "ok": False}


def page(*statuses: dict[str, Any], now_ms: int = NOW, **more: Any) -> RegionsPage:
    return regions_page(MirrorFacts(list(statuses), NOW, **more), now_ms)


def regions(found: RegionsPage) -> dict[str, str]:
    return {each.name: each.state for each in found.regions}


# ---- facts


def test_a_mirror_has_its_numbers_with_their_bounds() -> None:
    (link,) = page(status()).mirrors
    assert (link.state, link.tone, link.records_per_s, link.lag_s) == ("mirroring", "OK", 12.5, 2.0)
    assert (link.lag_error_s, link.lag_is_least, link.loss, link.loss_is_least) == (0.07, False, 7, False)
    old = region_link(status(partitions=[row(source_end_s=9, reason="late"), row(worker=None)]))
    assert old.lag_is_least and old.loss_is_least
    assert region_link(status(lag_s=None, lag_records=None)).loss is None


@pytest.mark.parametrize(
    ("state", "tone"),
    [
        ("mirroring", "OK"),
        ("paused", "PAUSED"),
        ("handed over", "PAUSED"),
        ("no worker", "STOPPED"),
        ("trouble", "STOPPED"),
        ("starting", "UNKNOWN"),
        ("unknown", "UNKNOWN"),
        ("a later state", "UNKNOWN"),
    ],
)
def test_the_state_is_that_of_the_status(state: str, tone: str) -> None:
    found = region_link(status(state=state))
    assert (found.state, found.tone) == (state, tone)


def test_what_is_not_heard_is_unknown_without_a_number() -> None:
    quiet = page(status(), away()).mirrors[1]
    assert (quiet.state, quiet.tone, quiet.reason) == ("unknown", "UNKNOWN", "cluster tyo does not answer")
    numbers = (quiet.records_per_s, quiet.lag_s, quiet.loss, quiet.rehearsed)
    assert numbers == (None, None, None, None)
    for found in (page(status(), error="mirrors.yaml is wrong"), page(status(), now_ms=NOW + 61_000)):
        (link,) = found.mirrors
        assert (link.state, link.lag_s, link.loss, link.records_per_s) == ("unknown", None, None, None)
        assert set(regions(found).values()) == {"unknown"}
    assert page(status(), now_ms=NOW + 60_000).mirrors[0].state == "mirroring"
    never = regions_page(MirrorFacts([status()], None), NOW)
    assert never.mirrors[0].reason == "the clusters are being asked"


def test_a_region_is_heard_by_the_mirrors_from_and_to_it() -> None:
    found = page(
        status(), away(), clusters={"nyc": "nyc-1:9092", "new": "new-1:9092"}, here=frozenset({"nyc"})
    )
    assert regions(found) == {"lon": "answers", "new": "unknown", "nyc": "answers", "tyo": "silent"}
    here = next(each for each in found.regions if each.here)
    assert (here.name, here.address) == ("nyc", "nyc-1:9092")
    gone = page(status(source_heard_s=75.0, partitions=[row(source_end_s=75)]))
    assert regions(gone) == {"lon": "answers", "nyc": "silent"}
    assert gone.regions[1].reason == "its last report was 75 s ago"
    never = page(status(source_heard_s=None, partitions=[]))
    assert regions(never) == {"lon": "answers", "nyc": "unknown"}


def test_a_region_that_another_one_serves_says_so_and_its_mirror_loses_nothing() -> None:
    served = status(state="handed over", acting={"nyc": "lon"}, lag_records=40)
    back = status("nyc-lon~back", "lon", "nyc", declared="nyc-lon", acting={"nyc": "lon"})
    found = page(served, back)
    assert {each.name: each.served_by for each in found.regions} == {"lon": "", "nyc": "lon"}
    forward, backward = found.mirrors
    assert (forward.loss, forward.lag_s, forward.loss_is_least) == (None, None, False)
    assert (backward.back_of, backward.loss) == ("nyc-lon", 7)


def test_the_last_rehearsal_has_its_age() -> None:
    rehearsal = {"last": {"state": "failed", "started_at_ms": 5}, "overdue_s": 90.0}
    found = region_link(status(rehearsal=rehearsal))
    assert (found.rehearsed, found.rehearsed_at_ms, found.rehearsal_due_s) == ("failed", 5, 90.0)
    never = region_link(status(rehearsal={"last": None, "overdue_s": None}))
    assert (never.rehearsed, never.rehearsed_at_ms) == (None, None)


# ---- drawing


def link(source: str, target: str, tone: str = "OK", name: str = "") -> RegionLink:
    return RegionLink(name or f"{source}-{target}", source, target, "mirroring", "", tone)


def made(*ways: str, names: str = "") -> Any:
    links = [link(*way.split(">")) for way in ways]
    known = {*names.split(), *(end for each in links for end in (each.source, each.target))}
    return region_map([Region(name, "", "answers", "") for name in sorted(known)], links)


def test_a_chain_begins_with_the_region_that_only_sends() -> None:
    ways = [("b", "c"), ("a", "b"), ("c", "b")]
    assert columns(["c", "b", "a"], ways) == {"a": 0, "b": 1, "c": 2}
    assert columns(["a", "b"], [("b", "a")]) == {"b": 0, "a": 1}


def test_a_star_of_twelve_has_its_hub_at_the_left_and_labels_apart() -> None:
    spokes = [f"s{number:02}" for number in range(11)]
    found = made(*(way for each in spokes for way in (f"hub>{each}", f"{each}>hub")))
    at = {each.node.name: each for each in found.boxes}
    assert {at[each].x for each in spokes} == {found.boxes[-1].x} and at["hub"].x < at["s00"].x
    assert len(found.arrows) == 22
    places = [each.at for each in found.arrows]
    assert all(two - one >= 12 for one, two in pairwise(sorted(y for _, y in places)))
    assert all(0 < x < found.width and 0 < y < found.height for x, y in places)


def test_mirrors_of_one_direction_are_one_arrow_of_the_worst_state() -> None:
    known = [Region(name, "", "answers", "") for name in ("a", "b")]
    links = [link("a", "b", "OK", "one"), link("a", "b", "UNKNOWN", "two"), link("b", "a", "PAUSED")]
    there, back = region_map(known, links).arrows
    assert ([each.mirror for each in there.links], there.tone, back.tone) == (
        ["one", "two"],
        "UNKNOWN",
        "PAUSED",
    )
    assert there.path != back.path and there.at != back.at is not None


@given(
    st.integers(1, 12).flatmap(
        lambda count: st.tuples(
            st.just([f"r{number}" for number in range(count)]),
            st.sets(
                st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(
                    lambda w: w[0] != w[1]
                ),
                max_size=40,
            ),
        )
    )
)
def test_any_map_has_each_region_and_each_direction_once(given_map: Any) -> None:
    names, pairs = given_map
    ways = sorted((names[a], names[b]) for a, b in pairs)
    found = region_map([Region(name, "", "answers", "") for name in names], [link(*way) for way in ways])
    assert sorted(each.node.name for each in found.boxes) == sorted(names)
    assert sorted((each.source, each.target) for each in found.arrows) == ways
    assert len({each.path for each in found.arrows}) == len(ways)
    corners = [(each.x, each.y) for each in found.boxes]
    assert len(set(corners)) == len(corners)
    for x, y in corners:
        assert x + found.box <= found.width and y + HIGH <= found.height


# ---- page


@pytest.fixture
def client(hub: StagedEstate) -> TestClient:
    return TestClient(hub.app())


def test_the_page_has_the_map_and_the_same_facts_as_a_table(hub: StagedEstate, client: TestClient) -> None:
    text = client.get("/regions", headers=HTML).text
    for words in (
        'href="/mirrors#topics-nyc-lon"',
        "12/s · 0.40 s",
        "cluster tyo does not answer",
        "failed ",
        "this hub's cluster",
    ):
        assert words in text, words
    body = client.get("/api/regions").json()
    assert {each["name"]: each["state"] for each in body["regions"]}["tyo"] == "silent"
    assert [each["loss"] for each in body["mirrors"]] == [1, None]
    assert 'href="/regions"' in client.get("/mirrors", headers=HTML).text
