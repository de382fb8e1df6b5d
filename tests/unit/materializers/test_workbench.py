"""The workbench's decisions: first statement, place of an error, samples as a golden test, who may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from query_hub import ORDER, ORDERS, QueryHub

from hub.caller import CALLER, AccessDecision, Action, Caller, Kind, Resource
from hub.config import Settings
from hub.errors import CallerError, ConfigError, PeerError
from hub.masking.shape import OPEN, Visibility
from hub.materializers.definition.load import load_view
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.golden.cases import Case, CaseOutcome, GivenEvent, load_golden
from hub.materializers.queries.parser import SqlError
from hub.materializers.workbench.process import PreviewProcess
from hub.materializers.workbench.routes import create_router
from hub.materializers.workbench.sampled_case import sampled_case
from hub.materializers.workbench.samples import SampledEvent, TopicSample
from hub.materializers.workbench.service import Workbench
from hub.materializers.workbench.statement import first_statement, place_of
from hub.record import NewRecord

STATEMENT = f'CREATE MATERIALIZED VIEW spent AS\nSELECT id, sum(cents) AS cents FROM "{ORDERS}" GROUP BY id'


class StagedPreviews:
    """Answers one row with the number of events; ``refusal`` is raised instead."""

    def __init__(self) -> None:
        self.why_not, self.refusal = "", list[Exception]()

    def compute(self, view: SqlView, schemas: Mapping[str, Any], case: Case) -> CaseOutcome:
        if self.refusal:
            raise self.refusal[0]
        return CaseOutcome(("id", "cents"), {"a": {"id": "a", "cents": len(case.events)}}, [(1, "broken")], 2)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder, self.hub, self.previews = folder, QueryHub(folder), StagedPreviews()
        service = self.hub.service
        bench = Workbench(service.statements, service.topics, self.previews, lambda view: f"views.{view}")
        self.hub.app.include_router(create_router(bench))
        self.http = TestClient(self.hub.app)

    def ask(self, path: str, code: int = 200, **body: Any) -> Any:
        answer = self.http.post(f"/api/workbench/{path}", json=body)
        assert answer.status_code == code, answer.text
        return answer.json()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    for number in range(5):
        made.hub.order(number, 1_700_000_000_000 + number * 1_000)
    yield made
    made.hub.close()


@pytest.mark.parametrize(
    ("topic", "fields", "line"),
    [
        ("shop.orders", {"order_id": "string", "at": "timestamp"}, "SELECT order_id, count(*) AS events"),
        ("a.b", {"x": "decimal(9,2)", "b-c": "int"}, "SELECT x, count(*) AS events"),
        ("a.b", {}, "SELECT _key AS record_key, count(*) AS events"),
    ],
)
def test_a_first_statement_counts_by_the_likeliest_key(topic: str, fields: Any, line: str) -> None:
    assert first_statement(topic, fields).splitlines()[1] == line


def test_an_error_has_its_place_in_the_statement() -> None:
    text = "CREATE MATERIALIZED VIEW v AS SELECT a,\n  b FROM t"
    select = text[text.index("SELECT") :]
    error = ConfigError("no b")
    error.details = {"line": "2", "column": "3"}
    assert place_of(error, text, select) == (2, 3)
    error.details = {"line": "1", "column": "8"}
    assert place_of(error, text, select) == (1, 38)
    assert place_of(ConfigError("Spark: no; line 2 pos 2;"), text, select) == (2, 3)
    # The name of a topic is shorter in the file, so only the line is sure.
    assert place_of(error, text.replace("a,", '"a",'), select.replace("a,", '"a",')) == (1, None)
    assert place_of(SqlError("no", line=3, column=4), text, select) == (3, 4)
    assert place_of(ConfigError("no"), text, select) is None


def sampled(*values: Any, at_ms: int = 0) -> TopicSample:
    return TopicSample(
        tuple(SampledEvent("t", 0, n, at_ms + n * 1_000, f"k{n}", value) for n, value in enumerate(values)), 1
    )


def view_of(text: str) -> SqlView:
    return SqlView(view="v", sources={"orders": {"topic": "t"}, "other": {"topic": "u"}}, sql=text)


def test_samples_become_a_case_by_time_without_what_does_not_fit() -> None:
    view = view_of("SELECT id FROM orders")
    samples = {
        "orders": sampled({"id": "a", "cents": 1, "gone": "of an earlier version"}, {"id": 7}, None, "text"),
        "other": sampled({"id": "b", "cents": 2}, at_ms=500),
    }
    found = sampled_case(view, {"orders": ORDER, "other": ORDER}, samples)
    assert found.taken == {"orders": 2, "other": 1} and found.left_out == {"orders": 3, "other": 1}
    events = [each for each in found.case.events if isinstance(each, GivenEvent)]
    assert [(each.source, each.value) for each in events] == [
        ("orders", {"id": "a", "cents": 1}),
        ("other", {"id": "b", "cents": 2}),
        ("orders", None),
    ]
    with pytest.raises(CallerError, match="orders has 2 that do not fit its newest schema, other has none"):
        sampled_case(
            view,
            {"orders": ORDER, "other": ORDER},
            {"orders": sampled({"id": 7}), "other": TopicSample(())},
        )


def test_a_topic_is_shown_with_its_newest_events_and_fields(bench: Bench) -> None:
    bench.hub.publish(b"\x00\x00\x00\x00\x09broken", 1_700_000_009_000)
    found = bench.http.get(f"/api/workbench/topics/{ORDERS}?events=3").json()
    assert found["fields"] == [{"name": "id", "type": "string"}, {"name": "cents", "type": "bigint"}]
    assert [each["value"]["id"] for each in found["events"]] == ["o3", "o4"] and found["unreadable"] == 1
    assert found["statement"].startswith("CREATE MATERIALIZED VIEW orders_by_id AS")
    assert bench.http.get("/api/workbench/topics/none").status_code == 404
    assert bench.http.get(f"/api/workbench/topics/{ORDERS}?events=201").status_code in (400, 422)
    assert "array_sort" in bench.http.get("/api/workbench/functions").json()["functions"]


def test_a_plan_says_what_the_view_keeps_and_writes_nothing(bench: Bench) -> None:
    found = bench.ask("plan", sql=STATEMENT)
    plan = {each["item"]: each["value"] for each in found["plan"]}
    assert plan["check"] == "fine; aggregate" and plan["first run reads"] == f"{ORDERS}: up to 5 events"
    assert plan["state"] == "one row for each key, forever: no source has a watermark"
    assert plan["stores"] == "serving" and "+view: spent" in found["diff"] and not found["exists"]
    windowed = STATEMENT.replace("AS\nSELECT", "WITH (orders.event_time = '_timestamp', ").replace(
        "'_timestamp', ",
        "'_timestamp', orders.watermark = '1 hour') AS\nSELECT window(_timestamp, '1 hour').end AS w,",
    )
    windowed = windowed.replace("GROUP BY id", "GROUP BY id, window(_timestamp, '1 hour')")
    plan = {each["item"]: each["value"] for each in bench.ask("plan", sql=windowed)["plan"]}
    assert plan["state"] == "one row for each key, until the watermark has passed them"
    assert not (bench.folder / "views").exists()
    wrong = bench.ask("plan", 400, sql=STATEMENT.replace("sum(cents)", "sum(cent)"))
    assert wrong["line"] == "2" and "did you mean" in wrong["hint"]
    assert bench.ask("plan", 400, sql="SELECT 1")["error_code"] == "HUB-1466"
    assert bench.ask("plan", 400, sql="CREATE TABLE x AS SELECT 1")["line"] == "1"


def test_a_preview_has_rows_and_a_golden_test_of_them(bench: Bench) -> None:
    found = bench.ask("preview", sql=STATEMENT, events=4)
    assert found["sources"] == [{"source": "orders", "topic": ORDERS, "events": 4, "left_out": 0}]
    assert found["rows"] == [{"key": "a", "row": {"id": "a", "cents": 4}}] and found["late"] == 2
    saved = bench.ask("save", sql=STATEMENT, test=found["test"])
    assert saved == {"view": "spent", "written": ["views/spent.yaml", "views/tests/spent.yaml"]}
    view = load_view(bench.folder / "views" / "spent.yaml")
    golden = load_golden(bench.folder / "views" / "tests" / "spent.yaml", {"spent": view})
    ((name, case),) = golden.tests.items()
    assert name.endswith("4 of orders") and len(case.events) == 4 and case.late == 2
    assert case.rows == {"a": {"id": "a", "cents": 4}} and case.dead[0].reason == "broken"
    # It exists now: the statement must say that it replaces it, and a test is never written over.
    assert bench.ask("save", 409, sql=STATEMENT, test=None)["error_code"] == "HUB-1467"
    again = STATEMENT.replace("CREATE", "CREATE OR REPLACE")
    assert "exists" in bench.ask("save", 409, sql=again, test=found["test"])["message"]
    assert bench.ask("save", sql=again.replace("sum", "max"), test=None)["written"] == ["views/spent.yaml"]


def test_a_test_of_another_view_or_of_no_form_is_refused(bench: Bench) -> None:
    for text in (
        "view: other\ntests: {a: {events: [{source: o, value: {}}], rows: {}}}",
        "[1",
        "view: spent",
    ):
        assert bench.ask("save", 400, sql=STATEMENT, test=text)["error_code"] == "HUB-1473"
    assert not (bench.folder / "views").exists()


def test_what_has_no_preview_says_why(bench: Bench) -> None:
    bench.hub.cluster.create_topic("bare", partitions=1, config={}, replication_factor=1)
    bare = bench.ask("preview", 400, sql=first_statement("bare", {}))
    assert "no schema is registered for bare" in bare["message"]
    bench.previews.refusal.append(PeerError("another preview is being computed", code="HUB-3095"))
    assert bench.ask("preview", 503, sql=STATEMENT)["error_code"] == "HUB-3095"
    off = PreviewProcess(Settings(project=bench.folder, preview_heap_mb=0))
    with pytest.raises(PeerError, match="previews are off"):
        off.compute(view_of("SELECT id FROM orders"), {}, Case(events=["next batch"], rows={}))


def as_caller(*may: tuple[Action, Resource], shape: Visibility = OPEN) -> Caller:
    def decide(action: Action, resource: Resource) -> AccessDecision:
        return AccessDecision((action, resource) in may, f"{action} {resource} is not granted", "ask for it")

    return Caller("ana", frozenset(), decide, shape=lambda _resource: shape, is_masked=shape is not OPEN)


def test_a_reader_tries_views_and_only_an_admin_saves_them(bench: Bench) -> None:
    topic, view = Resource(Kind.topic, ORDERS), Resource(Kind.view, "spent")
    described, reads = (Action.describe, topic), (Action.read, topic)
    subject = (Action.describe, Resource(Kind.subject, f"{ORDERS}-value"))

    def asked(caller: Caller, path: str, code: int) -> Any:
        token = CALLER.set(caller)
        try:
            return bench.ask(path, code, sql=STATEMENT)
        finally:
            CALLER.reset(token)

    assert asked(as_caller(described, subject, reads), "plan", 200)["why_not_saved"] == (
        'saving takes the role admin over view "spent"'
    )
    assert asked(as_caller(described, subject, reads), "preview", 200)["rows"]
    asked(as_caller(described, subject, reads), "save", 403)
    asked(as_caller(described, (Action.admin, view)), "preview", 403)
    masked = Visibility(f'topic "{ORDERS}"', closed="it is masked")
    asked(as_caller(described, subject, reads, shape=masked), "preview", 403)
    asked(as_caller(described, subject, reads, (Action.admin, view)), "save", 200)
    # The present file of a view is shown to those who may read the view.
    found = asked(as_caller(described, subject, reads), "plan", 200)
    assert found["exists"] and found["diff"] == []


def test_a_server_that_changes_no_files_says_so(bench: Bench, tmp_path: Path) -> None:
    files = bench.hub.service.statements.files
    object.__setattr__(files, "allowed", False)
    assert "sql_changes_views is off" in bench.ask("plan", sql=STATEMENT)["why_not_saved"]
    assert bench.ask("save", 400, sql=STATEMENT, test=None)["error_code"] == "HUB-1468"
    assert yaml.safe_load(bench.ask("plan", sql=STATEMENT)["text"])["view"] == "spent"


def test_a_sample_is_bounded_in_bytes(bench: Bench) -> None:
    bench.hub.cluster.create_topic("big", partitions=1, config={}, replication_factor=1)
    values = [b'{"text": "%s"}' % (bytes([97 + n]) * 400_000) for n in range(4)]
    bench.hub.cluster.writer().append(
        [NewRecord("big", b"k", value, timestamp_ms=n) for n, value in enumerate(values)]
    )
    found = bench.http.get("/api/workbench/topics/big").json()["events"]
    assert [each["value"]["text"][0] for each in found] == ["c", "d"]
