"""A view compiled: what reads the latest event, what reads every event, and what is refused,
with the way out."""

from __future__ import annotations

import pytest

from hub.errors import ConfigError
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.entity_plan import ORIGIN, RULES, EntityPlan, UnionColumn, steps
from hub.materializers.definition.entity_view import View

TIMESTAMP = {"type": "long", "logicalType": "timestamp-millis"}


def record(**fields: object) -> dict[str, object]:
    return {"type": "record", "name": "E", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


SCHEMAS = {
    "crm": record(
        id="string", name=["null", "string"], credit="long", updated_at=TIMESTAMP, deleted="boolean"
    ),
    "pay": record(
        id="string", payment_id="string", kind="string", amount="long", ratio="double", at=TIMESTAMP
    ),
    "web": record(id="string", page="string", ms=["null", "int"]),
}


SOURCES = {
    "crm": {"topic": "crm.customers", "key": "id", "order": "updated_at"},
    "pay": {"topic": "shop.payments", "key": "id", "order": "at", "unique_by": "payment_id"},
    "web": {"topic": "web.*", "key": "lower(id)"},
}


def compiled(**changes: object) -> EntityPlan:
    body = {"view": "v", "sources": SOURCES, "fields": {"name": "crm.name"}, **changes}
    return shape(View.model_validate(body), SCHEMAS)


def test_a_column_outside_an_aggregate_is_the_latest_event_s() -> None:
    result = compiled(fields={"name": "upper(crm.name)"})
    assert result.outputs == (("name", "UPPER(l_crm.name)"),)
    assert dict(result.aggregates)["l_crm"] == "MAX(n_crm)"
    assert result.sources[0].entries == (
        UnionColumn("n_crm", ("_order", "_at", "_deleted", "name", *ORIGIN)),
    )


def test_only_used_columns_are_decoded() -> None:
    crm, pay, web = compiled().sources
    assert crm.columns == ("id", "name", "updated_at")
    assert pay.columns == ("at", "id", "payment_id")
    assert web.columns == ("id",)


def test_an_aggregate_of_a_plain_source_stays_spark_s_own_and_is_shared() -> None:
    result = compiled(fields={"a": "sum(web.ms)", "b": "sum(web.ms) / count(web.page)"})
    assert result.outputs == (("a", "a_0"), ("b", "a_0 / a_1"))
    assert dict(result.aggregates)["a_0"] == "TRY_SUM(s_web.ms) FILTER(WHERE s_web._deleted = FALSE)"


def test_an_aggregate_sees_its_own_source_s_events_only() -> None:
    """Rows of other sources have nulls in this one's columns: `is null` must not count them."""
    counted = compiled(fields={"n": "count_if(web.ms is null) filter (where web.page = '/')"})
    assert dict(counted.aggregates)["a_0"] == (
        "COUNT_IF(s_web.ms IS NULL) FILTER(WHERE s_web._deleted = FALSE AND s_web.page = '/')"
    )


def test_an_aggregate_of_a_unique_source_folds_the_latest_of_each_identity() -> None:
    result = compiled(fields={"paid": "coalesce(sum(if(pay.kind = 'x', pay.amount, 0)), 0)"})
    assert dict(result.aggregates)["u_pay"] == "COLLECT_LIST(i_pay)"
    assert result.sources[1].entries[1] == UnionColumn(
        "i_pay", ("_order", "_at", "_unique", "amount", "kind"), wants="_unique"
    )
    assert [name for name, _ in result.uniques] == ["r_pay"]
    assert "CAST(0 AS BIGINT)" in result.outputs[0][1]


def test_sums_keep_their_type() -> None:
    assert "CAST(0 AS DOUBLE)" in compiled(fields={"x": "sum(pay.ratio)"}).outputs[0][1]
    with pytest.raises(ConfigError, match="the type of"):
        compiled(fields={"x": "sum(bround(pay.ratio))"})


def test_a_source_over_several_topics_orders_by_time_first() -> None:
    (entry,) = compiled().sources[2].entries
    assert entry.fields == ("_timestamp", "_topic", "_at", "_deleted", "_partition", "_offset"), (
        "and each once"
    )


def test_what_has_a_map_in_it_has_no_order_and_is_compared_by_its_rank() -> None:
    tags = {"type": "array", "items": ["null", {"type": "map", "values": "string"}]}
    view = View.model_validate(
        {
            "view": "v",
            "sources": {"a": {"topic": "a", "key": "id"}, "b": {"topic": "b", "key": "id", "order": "n"}},
            "fields": {"tags": "b.tags", "n": "a.n"},
        }
    )
    result = shape(view, {"a": record(id="string", n="long"), "b": record(id="string", n="long", tags=tags)})
    assert {name: sql for name, sql in result.aggregates if name != "_live"} == {
        "l_a": "MAX(n_a)",
        "l_b": "MAX_BY(n_b, STRUCT(n_b._order, n_b._at)) FILTER (WHERE n_b IS NOT NULL)",
    }


def test_aggregates_of_spark_s_own_are_given_what_they_read() -> None:
    entries = compiled(fields={"a": "sum(web.ms) filter (where web.page = '/')"}).sources[2].entries
    assert entries[1] == UnionColumn("s_web", ("_deleted", "ms", "page"))


def test_earlier_fields_can_be_used_and_mixed_with_sources() -> None:
    result = compiled(fields={"n": "count(web.page)"}, computed={"twice": "n * 2 + crm.credit"})
    assert result.outputs[1] == ("twice", "TRY_ADD(TRY_MULTIPLY(n, 2), l_crm.credit)")


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("crm.nmae", 'no column "nmae"', 'did you mean "name"?'),
        ("crn.name", '"crn.name" is neither', 'did you mean "crm.name"?'),
        ("sum(crm.credit + web.ms)", "names several sources", "exactly one source"),
        ("count(*)", "has `*`", "one expression"),
        ("count(1)", "names no source", "exactly one source"),
        ("count(distinct web.page)", "distinct values of a source without unique_by", "declare `unique_by`"),
        ("collect_list(web.page)", "every event forever", "declare `unique_by`"),
        ("median(pay.amount)", "not available over a source with unique_by", "use one of"),
        ("rand()", "another value on every replay", "function of its events"),
        ("now()", "another value on every replay", "function of its events"),
        ("first(web.page)", "another value on every replay", "max_by(x, time)"),
        ("(select 1)", "has `", "without subquery"),
        ("max_by(pay.kind, pay.at, 3)", "keeps several", "max_by(x, time) keeps one"),
        ("upper(min_by(web.page, web.ms, 2)[0])", "keeps several", "min_by(x, time) keeps one"),
        ("to_char(crm.credit, '999')", "cannot be written again as it is", "SQL view"),
        ("max(pay.amount, pay.ratio)", "takes one value", "leave the others out"),
        ("crm.name +", "not a SQL expression", "docs/reference/view-files.md"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(text: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(fields={"f": text})
    assert 'view "v": field "f"' in caught.value.message
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


def test_what_reads_an_earlier_field_is_computed_after_it_and_all_else_at_once() -> None:
    result = compiled(
        fields={"name": "crm.name", "credit": "crm.credit", "half": "credit / 2", "page": "web.page"},
        computed={"quarter": "half / 2"},
    )
    groups = list(steps(result.outputs))
    assert [list(group) for group in groups] == [["name", "credit"], ["half", "page"], ["quarter"]]
    assert [each for group in groups for each in group.items()] == list(result.outputs)


def test_a_field_of_a_struct_is_no_earlier_field() -> None:
    outputs = (("name", "l_crm.name"), ("other", "l_web.name"), ("first", "name.first"))
    assert [list(group) for group in steps(outputs)] == [["name", "other"], ["first"]]


def test_names_are_compared_as_spark_compares_them() -> None:
    outputs = (("Name", "l_crm.name"), ("first", "substr(NAME, 1, 1)"))
    assert [list(group) for group in steps(outputs)] == [["Name"], ["first"]]


def test_a_key_cannot_aggregate() -> None:
    with pytest.raises(ConfigError, match="key: `max\\(id\\)` aggregates"):
        compiled(sources={"crm": {"topic": "t", "key": "max(id)"}})


def test_the_order_of_tombstones_follows_time_only() -> None:
    by_time, _, _ = compiled().sources
    by_number = compiled(
        sources={"crm": {"topic": "t", "key": "id", "order": "credit"}}, fields={"n": "crm.name"}
    ).sources[0]
    assert by_time.order_is_time and not by_number.order_is_time


def test_a_count_of_several_values_counts_those_without_null() -> None:
    several = compiled(
        fields={"n": "count(distinct pay.kind, pay.amount)", "m": "count(pay.kind, pay.amount)"}
    )
    kept = (
        "TRANSFORM(FILTER(r_pay, _e -> (_e.kind) IS NOT NULL AND (_e.amount) IS NOT NULL), "
        "_e -> STRUCT(_e.kind AS _0, _e.amount AS _1))"
    )
    values = f"FILTER({kept}, _v -> _v IS NOT NULL)"
    assert dict(several.outputs) == {
        "n": f"(CAST(SIZE(ARRAY_DISTINCT({values})) AS BIGINT))",
        "m": f"(CAST(SIZE({values}) AS BIGINT))",
    }
    assert several.sources[1].entries[1].fields[-2:] == ("kind", "amount")
    plain = compiled(fields={"n": "count(web.page, web.ms)"})
    assert dict(plain.aggregates)["a_0"].startswith("COUNT(s_web.page, s_web.ms)")


@pytest.mark.parametrize(
    ("precision", "scale", "text", "total"),
    [
        (38, 18, "sum(pay.paid)", "DECIMAL(38, 18)"),
        (38, 0, "sum(pay.paid)", "DECIMAL(38, 0)"),
        (10, 2, "sum(pay.paid)", "DECIMAL(38, 9)"),  # as it was: nothing is lost
        (38, 18, "sum(pay.paid / 2)", "DECIMAL(38, 18)"),
        (38, 18, "sum(coalesce(pay.paid, pay.less))", "DECIMAL(38, 18)"),
        (38, 18, "sum(if(pay.kind = 'x', pay.less, pay.paid))", "DECIMAL(38, 18)"),
    ],
)
def test_a_sum_of_decimals_has_their_digits(precision: int, scale: int, text: str, total: str) -> None:
    def decimal(precision: int, scale: int) -> object:
        return ["null", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}]

    events = record(id="string", kind="string", paid=decimal(precision, scale), less=decimal(10, 2))
    source = {"topic": "shop.payments", "key": "id", "unique_by": "id"}
    view = View.model_validate({"view": "v", "sources": {"pay": source}, "fields": {"x": text}})
    assert f"CAST(0 AS {total})" in shape(view, {"pay": events}).outputs[0][1]


def test_a_version_goes_on_with_the_rules_that_it_began_with() -> None:
    """Its state was made by them: not a word of its plan may change."""
    fields = {"paid": "sum(pay.amount)", "ms": "sum(web.ms)", "twice": "crm.credit * 2 + 1"}
    body = {"view": "v", "sources": SOURCES, "fields": fields}
    before, now = (shape(View.model_validate(body), SCHEMAS, rules) for rules in (0, RULES))
    assert dict(before.aggregates)["a_0"] == "SUM(s_web.ms) FILTER(WHERE s_web._deleted = FALSE)"
    assert dict(before.outputs)["twice"] == "l_crm.credit * 2 + 1"
    assert before.absent is None and before.sources[0].entries[0].fields == (
        "_order",
        "_at",
        "credit",
        *ORIGIN,
    )
    assert before.sources[1].unique == "CAST(e_pay.payment_id AS STRING)"
    assert dict(now.aggregates)["a_0"] == "TRY_SUM(s_web.ms) FILTER(WHERE s_web._deleted = FALSE)"
    assert dict(now.outputs)["twice"] == "TRY_ADD(TRY_MULTIPLY(l_crm.credit, 2), 1)"
    assert "TRY_ADD(_a, CAST(_v AS BIGINT))" in dict(now.outputs)["paid"]
    gone = " AND ".join(f"COALESCE(l_{name}._deleted, TRUE)" for name in ("crm", "pay", "web"))
    nulls = "`paid` IS NULL AND `ms` IS NULL AND `twice` IS NULL"
    assert now.absent == f"{gone} AND (NOT _live OR {nulls})"
    assert compiled(delete_when="crm.deleted").absent == gone
    assert "_live" not in dict(compiled(delete_when="crm.deleted").aggregates)


def test_a_long_chain_is_left_as_it_is() -> None:
    """Nested functions would exceed the depth of Spark's parser."""
    chain = compiled(fields={"n": "crm.credit" + " + 1" * 200}).outputs[0][1]
    assert chain == "l_crm.credit" + " + 1" * 200
