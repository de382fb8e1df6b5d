"""Plans of data frames as SQL, without Spark: which steps share a SELECT, names, and lines of Python."""

from __future__ import annotations

import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from hub.materializers.dataframes.plan_sql import sql_of
from hub.materializers.dataframes.plan_values import (
    DistinctStep,
    ExplodeStep,
    GroupStep,
    JoinStep,
    OverStep,
    Plan,
    PlanColumn,
    PlanItem,
    SelectStep,
    Source,
    SqlTerm,
    TopStep,
    UnionStep,
    WhereStep,
)


def source(name: str, first: int, columns: str = "id card amount") -> Source:
    return Source(name, tuple(PlanColumn(first + n, each) for n, each in enumerate(columns.split())))


def item(number: int, name: str, text: str, line: int = 0, *, ranks: bool = False) -> PlanItem:
    return PlanItem(PlanColumn(number, name), SqlTerm(text, line, ranks))


def text_of(plan: Plan, *outputs: tuple[int, str]) -> str:
    lines = sql_of(plan, [PlanColumn(*each) for each in outputs])
    return " ".join("\n".join(line.text for line in lines).split())


PAID = WhereStep(SqlTerm("(⟦3⟧ > 0)", 4), source("p", 1))
TOTALS = GroupStep((SqlTerm("⟦2⟧"),), (item(2, "card", "⟦2⟧"), item(9, "total", "sum(⟦3⟧)", 5)), PAID, 5)


def test_filters_groups_and_projections_share_a_select() -> None:
    plan = WhereStep(
        SqlTerm("(⟦10⟧ > 5)"), SelectStep((item(2, "card", "⟦2⟧"), item(10, "twice", "(⟦9⟧ * 2)")), TOTALS)
    )
    assert text_of(plan, (2, "card"), (10, "twice")) == (
        "SELECT p.card AS card, (sum(p.amount) * 2) AS twice FROM p WHERE (p.amount > 0) "
        "GROUP BY p.card HAVING ((sum(p.amount) * 2) > 5)"
    )


def test_a_group_of_groups_reads_a_subquery() -> None:
    plan = GroupStep((SqlTerm("⟦9⟧"),), (item(9, "total", "⟦9⟧"), item(11, "n", "count(1)")), TOTALS)
    assert text_of(plan, (9, "total"), (11, "n")) == (
        "SELECT t1.total AS total, count(1) AS n FROM ( SELECT sum(p.amount) AS total FROM p "
        "WHERE (p.amount > 0) GROUP BY p.card ) AS t1 GROUP BY t1.total"
    )


def test_a_filter_of_ranks_reads_a_subquery() -> None:
    rank = item(9, "rank", "row_number() OVER (ORDER BY ⟦1⟧)", ranks=True)
    plan = WhereStep(
        SqlTerm("(⟦9⟧ = 1)"),
        SelectStep((item(10, "id", "⟦1⟧"), item(9, "rank", "⟦9⟧")), OverStep((rank,), PAID)),
    )
    assert text_of(plan, (10, "id")) == (
        "SELECT t1.id AS id FROM ( SELECT p.id AS id, row_number() OVER (ORDER BY p.id) AS rank FROM p "
        "WHERE (p.amount > 0) ) AS t1 WHERE (t1.rank = 1)"
    )


def test_nothing_is_added_to_the_first_rows_or_to_distinct_ones() -> None:
    top = TopStep((SqlTerm("⟦3⟧ DESC"),), SqlTerm("3"), source("p", 1))
    assert text_of(WhereStep(SqlTerm("(⟦1⟧ > 1)"), top), (1, "id")) == (
        "SELECT t1.id AS id FROM ( SELECT p.id AS id FROM p ORDER BY p.amount DESC LIMIT 3 ) AS t1 "
        "WHERE (t1.id > 1)"
    )
    cards = DistinctStep((PlanColumn(2, "card"),), source("p", 1))
    assert text_of(SelectStep((item(8, "n", "length(⟦2⟧)"),), cards), (8, "n")) == (
        "SELECT length(t1.card) AS n FROM ( SELECT DISTINCT p.card AS card FROM p ) AS t1"
    )


def test_an_outer_join_keeps_expressions_of_its_sides_inside() -> None:
    """A constant of the right side would otherwise be there for rows without a partner."""
    right = SelectStep((item(12, "card", "⟦6⟧"), item(13, "known", "true")), source("q", 5))
    plan = JoinStep("LEFT", SqlTerm("(⟦2⟧ = ⟦12⟧)"), source("p", 1), right)
    assert text_of(plan, (1, "id"), (13, "known")) == (
        "SELECT p.id AS id, t1.known AS known FROM p LEFT JOIN ( SELECT q.card AS card, true AS known "
        "FROM q ) AS t1 ON (p.card = t1.card)"
    )


def test_a_source_that_is_read_twice_has_two_names() -> None:
    plan = JoinStep("INNER", SqlTerm("(⟦2⟧ = ⟦6⟧)"), source("p", 1), source("p", 5))
    assert text_of(plan, (1, "one"), (5, "two")) == (
        "SELECT p.id AS one, p2.id AS two FROM p INNER JOIN p AS p2 ON (p.card = p2.card)"
    )


def test_sides_of_a_union_have_the_same_columns_in_order() -> None:
    plan = UnionStep(
        (PlanColumn(1, "id"), PlanColumn(2, "card")), (source("p", 1), source("q", 5)), ((1, 2), (6, 5))
    )
    assert text_of(plan, (2, "card"), (1, "id")) == (
        "SELECT t1.card AS card, t1.id AS id FROM ( SELECT p.id AS id, p.card AS card FROM p "
        "UNION ALL SELECT q.card AS id, q.id AS card FROM q ) AS t1"
    )
    assert text_of(plan, (2, "card")) == (
        "SELECT t1.card AS card FROM ( SELECT p.card AS card FROM p UNION ALL SELECT q.id AS card FROM q )"
        " AS t1"
    )


def test_a_column_of_exploded_rows_has_a_name_of_its_own() -> None:
    plan = ExplodeStep(SqlTerm("explode(⟦3⟧)"), True, (PlanColumn(9, "card"),), source("p", 1))
    assert text_of(plan, (9, "card")) == (
        "SELECT card_2 AS card FROM p LATERAL VIEW OUTER explode(p.amount) item AS card_2"
    )


def test_names_that_are_no_identifiers_are_quoted() -> None:
    plan = SelectStep((item(9, "sum(`a`)", "⟦1⟧"),), source("p", 1, "a.b"))
    assert text_of(plan, (9, "sum(`a`)")) == "SELECT p.`a.b` AS `sum(``a``)` FROM p"


def test_each_line_of_sql_knows_its_line_of_python() -> None:
    lines = sql_of(TOTALS, [PlanColumn(2, "card"), PlanColumn(9, "total")])
    assert {line.text.strip(): line.source for line in lines} == {
        "SELECT": 5,
        "p.card AS card,": 5,
        "sum(p.amount) AS total": 5,
        "FROM p": 0,
        "WHERE (p.amount > 0)": 4,
        "GROUP BY p.card": 5,
    }


@st.composite
def chains(draw: st.DrawFn) -> tuple[Plan, int]:
    """A plan of steps over one column, each drawn, and the number of its column."""
    plan, column = source("p", 1), 1
    for number in range(10, 10 + draw(st.integers(0, 6))):
        made = item(number, f"c{number}", f"(⟦{column}⟧ + 1)")
        match draw(st.sampled_from(["select", "where", "group", "distinct", "top", "over", "join"])):
            case "select":
                plan, column = SelectStep((made,), plan), number
            case "where":
                plan = WhereStep(SqlTerm(f"(⟦{column}⟧ > 0)"), plan)
            case "group":
                plan, column = GroupStep((SqlTerm(f"⟦{column}⟧"),), (made,), plan), number
            case "distinct":
                plan = DistinctStep((PlanColumn(column, "x"),), plan)
            case "top":
                plan = TopStep((SqlTerm(f"⟦{column}⟧ ASC"),), SqlTerm("3"), plan)
            case "over":
                ranked = item(number, f"c{number}", f"rank() OVER (ORDER BY ⟦{column}⟧)", ranks=True)
                plan, column = OverStep((ranked,), plan), number
            case _:
                other = source("q", 1000 * number)
                plan = JoinStep("LEFT", SqlTerm(f"(⟦{column}⟧ = ⟦{1000 * number}⟧)"), plan, other)
    return plan, column


@given(chains())
def test_every_chain_of_steps_is_a_select_whatever_the_numbers_are(made: tuple[Plan, int]) -> None:
    plan, column = made
    text = text_of(plan, (column, "result"))
    assert "⟦" not in text
    tree = sqlglot.parse_one(text, dialect="spark")
    assert isinstance(tree, sqlglot.exp.Select) and tree.named_selects == ["result"]
    assert all(each.args.get("from_") is not None for each in tree.find_all(sqlglot.exp.Select))
