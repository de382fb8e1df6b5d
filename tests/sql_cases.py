"""Two small views, and SQL statements with the answers that every store must give."""

from __future__ import annotations

import time
from typing import Any

from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.parser import parse
from hub.materializers.queries.running import QueryAnswer, RunningQuery
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
NOW_MS = NEW_YEAR_MS + 20 * 3_600_000
HOUR_MS = 3_600_000
TIME = {"type": "long", "logicalType": "timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
PLANT = {
    "city": "string",
    "celsius": "double",
    "n": "long",
    "big": "boolean",
    "seen": TIME,
    "day": DATE,
    "tags": {"type": "array", "items": "string"},
    "price": DECIMAL,
    "note": "string",
    "raw": "bytes",
}
CUSTOMER = {"name": "string", "plant": "string"}
CITIES = ("Oslo", "Rome", None)
NOTES = ("a%b", "A_B", "äöü", "straße", "x\ny", "", "it's", '"q"', "zz", "Zz")


def schema(**columns: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in columns.items()]
    return {"type": "record", "name": "v", "fields": fields}


FACTS_SQL = "SELECT key, name, n, seen, price FROM facts"


def store_facts(store: Store, rows: int) -> None:
    """Store ``rows`` rows of a text, a number, a time and a double as the view ``facts``."""
    store.ensure_view("facts", schema(name="string", n="long", seen=TIME, price="double"), [], "t7")
    for start in range(0, rows, 10_000):
        block = [
            RowVersion(f"k{n}", n + 1, 0, n, {"name": f"name {n}", "n": n, "seen": n * 1_000, "price": n / 4})
            for n in range(start, min(rows, start + 10_000))
        ]
        store.apply([ViewBatch("facts", block, Positions())])


def plant(number: int) -> dict[str, Any]:
    return {
        "city": CITIES[number % 3],
        "celsius": number * 1.5 - 3,
        "n": number,
        "big": number % 2 == 0,
        "seen": NEW_YEAR_MS + number * HOUR_MS,
        "day": 20_454 + number,
        "tags": ["a", {"b": True, "c": [1, 2.5, None], "d.e": "x"}, f"t{number}"],
        "price": f"{number}.50",
        "note": NOTES[number],
        "raw": bytes([number, 255]),
    }


def fill(store: Store) -> None:
    """Ten plants (and a deleted one), eight customers."""
    store.ensure_view("plant", schema(**PLANT), ["city", "n", "note", "price"], "t1")
    store.ensure_view("customer", schema(**CUSTOMER), [], "t2")
    rows = [RowVersion(f"p{n}", n + 1, 0, n, plant(n)) for n in range(10)]
    rows.append(RowVersion("gone", 99, 0, 11, None))
    covered = Positions.of([("in", 0, 7)])
    store.apply([ViewBatch("plant", rows, Positions.of([("views.plant", 0, 12)]), covered)])
    rows = [RowVersion(f"c{n}", n + 1, 0, n, {"name": f"Nönä{n}", "plant": f"p{n % 4}"}) for n in range(8)]
    covered = Positions.of([("in", 0, 5), ("x", 0, 1)])
    store.apply([ViewBatch("customer", rows, Positions.of([("views.customer", 0, 8)]), covered)])


def ask(
    queries: QueryExecutor, sql: str, *, seconds: float = 10.0, limit: int = 100, **parameters: Any
) -> QueryAnswer:
    return queries.run(
        parse(sql), parameters, RunningQuery(time.monotonic() + seconds), limit=limit, now_ms=NOW_MS
    )


# statement, rows
FRIENDLY: list[tuple[str, list[list[Any]]]] = [
    ("SELECT 1", [[1]]),
    ("select 1;", [[1]]),
    ("SELECT 1 -- a comment; DROP TABLE x", [[1]]),
    ("SELECT /* ; */ 1 /* nested /* comment */ */", [[1]]),
    ("SELECT ';--' AS \"; DROP TABLE plant\"", [[";--"]]),
    ("SELECT 'it''s', 'a\\b', '☃ \U0001f600', 'ﬁ'", [["it's", "a\\b", "☃ \U0001f600", "ﬁ"]]),
    ("SELECT key FROM plant ORDER BY key LIMIT 2", [["p0"], ["p1"]]),
    ("SELECT KEY FROM PLANT ORDER BY Key DESC LIMIT 1", [["p9"]]),
    ('SELECT "key" FROM "plant" p ORDER BY p."key" LIMIT 1 OFFSET 3', [["p3"]]),
    ("SELECT count(*), count(city), count(DISTINCT city) FROM plant", [[10, 7, 2]]),
    (
        (
            "SELECT city, count(*) AS c, sum(n), min(n), max(celsius), avg(n) FROM plant GROUP "
            "BY city ORDER BY city"
        ),
        [["Oslo", 4, 18, 0, 10.5, 4.5], ["Rome", 3, 12, 1, 7.5, 4.0], [None, 3, 15, 2, 9.0, 5.0]],
    ),
    ("SELECT city FROM plant GROUP BY 1 HAVING count(*) > 3", [["Oslo"]]),
    (
        "SELECT upper(city) AS u, count(*) FROM plant GROUP BY u ORDER BY u",
        [["OSLO", 4], ["ROME", 3], [None, 3]],
    ),
    ("SELECT city || '!' FROM plant GROUP BY city || '!' ORDER BY 1 LIMIT 1", [["Oslo!"]]),
    ("SELECT DISTINCT city FROM plant ORDER BY city DESC", [[None], ["Rome"], ["Oslo"]]),
    ("SELECT city FROM plant WHERE n < 3 ORDER BY city NULLS FIRST", [[None], ["Oslo"], ["Rome"]]),
    ("SELECT note FROM plant WHERE n > 7 ORDER BY note", [["Zz"], ["zz"]]),
    ("SELECT min(note), max(note) FROM plant WHERE note > 'A' AND note < 'z'", [["A_B", "x\ny"]]),
    (
        "SELECT c.name, p.city FROM customer c JOIN plant p ON p.key = c.plant WHERE p.n = 1 ORDER BY 1",
        [["Nönä1", "Rome"], ["Nönä5", "Rome"]],
    ),
    (
        (
            "SELECT p.key, c.key FROM plant p LEFT JOIN customer c ON c.plant = p.key AND c.key > 'c3' "
            "WHERE p.n IN (3, 4) ORDER BY 1"
        ),
        [["p3", "c7"], ["p4", None]],
    ),
    ("SELECT count(*) FROM customer c FULL JOIN plant p ON p.key = c.plant", [[14]]),
    ("SELECT key FROM plant JOIN customer USING (key)", []),
    ("SELECT count(*) FROM plant, customer", [[80]]),
    ("SELECT count(*) FROM plant a CROSS JOIN plant b", [[100]]),
    ("WITH a AS (SELECT n FROM plant WHERE big), b AS (SELECT max(n) AS m FROM a) SELECT m FROM b", [[8]]),
    (
        "WITH a (x, y) AS (SELECT n, city FROM plant) SELECT x FROM a WHERE y = 'Rome' ORDER BY x LIMIT 1",
        [[1]],
    ),
    ("SELECT x.m FROM (SELECT max(n) FROM plant) AS x (m)", [[9]]),
    ("SELECT n FROM plant WHERE n = (SELECT max(n) FROM plant)", [[9]]),
    ("SELECT count(*) FROM plant p WHERE EXISTS (SELECT 1 FROM customer c WHERE c.plant = p.key)", [[4]]),
    ("SELECT count(*) FROM plant WHERE key NOT IN (SELECT plant FROM customer)", [[6]]),
    ("SELECT 1 UNION SELECT 1 UNION ALL SELECT 2 ORDER BY 1", [[1], [2]]),
    ("SELECT n FROM plant EXCEPT SELECT n FROM plant WHERE n > 0", [[0]]),
    ("SELECT n FROM plant INTERSECT SELECT 3", [[3]]),
    (
        "(SELECT n FROM plant ORDER BY n DESC LIMIT 1) UNION ALL (SELECT n FROM plant ORDER BY n LIMIT 1)",
        [[9], [0]],
    ),
    ("SELECT 7 / 2, -7 / 2, 7 % 3, -7 % 3, 7 / 2.0, 1 / 0, 1 % 0", [[3, -3, 1, -1, 3.5, None, None]]),
    ("SELECT 2 + 3 * 4 - 1, (2 + 3) * 4, - - 2, 0.1 + 0.2", [[13, 20, 2, 0.1 + 0.2]]),
    ("SELECT 3000000000 * 2, 2147483647 + 1", [[6_000_000_000, 2_147_483_648]]),
    (
        "SELECT round(2.5), round(2.345, 1), floor(-1.5), ceil(1.2), abs(-3), sign(-2)",
        [[3.0, 2.3, -2.0, 2.0, 3, -1]],
    ),
    ("SELECT greatest(1, NULL, 3), least(2, 1.5), coalesce(NULL, 4), nullif(1, 1)", [[3, 1.5, 4, None]]),
    (
        "SELECT lower('ÄB'), upper('äb'), length('äöü'), trim('  x '), ltrim('xxa', 'x')",
        [["äb", "ÄB", 3, "x", "a"]],
    ),
    (
        "SELECT substring('abcdef' from 2 for 3), left('abc', 2), right('abc', 2), replace('aXa', 'X', '-')",
        [["bcd", "ab", "bc", "a-a"]],
    ),
    ("SELECT position('c' in 'abc'), strpos('abc', 'z'), starts_with('abc', 'ab')", [[3, 0, True]]),
    ("SELECT concat('a', NULL, 1, TRUE), concat_ws('-', 'a', NULL, 2), 'a' || 1", [["a1true", "a-2", "a1"]]),
    (
        (
            "SELECT CASE WHEN n > 8 THEN 'high' WHEN n > 7 THEN 'mid' ELSE 'low' END FROM plant "
            "WHERE n > 6 ORDER BY n"
        ),
        [["low"], ["mid"], ["high"]],
    ),
    ("SELECT CASE city WHEN 'Oslo' THEN 1 END FROM plant WHERE n < 2 ORDER BY n", [[1], [None]]),
    (
        "SELECT CASE n WHEN NULL THEN 0 WHEN 1.0 THEN 1 WHEN 2 THEN 2 END FROM plant WHERE n < 3 ORDER BY n",
        [[None], [1], [2]],
    ),
    ("SELECT CASE big WHEN TRUE THEN 1 END FROM plant WHERE n < 2 ORDER BY n", [[1], [None]]),
    ("SELECT CASE seen WHEN '2026-01-01' THEN 1 END FROM plant WHERE n < 2 ORDER BY n", [[1], [None]]),
    ("SELECT big, NOT big, big AND n > 5, big IS TRUE FROM plant WHERE n = 6", [[True, False, True, True]]),
    (
        "SELECT bool_or(big), bool_and(big), count_if(big), count(*) FILTER (WHERE n > 6) FROM plant",
        [[True, False, 5, 3]],
    ),
    ("SELECT n FROM plant WHERE city IS NULL AND n BETWEEN 3 AND 8 ORDER BY n", [[5], [8]]),
    ("SELECT count(*) FROM plant WHERE city IS DISTINCT FROM 'Oslo'", [[6]]),
    (
        "SELECT note FROM plant WHERE note LIKE 'a%' OR note LIKE 'A!_%' ESCAPE '!' ORDER BY note",
        [["A_B"], ["a%b"]],
    ),
    ("SELECT note FROM plant WHERE note ILIKE 'Ä%' OR note LIKE '%\\%%' ORDER BY note", [["a%b"], ["äöü"]]),
    (
        "SELECT note FROM plant WHERE note LIKE 'x_y' OR note LIKE '' OR note NOT LIKE '%' ORDER BY note",
        [[""], ["x\ny"]],
    ),
    ("SELECT seen FROM plant WHERE seen >= '2026-01-01T09:00:00Z'", [["2026-01-01T09:00:00.000Z"]]),
    ("SELECT n FROM plant WHERE seen > TIMESTAMP '2026-01-01 07:30:00' ORDER BY n", [[8], [9]]),
    ("SELECT n FROM plant WHERE seen >= now() - INTERVAL '12 hours' ORDER BY n", [[8], [9]]),
    (
        (
            "SELECT date_trunc('hour', seen + INTERVAL '90 minutes'), seen - (seen - INTERVAL '1 day') "
            "FROM plant WHERE n = 1"
        ),
        [["2026-01-01T02:00:00.000Z", 86_400_000]],
    ),
    (
        (
            "SELECT date_trunc('month', seen), date_trunc('quarter', seen), date_trunc('year', seen), "
            "date_trunc('week', seen) FROM plant WHERE n = 1"
        ),
        [["2026-01-01T00:00:00.000Z"] * 3 + ["2025-12-29T00:00:00.000Z"]],
    ),
    (
        (
            "SELECT extract(year FROM seen), extract(dow FROM seen), extract(isodow FROM seen), extract(hour "
            "FROM seen), extract(doy FROM seen), extract(week FROM seen), extract(quarter FROM seen), "
            "extract(epoch FROM seen) FROM plant WHERE n = 5"
        ),
        [[2026, 4, 4, 5, 1, 1, 1, 1_767_243_600.0]],
    ),
    (
        "SELECT day, day + 1, day - day, CAST(seen AS date), CAST(day AS timestamp) FROM plant WHERE n = 1",
        [["2026-01-02", "2026-01-03", 0, "2026-01-01", "2026-01-02T00:00:00.000Z"]],
    ),
    (
        "SELECT seen::text, day::text, big::text, n::text FROM plant WHERE n = 2",
        [["2026-01-01T02:00:00.000Z", "2026-01-03", "true", "2"]],
    ),
    ("SELECT n FROM plant WHERE day = '2026-01-04'", [[3]]),
    ("SELECT max(seen), min(day) FROM plant", [["2026-01-01T09:00:00.000Z", "2026-01-01"]]),
    ("SELECT date_trunc('day', to_timestamp(-1))", [["1969-12-31T00:00:00.000Z"]]),
    (
        "SELECT CAST(TIMESTAMP '1969-12-31T12:00:00' AS date), CAST('2026-01-31' AS timestamp)",
        [["1969-12-31", "2026-01-31T00:00:00.000Z"]],
    ),
    (
        (
            "SELECT CAST(note AS bigint), CAST(note AS double precision), CAST(note AS timestamp) "
            "FROM plant WHERE n = 0"
        ),
        [[None, None, None]],
    ),
    (
        (
            "SELECT CAST(city || '' AS timestamp), CAST('4' || '2' AS bigint), CAST('1' || '.5' AS double "
            "precision), CAST('2026-01-3' || '1' AS timestamp) FROM plant WHERE n = 0"
        ),
        [[None, 42, 1.5, "2026-01-31T00:00:00.000Z"]],
    ),
    (
        (
            "SELECT left('abcd', -1), right('abcd', -1), substr('abcd', -1, 3), "
            "left('ab', CAST(city AS int)) FROM plant LIMIT 1"
        ),
        [["abc", "bcd", "a", None]],
    ),
    ("SELECT replace('ab', '', NULL), replace('abab', 'b', '')", [[None, "aa"]]),
    (
        (
            "SELECT round(celsius), CAST(celsius AS bigint), round(price), CAST(price AS bigint) FROM plant "
            "WHERE n IN (1, 3) ORDER BY n"
        ),
        [[-2.0, -2, 2.0, 2], [2.0, 2, 4.0, 4]],
    ),
    ("SELECT coalesce(n, celsius) / 2, greatest(n, celsius) / 4 FROM plant WHERE n = 1", [[0.5, 0.25]]),
    (
        (
            "SELECT a / 2 FROM (SELECT n AS a FROM plant WHERE n = 1 "
            "UNION SELECT celsius FROM plant WHERE n = 3) u ORDER BY 1"
        ),
        [[0.5], [0.75]],
    ),
    (
        (
            "SELECT CAST(celsius AS text), CAST(1e15 AS text), CAST(0.00001 AS text), concat(celsius) "
            "FROM plant WHERE n = 0"
        ),
        [["-3", "1e+15", "1e-05", "-3"]],
    ),
    (
        "SELECT -1, TRUE, DATE '2026-01-01' FROM plant ORDER BY 1, 2 DESC, 3 LIMIT 1",
        [[-1, True, "2026-01-01"]],
    ),
    ("SELECT upper('äß'), lower('ÄÖ'), 'ÄB' ILIKE 'äb'", [["ÄSS", "äö", True]]),
    ("SELECT CAST(2.9 AS int), CAST(TRUE AS int), CAST(1 AS boolean)", [[3, 1, True]]),
    ("SELECT price, price * 2, price > 3 FROM plant WHERE n = 3", [["3.50", 7.0, True]]),
    ("SELECT sum(price), max(price) FROM plant", [[50.0, 9.5]]),
    (
        "SELECT tags, raw FROM plant WHERE n = 1",
        [[["a", {"b": True, "c": [1, 2.5, None], "d.e": "x"}, "t1"], "01ff"]],
    ),
    (
        (
            "SELECT tags->>0, tags->1->>'b', tags->1->'c'->>1, tags->1->>'d.e', tags->1->>'none' "
            "FROM plant WHERE n = 1"
        ),
        [["a", "true", "2.5", "x", None]],
    ),
    (
        (
            "SELECT json_array_length(tags), json_array_length(tags->1), json_array_length(tags->1->'c') "
            "FROM plant WHERE n = 1"
        ),
        [[3, None, 3]],
    ),
    ("SELECT n, row_number() OVER (ORDER BY n DESC) FROM plant ORDER BY n LIMIT 2", [[0, 10], [1, 9]]),
    (
        (
            "SELECT n, lag(n) OVER (PARTITION BY city ORDER BY n), sum(n) OVER (PARTITION BY city ORDER BY n "
            "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM plant WHERE city = 'Rome' ORDER BY n"
        ),
        [[1, None, 1], [4, 1, 5], [7, 4, 11]],
    ),
    (
        (
            "SELECT city, sum(count(*)) OVER (), rank() OVER (ORDER BY count(*) DESC) FROM plant GROUP "
            "BY city ORDER BY city"
        ),
        [["Oslo", 10, 1], ["Rome", 10, 2], [None, 10, 2]],
    ),
    ("SELECT _version FROM plant WHERE _applied_at > '2020-01-01' AND n = 1", [[2]]),
    ("SELECT string_agg(city, '+') FROM plant WHERE city = 'Rome'", [["Rome+Rome+Rome"]]),
    ("SELECT n FROM plant LIMIT 0", []),
    ("SELECT any_value(city), any_value(big) FROM plant WHERE n IN (0, 3)", [["Oslo", False]]),
    ("SELECT NULL, NULL IS NULL, TRUE, FALSE OR TRUE", [[None, True, True, True]]),
    ("SELECT n AS a, n AS a FROM plant WHERE n = 1", [[1, 1]]),
    ("SELECT n FROM plant ORDER BY n + 0 DESC, 1 LIMIT 1", [[9]]),
    ("SELECT " + "(" * 30 + "1" + ")" * 30, [[1]]),
    ("SELECT count(*) FROM plant WHERE " + " OR ".join(f"n = {number}" for number in range(80)), [[10]]),
]

# (statement, part of the refusal)
HOSTILE: list[tuple[str, str]] = [
    ("", "the statement is empty"),
    ("   -- nothing", "the statement is empty"),
    ("SELECT 1; DROP TABLE view_plant", "one statement"),
    ("SELECT 1; SELECT 2", "one statement"),
    ("DROP TABLE view_plant", "begins with SELECT"),
    ("DELETE FROM plant", "begins with SELECT"),
    ("INSERT INTO plant SELECT 1", "begins with SELECT"),
    ("UPDATE plant SET n = 1", "begins with SELECT"),
    ("PRAGMA query_only = 0", "begins with SELECT"),
    ("ATTACH 'x.db' AS x", "begins with SELECT"),
    ("EXPLAIN SELECT 1", "begins with SELECT"),
    ("VALUES (1)", "begins with SELECT"),
    ("COPY plant TO '/tmp/x'", "begins with SELECT"),
    ("SET statement_timeout = 0", "begins with SELECT"),
    ("CREATE TABLE x AS SELECT 1", "begins with SELECT"),
    ("(DELETE FROM plant)", "begins with SELECT"),
    (
        "WITH x AS (DELETE FROM plant RETURNING *) SELECT * FROM x",
        "not supported|not expected|not understood",
    ),
    (
        "WITH x AS (INSERT INTO plant VALUES (1) RETURNING *) SELECT * FROM x",
        "not supported|not expected|not understood",
    ),
    ("WITH x AS (SELECT 1) DELETE FROM plant", "only SELECT|not expected"),
    ("SELECT 1 INTO x", "INTO is not supported"),
    ("SELECT * INTO OUTFILE '/tmp/x' FROM plant", "."),
    ("SELECT * FROM plant FOR UPDATE", "LOCKS is not supported"),
    ("SELECT * FROM sqlite_master", "no view and no topic"),
    ("SELECT * FROM sqlite_schema", "no view and no topic"),
    ("SELECT * FROM hub_positions", "no view and no topic"),
    ("SELECT * FROM view_plant", "no view and no topic"),
    ('SELECT * FROM "main"."view_plant"', "no table main.view_plant"),
    ("SELECT * FROM pg_catalog.pg_user", "no table pg_catalog.pg_user"),
    ("SELECT * FROM information_schema.tables", "no table information_schema.tables"),
    ("SELECT * FROM pg_shadow", "no view and no topic"),
    ('SELECT * FROM "plant""; DROP TABLE x; --"', "no view and no topic"),
    ("SELECT * FROM pragma_table_info('view_plant')", "FROM takes views"),
    ("SELECT * FROM generate_series(1, 1000000000)", "FROM takes views|not supported"),
    ("SELECT * FROM json_each('[1]')", "FROM takes views"),
    ("SELECT * FROM read_csv('/etc/passwd')", "FROM takes views"),
    ("SELECT * FROM '/etc/passwd'", "."),
    ("SELECT * FROM plant, LATERAL (SELECT 1) x", "not supported|FROM takes"),
    ("SELECT * FROM plant TABLESAMPLE SYSTEM (1)", "SAMPLE is not supported"),
    ("SELECT * FROM plant NATURAL JOIN customer", "not supported"),
    ("SELECT load_extension('x')", 'no function "load_extension"'),
    ("SELECT readfile('/etc/passwd')", 'no function "readfile"'),
    ("SELECT writefile('/tmp/x', 'y')", 'no function "writefile"'),
    ("SELECT pg_sleep(10)", 'no function "pg_sleep"'),
    ("SELECT pg_read_file('/etc/passwd')", 'no function "pg_read_file"'),
    ("SELECT lo_import('/etc/passwd')", 'no function "lo_import"'),
    ("SELECT dblink('host=x', 'select 1')", 'no function "dblink"'),
    ("SELECT set_config('x.y', 'z', false)", 'no function "set_config"'),
    ("SELECT query_to_xml('select 1', true, true, '')", 'no function "query_to_xml"'),
    ("SELECT randomblob(1000000000)", 'no function "randomblob"'),
    ("SELECT zeroblob(1000000000)", 'no function "zeroblob"'),
    ("SELECT fts3_tokenizer('x', 1)", 'no function "fts3_tokenizer"'),
    ("SELECT hub_like('a', 'b', 'c')", 'no function "hub_like"'),
    ("SELECT repeat('x', 1000000000)", "not a supported function"),
    ("SELECT lpad('x', 1000000000)", "not a supported function"),
    ("SELECT random()", "not a supported function|not supported"),
    ("SELECT version()", "not a supported function"),
    ("SELECT current_user", "not a supported function"),
    ("SELECT pg_catalog.pg_sleep(1)", "not supported"),
    ("SELECT 1::regclass", "no cast|not supported"),
    ("SELECT CAST('x' AS xml)", "no cast|not supported"),
    ("SELECT n FROM plant WHERE note ~ '(a+)+$'", "not supported|not a supported function"),
    ("SELECT n FROM plant WHERE note SIMILAR TO 'x'", "not supported|not a supported function"),
    ('SELECT note COLLATE "C" FROM plant', "not a supported function"),
    ("SELECT ARRAY[1]", "not supported|not a supported function"),
    ("SELECT (1, 2)", "not supported"),
    ("SELECT x'ff'", "not supported"),
    ("SELECT E'\\x41'", "not supported"),
    ("SELECT $$x$$", "not supported"),
    ("SELECT $1", "not supported"),
    ("SELECT ?", "parameters have names"),
    ("SELECT :a", 'parameter "a" was not given'),
    ("SELECT celsious FROM plant", 'no column "celsious" in view plant: did you mean "celsius"'),
    ("SELECT plnt.n FROM plant", 'no table "plnt" in this FROM: did you mean "plant"'),
    ("SELECT * FROM plnat", 'did you mean "plant"'),
    ("SELECT _deleted FROM plant", 'no column "_deleted"'),
    ("SELECT _sources FROM plant", 'no column "_sources"'),
    ("SELECT _offset FROM plant", 'no column "_offset"'),
    ("SELECT rowid FROM plant", 'no column "rowid"'),
    ("SELECT ctid FROM plant", 'no column "ctid"'),
    ("SELECT xmin FROM plant", 'no column "xmin"'),
    ("SELECT plant FROM plant", 'no column "plant"'),
    ('SELECT "KEY" FROM plant', 'no column "KEY"'),
    ("SELECT n", "the query has no FROM"),
    ("SELECT *", r"\* needs a FROM"),
    ("SELECT key FROM plant, customer", "is a column of plant and of customer"),
    ("SELECT 1 FROM plant, plant", "two tables are called"),
    ("SELECT city, n FROM plant GROUP BY city", '"n" is neither in an aggregate'),
    ("SELECT city FROM plant HAVING count(*) > 1", '"city" is neither in an aggregate'),
    ("SELECT count(*), n FROM plant", '"n" is neither in an aggregate'),
    ("SELECT sum(count(*)) FROM plant", "an aggregate within an aggregate"),
    ("SELECT n FROM plant WHERE count(*) > 1", "an aggregate is not allowed in WHERE"),
    ("SELECT n FROM plant WHERE row_number() OVER () = 1", "window function is not allowed in WHERE"),
    ("SELECT n FROM plant ORDER BY 5", "the select list has 1 columns"),
    ("SELECT n FROM plant GROUP BY 3", "the select list has 1 columns"),
    ("SELECT n FROM plant WHERE city > 5", "do not go together"),
    ("SELECT n FROM plant WHERE n = 'x'", "is not a valid long"),
    ("SELECT n FROM plant WHERE seen > 'yesterday'", "is not a valid timestamp"),
    ("SELECT n FROM plant WHERE n", "a condition is needed"),
    ("SELECT tags FROM plant GROUP BY tags", "nested values cannot be compared"),
    ("SELECT DISTINCT tags FROM plant", "nested values cannot be compared"),
    ("SELECT seen + INTERVAL '1 month' FROM plant", "the interval has no fixed length"),
    ("SELECT date_trunc('century', seen) FROM plant", 'no unit "century"'),
    ("SELECT 99999999999999999999", "not a number that fits"),
    ("SELECT 1 UNION SELECT 'a'", "is a long and a string"),
    ("SELECT 1 UNION SELECT 1, 2", "1 and 2 columns"),
    ("SELECT (SELECT 1, 2)", "2 columns where one value is needed"),
    ("SELECT DISTINCT ON (city) city FROM plant", "DISTINCT ON"),
    ("SELECT n FROM plant LIMIT -1", "takes a whole number"),
    ("SELECT n FROM plant LIMIT (SELECT 1)", "takes a whole number"),
    ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a", "WITH RECURSIVE"),
    ("SELECT 'a", "not closed"),
    ("SELECT /* a", "."),
    ('SELECT "a', "not closed"),
    ("SELECT 1 WHERE", "not expected|not understood|Required"),
    ("SELECT 1\0", "NUL"),
    ("SELECT " + "(" * 100 + "1" + ")" * 100, "nests too deep"),
    ("SELECT " + "[" * 2_000, "nests too deep"),
    ("SELECT " + "CASE WHEN 1 THEN " * 100 + "1" + " END" * 100, "nests too deep"),
    ("SELECT " + "NOT " * 3_000 + "TRUE", "nests too deep"),
    ("SELECT " + "- " * 3_000 + "1", "nests too deep"),
    ("SELECT 1" + " + 1" * 1_500, "nests too deep"),
    ("SELECT 1" + " UNION SELECT 1" * 900, "nests too deep"),
    ("SELECT " + "SELECT * FROM (" * 60 + "plant" + ")" * 60, "nests too deep"),
    ("SELECT * FROM plant " + "JOIN plant " * 60, "too tangled"),
    ("SELECT x::" + "decimal(" * 30 + "1" + ")" * 30, "too tangled"),
    ("SELECT " + ",".join(["1"] * 3_000), "allowed"),
    ("SELECT '" + "x" * 30_000 + "'", "allowed"),
    ("SELECT " + ", ".join(["a.*"] * 60) + " FROM plant a", "columns"),
    (
        "WITH "
        + ", ".join(
            [
                f"a{n} AS (SELECT x.n FROM {'plant' if n == 0 else f'a{n - 1}'} x, "
                f"{'plant' if n == 0 else f'a{n - 1}'} y)"
                for n in range(12)
            ]
        )
        + " SELECT * FROM a11",
        "tables",
    ),
    (
        "SELECT t FROM " + "(SELECT t || t AS t FROM " * 25 + "(SELECT note AS t FROM plant) x" + ") x" * 25,
        "becomes too long",
    ),
    (
        "WITH a0 AS (SELECT n AS t FROM plant)"
        + "".join(f", a{n} AS (SELECT t + t AS t FROM a{n - 1})" for n in range(1, 30))
        + " SELECT t FROM a29",
        "becomes too long",
    ),
]
