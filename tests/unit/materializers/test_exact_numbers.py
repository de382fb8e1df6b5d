"""Numbers of SQL views never wrap: where the author's text is changed, and that nothing else of it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlglot import exp

from hub.materializers.definition.load import load_views
from hub.materializers.definition.sql_text import trees_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.delta_plan import DeltaPlan, Stage
from hub.materializers.planning.exact_numbers import ARITHMETIC, SUMS, exact, of_plan, rules_of

ROOT = Path(__file__).parents[3]

CASES = [
    ("SELECT a + b AS x FROM t", "SELECT try_add(a , b) AS x FROM t"),
    ("SELECT a-b*c x FROM t", "SELECT try_subtract(a,try_multiply(b,c)) x FROM t"),
    ("SELECT (a + b) * -c FROM t", "SELECT try_multiply((try_add(a , b)) , -c) FROM t"),
    ("SELECT a + b - c FROM t", "SELECT try_subtract(try_add(a , b) , c) FROM t"),
    ("SELECT a + 1 b, t.a*2 c FROM t", "SELECT try_add(a , 1) b, try_multiply(t.a,2) c FROM t"),
    ("SELECT count(*), t.*, * FROM t", "SELECT count(*), t.*, * FROM t"),
    ("SELECT -a, 'a + b', `a + b` FROM t", "SELECT -a, 'a + b', `a + b` FROM t"),
    (
        "SELECT sum(q * p) FROM t GROUP BY d + 1 HAVING sum(q) > 2",
        "SELECT try_sum(try_multiply(q , p)) FROM t GROUP BY try_add(d , 1) HAVING try_sum(q) > 2",
    ),
    (
        "SELECT CASE WHEN a = b + 1 THEN a ELSE b END + x[0] * m.n.o FROM t",
        "SELECT try_add(CASE WHEN a = try_add(b , 1) THEN a ELSE b END , try_multiply(x[0] , m.n.o)) FROM t",
    ),
    (
        "SELECT CAST(a AS BIGINT) * 2 -- twice\n + b /* more */ FROM t",
        "SELECT try_add(try_multiply(CAST(a AS BIGINT) , 2) -- twice\n , b) /* more */ FROM t",
    ),
    (
        "SELECT a FROM l JOIN r ON l.t BETWEEN r.t - INTERVAL 1 HOUR AND r.t + make_interval(0, 0, 0, 0, 1)",
        "SELECT a FROM l JOIN r ON l.t BETWEEN r.t - INTERVAL 1 HOUR AND r.t + make_interval(0, 0, 0, 0, 1)",
    ),
    (
        "SELECT aggregate(xs, 0L, (acc, x) -> acc + x * 2) AS s FROM t",
        "SELECT aggregate(xs, 0L, (acc, x) -> try_add(acc , try_multiply(x , 2))) AS s FROM t",
    ),
    (
        "SELECT a % b * c || d, a / b - 1 FROM t",
        "SELECT try_multiply(a % b , c) || d, try_subtract(a / b , 1) FROM t",
    ),
    (
        (
            "WITH w AS (SELECT k, n + 1 AS n FROM t) SELECT k, w.n * 2 AS n FROM w WHERE n - 1 IN "
            "(SELECT a + 2 FROM u)"
        ),
        (
            "WITH w AS (SELECT k, try_add(n , 1) AS n FROM t) SELECT k, try_multiply(w.n , 2) AS n FROM w"
            " WHERE try_subtract(n , 1) IN (SELECT try_add(a , 2) FROM u)"
        ),
    ),
]


@pytest.mark.parametrize(("sql", "wanted"), CASES)
def test_arithmetic_of_numbers_gives_null_and_the_rest_of_the_text_stays(sql: str, wanted: str) -> None:
    assert exact(sql) == wanted
    assert exact(wanted) == wanted, "what was made is not made again"
    assert exact(sql, SUMS) == sql.replace("sum(", "try_sum("), "the rules of before"


def replaced(tree: exp.Expr) -> exp.Expr:
    """Replace all operators of a statement by functions, in the tree."""
    names = {exp.Add: "try_add", exp.Sub: "try_subtract", exp.Mul: "try_multiply", exp.Sum: "try_sum"}
    for node in reversed(list(tree.find_all(*names))):
        if not any(isinstance(each, exp.Interval) for each in node.iter_expressions()):
            node.replace(exp.Anonymous(this=names[type(node)], expressions=list(node.iter_expressions())))
    return tree


def test_every_example_means_the_same_with_functions_for_operators() -> None:
    views = [
        view for folder in sorted((ROOT / "examples").glob("*/views")) for view in load_views(folder.parent)
    ]
    texts = [view.sql for view in views if isinstance(view, SqlView)]
    assert len(texts) > 5
    for sql in texts:
        # The text of a function's name may have another case: the tree is compared as Spark reads it.
        made, wanted = trees_of(exact(sql)), [replaced(each) for each in trees_of(sql)]
        assert [each.sql("spark").lower() for each in made] == [each.sql("spark").lower() for each in wanted]


def test_what_is_too_deep_for_sparks_parser_stays_and_the_rest_does_not() -> None:
    chain = " + ".join(["a"] * 60)
    assert (
        exact(f"SELECT {chain} AS x, b + 1 AS y FROM t") == f"SELECT {chain} AS x, try_add(b , 1) AS y FROM t"
    )
    short = exact("SELECT " + " + ".join(["a"] * 40) + " AS x FROM t")
    assert short.count("try_add(") == 39


def test_a_view_keeps_its_fingerprint_if_the_newer_rules_change_nothing_of_it() -> None:
    assert [rules_of("SELECT a FROM t", each) for each in (0, SUMS, ARITHMETIC)] == [0, 0, 0]
    assert [rules_of("SELECT sum(a) FROM t", each) for each in (0, SUMS, ARITHMETIC)] == [0, 1, 1]
    assert [rules_of("SELECT sum(a + 1) FROM t", each) for each in (0, SUMS, ARITHMETIC)] == [0, 1, 2]
    assert [rules_of("SELECT a + 1 FROM t", each) for each in (0, SUMS, ARITHMETIC)] == [0, 0, 2]


def test_rows_are_found_by_the_values_that_the_query_has() -> None:
    stage = Stage("v", "SELECT k, sum(a) FROM t GROUP BY k + 1", ("k",), ("k",), (), ())
    made = of_plan(DeltaPlan((), (stage,), {"t": {"_x": "k + 1"}}, 10))
    assert made.derived == {"t": {"_x": "try_add(k , 1)"}}
    assert made.view.sql == "SELECT k, try_sum(a) FROM t GROUP BY try_add(k , 1)"
