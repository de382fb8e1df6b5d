"""Statements of SQL tools, written from public knowledge of them (their sources and logs), shortened to
columns that matter.

``CATALOG`` are questions about tables, by tool; ``ROWS`` are queries over the view ``plant`` (sql_cases.py),
with rows. Macros of Grafana are expanded as its Postgres data source does.
"""

from __future__ import annotations

from typing import Any

CATALOG: dict[str, list[str]] = {
    "dbeaver": [
        "SELECT current_schema(), session_user",
        (
            "SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN "
            "pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = "
            "'pg_namespace'::regclass ORDER BY nspname"
        ),
        "SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datname = 'hub'",
        (
            "SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS "
            "base_type_name, d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et "
            "ON et.oid = t.typelem LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid "
            "LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid WHERE t.typname IS NOT NULL "
            "AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')"
        ),
        (
            "SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS "
            "partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key FROM pg_catalog.pg_class c "
            "LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND "
            "d.classoid = 'pg_class'::regclass WHERE c.relnamespace = 2200 AND c.relkind "
            "NOT IN ('i', 'I', 'c')"
        ),
        (
            "SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, "
            "dsc.description, dep.objid FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON "
            "(a.attrelid = c.oid) LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND "
            "a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND "
            "a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND "
            "dep.deptype = 'i' AND dep.refobjsubid = a.attnum AND dep.classid = dep.refclassid WHERE NOT "
            "a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND c.oid = "
            "'public.plant'::regclass ORDER BY a.attnum"
        ),
        (
            "SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description, "
            "pg_catalog.pg_get_constraintdef(c.oid) AS definition FROM pg_catalog.pg_constraint c "
            "INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt "
            "ON rt.oid = c.confrelid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND "
            "d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass WHERE c.conrelid = 0 ORDER BY c.oid"
        ),
        (
            "SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace, tc.relname "
            "AS tabrelname, dsc.description, pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr "
            "FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid INNER JOIN "
            "pg_catalog.pg_class tc ON tc.oid = i.indrelid LEFT OUTER JOIN pg_catalog.pg_description dsc ON "
            "i.indexrelid = dsc.objoid WHERE i.indrelid = 0 ORDER BY c.relname"
        ),
    ],
    "metabase": [
        (
            'SELECT "n"."nspname" AS "schema", "c"."relname" AS "name", CASE "c"."relkind" WHEN '
            "'r' THEN 'TABLE' "
            "WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' END AS \"type\", \"d\".\"description\" "
            'AS "description", '
            '"stat"."n_live_tup" AS "estimated_row_count" FROM "pg_catalog"."pg_class" AS "c" '
            'INNER JOIN "pg_catalog"."pg_namespace" AS "n" ON "c"."relnamespace" = "n"."oid" '
            'LEFT JOIN "pg_catalog"."pg_description" AS "d" ON ("c"."oid" = "d"."objoid") AND '
            '("d"."objsubid" = 0) AND ("d"."classoid" = \'pg_class\'::regclass) LEFT JOIN '
            '"pg_stat_user_tables" AS "stat" ON ("n"."nspname" = "stat"."schemaname") AND ("c"."relname" = '
            '"stat"."relname") WHERE ("n"."nspname" !~ \'^pg_\') AND ("n"."nspname" <> '
            "'information_schema') "
            "AND c.relkind IN ('r', 'p', 'v', 'f', 'm') AND (\"n\".\"nspname\" IN ('public')) ORDER BY "
            '"type", "schema", "name"'
        ),
        (
            'SELECT "c"."column_name" AS "name", CASE WHEN "c"."udt_schema" IN (\'public\', \'pg_catalog\') '
            'THEN FORMAT(\'%s\', "c"."udt_name") ELSE FORMAT(\'"%s"."%s"\', "c"."udt_schema", '
            '"c"."udt_name") END AS "database-type", "c"."ordinal_position" - 1 AS "database-position", '
            '"pk"."column_name" IS NOT NULL AS "pk?", COL_DESCRIPTION(CAST(CAST(FORMAT(\'%I.%I\', '
            'CAST("c"."table_schema" AS TEXT), CAST("c"."table_name" AS TEXT)) AS REGCLASS) AS OID), '
            '"c"."ordinal_position") AS "field-comment" FROM "information_schema"."columns" AS "c" LEFT '
            'JOIN (SELECT "tc"."table_schema", "tc"."table_name", "kc"."column_name" FROM '
            '"information_schema"."table_constraints" AS "tc" INNER JOIN '
            '"information_schema"."key_column_usage" AS "kc" ON ("tc"."constraint_name" = '
            '"kc"."constraint_name") AND ("tc"."table_schema" = "kc"."table_schema") WHERE '
            '"tc"."constraint_type" = \'PRIMARY KEY\') AS "pk" ON ("c"."table_schema" = '
            '"pk"."table_schema") AND ("c"."table_name" = "pk"."table_name") AND ("c"."column_name" = '
            '"pk"."column_name") '
            "WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' AND "
            '("c"."table_schema" IN (\'public\')) '
            'ORDER BY "c"."table_schema", "c"."table_name", "c"."ordinal_position"'
        ),
        (
            "WITH table_privileges AS (SELECT NULL AS role, t.schemaname AS schema, t.objectname AS table, "
            "pg_catalog.has_any_column_privilege(current_user, '\"' || replace(t.schemaname, '\"', '\"\"') "
            "|| '\".\"' || replace(t.objectname, '\"', '\"\"') || '\"', 'select') AS select FROM (SELECT "
            "schemaname, tablename AS objectname FROM pg_catalog.pg_tables UNION SELECT schemaname, "
            "viewname AS objectname FROM pg_catalog.pg_views UNION SELECT schemaname, matviewname AS "
            "objectname FROM pg_catalog.pg_matviews) t WHERE t.schemaname !~ '^pg_' AND t.schemaname <> "
            "'information_schema' AND pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage')) "
            "SELECT t.* FROM table_privileges t"
        ),
        "SHOW TIMEZONE",
    ],
    "grafana": [
        "SELECT current_setting('server_version_num')::int / 100 AS version",
        "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'",
        (
            'SELECT quote_ident(table_name) AS "table" FROM information_schema.tables WHERE '
            "quote_ident(table_schema) NOT IN "
            "('information_schema', 'pg_catalog', '_timescaledb_cache', '_timescaledb_catalog') ORDER BY 1"
        ),
        (
            'SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM '
            "information_schema.columns "
            "WHERE quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE "
            "trim(s[i]) END FROM "
            "generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), "
            "array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i, "
            "string_to_array(current_setting('search_path'), ',') s) AND quote_ident(table_name) = 'plant'"
        ),
    ],
}
ROWS: list[tuple[str, list[tuple[Any, ...]]]] = [
    # Grafana: $__timeGroupAlias(seen, '6h'), $__timeFilter(seen)
    (
        (
            'SELECT floor(extract(epoch from seen)/21600)*21600 AS "time", avg(celsius) AS '
            '"celsius" FROM plant '
            "WHERE seen BETWEEN '2026-01-01T00:00:00Z' AND '2026-01-01T07:00:00Z' GROUP BY 1 ORDER BY 1"
        ),
        [(1767225600.0, 0.75), (1767247200.0, 6.75)],
    ),
    # Grafana: $__time(seen), a metric and a value
    (
        (
            'SELECT seen AS "time", city AS metric, n AS value FROM plant WHERE seen >= '
            "'2026-01-01T08:00:00Z' ORDER BY 1"
        ),
        [("2026-01-01 08:00:00+00", None, 8), ("2026-01-01 09:00:00+00", "Oslo", 9)],
    ),
    # Metabase: a question by month
    (
        (
            'SELECT DATE_TRUNC(\'month\', "public"."plant"."seen") AS "seen", COUNT(*) AS "count" FROM '
            '"public"."plant" WHERE "public"."plant"."city" = \'Oslo\' GROUP BY DATE_TRUNC(\'month\', '
            '"public"."plant"."seen") ORDER BY DATE_TRUNC(\'month\', "public"."plant"."seen") ASC'
        ),
        [("2026-01-01 00:00:00+00", 4)],
    ),
    # Metabase: a table, and a question over a question
    (
        (
            'SELECT "public"."plant"."key" AS "key", "public"."plant"."n" AS "n" FROM "public"."plant" '
            'ORDER BY "public"."plant"."n" ASC LIMIT 2'
        ),
        [("p0", 0), ("p1", 1)],
    ),
    (
        (
            'SELECT "source"."city" AS "city", COUNT(*) AS "count" FROM (SELECT "public"."plant"."city" AS '
            '"city" FROM "public"."plant" WHERE "public"."plant"."n" > 5) AS "source" GROUP BY '
            '"source"."city" ORDER BY "source"."city"'
        ),
        [("Oslo", 2), ("Rome", 1), (None, 1)],
    ),
    # DBeaver: a page of a table's data
    ("SELECT p.n, p.day FROM public.plant p WHERE n < 1 ORDER BY n LIMIT 200 OFFSET 0", [(0, "2026-01-01")]),
]
