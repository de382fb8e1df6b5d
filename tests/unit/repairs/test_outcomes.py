"""Outcomes of a repair: each result is checked against the topic's schema and key; ranges; scripts; SQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hub.cli.topic.python_script import script_function
from hub.cli.topic.repairing.repair import RequestedRepair
from hub.errors import CallerError, ConfigError, NotFound
from hub.log import MemoryCluster
from hub.materializers.queries.topic_rows import TopicTables
from hub.record import UNREAD_HEADER, NewRecord, Positions, Record, TopicPartition
from hub.repairs.changes import ScriptChange
from hub.repairs.model import TopicGeneration, TopicGenerations, state_of, state_text
from hub.repairs.outcomes import MOST_SPLIT, EventChange, EventRepair, RepairOutcome
from hub.repairs.plan import plan_repair, require_possible
from hub.repairs.selection import RepairRange, range_of
from hub.repairs.sql_changes import SqlChange, sql_assignment
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.schema_registry.compat.resolved_schema import SchemaSource

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
    ],
}
FORM = parsed(SCHEMA)


@dataclass
class Registry:
    """A registry in which topic ``t`` has one schema, with id 7."""

    known: bool = True
    text: str = field(default_factory=lambda: json.dumps(SCHEMA))

    def subjects(self) -> list[str]:
        return ["t-value"] if self.known else []

    def subjects_of(self, schema_id: int) -> frozenset[str]:
        return frozenset({"t-value"})

    def source(self, schema_id: int) -> SchemaSource:
        if schema_id != 7:
            raise NotFound("no such id")
        return SchemaSource.of("AVRO", self.text)

    def latest(self, subject: str) -> RegisteredSchema:
        return RegisteredSchema(7, 1, self.text)

    def versions(self, subject: str) -> list[RegisteredSchema]:
        return [RegisteredSchema(7, 1, self.text)] if self.known else []


def order(n: int, cents: int = 5) -> bytes:
    return encode(7, FORM, {"id": f"o{n}", "cents": cents, "city": None})


def record(n: int, value: bytes | None, headers: Any = ()) -> Record:
    return Record("t", 0, n, 1_000 + n, b"o%d" % n, value, headers)


def outcomes_of(
    function: Callable[[Any, Any], Any], *records: Record, key: str | None = None, known: bool = True
) -> list[RepairOutcome]:
    repair = EventRepair("t", Registry(known), ScriptChange(function, "fix.py"), key)  # type: ignore[arg-type]
    return repair.outcomes(records)


def test_a_function_leaves_changes_drops_and_splits() -> None:
    def fix(event: Any, at: Any) -> Any:
        assert at.timestamp_ms == 1_000 + at.offset
        return [None, {**event, "cents": 9}, [], [event, {**event, "cents": 1}], event][at.offset]

    found = outcomes_of(fix, *(record(n, order(n)) for n in range(5)))
    assert [each.kind for each in found] == ["unchanged", "changed", "dropped", "split", "unchanged"]
    assert found[1].values == (order(1, 9),) and found[3].values == (order(3), order(3, 1))


def test_a_function_that_changes_its_argument_and_returns_none_changes_nothing() -> None:
    def fix(event: Any, _at: Any) -> None:
        event["cents"] = 9

    assert outcomes_of(fix, record(0, order(0)))[0].kind == "unchanged"


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"id": "o0", "cents": "many", "city": None}, "cents"),
        ({"cents": 1}, "id"),
        (17, "not an object"),
        ([{"id": "o0", "cents": 1, "city": None}, "text"], "not an object"),
        ([{}] * (MOST_SPLIT + 1), "too many"),
        ({"id": "other", "cents": 1, "city": None}, "another key belongs to another partition"),
    ],
)
def test_a_result_that_does_not_satisfy_the_topic_is_refused_with_its_reason(
    result: Any, reason: str
) -> None:
    (found,) = outcomes_of(lambda _event, _at: result, record(0, order(0)), key="id")
    assert found.kind == "refused" and reason in found.reason


def test_a_function_that_raises_refuses_the_event_and_names_itself() -> None:
    (found,) = outcomes_of(lambda event, _at: event["nothing"], record(0, order(0)))
    assert found.kind == "refused" and "fix.py" in found.reason and "KeyError" in found.reason


def test_tombstones_stay_and_unread_batches_are_refused() -> None:
    unread = Record("t", 0, 1, 1_001, None, None, ((UNREAD_HEADER, b"it is too large"),))
    found = outcomes_of(lambda _event, _at: [], record(0, None), unread)
    assert [each.kind for each in found] == ["unchanged", "refused"]
    assert "too large" in found[1].reason


def test_events_without_a_schema_are_json() -> None:
    found = outcomes_of(lambda event, _at: {**event, "b": 2}, record(0, b'{"a":1}'), known=False)
    assert found == [RepairOutcome("changed", (b'{"a":1,"b":2}',))]


def test_events_outside_of_the_range_stay() -> None:
    place = TopicPartition("t", 0)
    chosen = RepairRange(Positions({place: 1}), Positions({place: 3}))
    change = ScriptChange(lambda _event, _at: [], "fix.py")
    repair = EventRepair("t", Registry(), change, None, chosen.selects)  # type: ignore[arg-type]
    found = repair.outcomes([record(n, order(n)) for n in range(4)])
    assert [each.kind for each in found] == ["unchanged", "dropped", "dropped", "unchanged"]


def filled() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.create_topic("t", partitions=1, config={}, replication_factor=1)
    cluster.writer().append(
        [NewRecord("t", b"o%d" % n, order(n, cents=n - 2), (), 1_000 + n, 0) for n in range(5)]
    )
    return cluster


def test_ranges_are_offsets_or_times() -> None:
    cluster, place = filled(), TopicPartition("t", 0)
    found = range_of(cluster, "t", "2", "1970-01-01T00:00:01.004Z", 0)
    assert found == RepairRange(Positions({place: 2}), Positions({place: 4}))
    assert range_of(cluster, "t", "", "", 0) == RepairRange()
    with pytest.raises(CallerError, match="ends before it begins"):
        range_of(cluster, "t", "3", "2", 0)
    with pytest.raises(CallerError, match='"soon" is not a place'):
        range_of(cluster, "t", "soon", "", 0)


def sql(cluster: MemoryCluster, where: str | None, *sets: tuple[str, str]) -> EventChange:
    return SqlChange("t", TopicTables(cluster, Registry()), where, sets)  # type: ignore[arg-type]


def test_sql_drops_and_sets_fields() -> None:
    cluster = filled()
    records = [each for log in cluster.logs["t"] for each in log]

    def kinds(change: EventChange) -> list[RepairOutcome]:
        return EventRepair("t", Registry(), change).outcomes(records)  # type: ignore[arg-type]

    dropped = kinds(sql(cluster, "cents < 0"))
    assert [each.kind for each in dropped] == ["dropped"] * 2 + ["unchanged"] * 3
    changed = kinds(sql(cluster, "cents < 0", ("cents", "abs(cents)"), ("city", "upper(id)")))
    assert [each.kind for each in changed] == ["changed"] * 2 + ["unchanged"] * 3
    assert changed[0].values == (encode(7, FORM, {"id": "o0", "cents": 2, "city": "O0"}),)
    everything = kinds(sql(cluster, None, ("cents", "cents + 1")))
    assert [each.kind for each in everything] == ["changed"] * 5


def test_wrong_sql_is_refused_before_the_first_event() -> None:
    with pytest.raises(ConfigError, match="no_such"):
        sql(filled(), "no_such = 1")


def test_a_plan_counts_samples_and_writes_nothing() -> None:
    cluster = filled()
    repair = EventRepair("t", Registry(), sql(cluster, "cents < 0"))  # type: ignore[arg-type]
    plan = plan_repair(cluster, "t", repair.outcomes, ["drop"])
    assert dict(plan.counts) == {"dropped": 2, "unchanged": 3} and plan.changes == 2
    assert [each.record.offset for each in plan.samples["dropped"]] == [0, 1]
    assert list(cluster.logs) == ["t"]
    require_possible(plan)
    again = plan_repair(cluster, "t", repair.outcomes, ["drop"])
    other = plan_repair(cluster, "t", repair.outcomes, ["drop", "from"])
    assert plan.digest == again.digest != other.digest


def test_a_plan_with_a_refused_event_is_not_carried_out() -> None:
    cluster = filled()
    change = ScriptChange(lambda event, at: 17 if at.offset == 3 else None, "fix.py")
    repair = EventRepair("t", Registry(), change)  # type: ignore[arg-type]
    plan = plan_repair(cluster, "t", repair.outcomes, ["fix"])
    with pytest.raises(CallerError, match="refused for 1 event, the first is partition 0 offset 3"):
        require_possible(plan)


@pytest.mark.parametrize("topic", ["_hub.audit", "views.totals", "t.dlq"])
def test_topics_of_the_hub_are_not_repaired(topic: str) -> None:
    with pytest.raises(CallerError, match="belongs to the hub"):
        plan_repair(filled(), topic, lambda records: [], [])


def test_a_missing_topic_has_a_guess() -> None:
    with pytest.raises(NotFound) as refused:
        plan_repair(filled(), "tt", lambda records: [], [])
    assert refused.value.hint == 'did you mean "t"?'


def test_options_are_one_repair(tmp_path: Path) -> None:
    def requested(**given: Any) -> RequestedRepair:
        texts = {"script": None, "drop": None, "sets": (), "where": None, "since": "", "until": ""}
        return RequestedRepair("t", **{**texts, **given})

    for wrong in ({}, {"drop": "a", "sets": ("a=1",)}, {"drop": "a", "where": "b"}):
        with pytest.raises(CallerError):
            requested(**wrong).check()
    full = requested(sets=("a=b + 1",), where="b > 1", since="15m")
    full.check()
    assert full.command == "hub topic repair t --set 'a=b + 1' --where 'b > 1' --from 15m"
    with pytest.raises(CallerError, match="FILE.py:FUNCTION"):
        requested(script="fix.py").script_place()
    script = tmp_path / "fix.py"
    script.write_text("def repair(event, record):\n    return []\n")
    first = requested(script=f"{script}:repair").digest_parts()
    assert script_function(script, "repair")({}, None) == []
    script.write_text("def repair(event, record):\n    return None\n")
    assert requested(script=f"{script}:repair").digest_parts() != first
    with pytest.raises(CallerError, match="has no function other"):
        script_function(script, "other")
    assert sql_assignment("a.b = c = 1") == ("a.b", "c = 1")
    with pytest.raises(CallerError, match="FIELD=EXPRESSION"):
        sql_assignment("a")


def test_a_state_is_read_as_it_was_written_and_one_of_a_newer_release_is_refused() -> None:
    state = TopicGenerations("shop.orders", 2, "id", {"0": 7}, (TopicGeneration(1, "", "", 5),))
    text = state_text(state)
    assert state_of(text) == state
    with pytest.raises(ConfigError, match='format "generations" has version 2'):
        state_of(text.replace(b'"version":1', b'"version":2'))
