"""[core] Flink's functions in Spark SQL."""

from __future__ import annotations

from hub.importing.functions import FunctionRule, FunctionTable

_CLOCK = FunctionRule(refused="it gives another value on every replay", instead="use the time of the event")
_CHANCE = FunctionRule(
    refused="it gives another value on every replay", instead="derive a value from the event, such as a hash"
)
_AGGREGATES = "avg count max min stddev_pop stddev_samp sum var_pop var_samp variance"
_SAME = """
abs acos ascii asin atan atan2 bin ceil ceiling chr coalesce concat concat_ws cos cosh cot date_format degrees
dense_rank e element exp floor from_base64 greatest hex if ifnull initcap lag lead least left length ln locate
log log10 log2 lower lpad ltrim md5 mod nullif parse_url pi power radians rank regexp_extract regexp_replace
repeat replace reverse right round row_number rpad rtrim sha1 sign sin sinh split sqrt str_to_map substr
substring tan tanh to_date translate trim truncate unhex upper window session_window year month quarter day
dayofmonth dayofweek dayofyear hour minute second week
"""
# Names that Spark does not have.
_ELSEWHERE = {"element", "truncate", "week"}
_TEXT = "concat concat_ws initcap lower lpad regexp_replace replace rpad substr substring trim upper"


def _rule(*forms: str, differs: str = "", text: bool = False) -> FunctionRule:
    return FunctionRule(forms, differs, text)


FLINK_AGGREGATES = frozenset([*_AGGREGATES.split(), "first_value", "last_value", "listagg", "collect"])
FLINK_FUNCTIONS: FunctionTable = {
    **{name: _rule(name) for name in (*_AGGREGATES.split(), *_SAME.split()) if name not in _ELSEWHERE},
    **{name: _rule(name, text=True) for name in _TEXT.split()},
    "week": _rule("weekofyear"),
    "truncate": FunctionRule(refused="Spark has no such function", instead="floor(x * 100) / 100"),
    "cardinality": _rule("array_size(a1)", differs="of lists only"),
    "char_length": _rule("length"),
    "character_length": _rule("length"),
    "first_value": _rule("min_by(a1, event_order)"),
    "last_value": _rule("max_by(a1, event_order)"),
    "from_unixtime": _rule("from_unixtime"),
    "json_value": _rule("get_json_object(a1, a2)", text=True),
    "json_query": _rule("get_json_object(a1, a2)", text=True),
    "posexplode": _rule("posexplode"),
    "json_exists": _rule("get_json_object(a1, a2) IS NOT NULL"),
    "is_json": _rule("try_parse_json(a1) IS NOT NULL"),
    "lcase": _rule("lower", text=True),
    "ucase": _rule("upper", text=True),
    "listagg": _rule(
        "array_join(sort_array(collect_list(a1)), ',')",
        "array_join(sort_array(collect_list(a1)), a2)",
        differs="elements are sorted",
        text=True,
    ),
    "regexp": _rule("a1 RLIKE a2"),
    "sha256": _rule("sha2(a1, 256)"),
    "sha512": _rule("sha2(a1, 512)"),
    "split_index": _rule(r"try_element_at(split(a1, concat('\Q', a2, '\E')), a3 + 1)", text=True),
    "to_base64": _rule("base64"),
    "to_timestamp": _rule("to_timestamp"),
    "to_timestamp_ltz": _rule(
        "CASE a2 WHEN 0 THEN timestamp_seconds(a1) ELSE timestamp_millis(a1) END",
    ),
    "timestampdiff": _rule("date_diff_unit(a1, a2, a3)"),
    "timestampadd": _rule("date_add_unit(a1, a2, a3)"),
    "unix_timestamp": FunctionRule(
        ("unix_timestamp(a1)", "unix_timestamp(a1, a2)"), instead="give it a time: the present changes"
    ),
    **dict.fromkeys(
        (
            "current_date", "current_row_timestamp", "current_time", "current_timestamp", "current_watermark",
            "localtime", "localtimestamp", "now", "proctime",
        ),
        _CLOCK,
    ),
    **dict.fromkeys(("rand", "rand_integer", "uuid"), _CHANCE),
    "collect": FunctionRule(refused="Spark has no MULTISET", instead="sort_array(collect_list(x))"),
}  # fmt: skip
