"""Golden tests as a user runs them: the examples' pass,
and a view that is changed fails with what changed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from processes import run_hub
from pyspark.sql import SparkSession

from hub.cli.view.new import source_of
from hub.cli.view.schemas_source import schemas_of, topics_of
from hub.errors import ConfigError
from hub.files import write_new
from hub.materializers.definition.drafted import draft
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_views
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.golden.cases import Case, differences, golden_files, load_golden
from hub.materializers.golden.runner import GoldenRunner
from hub.materializers.spark.building.carried_view import carried_view
from hub.materializers.sql_rules.nesting import MOST_BRACKETS, MOST_LEVELS
from hub.materializers.sql_rules.spark_functions import FUNCTIONS, MORE_AGGREGATES

EXAMPLES = Path(__file__).parents[2] / "examples"


def runner(session: SparkSession, project: Path, folder: Path) -> GoldenRunner:
    views = {view.name: view for view in load_views(project)}
    schemas = {name: schemas_of(project, view)[0] for name, view in views.items()}

    def built(view: SqlView, of: Mapping[str, Any]) -> SqlView:
        return view if view.python is None else carried_view(session, view, of)

    return GoldenRunner(session, views, schemas, folder, built)


@pytest.mark.parametrize(
    "example", ["customer-360", "flights", "sql-views", "formats", "real-time", "fraud", "pyspark"]
)
def test_the_examples_pass(spark_session: SparkSession, tmp_path: Path, example: str) -> None:
    project = EXAMPLES / example
    runs = runner(spark_session, project, tmp_path)
    views = {view.name: view for view in load_views(project)}
    files = [load_golden(path, views) for path in golden_files(project)]
    assert files
    for file in files:
        for name, case in file.tests.items():
            assert differences(case, runs.run(file.view, case)) == [], name


@pytest.mark.parametrize("tutorial", ["first-view", "cdc-to-customer-360"])
def test_the_tests_of_the_tutorials_pass(spark_session: SparkSession, tmp_path: Path, tutorial: str) -> None:
    text = (EXAMPLES.parent / f"docs/tutorials/{tutorial}.md").read_text()
    blocks = re.findall(
        r"^```(?:yaml|json)\n(?:#|//) [a-z]+/(\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    )
    for name, body in blocks:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body)
    runs = runner(spark_session, tmp_path, tmp_path)
    (file,) = [
        load_golden(path, {view.name: view for view in load_views(tmp_path)})
        for path in golden_files(tmp_path)
    ]
    for name, case in file.tests.items():
        assert differences(case, runs.run(file.view, case)) == [], name


def test_a_drafted_view_passes_its_drafted_test(spark_session: SparkSession, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES / "customer-360", project, ignore=shutil.ignore_patterns("views"))
    topics = ("crm.customers", "shop.orders", "shop.payments", "support.tickets", "web.visits")
    tree = topics_of(project)
    made = draft("shop_360", "customer_id", [source_of(project, tree, topic) for topic in topics])
    write_new(
        {project / "views/shop_360.yaml": made.view, project / "views/tests/shop_360.yaml": str(made.test)}
    )
    runs = runner(spark_session, project, tmp_path)
    (path,) = golden_files(project)
    file = load_golden(path, {view.name: view for view in load_views(project)})
    for name, case in file.tests.items():
        assert differences(case, runs.run(file.view, case)) == [], name


def test_the_functions_that_are_known_without_spark_are_those_that_spark_has(
    spark_session: SparkSession,
) -> None:
    known = {row[0] for row in spark_session.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert {name for name in known if name.isidentifier()} == FUNCTIONS
    assert known >= MORE_AGGREGATES


def test_sql_as_deep_as_it_may_be_is_within_what_spark_stands(spark_session: SparkSession) -> None:
    within = MOST_BRACKETS - 1
    for text in (
        "id" + " + id" * (MOST_LEVELS - 10),
        "abs(" * within + "id" + ")" * within,
        "CASE WHEN id > 1 THEN " * within + "id" + " END" * within,
    ):
        assert len(spark_session.range(3).selectExpr(f"{text} AS x").collect()) == 3


def test_validate_has_spark_judge_what_it_cannot_itself(tmp_path: Path) -> None:
    views = tmp_path / "views"
    views.mkdir()
    text = (
        "view: v\nsources: {s: {topic: t, format: json, schema: {id: bigint, tags: 'map<string,bigint>'}}}\n"
        "sql: SELECT id, X AS x FROM s\nkey: id\n"
    )
    (views / "v.yaml").write_text(text.replace("X", "bround(id, 1, 2, 3)"))
    found = run_hub({}, "view", "validate", str(tmp_path))
    assert found.returncode == 1 and "WRONG_NUM_ARGS" in found.stderr and 'view "v"' in found.stderr
    assert run_hub({}, "view", "validate", str(tmp_path), "--no-spark").returncode == 0
    (views / "v.yaml").write_text(text.replace("X", "tags['a'] RLIKE '^(a+)+$'"))
    found = run_hub({}, "view", "validate", str(tmp_path))
    assert (found.returncode, "by Spark's analyzer" in found.stderr) == (0, True), found.stderr
    assert "repeats a group that repeats" in found.stderr
    (views / "v.yaml").write_text(text.replace("X", "id") + "stores: [servign]\n")
    found = run_hub({}, "view", "validate", str(tmp_path), "--no-spark")
    assert found.returncode == 1 and 'did you mean "serving"?' in found.stderr


VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "event_id", "type": "long"},
        {"name": "session_id", "type": "string"},
        {"name": "page", "type": ["null", "string"]},
        {"name": "occurred_at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ],
}
CART = {
    "type": "record",
    "name": "Cart",
    "fields": [{"name": "session_id", "type": "string"}, {"name": "items", "type": "long"}],
}


@pytest.fixture(scope="module")
def sessions(
    spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[GoldenRunner, Path]:
    """The view with a ttl that the docs show, and their test of it."""
    project = tmp_path_factory.mktemp("sessions")
    (project / "views" / "tests").mkdir(parents=True)
    docs = (EXAMPLES.parent / "docs/how-to/expire-rows.md").read_text()
    view, test = re.findall(r"^```yaml\n(view: sessions\n.+?)^```", docs, re.MULTILINE | re.DOTALL)
    (project / "views" / "sessions.yaml").write_text(view)
    (project / "views" / "tests" / "sessions.yaml").write_text(test)
    views = {each.name: each for each in load_views(project)}
    schemas = {"sessions": {"web": VISIT, "carts": CART}}
    return GoldenRunner(spark_session, views, schemas, project), project


def test_the_expiry_in_the_docs_is_right(sessions: tuple[GoldenRunner, Path]) -> None:
    runs, project = sessions
    views = {view.name: view for view in load_views(project)}
    (file,) = [load_golden(path, views) for path in golden_files(project)]
    for case in file.tests.values():
        assert differences(case, runs.run("sessions", case)) == []


def test_a_row_is_over_when_none_of_its_events_is_later_than_the_latest_expiry(
    sessions: tuple[GoldenRunner, Path],
) -> None:
    """In any order, of two sources, with times that are missing,
    too far ahead or finer than a millisecond's."""

    def web(
        session: str, said: str | None, at: str = "2024-02-01T00:00:00Z", page: str = "/"
    ) -> dict[str, Any]:
        value = {"event_id": 1, "session_id": session, "page": page, "occurred_at": said}
        return {"source": "web", "at": at, "value": value}

    def over(session: str | None, cutoff: str | None) -> dict[str, Any]:
        return {"source": "_expiry", "key": session, "value": None if cutoff is None else {"cutoff": cutoff}}

    ten, later = "2024-01-01T10:00:00Z", "2024-01-01T10:00:00.001Z"
    events = [
        over("first", ten), web("first", ten),  # the expiry before its event
        web("older", ten), over("older", later), over("older", "2020-01-01T00:00:00Z"),  # the latest counts
        web("twice", ten), over("twice", ten), over("twice", ten),
        web("newer", later), over("newer", ten),
        # a late event takes no time away
        web("late", later), web("late", "2023-01-01T00:00:00Z"), over("late", ten),
        {"source": "carts", "at": later, "value": {"session_id": "cart", "items": 3}},
        web("cart", ten), over("cart", ten),  # of the other source, whose order is the log's
        web("far", "2999-01-01T00:00:00Z"), over("far", "2024-02-01T00:00:00Z"),
        web("none", None), over("none", "2024-01-31T00:00:00Z"),
        over("never", ten),
        web("undone", ten), over("undone", None),
        {"source": "_expiry", "key": "bad", "text": '{"cutoff": "soon"}'},
        over(None, ten),
    ]  # fmt: skip
    found = sessions[0].run("sessions", Case.model_validate({"events": events, "rows": {}}))
    assert found.rows.keys() == {"newer", "late", "cart", "none", "undone"}
    assert found.columns == ("last_page", "visits", "cart", "last_event_at")
    times = {key: row["last_event_at"] for key, row in found.rows.items()}
    assert times["newer"] == times["late"] == times["cart"] == "2024-01-01T10:00:00.001Z"
    assert times["none"] == "2024-02-01T00:00:00.000Z"
    dead = [reason for _, reason in found.dead]
    assert len(dead) == 2 and "cutoff" in dead[0] and "key is null" in dead[1]


def test_maps_odd_names_and_words_with_quotes_in_the_latest_event_and_in_lists(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """A struct with a map is compared by its rank alone; and no author's name collides with an internal
    one."""
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "carts.yaml").write_text(r"""
view: carts
sources:
  web: {topic: web, key: id, order: seen}
  shop: {topic: shop.*, key: id, unique_by: of, where: "said <> 'it\\'s' or `select` is null"}
fields:
  tags: web.tags
  pages: web.pages
  said: shop.said
  lines: count_if(shop.said <> 'a\\b')
  words: array_join(collect_list(shop.said), ',')
""")
    views = {view.name: view for view in load_views(tmp_path)}
    strings: dict[str, Any] = {"type": "map", "values": "string"}
    web = {"id": "string", "seen": "long", "tags": strings, "pages": {"type": "array", "items": strings}}
    shop = {"id": "string", "of": "string", "said": "string", "select": ["null", "string"]}
    schemas = {
        "carts": {
            name: {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in of.items()]}
            for name, of in (("web", web), ("shop", shop))
        }
    }

    def visit(seen: int, tag: str) -> dict[str, Any]:
        value = {"id": "a", "seen": seen, "tags": {"t": tag}, "pages": [{"p": tag}]}
        return {"source": "web", "value": value}

    def line(of: str, said: str, at: str, **more: Any) -> dict[str, Any]:
        value = {"id": "a", "of": of, "said": said, "select": None, **more}
        return {"source": "shop", "topic": f"shop.{of}", "at": f"2024-01-01T00:00:0{at}Z", "value": value}

    events = [
        visit(1, "x"), visit(3, "z"), visit(2, "y"), visit(3, "last"), visit(0, "first"),
        line("one", "new", "5"), line("one", "old", "1"), line("two", "a\\b", "2"),
        line("three", "it's", "3"), line("four", "it's", "4", select="x"),
    ]  # fmt: skip
    found = GoldenRunner(spark_session, views, schemas, tmp_path).run(
        "carts", Case.model_validate({"events": events, "rows": {}})
    )
    assert not found.dead
    row = found.rows["a"]
    assert (row["tags"], row["pages"]) == ({"t": "last"}, [{"p": "last"}])
    assert (row["said"], row["lines"], row["words"]) == ("new", 2, "new,a\\b,it's")


def test_no_event_is_dropped_untold_and_keys_a_microsecond_apart_are_two(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """Spark drops late rows of each group that has an event time in it, window or not."""
    (tmp_path / "views").mkdir()
    source = "{e: {topic: e, event_time: t, watermark: 10 minutes}}"
    for name, sql in {
        "grouped": "SELECT id, t, count(*) AS n FROM e GROUP BY id, t",
        "distinct_ones": "SELECT DISTINCT id, t FROM e",
        "hourly": "SELECT id, window(t, '1 hour').start AS t, count(*) AS n FROM e GROUP BY "
        "id, window(t, '1 hour')",
    }.items():
        text = f"view: {name}\nsources: {source}\nsql: {sql}\n"
        (tmp_path / "views" / f"{name}.yaml").write_text(text)
    views = {view.name: view for view in load_views(tmp_path)}
    time = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": "id", "type": "string"}, {"name": "t", "type": time}]
    schemas = {name: {"e": {"type": "record", "name": "E", "fields": fields}} for name in views}
    runs = GoldenRunner(spark_session, views, schemas, tmp_path)

    def event(at: str) -> dict[str, Any]:
        return {"source": "e", "value": {"id": "a", "t": at}, "at": "2024-01-02T00:00:00Z"}

    events = [
        event("2024-01-01T12:00:00.000001Z"), event("2024-01-01T12:00:00.000002Z"),
        event("2024-01-01T12:00:00.003Z"),
        event("2024-01-01T14:30:00Z"), "next batch", event("2024-01-01T12:05:00Z"),
    ]  # fmt: skip
    case = Case.model_validate({"events": events, "rows": {}})
    keys = {
        f'["a","2024-01-01T{each}Z"]'
        for each in ("12:00:00.000001", "12:00:00.000002", "12:00:00.003", "12:05:00.000", "14:30:00.000")
    }
    for name in ("grouped", "distinct_ones"):
        found = runs.run(name, case)
        assert (found.rows.keys(), found.late) == (keys, 0), name
    found = runs.run("hourly", case)
    assert found.late == 1
    assert {key: row["n"] for key, row in found.rows.items()} == {
        '["a","2024-01-01T12:00:00.000Z"]': 3,
        '["a","2024-01-01T14:00:00.000Z"]': 1,
    }


def test_what_a_case_gets_wrong_is_said(spark_session: SparkSession, tmp_path: Path) -> None:
    runs = runner(spark_session, EXAMPLES / "sql-views", tmp_path)

    def run(**event: Any) -> Any:
        return runs.run("regular_customers", Case.model_validate({"events": [event], "rows": {}}))

    with pytest.raises(ConfigError, match=r"event 1: value\.product"):
        run(source="o", value={"order_id": 1, "customer_id": 1, "product": 5, "amount_cents": 1})
    assert run(source="o", text="{}").dead[0][0] == 1
    assert run(source="o", value=None).dead[0][1].startswith("a tombstone's record key")


def test_a_view_that_is_changed_fails_with_what_changed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES / "sql-views", project)
    view = project / "views" / "regular_customers.yaml"
    cases = "view: regular_customers\ntests:\n"
    order = (
        "{{source: o, key: {0}, value: {{order_id: {0}, customer_id: 7, product: tea, amount_cents: 5, "
        "status: open, placed_at: 2024-01-01T00:00:00Z}}}}"
    )
    for name, orders in (("three are enough", 3), ("two are not", 2)):
        events = "".join(f"      - {order.format(number)}\n" for number in range(orders))
        rows = "{7: {orders: 3, products: 1}}" if orders == 3 else "{}"
        cases += f"  {name}:\n    events:\n{events}    rows: {rows}\n"
    (project / "views" / "tests" / "regular_customers.yaml").write_text(cases)
    view.write_text(view.read_text().replace(">= 3", ">= 2"))
    (project / "views" / "bad.yaml").write_text("view: bad\nsourcs: {}\n")
    done = run_hub({}, "view", "test", "regular_customers", "--project", str(project), "-o", "json")
    assert done.returncode == 1, done.stderr
    told = {each["test"]: each for each in json.loads(done.stdout)}
    assert told["three are enough"]["passed"]
    assert told["two are not"]["differences"] == [
        'row "7": must not be there: {"customer_id": 7, "orders": 2, "products": 1, "amount_cents": 10}'
    ]
    assert "1 passed, 1 failed, 1 file left out" in done.stderr
    assert "bad.yaml:2:1: unknown key" in done.stderr  # and the other views' tests ran


def test_the_record_s_own_time_is_an_event_time(spark_session: SparkSession, tmp_path: Path) -> None:
    """The forms that docs and hints name; and a view that only counts its events."""
    (tmp_path / "views").mkdir()
    view = """
view: {name}
sources: {{c: {{topic: carts, event_time: {time}, watermark: 10 minutes}}}}
sql: SELECT window(_timestamp, '1 hour').start AS hour, count(*) AS n FROM c GROUP BY window(_timestamp, '1 hour')
key: hour
"""  # noqa: E501
    (tmp_path / "views" / "by_record.yaml").write_text(view.format(name="by_record", time="_timestamp"))
    (tmp_path / "views" / "by_event.yaml").write_text(view.format(name="by_event", time="at"))
    schema = {**CART, "fields": [*CART["fields"], VISIT["fields"][3] | {"name": "at"}]}  # type: ignore[operator,misc,index]
    runs = GoldenRunner(
        spark_session,
        {each.name: each for each in load_views(tmp_path)},
        {name: {"c": schema} for name in ("by_record", "by_event")},
        tmp_path,
    )

    def cart(at: str) -> dict[str, Any]:
        return {"source": "c", "at": at, "value": {"session_id": "s", "items": 1, "at": at}}

    events = [
        cart("2024-01-01T10:00:00Z"), cart("2024-01-01T10:30:00Z"), cart("2024-01-01T13:00:00Z"),
        "next batch",
        cart("2024-01-01T10:40:00Z"), cart("2024-01-01T13:30:00Z"),
    ]  # fmt: skip
    for name, late in (("by_record", 1), ("by_event", 0)):
        found = runs.run(name, Case.model_validate({"events": events, "rows": {}}))
        counts = {key[11:13]: row["n"] for key, row in found.rows.items()}
        assert (counts, found.late) == ({"10": 2 if late else 3, "13": 2}, late), name
        assert found.dead == []


def test_no_identity_no_wrapped_sum_and_no_row_of_tombstones(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """An event without identity counts by itself, what is beyond BIGINT is null,
    and a delete with its tombstone leaves no row."""
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "totals.yaml").write_text("""
view: totals
sources: {o: {topic: o, key: g, unique_by: id}, p: {topic: p, key: g}}
fields:
  orders: count(o.amt)
  ordered: sum(o.amt)
  paid: sum(p.amt)
  twice: max(p.amt * 2)
computed:
  more: paid + 1
""")
    (tmp_path / "views" / "customers.yaml").write_text("""
view: customers
sources: {c: {topic: c, key: id}}
delete_when: c.op = 'd'
fields: {op: c.op}
""")
    for name, fields in (("changes", "{n: count(c.op), gone: c._deleted}"), ("names", "{op: c.op}")):
        (tmp_path / "views" / f"{name}.yaml").write_text(
            f"view: {name}\nsources: {{c: {{topic: c, key: id}}}}\nfields: {fields}\n"
        )
    (tmp_path / "views" / "by_group.yaml").write_text("""
view: by_group
sources: {o: {topic: o}}
sql: SELECT g, sum(amt) AS total, count(*) AS n, min(amt + 1) AS more, max(-2 - amt) AS less, min(amt * 2) AS twice FROM o GROUP BY g
""")  # noqa: E501
    (tmp_path / "views" / "each.yaml").write_text("""
view: each
sources: {o: {topic: o}}
key: id
sql: SELECT coalesce(id, 'none') AS id, amt + 1 AS more, -2 - amt AS less, amt * 2 AS twice FROM o
""")
    (tmp_path / "views" / "by_group_d.yaml").write_text("""
view: by_group_d
sources: {o: {topic: o}}
sql: SELECT g, sum(amt) AS total, count(*) AS n, min(amt + 1) AS more, max(-2 - amt) AS less, min(amt * 2) AS twice FROM o GROUP BY g HAVING count(*) > 0
""")  # noqa: E501
    order = {"type": "record", "name": "O", "fields": [
        {"name": "id", "type": ["null", "string"]}, {"name": "g", "type": "string"}, {"name": "amt",
        "type": "long"}]}  # fmt: skip
    change = {"type": "record", "name": "C", "fields": [{"name": "id", "type": "string"}, {"name": "op",
        "type": "string"}]}  # fmt: skip
    schemas = {
        "totals": {"o": order, "p": order}, "customers": {"c": change}, "changes": {"c": change},
        "names": {"c": change}, "by_group": {"o": order}, "by_group_d": {"o": order},
        "each": {"o": order},
    }  # fmt: skip
    runs = GoldenRunner(spark_session, {each.name: each for each in load_views(tmp_path)}, schemas, tmp_path)

    def given(source: str, identity: str | None, group: str, amount: int) -> dict[str, Any]:
        return {"source": source, "key": group, "value": {"id": identity, "g": group, "amt": amount}}

    most = 2**63 - 1
    events = [
        given("o", None, "a", 5), given("o", None, "a", 5), given("o", "1", "a", 7), given("o", "1", "a", 8),
        {"source": "o", "key": "a", "value": None}, {"source": "o", "key": "nobody", "value": None},
        given("p", None, "a", 5),
        given("o", "1", "b", most), given("o", "2", "b", 1), given("p", None, "b", most), given("p", None,
        "b", most),
    ]  # fmt: skip
    found = runs.run("totals", Case.model_validate({"events": events, "rows": {}}))
    assert found.rows == {
        "a": {"orders": 3, "ordered": 18, "paid": 5, "twice": 10, "more": 6},
        "b": {"orders": 2, "ordered": None, "paid": None, "twice": None, "more": None},
    }
    for view in ("by_group", "by_group_d"):
        live = [each for each in events if each["source"] == "o" and each["value"] is not None]
        totals = runs.run(view, Case.model_validate({"events": live, "rows": {}}))
        assert {key: (row["total"], row["n"]) for key, row in totals.rows.items()} == {
            "a": (25, 4),
            "b": (None, 2),
        }
        assert {key: (row["more"], row["less"], row["twice"]) for key, row in totals.rows.items()} == {
            "a": (6, -7, 10),
            "b": (2, -3, 2),
        }
    live = [{**each, "value": {**each["value"], "id": str(n)}} for n, each in enumerate(live)]
    alone = runs.run("each", Case.model_validate({"events": live, "rows": {}})).rows.values()
    assert {(row["more"], row["less"], row["twice"]) for row in alone} == {
        (6, -7, 10), (8, -9, 14), (9, -10, 16), (None, None, None), (2, -3, 2),
    }  # fmt: skip

    def changed(key: str, op: str | None, record_key: str | None = None) -> dict[str, Any]:
        value = None if op is None else {"id": key, "op": op}
        return {"source": "c", "key": record_key or key, "value": value}

    debezium = [
        changed("7", "c"), changed("8", "c"), changed("8", "d"), changed("8", None),
        changed("9", "c", '{"id":9}'), changed("9", "d", '{"id":9}'), changed("9", None, '{"id":9}'),
        changed("6", "c"), changed("6", None), changed("5", None), changed("5", "c"),
    ]  # fmt: skip
    case = Case.model_validate({"events": debezium, "rows": {}})
    assert runs.run("customers", case).rows == {"7": {"op": "c"}, "5": {"op": "c"}}
    # Without delete_when what is left of a key is shown: that it is deleted, how often it changed; nulls
    # alone are not.
    kept = {"n": 2, "gone": True}
    assert runs.run("changes", case).rows == {
        "7": {"n": 1, "gone": False}, "5": {"n": 1, "gone": False}, "8": kept, "9": {"n": 2, "gone": False},
        "6": {"n": 1, "gone": True},
    }  # fmt: skip
    assert runs.run("names", case).rows == {"7": {"op": "c"}, "5": {"op": "c"}, "9": {"op": "d"}}


def test_an_order_that_moves_counts_under_both_customers_unless_it_is_a_table(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """The behavior of unique_by in the docs, and the documented alternative."""
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "by_key.yaml").write_text(
        "view: by_key\nsources: {o: {topic: o, key: customer, unique_by: id}}\nfields: "
        "{orders: count(o.id)}\n"
    )
    (tmp_path / "views" / "by_table.yaml").write_text(
        "view: by_table\nsources: {o: {topic: o, table: {key: id}}}\n"
        "sql: SELECT customer, count(*) AS orders FROM o GROUP BY customer\n"
    )
    views = {each.name: each for each in load_views(tmp_path)}
    order = {
        "type": "record",
        "name": "O",
        "fields": [{"name": each, "type": "string"} for each in ("id", "customer")],
    }
    runs = GoldenRunner(spark_session, views, {name: {"o": order} for name in views}, tmp_path)
    moves = [
        {"source": "o", "value": {"id": i, "customer": c}} for i, c in (("1", "a"), ("2", "a"), ("1", "b"))
    ]
    case = Case.model_validate({"events": moves, "rows": {}})
    assert {key: row["orders"] for key, row in runs.run("by_table", case).rows.items()} == {"a": 1, "b": 1}
    assert {key: row["orders"] for key, row in runs.run("by_key", case).rows.items()} == {"a": 2, "b": 1}
    entity = views["by_key"]
    assert isinstance(entity, View)
    assert "stays counted under the former" in entity.counted_within["o"]
