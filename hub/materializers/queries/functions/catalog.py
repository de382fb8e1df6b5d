"""[core] The operators and functions that a query may contain, by class of the parser and by name."""

from __future__ import annotations

from collections.abc import Mapping

from hub.materializers.queries.functions.casts import CASTS
from hub.materializers.queries.functions.operators import OPERATORS
from hub.materializers.queries.functions.texts import TEXTS, array_length
from hub.materializers.queries.functions.values import VALUES
from hub.materializers.queries.writer import Handler

HANDLERS: Mapping[type, Handler] = {**OPERATORS, **CASTS, **TEXTS, **VALUES}
# Functions for which the parser has no class.
NAMED: Mapping[str, Handler] = {"json_array_length": array_length}
_FUNCTION_NAMES = """
abs any_value avg bool_and bool_or cast ceil char_length coalesce concat concat_ws count count_if
current_date current_timestamp date_part date_trunc dense_rank extract first_value floor greatest
json_array_length lag last_value lead least left length lower ltrim max min mod now nullif position
rank replace right round row_number rtrim sign starts_with string_agg strpos substr substring sum
to_timestamp trim upper
"""
# For "did you mean" and for completion in the shell.
FUNCTIONS = tuple(_FUNCTION_NAMES.split())
