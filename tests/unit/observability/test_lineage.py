"""Lineage: the graph, the slowest path, the drawing, and OpenLineage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from browser.staged_estate import lag_row
from hypothesis import given
from hypothesis import strategies as st

from hub.cli.monitor.lineage import line, why
from hub.errors import CallerError, NotFound
from hub.observability.lag.states import LagState
from hub.observability.lineage.drawing import drawn
from hub.observability.lineage.graph import Lineage, LineageEdge, LineageNode
from hub.observability.lineage.live_graph import ConnectorFlow, ViewStorage, lineage_of
from hub.observability.lineage.open_lineage import open_lineage
from hub.observability.overview.mirror_readers import MirrorStatuses
from hub.observability.overview.overview import SourceLag, ViewLine
from hub.observability.web.pages.monitor.lineage import home_of, lineage_page, unreported_mirrors
from hub.observability.web.pages.monitor.mirrors import MirrorFacts


def view(name: str, *sources: tuple[str, float | None]) -> ViewLine:
    lags = tuple(
        SourceLag(
            topic, LagState.OK if s is not None else LagState.UNKNOWN, f"cause {topic}", 1, s, 0.5, None
        )
        for topic, s in sources
    )
    return ViewLine(
        name, "", f"{name}-team", "live", None, None, None, None, None, None, None, None, None, lags
    )


def store(name: str, state: str, lag: int | None) -> dict[str, Any]:
    return {"store": name, "kind": "sqlite", "state": state, "lag": lag, "reason": None}


def shop() -> Lineage:
    """crm and orders become c360; of its changelog a second view is made; groups read here and there."""
    views = [view("c360", ("crm", 0.2), ("orders", 40.0)), view("rich", ("views.c360", 3.0))]
    kept = {
        "c360": ViewStorage("views.c360", [store("serving", "live", 0), store("lake", "filling", 20_000)]),
        "rich": ViewStorage("views.rich@2", [store("serving", "live", 0)]),
    }
    rows = [
        lag_row("c360", "views.c360", "OK", kind="applier", seconds=0.1),
        lag_row("billing", "orders", "STALLED", seconds=600.0),
        lag_row("mailer", "views.rich@2", "OK", seconds=1.0),
        lag_row("lost", None, "UNKNOWN"),  # type: ignore[arg-type]
    ]
    return lineage_of(views, rows, kept)


def test_events_go_from_topics_over_views_to_stores_and_readers() -> None:
    graph = shop()
    assert {(edge.source, edge.target): (edge.seconds, edge.write) for edge in graph.edges} == {
        ("topic:crm", "view:c360"): (0.2, False),
        ("topic:orders", "view:c360"): (40.0, False),
        ("view:c360", "topic:views.c360"): (None, True),
        ("topic:views.c360", "store:c360/serving"): (0.1, False),
        ("topic:views.c360", "store:c360/lake"): (None, False),
        ("topic:views.c360", "view:rich"): (3.0, False),
        ("view:rich", "topic:views.rich@2"): (None, True),
        ("topic:views.rich@2", "store:rich/serving"): (0.0, False),
        ("topic:orders", "group:billing"): (600.0, False),
        ("topic:views.rich@2", "group:mailer"): (1.0, False),
    }
    lake = next(edge for edge in graph.edges if edge.target == "store:c360/lake")
    assert (lake.state, lake.records) == ("CATCHING_UP", 20_000)
    assert graph.nodes["topic:views.c360"].owner == "c360-team"


def test_why_late_names_the_slowest_hop_of_the_longest_way() -> None:
    late = shop().why_late("group:mailer")
    assert late.seconds == pytest.approx(44.0)
    assert [edge.source for edge in late.path] == [
        "topic:orders",
        "view:c360",
        "topic:views.c360",
        "view:rich",
        "topic:views.rich@2",
    ]
    assert late.slowest is not None and late.slowest.cause == "cause orders"
    assert not late.unknown
    assert shop().why_late("topic:crm").path == ()
    assert shop().why_late("store:c360/lake").unknown[0].target == "store:c360/lake"
    said = why(
        {
            "seconds": late.seconds,
            "path": [1],
            "unknown": [1],
            "slowest": {
                "seconds": 40.0,
                "source": "topic:orders",
                "target": "view:c360",
                "state": "FALLING_BEHIND",
                "cause": "cause orders",
            },
        }
    )
    assert "to read topic:orders: falling behind: cause orders" in said
    assert said.startswith("an event takes 44 s to get here; most of it, 40 s, it waits for view:c360")
    assert "may be more" in said


def test_around_a_node_only_what_comes_to_it_and_goes_out_of_it() -> None:
    near = shop().around("view:rich", 1, 50)
    assert set(near.nodes) == {"topic:views.c360", "view:rich", "topic:views.rich@2"} and near.cut
    far = shop().around("view:rich", 9, 50)
    assert "group:billing" not in far.nodes  # reads a source of rich, and is not upstream or downstream of it
    assert "topic:crm" in far.nodes and "group:mailer" in far.nodes and not far.cut
    assert len(shop().around("view:c360", 9, 4).nodes) == 4
    assert len(shop().first(3).nodes) == 3 and shop().first(3).cut


def test_names_are_found_and_doubts_are_said() -> None:
    graph = shop()
    assert graph.find("c360").id == "view:c360" and graph.find("topic:crm").name == "crm"
    with pytest.raises(NotFound, match="nothing that events go through") as missing:
        graph.find("c36o")
    assert missing.value.hint == 'did you mean "c360"?'
    with pytest.raises(CallerError, match="several") as several:
        graph.find("serving")
    assert "store:c360/serving" in str(several.value)
    with pytest.raises(CallerError, match="steps"):
        lineage_page(graph, "c360", 0, lambda _: {})


def test_a_page_of_a_view_has_its_columns() -> None:
    columns = {"name": (("crm", "first_name"),), "": ()}
    page = lineage_page(shop(), "c360", 3, lambda views: dict.fromkeys(views, columns))
    assert page.columns == columns and page.late is not None and page.total == 11
    assert page.edges[0].seconds == 40.0
    assert lineage_page(shop(), "", 3, lambda _: {}).late is None


def test_open_lineage_has_jobs_with_their_datasets_and_columns() -> None:
    columns = {"c360": {"name": (("crm", "first_name"),), "": (("crm", "id"),)}}
    events = {
        event["job"]["name"]: event  # type: ignore[index]
        for event in open_lineage(shop(), columns, "broker:9092", "2026-01-01T00:00:00+00:00")
    }
    assert set(events) == {"c360", "rich", "billing", "mailer"}
    c360: Any = events["c360"]
    assert {each["name"] for each in c360["inputs"]} == {"crm", "orders"}
    assert c360["inputs"][0]["namespace"] == "kafka://broker:9092"
    changelog, *stores = c360["outputs"]
    assert changelog["name"] == "views.c360" and {each["name"] for each in stores} == {
        "c360/serving",
        "c360/lake",
    }
    fields = changelog["facets"]["columnLineage"]["fields"]
    assert fields == {
        "name": {"inputFields": [{"namespace": "kafka://broker:9092", "name": "crm", "field": "first_name"}]}
    }
    assert c360["job"]["facets"]["ownership"]["owners"] == [{"name": "c360-team"}]
    assert events["billing"]["outputs"] == []


NOW = 1_790_000_000_000


def carried(topic: str, partition: int = 0, **more: Any) -> dict[str, Any]:
    plain = {
        "topic": topic,
        "partition": partition,
        "worker": "w1",
        "state": "mirroring",
        "reason": "",
        "lag_records": 7,
        "lag_s": 0.4,
        "seen_s": 0.6,
    }
    return {**plain, **more}


def mirror(name: str, source: str, target: str, *rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    plain = {"mirror": name, "source": source, "target": target, "state": "mirroring", "reason": ""}
    return {**plain, "partitions": rows, **more}


def region(*mirrors: dict[str, Any], at_ms: int | None = NOW - 1_000) -> Lineage:
    """Return the lineage of a hub at lon: orders are mirrored from nyc, become view c360, and are mirrored
    to tyo."""
    told = MirrorStatuses(mirrors, frozenset({"lon"}), {"nyc": "nyc-1:9092", "tyo": "tyo-1:9092"}, at_ms)
    kept = {"c360": ViewStorage("views.c360", [store("serving", "live", 0)])}
    rows = [lag_row("c360", "views.c360", "OK", kind="applier", seconds=0.1)]
    return lineage_of([view("c360", ("orders", 0.2))], rows, kept, told, NOW)


SLOW = mirror("nyc-lon", "nyc", "lon", carried("orders"), carried("orders", 1, lag_s=41.0), carried("other"))
ON = mirror("lon-tyo", "lon", "tyo", carried("orders"))


def into(graph: Lineage, node: str) -> LineageEdge:
    (edge,) = graph.into(node)
    return edge


def test_a_mirror_stands_between_topics_of_two_clusters_with_its_lag() -> None:
    graph = region(SLOW, ON)
    ways = {(edge.source, edge.target, edge.write) for edge in graph.edges}
    assert {
        ("topic:orders@nyc", "mirror:nyc-lon/orders", False),
        ("mirror:nyc-lon/orders", "topic:orders", True),
        ("topic:orders", "view:c360", False),
        ("topic:orders", "mirror:lon-tyo/orders", False),
        ("mirror:lon-tyo/orders", "topic:orders@tyo", True),
        ("topic:other@nyc", "mirror:nyc-lon/other", False),
    } <= ways
    late = into(graph, "mirror:nyc-lon/orders")
    assert (late.state, late.seconds, late.records, late.error_s) == ("BEHIND", 41.0, 14, 1.6)
    assert into(graph, "mirror:nyc-lon/other").state == "OK"
    assert graph.nodes["topic:orders@nyc"].cluster == "nyc" and graph.nodes["topic:orders"].cluster == ""
    assert graph.find("orders@nyc").id == "topic:orders@nyc"
    assert (
        home_of(graph.nodes["topic:orders@nyc"])
        == home_of(graph.nodes["mirror:lon-tyo/orders"])
        == "/mirrors"
    )
    assert {box.node.id for box in drawn(graph).boxes} == set(graph.nodes)


def test_a_renamed_copy_has_its_own_name_in_its_cluster() -> None:
    out = mirror("nyc-lon", "nyc", "lon", carried("orders"), declared="nyc-lon", rename="nyc.{topic}")
    home = mirror("nyc-lon~back", "lon", "nyc", carried("sold"), declared="nyc-lon", rename="nyc.{topic}")
    ways = {(edge.source, edge.target) for edge in region(out, home).edges}
    assert {
        ("topic:orders@nyc", "mirror:nyc-lon/orders"),
        ("mirror:nyc-lon/orders", "topic:nyc.orders"),
        ("topic:nyc.sold", "mirror:nyc-lon~back/sold"),
        ("mirror:nyc-lon~back/sold", "topic:sold@nyc"),
    } <= ways
    assert ("mirror:nyc-lon/orders", "topic:orders") not in ways


def test_why_late_walks_over_the_mirror_and_not_over_another_of_its_topics() -> None:
    late = region(SLOW, ON).why_late("store:c360/serving")
    assert late.seconds == pytest.approx(41.3) and not late.unknown
    assert late.path[0].source == "topic:orders@nyc"
    assert late.slowest is not None and late.slowest.target == "mirror:nyc-lon/orders"
    (page,) = [lineage_page(region(SLOW, ON), "view:c360", 9, lambda _: {})]
    assert page.late is not None and page.late.slowest == late.slowest
    assert region(SLOW).why_late("topic:other").seconds == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("status", "at_ms", "state"),
    [
        (mirror("m", "nyc", "lon", carried("orders", worker=None, state="waiting")), NOW, "UNKNOWN"),
        (mirror("m", "nyc", "lon", carried("orders", lag_s=None)), NOW, "UNKNOWN"),
        (mirror("m", "nyc", "lon", carried("orders")), NOW - 3_600_000, "UNKNOWN"),
        (mirror("m", "nyc", "lon", carried("orders")), None, "UNKNOWN"),
        (
            {"mirror": "m", "source": "nyc", "target": "lon", "state": "unknown", "topics_known": ["orders"]},
            NOW,
            "UNKNOWN",
        ),
        (
            mirror("m", "nyc", "lon", carried("orders", worker=None, state="waiting"), state="no worker"),
            NOW,
            "STOPPED",
        ),
    ],
)
def test_what_a_mirror_does_not_tell_is_unknown_and_never_no_lag(
    status: dict[str, Any], at_ms: int | None, state: str
) -> None:
    graph = region(status, at_ms=at_ms)
    edge = into(graph, "mirror:m/orders")
    assert (edge.state, edge.seconds, edge.error_s) == (state, None, None)
    assert edge in graph.why_late("view:c360").unknown


def test_a_mirror_that_stands_still_says_why() -> None:
    stuck = carried("orders", 1, state="stopped", reason="records were deleted unread")
    edge = into(region(mirror("m", "nyc", "lon", carried("orders"), stuck)), "mirror:m/orders")
    assert (edge.state, edge.cause) == ("STOPPED", "records were deleted unread")
    left = mirror("m", "nyc", "lon", carried("orders", state="left", reason="not any more"))
    assert "mirror:m/orders" not in region(left).nodes


def test_mirrors_are_jobs_of_open_lineage_over_the_datasets_of_both_clusters() -> None:
    events = open_lineage(
        region(SLOW, ON), {}, "lon-1:9092", "2026-01-01T00:00:00+00:00", {"nyc": "nyc-1:9092"}
    )
    jobs: Any = {event["job"]["name"]: event for event in events}  # type: ignore[index]
    there = {"namespace": "kafka://nyc-1:9092", "name": "orders"}
    here = {"namespace": "kafka://lon-1:9092", "name": "orders"}
    come, go = jobs["nyc-lon/orders"], jobs["lon-tyo/orders"]
    assert (come["job"]["namespace"], come["inputs"], come["outputs"]) == ("hub.mirrors", [there], [here])
    assert (go["inputs"], go["outputs"]) == ([here], [{"namespace": "kafka://tyo", "name": "orders"}])


def test_what_is_not_heard_of_mirrors_is_said() -> None:
    assert unreported_mirrors(MirrorFacts([SLOW], NOW)) == ()
    assert unreported_mirrors(MirrorFacts([SLOW], NOW, error="the file is wrong")) == (
        "mirrors: the file is wrong",
    )
    silent = {"mirror": "m", "reason": "tyo does not answer"}
    assert unreported_mirrors(MirrorFacts([silent], NOW)) == ("mirror m: tyo does not answer",)


NAMES = st.sampled_from("abcdefgh")


@given(st.lists(st.tuples(NAMES, NAMES, st.none() | st.floats(0, 100)), max_size=24))
def test_any_graph_is_drawn_and_walked_also_one_with_circles(
    arrows: Sequence[tuple[str, str, float | None]],
) -> None:
    nodes = {
        f"topic:{name}": LineageNode(f"topic:{name}", "topic", name) for a, b, _ in arrows for name in (a, b)
    }
    edges = {(a, b): LineageEdge(f"topic:{a}", f"topic:{b}", False, "OK", "", 1, s) for a, b, s in arrows}
    graph = Lineage(nodes, tuple(edges.values()))
    picture = drawn(graph)
    assert {box.node.id for box in picture.boxes} == set(nodes)
    assert len({(box.x, box.y) for box in picture.boxes}) == len(nodes)
    assert all(0 <= box.x < picture.width and 0 <= box.y < picture.height for box in picture.boxes)
    for node in nodes:
        late = graph.why_late(node)
        assert late.seconds == pytest.approx(sum(edge.seconds or 0.0 for edge in late.path))
        if late.path:
            assert late.path[-1].target == node
            assert all(a.target == b.source for a, b in zip(late.path, late.path[1:], strict=False))
        assert node in graph.around(node, 3, 10).nodes


def test_a_line_of_the_table_has_dashes_for_what_is_not_known() -> None:
    read = {
        "source": "topic:a",
        "target": "view:b",
        "write": False,
        "state": None,
        "cause": "why",
        "records": None,
        "seconds": None,
        "error_s": None,
    }
    assert line(read)["lag"] == "–" and line(read)["state"] == "UNKNOWN"
    assert line({**read, "write": True})["lag"] == ""


def test_connectors_stand_between_topics_and_systems() -> None:
    """A sink takes the place of its consumer group, with the group's lag;
    a source's lag is unknown, not zero."""
    flows = [
        ConnectorFlow("crm", True, "db/crm", ("crm.orders",), "crm-team"),
        ConnectorFlow("search", False, "search:9200", ("crm.orders", "crm.new")),
    ]
    rows = [
        lag_row("connect-search", "crm.orders", "BEHIND", seconds=40.0),
        lag_row("connect-other", "x", "OK"),
    ]
    graph = lineage_of([], rows, {}, flows=flows)
    edges = {(edge.source, edge.target): (edge.seconds, edge.state, edge.write) for edge in graph.edges}
    assert edges == {
        ("system:db/crm", "connector:crm"): (None, "UNKNOWN", False),
        ("connector:crm", "topic:crm.orders"): (None, None, True),
        ("topic:crm.orders", "connector:search"): (40.0, "BEHIND", False),
        ("topic:crm.new", "connector:search"): (None, "UNKNOWN", False),
        ("connector:search", "system:search:9200"): (None, None, True),
        ("topic:x", "group:connect-other"): (41.0, "OK", False),
    }
    late = graph.why_late("system:search:9200")
    assert late.seconds == 40.0 and [edge.source for edge in late.unknown] == [
        "system:db/crm",
        "topic:crm.new",
    ]
    assert home_of(graph.nodes["connector:crm"]) == "/connect/crm"
    assert drawn(graph).boxes
