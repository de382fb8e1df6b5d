"""Statements and functions that `hub import` takes: held cases by feature and outcome, all functions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import yaml

from hub.importing.flink.functions import FLINK_FUNCTIONS
from hub.importing.functions import FunctionRule, FunctionTable
from hub.importing.ksql.functions import KSQL_FUNCTIONS

from .text import table

CASES = Path(__file__).parents[1] / "unit/importing"
_INTRO = """# ksqlDB's statements and functions

[Move from ksqlDB](../how-to/move-from-ksqldb.md) explains `hub import ksql`. This page lists statements, cases and functions.

## Statements

| statement | becomes |
|---|---|
| `CREATE STREAM`, `CREATE TABLE` with columns | a topic in topics.yaml, and a schema for AVRO, JSON_SR and PROTOBUF |
| `CREATE SOURCE TABLE` | the same, and a view `NAME_rows` |
| `CREATE STREAM … AS SELECT` | a view with one row of each event |
| `CREATE TABLE … AS SELECT` | a view with one row of each key, or of each key and window |
| `INSERT INTO … SELECT` | one more SELECT of the target's view, by UNION ALL |
| `CREATE SOURCE CONNECTOR`, `CREATE SINK CONNECTOR` | an entry in connectors.yaml |
| `CREATE TYPE`, `DEFINE`, `ALTER … ADD COLUMN`, `DROP` | later statements of the file follow them |
| `SET`, `UNSET` | nothing: settings with a meaning in the hub are explained |
| `INSERT INTO … VALUES`, `SELECT`, `SHOW`, `DESCRIBE`, `PRINT`, `TERMINATE`, `ASSERT` | refused, with the command of the hub |

| in a query | becomes |
|---|---|
| `ROWTIME` | the record's time, or the column of `timestamp`, in milliseconds |
| `ROWPARTITION`, `ROWOFFSET`, `ROWKEY` | `_partition`, `_offset`, `_key` |
| `WINDOWSTART`, `WINDOWEND` | timestamps `window_start`, `window_end` |
| `WINDOW TUMBLING`, `HOPPING` | `window(time, size, advance)`; GRACE PERIOD is the watermark, 24 hours by default |
| `WINDOW SESSION` | `session_window(time, gap)` |
| `a->b`, `a[1]`, `m['k']` | `a.b`, `try_element_at(a, 1)`, `try_element_at(m, 'k')` |
| `x => f(x)` | `x -> f(x)` |
| `EXPLODE(list)` | `LATERAL VIEW posexplode(list)`; `item_number` is part of the key |
| `JOIN … WITHIN` of streams | a condition on both times, with watermarks |
| a stream with a table | the table is read `as: static` |
| a table with a table | both are read as tables; the view is incremental |

## Held cases

Statements in `tests/unit/importing/ksql_cases.yaml`, by feature. The view of each taken statement passes the checks of
`hub view validate`.
"""  # noqa: E501
_FUNCTIONS = """## Functions

Other functions are refused by name; [a Python function](../how-to/use-python-functions.md) can replace one of your own.
`a1`, `a2` are the arguments. `event_order` is the offset where all events of a group are in one partition, else time,
partition and offset.
"""  # noqa: E501


_FLINK_INTRO = """# Flink's statements and functions

[Move from Flink SQL](../how-to/move-from-flink-sql.md) explains `hub import flink`. This page lists statements, cases
and functions.

## Statements

| statement | becomes |
|---|---|
| `CREATE TABLE`, connector `kafka` | a topic, and a schema for avro-confluent; a stream of events |
| connector `upsert-kafka`, formats `debezium-json`, `debezium-avro-confluent` | a topic; a table by its PRIMARY KEY |
| `WATERMARK FOR ts AS ts - INTERVAL …` | `event_time` and `watermark` of the source |
| computed columns, `METADATA` columns | their expressions; `_timestamp`, `_partition`, `_offset`, `_topic` |
| `CREATE VIEW … AS SELECT` | a materialized view |
| `INSERT INTO t SELECT`, `EXECUTE STATEMENT SET` | a view with the name of the target, its columns and its PRIMARY KEY |
| `TABLE(TUMBLE(…))`, `HOP`, `SESSION`, and `GROUP BY TUMBLE(ts, …)` | `window(ts, size, slide)`, `session_window(ts, gap)` |
| `CROSS JOIN UNNEST(list)` | `LATERAL VIEW posexplode(list)` |
| `ROW_NUMBER() … WHERE rn = 1`, regular joins, `OVER` | an incremental view |
| `CUMULATE`, `FOR SYSTEM_TIME AS OF`, `MATCH_RECOGNIZE` | refused by name |
| other connectors, catalogs, functions of your own | refused, with what does the same in the hub |

## Held cases

Statements in `tests/unit/importing/flink_cases.yaml`, by feature. The view of each taken statement passes the checks of
`hub view validate`.
"""  # noqa: E501
_FLINK_FUNCTIONS = """## Functions

Other functions are refused by name; [a Python function](../how-to/use-python-functions.md) can replace one of
your own.
"""


def page() -> str:
    """Return the page of ksqlDB."""
    return _page(_INTRO, "ksql_cases.yaml", _FUNCTIONS, "ksqlDB", KSQL_FUNCTIONS)


def flink_page() -> str:
    """Return the page of Flink SQL."""
    return _page(_FLINK_INTRO, "flink_cases.yaml", _FLINK_FUNCTIONS, "Flink", FLINK_FUNCTIONS)


def _page(intro: str, file: str, functions: str, system: str, known: FunctionTable) -> str:
    cases = yaml.safe_load((CASES / file).read_text())["cases"]
    counts = Counter((case["feature"], case["outcome"]) for case in cases)
    features = list(dict.fromkeys(case["feature"] for case in cases))
    rows = [(each, *(str(counts[each, of]) for of in ("same", "differs", "refused"))) for each in features]
    total = Counter(case["outcome"] for case in cases)
    rows.append(("all", *(str(total[of]) for of in ("same", "differs", "refused"))))
    lines = [intro, *table(("feature", "same", "differs", "refused"), rows), functions]
    shown = [(name, rule) for name, rule in sorted(known.items()) if not name.endswith("_or_null")]
    rows_of_functions = [_row(name, rule) for name, rule in shown]
    return "\n".join([*lines, *table((system, "Spark", "differs"), rows_of_functions)])


def _row(name: str, rule: FunctionRule) -> tuple[str, str, str]:
    if rule.refused:
        return f"`{name.upper()}`", "refused", f"{rule.refused}; instead: {rule.instead}"
    shown = " or ".join(f"`{form}`" for form in rule.forms)
    return f"`{name.upper()}`", shown if len(shown.split()) <= 25 else "an expression", rule.differs
