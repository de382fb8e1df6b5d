"""[core] ksqlDB's functions in Spark SQL. docs/reference/ksqldb.md lists this table."""

from __future__ import annotations

from hub.importing.functions import FunctionRule, FunctionTable

_CLOCK = FunctionRule(
    refused="it gives another value on every replay", instead="use the time of the event: ROWTIME"
)
_CHANCE = FunctionRule(
    refused="it gives another value on every replay", instead="derive a value from the event, such as a hash"
)
_NO_TIME = FunctionRule(refused="Spark has no type TIME", instead="take a TIMESTAMP, or text")
_MASKED = FunctionRule(
    refused="Spark has no such function",
    instead="hide fields from readers instead: docs/how-to/hide-personal-fields.md",
)

_SAME = """
abs acos array_contains array_distinct array_except array_intersect array_join array_max array_min
array_remove array_union asin atan atan2 avg cbrt coalesce cos cosh cot count date_add date_sub degrees
elt exp greatest ifnull json_array_length least ln log map_keys map_values max min nullif pi power
radians sign sin sinh sqrt sum tan tanh unix_date
"""
_TEXT = "concat_ws initcap lpad regexp_replace replace rpad substring trim"


def _rule(*forms: str, differs: str = "", text: bool = False) -> FunctionRule:
    return FunctionRule(forms, differs, text)


_NO_MATCH = "an empty match gives NULL, too"
_FORMAT = "check the format: Spark has another syntax for some parts"
_ORDER = "all elements are kept; ksqlDB may keep the first 1000 only"

KSQL_FUNCTIONS: FunctionTable = {
    **{name: FunctionRule((name,)) for name in _SAME.split()},
    **{name: FunctionRule((name,), text=True) for name in _TEXT.split()},
    # numbers
    "geo_distance": _rule(
        "2 * 6371 * asin(sqrt(power(sin(radians(a3 - a1) / 2), 2)"
        " + cos(radians(a1)) * cos(radians(a3)) * power(sin(radians(a4 - a2) / 2), 2)))",
        "2 * (CASE WHEN lower(a5) IN ('mi', 'mile', 'miles') THEN 3959 ELSE 6371 END)"
        " * asin(sqrt(power(sin(radians(a3 - a1) / 2), 2)"
        " + cos(radians(a1)) * cos(radians(a3)) * power(sin(radians(a4 - a2) / 2), 2)))",
    ),
    "trunc": _rule(
        "CASE WHEN a1 >= 0 THEN floor(a1) ELSE ceil(a1) END",
        "CASE WHEN a1 >= 0 THEN floor(a1 * power(10, a2)) / power(10, a2)"
        " ELSE ceil(a1 * power(10, a2)) / power(10, a2) END",
    ),
    "random": _CHANCE,
    "generate_series": _rule("sequence(a1, a2)", "sequence(a1, a2, a3)"),
    # lists, maps
    "array_concat": _rule("concat"),
    "array_length": _rule("array_size"),
    "array_sort": _rule("array_sort(a1)", "sort_array(a1, upper(a2) LIKE 'ASC%')"),
    "as_map": _rule("map_from_arrays"),
    "cardinality": _rule("array_size(a1)", differs="of lists only"),
    "ceil": _rule("ceil", differs="gives a whole number"),
    "floor": _rule("floor", differs="gives a whole number"),
    "round": _rule("round(a1)", "round(a1, a2)", differs="a DOUBLE stays a DOUBLE"),
    "entries": _rule("map_entries(a1)", "array_sort(map_entries(a1))", differs="fields are key and value"),
    "field": FunctionRule(refused="Spark has no such function", instead="CASE x WHEN 'a' THEN 1 … END"),
    "json_array_contains": _rule(
        "array_contains(from_json(a1, 'array<string>'), CAST(a2 AS VARCHAR))",
        differs="elements are compared as text",
    ),
    "map_union": _rule("map_concat", differs="a key of both maps stops the view: filter one of them"),
    "slice": _rule("slice(a1, a2, a3 - a2 + 1)"),
    "transform": _rule("transform"),
    "reduce": _rule("aggregate"),
    "filter": _rule("filter"),
    # texts
    "chr": _rule("chr", text=True),
    "concat": FunctionRule(("concat_ws",), text=True, first="''"),
    "encode": FunctionRule(refused="Spark has no such function", instead="hex(), unhex(), base64()"),
    "extractjsonfield": _rule("get_json_object(a1, a2)", text=True),
    "from_bytes": _rule(
        "CASE lower(a2) WHEN 'hex' THEN hex(a1) WHEN 'base64' THEN base64(a1) ELSE decode(a1, 'UTF-8') END",
        text=True,
    ),
    "to_bytes": _rule(
        "CASE lower(a2) WHEN 'hex' THEN unhex(a1) WHEN 'base64' THEN unbase64(a1)"
        " ELSE encode(a1, 'UTF-8') END"
    ),
    "instr": _rule("instr(a1, a2)", "locate(a2, a1, a3)"),
    "is_json_string": _rule("try_parse_json(a1) IS NOT NULL"),
    "json_concat": FunctionRule(refused="Spark merges no texts of JSON", instead="build it of its fields"),
    "json_items": _rule("from_json(a1, 'array<string>')"),
    "json_keys": _rule("json_object_keys"),
    "json_records": _rule("from_json(a1, 'map<string,string>')"),
    "to_json_string": _rule("to_json(a1)", text=True, differs="takes a struct, a map or a list"),
    "lcase": _rule("lower", text=True),
    "ucase": _rule("upper", text=True),
    "len": _rule("length"),
    "mask": _rule("mask(a1, 'X', 'x', 'n', '-')", "mask(a1, a2, a3, a4, a5)", text=True),
    **dict.fromkeys(("mask_left", "mask_right", "mask_keep_left", "mask_keep_right"), _MASKED),
    "regexp_extract": _rule(
        "nullif(regexp_extract(a2, a1, 0), '')",
        "nullif(regexp_extract(a2, a1, a3), '')",
        differs=_NO_MATCH,
        text=True,
    ),
    "regexp_extract_all": _rule("regexp_extract_all(a2, a1, 0)", "regexp_extract_all(a2, a1, a3)"),
    "regexp_split_to_array": _rule("split(a1, a2)"),
    "split": _rule(r"split(a1, concat('\Q', a2, '\E'))"),
    "split_to_map": _rule(r"str_to_map(a1, concat('\Q', a2, '\E'), concat('\Q', a3, '\E'))"),
    "uuid": _CHANCE,
    "url_decode_param": _rule("url_decode", text=True),
    "url_encode_param": _rule("url_encode", text=True),
    "url_extract_fragment": _rule("parse_url(a1, 'REF')", text=True),
    "url_extract_host": _rule("parse_url(a1, 'HOST')", text=True),
    "url_extract_parameter": _rule("parse_url(a1, 'QUERY', a2)", text=True),
    "url_extract_path": _rule("parse_url(a1, 'PATH')", text=True),
    "url_extract_protocol": _rule("parse_url(a1, 'PROTOCOL')", text=True),
    "url_extract_query": _rule("parse_url(a1, 'QUERY')", text=True),
    "url_extract_port": _rule("CAST(nullif(regexp_extract(a1, ':([0-9]+)', 1), '') AS INT)"),
    # times
    "unix_timestamp": FunctionRule(
        ("unix_millis(a1)",), instead="give it a TIMESTAMP; the present is another on every replay"
    ),
    **dict.fromkeys(("timeadd", "timesub", "format_time", "parse_time"), _NO_TIME),
    "convert_tz": _rule("from_utc_timestamp(to_utc_timestamp(a1, a2), a3)"),
    "dateadd": _rule("date_add_unit(a1, a2, a3)"),
    "datesub": _rule("date_add_unit(a1, -(a2), a3)"),
    "timestampadd": _rule("date_add_unit(a1, a2, a3)"),
    "timestampsub": _rule("date_add_unit(a1, -(a2), a3)"),
    "datetostring": _rule("date_format(date_from_unix_date(a1), a2)", differs=_FORMAT, text=True),
    "format_date": _rule("date_format(a1, a2)", differs=_FORMAT, text=True),
    "format_timestamp": _rule(
        "date_format(a1, a2)", "date_format(from_utc_timestamp(a1, a3), a2)", differs=_FORMAT, text=True
    ),
    "timestamptostring": _rule(
        "date_format(timestamp_millis(a1), a2)",
        "date_format(from_utc_timestamp(timestamp_millis(a1), a3), a2)",
        differs=_FORMAT,
        text=True,
    ),
    "from_days": _rule("date_from_unix_date(a1)"),
    "from_unixtime": _rule("timestamp_millis(a1)"),
    "parse_date": _rule("to_date(a1, a2)", differs=_FORMAT),
    "parse_timestamp": _rule(
        "to_timestamp(a1, a2)", "to_utc_timestamp(to_timestamp(a1, a2), a3)", differs=_FORMAT
    ),
    "stringtodate": _rule("unix_date(to_date(a1, a2))", differs=_FORMAT),
    "stringtotimestamp": _rule(
        "unix_millis(to_timestamp(a1, a2))",
        "unix_millis(to_utc_timestamp(to_timestamp(a1, a2), a3))",
        differs=_FORMAT,
    ),
    # aggregates
    "attr": _rule("CASE WHEN min(a1) = max(a1) THEN max(a1) END"),
    "collect_list": _rule(
        "transform(sort_array(collect_list(named_struct('at', event_order, 'x', a1))), e -> e.x)",
        differs=_ORDER,
    ),
    "collect_set": _rule("sort_array(collect_set(a1))", differs="elements are sorted, and all are kept"),
    "correlation": _rule("corr"),
    "count_distinct": _rule("approx_count_distinct", differs="both are approximate: the numbers may differ"),
    "earliest_by_offset": _rule(
        "min_by(a1, CASE WHEN a1 IS NOT NULL THEN event_order END)",
        "min_by(a1, CASE WHEN a1 IS NOT NULL THEN event_order END, a2)",
    ),
    "latest_by_offset": _rule(
        "max_by(a1, CASE WHEN a1 IS NOT NULL THEN event_order END)",
        "reverse(max_by(a1, CASE WHEN a1 IS NOT NULL THEN event_order END, a2))",
    ),
    "earliest_by_offset_or_null": _rule("min_by(a1, event_order)", "min_by(a1, event_order, a2)"),
    "latest_by_offset_or_null": _rule("max_by(a1, event_order)", "reverse(max_by(a1, event_order, a2))"),
    "histogram": FunctionRule(
        refused="an aggregate cannot count within a map",
        instead="GROUP BY the key and the value: one row each, with count(*)",
    ),
    "stddev_samp": _rule("stddev_samp", differs="it is the deviation; ksqlDB's STDDEV_SAMP gives its square"),
    "stddev_sample": _rule("stddev_samp"),
    "topk": _rule("max_by(a1, a1, a2)"),
    "topkdistinct": _rule("slice(sort_array(collect_set(a1), false), 1, a2)"),
    # others
    "as_value": _rule("(a1)"),
    "cube_explode": FunctionRule(refused="Spark has no such function", instead="GROUP BY CUBE(a, b)"),
    "explode": FunctionRule(
        refused="EXPLODE stands inside of an expression, or twice",
        instead="make it a column of its own; several lists together: posexplode(arrays_zip(a, b))",
    ),
    "current_timestamp": _CLOCK,
    "current_date": _CLOCK,
    "current_time": _CLOCK,
}  # fmt: skip

# Over a table: its rows have no order.
KSQL_TABLE_FUNCTIONS: FunctionTable = {
    **KSQL_FUNCTIONS,
    "collect_list": _rule("sort_array(collect_list(a1))", differs="elements are sorted: rows have no order"),
    **dict.fromkeys(
        ("latest_by_offset", "earliest_by_offset"),
        FunctionRule(refused="it is for a stream", instead="a row of a table has its latest values already"),
    ),
}
