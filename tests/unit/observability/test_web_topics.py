"""The tree of topics as a page: labels, sums, filters, order, pages; also for an estate of ten thousand."""

from __future__ import annotations

from hub.observability.overview.overview import KafkaHealth, Overview, TopicKind, TopicLine, kind_of
from hub.observability.web.layout import SECTIONS, address, paged
from hub.observability.web.pages.explore.messages import places, wanted_of
from hub.observability.web.pages.explore.topics import Filter, TopicListing, listing
from hub.topics.tree.tree import TopicSpec

NOW = 1_790_000_000_000
UP = KafkaHealth("127.0.0.1:9092", NOW, None)


def line(name: str, events: int = 10, rate: float | None = 1.0, undecodable: int = 0) -> TopicLine:
    return TopicLine(name, kind_of(name), 2, events, rate, undecodable, ())


def spec(name: str, owner: str, doc: str = "", tags: tuple[str, ...] = ()) -> TopicSpec:
    return TopicSpec(name, owner, doc, 2, 1, {}, None, None, tags, {})


def shown(
    names: list[str] | list[TopicLine], wanted: Filter = Filter(), number: int = 1, **tree: TopicSpec
) -> TopicListing:
    lines = tuple(each if isinstance(each, TopicLine) else line(each) for each in names)
    known = {each.name: each for each in tree.values()}
    return listing(Overview(NOW, UP, None, lines, ()), (), known, wanted, number)


def outline(found: TopicListing) -> list[tuple[int, str, int]]:
    return [(row.depth, row.label, row.topics) for row in found.rows]


def test_labels_that_lead_to_one_place_are_joined() -> None:
    found = shown(["nyc.jfk.departures", "nyc.jfk.arrivals", "web.visits", "nyc.jfk"])
    assert outline(found) == [
        (0, "nyc.jfk", 3),
        (1, "arrivals", 1),
        (1, "departures", 1),
        (0, "web.visits", 1),
    ]
    first = found.rows[0]
    assert first.is_topic and first.is_branch and first.events == 30 and first.events_per_second == 3.0


def test_a_label_that_begins_like_another_is_another() -> None:
    found = shown(["a.b", "a-b.c", "ab", "a.b.c"])
    assert outline(found) == [(0, "a.b", 2), (1, "c", 1), (0, "a-b.c", 1), (0, "ab", 1)]


def test_a_place_in_the_tree() -> None:
    found = shown(["nyc.jfk.a", "nyc.jfk.b", "nyc.lga.a", "nycx"], Filter(under="nyc"))
    assert outline(found) == [(0, "jfk", 2), (1, "a", 1), (1, "b", 1), (0, "lga.a", 1)]
    assert (found.total, found.of) == (3, 4)


def test_filters_by_words_owner_tag_and_kind() -> None:
    names = ["crm.customers", "shop.orders", "_schemas", "shop.orders.dlq", "views.v"]
    tree = {"a": spec("crm.customers", "crm", "People", ("pii",)), "b": spec("shop.orders", "shop")}
    assert [row.path for row in shown(names, Filter(q="PEOPLE crm"), **tree).rows] == ["crm.customers"]
    assert [row.path for row in shown(names, Filter(owner="shop"), **tree).rows] == ["shop.orders"]
    assert [row.path for row in shown(names, Filter(tag="pii"), **tree).rows] == ["crm.customers"]
    assert [row.path for row in shown(names, Filter(kind=TopicKind.internal), **tree).rows] == ["_schemas"]
    assert shown(names, **tree).total == 3
    found = shown(names, Filter(q="nothing"), **tree)
    assert found.rows == () and found.of == 5 and found.owners == ("crm", "shop") and found.tags == ("pii",)


def test_a_list_by_rate_has_unknown_rates_last() -> None:
    lines = [line("a", rate=None), line("b", rate=2.0), line("c", rate=9.0), line("d", undecodable=4)]
    assert [row.label for row in shown(lines, Filter(order="rate")).rows] == ["c", "b", "d", "a"]
    assert shown(lines, Filter(order="undecodable")).rows[0].label == "d"
    assert shown(lines, Filter(order="nonsense")).filter.order == "tree"


def test_ten_thousand_topics_come_level_by_level_in_pages() -> None:
    names = [f"region{n % 250}.site{n % 7}.topic{n}" for n in range(10_000)]
    found = shown(names)
    assert found.total == 10_000 and len(found.rows) == 100 and all(row.depth == 0 for row in found.rows)
    assert (found.pager.pages, found.pager.total) == (3, 250)
    assert len(shown(names, number=3).rows) == 50 and len(shown(names, number=99).rows) == 50
    below = shown(names, Filter(under="region7"))
    assert below.total == 40 and max(row.depth for row in below.rows) == 1
    assert len(shown(names, Filter(order="events"), 2).rows) == 100


def test_owners_of_a_branch() -> None:
    found = shown(
        ["a.x", "a.y", "b.x", "b.y"], a=spec("a.x", "one"), b=spec("a.y", "two"), c=spec("b.x", "one")
    )
    assert [row.owner for row in found.rows if row.is_branch] == ["2 owners", "one"]


def test_addresses_leave_out_what_says_nothing() -> None:
    assert address("/topics", {"q": "a b&c", "owner": "", "page": 0}, page=2) == "/topics?q=a+b%26c&page=2"
    assert address("/topics", {"q": "x"}, q="") == "/topics"
    assert address("/lag", {"state": ("OK", "LOST"), "owner": ()}) == "/lag?state=OK&state=LOST"
    assert paged(0, 5, 100).last == 0
    assert len({each.shortcut for each in SECTIONS}) == len(SECTIONS)


def test_what_a_person_types_as_a_place_in_the_log() -> None:
    assert wanted_of("t", NOW, partition="1", start="42").start == {1: 42}
    assert wanted_of("t", NOW, start="15m").since_ms == NOW - 900_000
    assert wanted_of("t", NOW, start="2026-01-31T12:00").since_ms == 1_769_860_800_000
    assert wanted_of("t", NOW, start="2026-01-31T12:00:00+01:00").since_ms == 1_769_857_200_000
    assert wanted_of("t", NOW, before="0:5,1:9").before == {0: 5, 1: 9} == places("0:5,1:9")


def test_labels_that_are_empty_are_listed_and_do_not_go_in_circles() -> None:
    names = ["a", "a.", "a..b", "a..c", "a.x", ".hidden", ".hidden.too", "b..c", "b.d", "c..a", "c..b"]
    found = shown(names)
    assert sorted({row.path for row in found.rows if row.is_topic}) == sorted(names)
    assert sum(row.topics for row in found.rows if row.depth == 0) == len(names)
    assert {row.path for row in shown(names, Filter(under="a")).rows} == {"a", "a.", "a..b", "a..c", "a.x"}
