"""SQL over views on a real SQLite: correct answers, refusals with a place, limits of time, rows, bytes and
depth.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sql_cases import FRIENDLY, HOSTILE, NEW_YEAR_MS, NOW_MS, ask, fill

from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.inspection import names_of, placeholders, since_of, tables_of
from hub.materializers.queries.parser import SqlError, is_complete, parse, statements
from hub.materializers.queries.running import MOST_BYTES, RunningQuery
from hub.materializers.queries.sqlite_functions import fence, ilike, like, prepare
from hub.materializers.queries.writer import SqlWriter
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path_factory.mktemp('store') / 'store.db'}")
    fill(made)
    yield made
    made.close()


@pytest.fixture(scope="module")
def queries(store: Store) -> Iterator[QueryExecutor]:
    made = QueryExecutor(store)
    yield made
    made.close()


@pytest.mark.parametrize(("sql", "rows"), FRIENDLY, ids=[sql[:60] for sql, _ in FRIENDLY])
def test_the_answer_is_right(queries: QueryExecutor, sql: str, rows: list[list[Any]]) -> None:
    assert ask(queries, sql).rows == rows


@pytest.mark.parametrize(
    ("sql", "said"), HOSTILE, ids=[f"{n}: {sql[:50]!r}" for n, (sql, _) in enumerate(HOSTILE)]
)
def test_it_is_refused_with_words(queries: QueryExecutor, sql: str, said: str) -> None:
    with pytest.raises(SqlError) as refusal:
        ask(queries, sql)
    assert re.search(said, refusal.value.message), refusal.value.message
    assert refusal.value.code != "HUB-1450"  # the hub's error, not the database's


def test_an_error_shows_its_place(queries: QueryExecutor) -> None:
    with pytest.raises(SqlError) as refusal:
        ask(queries, "SELECT n,\n\t celsious, 'ü☃'\nFROM plant")
    error = refusal.value
    assert (error.line, error.column) == (2, 3)
    assert error.message == 'line 2, column 3: no column "celsious" in view plant: did you mean "celsius"?'
    assert error.caret == "  celsious, 'ü☃'\n  ^^^^^^^^"


def test_a_long_line_is_cut_around_the_caret(queries: QueryExecutor) -> None:
    with pytest.raises(SqlError) as refusal:
        ask(queries, "SELECT " + "n, " * 200 + "x FROM plant")
    shown, pointer = (refusal.value.caret or "").split("\n")
    assert len(shown) < 200 and shown[pointer.index("^")] == "x"


def test_a_text_that_no_encoding_has_is_a_parameter_too(queries: QueryExecutor) -> None:
    assert ask(queries, "SELECT :a", a="x\ud800\0").rows == [["x?\ufffd"]]


def test_parameters_are_values_and_never_words(queries: QueryExecutor) -> None:
    assert ask(queries, "SELECT n FROM plant WHERE city = :c AND n > :n", c="Oslo", n=5).rows == [[6], [9]]
    assert ask(queries, "SELECT :a, :a, :b", a="x'; DROP TABLE plant; --", b=None).rows == [
        ["x'; DROP TABLE plant; --"] * 2 + [None]
    ]
    # As HTTP sends them: texts, read as the other operand's type.
    assert ask(queries, "SELECT n FROM plant WHERE n >= :n AND big = :b", n="7", b="true").rows == [[8]]
    assert ask(queries, "SELECT n FROM plant WHERE seen >= :s", s="2026-01-01T09:00:00Z").rows == [[9]]
    assert len(ask(queries, "SELECT n FROM plant LIMIT :k", k="3").rows) == 3
    with pytest.raises(SqlError, match='parameter "citi" is not in the statement'):
        ask(queries, "SELECT 1 WHERE :city = 'x'", city="x", citi="y")


@pytest.mark.parametrize(
    "expression",
    [
        " + ".join(["n"] * 60),
        " - ".join(["celsius"] * 60),
        "- " * 30 + "n",
        "(" * 35 + "big" + " IS TRUE)" * 35,
        "CASE " * 10 + "n" + " WHEN 1 THEN 1 WHEN 2 THEN 2 END" * 10,
    ],
)
def test_an_operand_is_compiled_once(
    queries: QueryExecutor, monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    compile_one, seen = SqlWriter.expr, list[int]()

    def counted(self: Any, node: Any) -> Any:
        seen.append(id(node))
        assert len(seen) < 500
        return compile_one(self, node)

    monkeypatch.setattr(SqlWriter, "expr", counted)
    ask(queries, f"SELECT {expression} FROM plant")
    assert len(seen) == len(set(seen))


def test_a_table_counts_as_often_as_it_is_written(queries: QueryExecutor) -> None:
    many = " + ".join(["(SELECT max(n) FROM plant)"] * 30)
    assert ask(queries, f"SELECT {many}").rows == [[270]]
    with pytest.raises(SqlError, match="reads 41 tables"):
        ask(queries, f"SELECT {' + '.join(['(SELECT 1)'] * 41)}")


def test_the_subject_of_case_is_written_once(queries: QueryExecutor) -> None:
    subject, whens = f"concat({', '.join(['city'] * 100)})", "WHEN 'x' THEN 1 " * 400
    assert ask(queries, f"SELECT CASE {subject} {whens} ELSE 2 END FROM plant LIMIT 1").rows == [[2]]


def test_an_endless_join_ends_in_time(queries: QueryExecutor) -> None:
    started = time.monotonic()
    tables = ", ".join(f"plant t{number}" for number in range(12))
    with pytest.raises(SqlError, match="took too long") as refusal:
        ask(queries, f"SELECT count(*) FROM {tables}", seconds=0.3)
    assert refusal.value.code == "HUB-1472"
    assert time.monotonic() - started < 20


def test_a_query_is_cancelled_from_elsewhere(queries: QueryExecutor) -> None:
    running = RunningQuery(time.monotonic() + 60)
    tables = ", ".join(f"plant t{number}" for number in range(12))
    threading.Timer(0.2, running.cancel).start()
    with pytest.raises(SqlError, match="cancelled"):
        queries.run(parse(f"SELECT count(*) FROM {tables}"), {}, running, limit=1, now_ms=NOW_MS)
    assert ask(queries, "SELECT 1").rows == [[1]]  # the connection is as good as before


def test_rows_and_bytes_are_limited_and_it_says_so(store: Store, queries: QueryExecutor) -> None:
    assert ask(queries, "SELECT n FROM plant", limit=10).more is False
    answer = ask(queries, "SELECT n FROM plant", limit=9)
    assert answer.more and len(answer.rows) == 9
    store.ensure_view("big", _one("text"), [], "t9")
    rows = [RowVersion(f"k{n}", 1, 0, n, {"text": "x" * 1_000_000}) for n in range(40)]
    store.apply([ViewBatch("big", rows, Positions.of([("views.big", 0, 40)]))])
    answer = ask(queries, "SELECT text FROM big", limit=1_000)
    assert answer.more and 10 < len(answer.rows) < 20
    doubling = "WITH a AS (SELECT text AS t FROM big LIMIT 1)"
    for one, other in zip("abcdefg", "bcdefgh", strict=True):
        doubling += f", {other} AS (SELECT t || t AS t FROM {one})"
    with pytest.raises(SqlError, match="larger than"):
        ask(queries, doubling + " SELECT t FROM h")


def test_rows_are_fetched_as_memory_allows(store: Store, queries: QueryExecutor) -> None:
    """A row larger than an answer is an error, and each row is checked before the next one is fetched."""
    store.ensure_view("wide", _one("text"), [], "t10")
    store.apply([ViewBatch("wide", [RowVersion("k", 1, 0, 0, {"text": "x" * 1_000_000})], Positions())])
    with pytest.raises(SqlError, match="a row of the answer is larger than") as refusal:
        ask(queries, f"SELECT {', '.join(['text'] * 17)} FROM wide")
    assert refusal.value.code == "HUB-1448" and refusal.value.hint
    tracemalloc.start()
    try:
        answer = ask(queries, "SELECT p.key, text || p.n FROM plant p, plant q, wide", limit=1_000)
        assert answer.more and 10 < len(answer.rows) < 20
        assert tracemalloc.get_traced_memory()[1] < 3 * MOST_BYTES
    finally:
        tracemalloc.stop()


def _one(name: str) -> dict[str, Any]:
    return {"type": "record", "name": "v", "fields": [{"name": name, "type": ["null", "string"]}]}


def test_one_query_one_moment_and_what_it_covers(queries: QueryExecutor) -> None:
    answer = ask(queries, "SELECT count(*) FROM plant p, customer c")
    assert answer.views == ("plant", "customer")
    # Both views read "in": the answer covers the positions that both cover.
    assert answer.positions == Positions.of([("in", 0, 5), ("x", 0, 1)])


def test_the_second_fence_holds_without_the_first(store: Store, tmp_path: Path) -> None:
    """SQLite itself refuses any statement except a SELECT over the tables of the query."""
    path = store.engine.url.database or ""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    prepare(connection)
    fence(connection, frozenset(["view_plant"]))
    assert connection.execute("SELECT count(*) FROM view_plant").fetchone() == (11,)
    for sql in (
        "SELECT * FROM hub_positions",
        "SELECT * FROM sqlite_master",
        "SELECT load_extension('x')",
        "SELECT randomblob(10)",
        "PRAGMA query_only",
        f"ATTACH '{tmp_path / 'x.db'}' AS x",
        "DELETE FROM view_plant",
        "CREATE TABLE x (a)",
        "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n FROM a) SELECT * FROM a",
    ):
        with pytest.raises(sqlite3.Error):
            connection.execute(sql)
    connection.close()


texts = st.text(alphabet="ab%_\\A", max_size=8)


@given(texts, texts)
def test_like_is_what_it_says(pattern: str, text: str) -> None:
    expression, at = "", 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\" and at + 1 < len(pattern):
            at += 1
            expression += re.escape(pattern[at])
        else:
            expression += {"%": ".*", "_": "."}.get(character, re.escape(character))
        at += 1
    wanted = re.fullmatch(expression, text, re.DOTALL) is not None
    assert bool(like(pattern, text, "\\")) is wanted
    assert bool(ilike(pattern.upper(), text, "\\")) is (
        re.fullmatch(expression, text, re.DOTALL | re.IGNORECASE) is not None
    )


@pytest.mark.parametrize(
    "asked",
    [
        "position({} IN city)",
        "strpos(city, {})",
        "replace(city, {}, 'x')",
        "trim(city, {})",
        "ltrim(city, {})",
        "rtrim(city, {})",
        "city LIKE {}",
    ],
)
def test_what_is_looked_for_is_no_longer_than_a_step_may_take(queries: QueryExecutor, asked: str) -> None:
    """A step of SQLite compares the search text at every position, and nothing interrupts a step."""
    for sought in (":long", "concat(:long, key)"):
        with pytest.raises(SqlError, match="the search text is too long") as refusal:
            ask(queries, f"SELECT {asked.format(sought)} FROM plant", long="x" * 1_001)
        assert refusal.value.code == "HUB-1448" and "1,000" in (refusal.value.hint or "")
    ask(queries, f"SELECT {asked.format(':fits')} FROM plant", fits="é" * 1_000)


def test_a_part_of_like_with_any_character_is_no_longer_than_its_text_allows() -> None:
    assert like("%" + "a_" * 200 + "b%", "a" * 100_000, "\\") == 0
    with pytest.raises(ValueError, match="long"):
        like("%" + "a_" * 200 + "b%", "a" * 1_000_000, "\\")
    assert like("%" + "a_" * 200 + "%", "b" * 1_000 + "a" * 400 + "b" * 10_000, "\\") == 1
    assert like("a_%ab", "a" * 30_000_000 + "b", "\\") == 1  # no _ but at its beginning: each place once


def test_trim_is_what_it_says(queries: QueryExecutor) -> None:
    sql = (
        "SELECT trim('xyaxy', 'yx'), ltrim('xyaxy', 'yx'), rtrim('xyaxy', 'yx'), "
        "trim('xax', ''), trim(NULL, 'x')"
    )
    assert ask(queries, sql).rows == [["a", "axy", "xya", "xax", None]]
    assert ask(queries, "SELECT trim(' x '), trim(LEADING 'x' FROM 'xax'), trim('x', :c)", c=None).rows == [
        ["x", "ax", None]
    ]


def test_like_takes_no_time_that_grows_with_its_wildcards() -> None:
    assert like("%a" * 200 + "b", "a" * 100_000, "\\") == 0
    assert like(None, "a", "\\") is None and like("a", None, "\\") is None


@given(st.text(max_size=200))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    for sql in (text, f"SELECT {text}", f"SELECT * FROM plant WHERE {text}"):
        with contextlib.suppress(SqlError):  # any other error fails
            parse(sql)


WORDS = """select from where ( ) , * + - = 'x' "y" 1 1.5 plant n city join on and or not in case when then else end union
all with as group by order limit : :: [ ] { } -> ->> . ; null is like between exists over partition"""  # noqa: E501
words = st.lists(st.sampled_from(WORDS.split()), max_size=40)


@given(words)
def test_words_in_any_order_are_answered_or_refused(queries: QueryExecutor, found: list[str]) -> None:
    codes = []
    try:
        ask(queries, "select " + " ".join(found), seconds=2.0)
    except SqlError as error:
        codes.append(error.code)
    assert "HUB-1450" not in codes  # never the database's own words


def test_what_a_statement_names() -> None:
    statement = parse('WITH x AS (SELECT * FROM a) SELECT n, :p FROM x JOIN "b.c" USING (k) WHERE :q > 1')
    assert sorted(tables_of(statement)) == ["a", "b.c"]
    assert sorted(placeholders(statement)) == ["p", "q"]
    assert names_of(statement) >= {"n", "k", "*"}
    assert names_of(parse("SELECT count(*), N FROM t")) == {"n", "t"}


@pytest.mark.parametrize(
    ("where", "since"),
    [
        ("_timestamp > '2026-01-01T00:00:00Z'", NEW_YEAR_MS),
        ("n = 1 AND (_timestamp >= now() - INTERVAL '1 hour' AND n = 2)", NOW_MS - 3_600_000),
        ("'2026-01-01' <= _timestamp", NEW_YEAR_MS),
        ("_timestamp BETWEEN :begin AND now()", NEW_YEAR_MS),
        ("_timestamp > CAST('2026-01-01T10:00:00Z' AS date)", NEW_YEAR_MS),
        ("_timestamp > '2026-01-01' OR n = 1", None),
        ("NOT _timestamp > '2026-01-01'", None),
        ("_timestamp < '2026-01-01'", None),
        ("_timestamp > seen", None),
    ],
)
def test_what_is_read_of_a_topic_follows_from_where(where: str, since: int | None) -> None:
    parameters = {"begin": "2026-01-01T00:00:00Z"}
    assert since_of(parse(f'SELECT n FROM "a.b" WHERE {where}'), parameters, NOW_MS) == since
    two = parse(f'SELECT n FROM "a.b", other WHERE {where}')
    assert since_of(two, parameters, NOW_MS) is None


@pytest.mark.parametrize(
    "source",
    [
        '(SELECT n, max(_timestamp) AS _timestamp FROM "a.b" GROUP BY 1) t',
        '"a.b" a JOIN (SELECT 1 AS one, now() AS _timestamp) t ON TRUE',
        '(SELECT now() AS _timestamp) t CROSS JOIN "a.b" a',
    ],
)
def test_a_time_of_something_else_narrows_no_topic(source: str) -> None:
    assert since_of(parse(f"SELECT n FROM {source} WHERE t._timestamp > now()"), {}, NOW_MS) is None


def test_a_script_and_a_line_that_goes_on() -> None:
    assert statements("SELECT 1; -- x;\nSELECT ';' ;;\n-- end") == ["SELECT 1", "-- x;\nSELECT ';'"]
    assert is_complete("SELECT 1;") and is_complete("SELECT ';' ; -- so")
    assert not is_complete("SELECT ';") and not is_complete("SELECT 1 -- ;") and not is_complete("")


@pytest.mark.parametrize(
    "condition",
    [
        "search(city, 'red shoes')",
        "matches(city, 'red')",
        "to_tsvector(city) IS NOT NULL",
        "websearch_to_tsquery('red') IS NULL",
        "ts_rank(city, city) > 0",
    ],
)
def test_searches_by_words_are_refused_with_the_way_out(queries: QueryExecutor, condition: str) -> None:
    with pytest.raises(SqlError, match="does not search by words") as raised:
        ask(queries, f"SELECT * FROM plant WHERE {condition}")
    assert raised.value.code == "HUB-1446" and "hub view search" in (raised.value.hint or "")
