"""[core] Functions of Postgres' catalog as macros of DuckDB, and which of DuckDB's own a client may call."""

from __future__ import annotations

from typing import Final

from hub.pgwire.catalog.layout import stored_name

PREFIX: Final = "pgf_"
_CLASS, _TYPE = stored_name("pg_catalog", "pg_class"), stored_name("pg_catalog", "pg_type")
_COMMENT, _SPACE = stored_name("pg_catalog", "pg_description"), stored_name("pg_catalog", "pg_namespace")
_VISIBLE: Final = 1 << 30

# name(arguments): expression. Several lines of one name are its forms with other numbers of arguments.
_MACROS: Final = f"""
format_type(o, m): coalesce((SELECT any_value(spelled) FROM type_names AS n WHERE n.oid = o), '???')
regclass_name(o): (SELECT any_value(CASE WHEN c.oid < {_VISIBLE} THEN pgf_quote_ident(c.relname) ELSE s.nspname || '.' || pgf_quote_ident(c.relname) END) FROM {_CLASS} AS c JOIN {_SPACE} AS s ON s.oid = c.relnamespace WHERE c.oid = o)
to_regclass(n): (SELECT any_value(c.oid) FROM {_CLASS} AS c JOIN {_SPACE} AS s ON s.oid = c.relnamespace WHERE CAST(c.oid AS VARCHAR) = n OR (c.relname = replace(n, '"', '') AND c.oid < {_VISIBLE}) OR s.nspname || '.' || c.relname = replace(n, '"', ''))
to_regtype(n): (SELECT any_value(oid) FROM (SELECT y.oid FROM {_TYPE} AS y WHERE y.typname = n AND y.typnamespace = 11 UNION ALL SELECT m.oid FROM type_names AS m WHERE m.spelled = n))
to_regnamespace(n): (SELECT any_value(s.oid) FROM {_SPACE} AS s WHERE s.nspname = replace(n, '"', ''))
namespace_name(o): (SELECT any_value(s.nspname) FROM {_SPACE} AS s WHERE s.oid = o)
quote_ident(n): CASE WHEN regexp_full_match(n, '[a-z_][a-z0-9_$]*') THEN n ELSE '"' || replace(n, '"', '""') || '"' END
array_upper(a, d): CAST(len(a) AS INTEGER)
array_lower(a, d): 1
quote_literal(n): '''' || replace(CAST(n AS VARCHAR), '''', '''''') || ''''
obj_description(o, k): (SELECT any_value(d.description) FROM {_COMMENT} AS d WHERE d.objoid = o AND d.objsubid = 0)
obj_description(o): (SELECT any_value(d.description) FROM {_COMMENT} AS d WHERE d.objoid = o AND d.objsubid = 0)
col_description(o, n): (SELECT any_value(d.description) FROM {_COMMENT} AS d WHERE d.objoid = o AND d.objsubid = n AND n > 0)
shobj_description(o, k): CAST(NULL AS VARCHAR)
pg_table_is_visible(o): o < {_VISIBLE}
pg_get_userbyid(o): 'hub'
pg_encoding_to_char(o): 'UTF8'
pg_char_to_encoding(o): 6
pg_get_expr(a, b): CAST(NULL AS VARCHAR)
pg_get_expr(a, b, c): CAST(NULL AS VARCHAR)
pg_get_viewdef(a): CAST(NULL AS VARCHAR)
pg_get_viewdef(a, b): CAST(NULL AS VARCHAR)
pg_get_constraintdef(a): CAST(NULL AS VARCHAR)
pg_get_constraintdef(a, b): CAST(NULL AS VARCHAR)
pg_get_indexdef(a): CAST(NULL AS VARCHAR)
pg_get_indexdef(a, b, c): CAST(NULL AS VARCHAR)
pg_get_partkeydef(a): CAST(NULL AS VARCHAR)
pg_get_ruledef(a): CAST(NULL AS VARCHAR)
pg_get_ruledef(a, b): CAST(NULL AS VARCHAR)
pg_get_triggerdef(a): CAST(NULL AS VARCHAR)
pg_get_triggerdef(a, b): CAST(NULL AS VARCHAR)
pg_get_functiondef(a): CAST(NULL AS VARCHAR)
pg_get_function_result(a): CAST(NULL AS VARCHAR)
pg_get_function_arguments(a): CAST(NULL AS VARCHAR)
pg_get_function_identity_arguments(a): CAST(NULL AS VARCHAR)
pg_get_serial_sequence(a, b): CAST(NULL AS VARCHAR)
pg_get_statisticsobjdef_columns(a): CAST(NULL AS VARCHAR)
pg_tablespace_location(a): ''
pg_relation_size(a): CAST(0 AS BIGINT)
pg_relation_size(a, b): CAST(0 AS BIGINT)
pg_table_size(a): CAST(0 AS BIGINT)
pg_indexes_size(a): CAST(0 AS BIGINT)
pg_total_relation_size(a): CAST(0 AS BIGINT)
pg_database_size(a): CAST(0 AS BIGINT)
pg_tablespace_size(a): CAST(0 AS BIGINT)
pg_size_pretty(a): CAST(a AS VARCHAR) || ' bytes'
pg_stat_get_numscans(a): CAST(0 AS BIGINT)
pg_relation_is_publishable(a): FALSE
pg_is_other_temp_schema(a): FALSE
pg_my_temp_schema(): CAST(0 AS UINTEGER)
pg_is_in_recovery(): FALSE
pg_is_wal_replay_paused(): FALSE
pg_postmaster_start_time(): CAST(now() AS TIMESTAMP)
pg_conf_load_time(): CAST(now() AS TIMESTAMP)
pg_advisory_unlock_all(): NULL
pg_column_is_updatable(a, b, c): FALSE
pg_relation_is_updatable(a, b): 0
pg_has_role(a, b): TRUE
pg_has_role(a, b, c): TRUE
txid_current(): CAST(1 AS BIGINT)
inet_server_addr(): CAST(NULL AS VARCHAR)
inet_server_port(): CAST(NULL AS INTEGER)
inet_client_addr(): CAST(NULL AS VARCHAR)
age(a): 0
timezone(z, a): a
"""
_VISIBLE_KINDS = (
    "type function operator opclass opfamily collation conversion statistics_obj ts_config ts_dict"
)
_PRIVILEGES = (
    "table column any_column schema database sequence tablespace server foreign_data_wrapper language"
)
# DuckDB's own functions that clients use by the same name, besides its operators and aggregates.
OWN_FUNCTIONS: Final = frozenset(
    [
        "abs",
        "any_value",
        "array_agg",
        "array_length",
        "array_to_string",
        "avg",
        "bool_and",
        "bool_or",
        "ceil",
        "char_length",
        "coalesce",
        "concat",
        "concat_ws",
        "count",
        "current_date",
        "current_timestamp",
        "date_part",
        "date_trunc",
        "dense_rank",
        "floor",
        "generate_series",
        "generate_subscripts",
        "greatest",
        "least",
        "left",
        "length",
        "list_contains",
        "lower",
        "ltrim",
        "max",
        "md5",
        "min",
        "mod",
        "now",
        "nullif",
        "position",
        "rank",
        "regexp_matches",
        "regexp_replace",
        "repeat",
        "replace",
        "right",
        "round",
        "row_number",
        "rtrim",
        "split_part",
        "starts_with",
        "string_agg",
        "strpos",
        "substr",
        "substring",
        "sum",
        "to_timestamp",
        "translate",
        "trim",
        "unnest",
        "upper",
        "chr",
        "ascii",
        "lpad",
        "rpad",
        "reverse",
        "string_to_array",
        "array_position",
        "json_build_object",
        "to_json",
        "encode",
        "random",
        "extract",
    ]
)
TABLE_FUNCTIONS: Final = frozenset(("generate_series", "unnest", "generate_subscripts"))


def _forms() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for line in _MACROS.strip().splitlines():
        head, body = line.split(": ", 1)
        name, arguments = head[:-1].split("(")
        found.setdefault(name, []).append((arguments, body))
    for kind in _VISIBLE_KINDS.split():
        found[f"pg_{kind}_is_visible"] = [("o", "TRUE")]
    for kind in _PRIVILEGES.split():
        forms = [("a, b", "TRUE"), ("a, b, c", "TRUE")]
        found[f"has_{kind}_privilege"] = [*forms, ("a, b, c, d", "TRUE")] if "column" in kind else forms
    return found


_FORMS: Final = _forms()
MACRO_NAMES: Final = frozenset(_FORMS)


def definitions() -> list[str]:
    """Return CREATE MACRO of every function."""
    order = sorted(_FORMS, key=lambda name: name != "quote_ident")
    return [
        f"CREATE MACRO {PREFIX}{name} "
        + ", ".join(f"({arguments}) AS ({body})" for arguments, body in _FORMS[name])
        for name in order
    ]
