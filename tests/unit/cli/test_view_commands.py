"""``hub view validate`` and ``explain``: from the files alone; ``hub view show`` from a server's answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hub.cli import main
from hub.cli.view.show import shown

EXAMPLES = Path(__file__).parents[3] / "examples"
FLIGHTS, SHOP = EXAMPLES / "flights", EXAMPLES / "sql-views"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_explain_says_class_reason_sources_and_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("view", "explain", "departures_by_hour", "--project", str(FLIGHTS), "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["key"], told["key from"]) == ("aggregate", ["origin", "hour"], "GROUP BY")
    assert "tumbling window" in told["why"]
    assert told["source departures"]["watermark"] == "3 hours"
    assert told["late events"] == "views.departures_by_hour.late"
    assert run("view", "explain", "aircraft_360", "--project", str(FLIGHTS), "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "entity"


def test_explain_tells_a_ttl_and_only_of_a_view_that_has_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "views").mkdir()
    file = tmp_path / "views" / "v.yaml"
    text = "view: v\nsources: {s: {topic: t, key: id}}\nfields: {n: s.n}\n"
    for ttl in ("", "ttl: 12h\n"):
        file.write_text(text + ttl)
        assert run("view", "explain", "v", "--project", str(tmp_path), "-o", "json") == 0
        told = json.loads(capsys.readouterr().out)
        assert ("ttl" in told, told.get("expiries")) == (bool(ttl), "_hub.expiry.v" if ttl else None)
    assert told["ttl"].startswith("12h after last_event_at") and told["columns"] == ["n", "last_event_at"]


def test_explain_of_a_view_without_file_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("view", "explain", "aircraft_36", "--project", str(FLIGHTS)) == 1
    assert 'did you mean "aircraft_360"?' in capsys.readouterr().err


def test_validate_names_the_class_and_stops_at_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    views = tmp_path / "views"
    views.mkdir()
    text = "view: often\nsources: {e: {topic: a}}\nsql: SELECT id, count(*) AS n FROM e GROUP BY id"
    (views / "often.yaml").write_text(text + " HAVING count(*) > 1\n")
    assert run("view", "validate", str(tmp_path), "--no-spark") == 0
    assert "often.yaml: well formed" in capsys.readouterr().err
    (views / "often.yaml").write_text(text.replace("count(*)", "rand()") + "\n")
    assert run("view", "validate", str(tmp_path), "--no-spark") == 1
    told = capsys.readouterr().err
    assert "often.yaml" in told and "SQL line 1, column 12: `rand`" in told


def test_class_d_is_explained_with_its_plan_and_a_view_over_it_with_the_columns_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "project"
    shutil.copytree(SHOP, project)
    assert run("view", "explain", "orders_with_customers", "--project", str(project), "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["engine"]) == ("incremental", "the incremental engine")
    assert told["plan"][0] == "orders_with_customers: key (order_id), recomputed by (order_id)"
    assert told["plan"][2].strip() == "1 c: rows whose customer_id = customer_id of 0 o"

    assert run("view", "validate", str(project), "--no-spark") == 0
    told = capsys.readouterr().err
    assert "regular_customers.yaml: fine; incremental, by the incremental engine" in told
    over = "best_of_region.yaml: well formed; incremental, by the incremental engine; not checked: "
    assert over + "the types of joined, which orders_with_customers has when it runs" in told

    best = project / "views" / "best_of_region.yaml"
    text = best.read_text()
    best.write_text(text.replace("SELECT region, order_id", "SELECT country, order_id"))
    assert run("view", "validate", str(project), "--no-spark") == 1
    told = capsys.readouterr().err
    assert 'source "joined": view "orders_with_customers" has no column "country"' in told

    best.write_text(text.replace("view: orders_with_customers", "view: orders_with_customer"))
    assert run("view", "validate", str(project), "--no-spark") == 0
    assert "views/orders_with_customer.yaml does not exist here" in capsys.readouterr().err


def test_validate_says_what_a_view_of_class_d_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "project"
    shutil.copytree(SHOP, project)
    best = project / "views" / "best_of_region.yaml"
    text = "view: best_of_region\nsources: {o: {topic: market.orders, table: {key: order_id}}}\nsql: SELECT "
    for sql, said in {
        "order_id FROM o": "its rows have no key of their own",
        "count(*) AS n FROM o\nkey: n": "declare up to how many rows may be computed whole",
        "order_id FROM o ORDER BY amount_cents LIMIT 3\nkey: order_id": "rank within groups: row_number()",
    }.items():
        best.write_text(text + sql + "\n")
        assert run("view", "validate", str(project), "--no-spark") == 1
        assert said in capsys.readouterr().err
    best.write_text(text + "count(*) AS n FROM o\nkey: n\nwhole_rows: 100\n")
    assert run("view", "validate", str(project), "--no-spark") == 0


def test_a_view_is_shown_as_people_read_it_and_what_is_not_known_is_left_out() -> None:
    now_ms = 1_700_000_100_000
    proof = {"state": "MATCHES", "matched_ms": now_ms - 12_000, "reason": ""}
    lake = {"store": "lake", "kind": "iceberg", "state": "filling", "lag": 1200, "reason": None}
    told = {
        "view": "customer_360",
        "doc": "",
        "owner": "customer-data",
        "state": "live",
        "reason": None,
        "since_ms": now_ms - 90_000,
        "sources": {"crm": "crm.customers", "orders": "shop.orders"},
        "rows": 1889,
        "fields": [f"column_{number:02}" for number in range(20)],
        "indexes": ["city", "tier"],
        "changelog": "views.customer_360",
        "positions": "crm.customers:0:24,shop.orders:0:7,shop.orders:1:9",
        "last_batch": {
            "mode": "live", "input_rows": 1, "batch_ms": 530, "committed_at_ms": now_ms - 3_000,
            "dead_records": 2, "late_records": 0,
        },
        "stores": [
            {"store": "serving", "kind": "sqlite", "state": "live", "lag": 0, "reason": None, "proof": proof},
            lake,
        ],
        "versions": [{"number": 1, "state": "served"}, {"number": 2, "state": "building"}],
    }  # fmt: skip
    lines = dict(shown(told, now_ms))
    assert lines["state"] == "live for 90 s"
    assert lines["sources"] == "crm: crm.customers\norders: shop.orders"
    assert lines["read up to"] == "crm.customers 0:24\nshop.orders 0:7 1:9"
    assert lines["last batch"] == "live: 1 event in 0.53 s, 3 s ago; 2 to the dead-letter topic"
    assert lines["stores"] == "serving, sqlite: live, MATCHES 12 s ago\nlake, iceberg: filling, 1200 behind"
    assert lines["version"] == "1 (2 building)"
    assert max(map(len, str(lines["columns"]).splitlines())) <= 100
    assert {"doc", "why", "rows last for", "cut", "recomputed"}.isdisjoint(lines)

    waits = {"view": "new", "state": "waiting", "stores": [], "reason": "topic t does not exist"}
    assert list(shown(waits, now_ms)) == [
        ("view", "new"), ("state", "waiting"), ("why", "topic t does not exist"),
    ]  # fmt: skip
