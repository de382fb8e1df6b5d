"""[edge] pyspark: register a view's Python functions with a session, and report why one failed.

The file never runs in this process. Its text is sent to Spark's workers, which run it once each, in the
sandbox of the view unless `transforms` is `trusted`. A version of a view thus runs the code that it was
created with, whatever the file contains since.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from hub.errors import ConfigError
from hub.materializers.definition.declared import ViewDeclaration
from hub.materializers.spark.functions.java_udf import register_function
from hub.materializers.spark.functions.policy import file_beside, policy_of
from hub.materializers.spark.python_udf_worker import FAILED, FunctionOfCode, UdfCall
from hub.sandbox.load_check import LoadFailure, check
from hub.sandbox.rules import TEXT_OF_RULE, VARIABLE, Fences, Rule
from hub.sandbox.user_code import UserCode

HINT_OF_RULE = "a sandboxed function may {}; `transforms: trusted` in hub.yaml runs it with the hub's rights"
_FACTS = re.compile(re.escape(FAILED) + r" (\{.*\})")


def register(session: SparkSession, view: ViewDeclaration | None) -> SparkSession:
    """Register the view's functions with the session and return it. Raises ConfigError when their file cannot
    be run."""
    if view is None or view.transforms is None:
        return session
    policy = policy_of(session)
    fences = policy.fences(view.name)
    file = view.transforms.file
    code = UserCode(view.name, file, file_beside(policy, file), view.transforms.text, fences is not None)
    names = [each.keyed or each.name for each in view.functions]
    _check_loads(code, tuple(names), fences, policy.load_timeout_s)
    environment = {} if fences is None else {VARIABLE: fences.text()}
    untyped: Any = arrow_udf  # its stubs know fewer types than it accepts
    for each in view.functions:
        kind = DataType.fromDDL(each.returns)
        function = FunctionOfCode(code, each.keyed or each.name, bool(each.keyed))
        arrow = to_arrow_type(kind, timezone="UTC")
        call = UdfCall(function, each.name, file, arrow, each.by_value, policy.call_cpu_s)
        register_function(session, each.name, untyped(_called(call), kind), kind, environment)
    return session


def own_session(session: SparkSession, view: ViewDeclaration) -> SparkSession:
    """Return a session that knows the view's functions: one of its own, or the given one if the view has
    none."""
    return session if view.transforms is None else register(session.newSession(), view)


def failure(message: str, view: str) -> ConfigError | None:
    """Return the error for a query that failed in a function; None if it failed for another reason."""
    found = _FACTS.search(message)
    if found is None:
        return None
    try:
        facts = orjson.loads(found[1])
    except orjson.JSONDecodeError:
        return None
    values = f", of {facts['values']}" if facts["values"] else ""
    where = f"{facts['file']}:{facts['line']}" if facts["line"] else facts["file"]
    if facts["rule"]:
        return refused(view, f'function "{facts["function"]}"', facts["rule"], values, facts["error"], where)
    return ConfigError(
        f'view "{view}": function "{facts["function"]}" failed{values}: {facts["error"]}',
        where=where,
        hint="let it return None for unsuitable values; the view is stopped at this batch "
        "until the file is changed",
        code="HUB-2152",
    )


def refused(view: str, what: str, rule: str, values: str, error: str, where: str) -> ConfigError:
    """Return the error for code of a view that broke a rule of its sandbox."""
    return ConfigError(
        f'view "{view}": the sandbox stopped {what}{values}, by its rule `{rule}`: {error}',
        where=where,
        hint=HINT_OF_RULE.format(TEXT_OF_RULE[Rule(rule)]),
        code="HUB-2157",
    )


@lru_cache(maxsize=256)
def _load_failure(
    code: UserCode, names: tuple[str, ...], fences: Fences | None, timeout_s: float
) -> LoadFailure | None:
    return check(code, names, fences, timeout_s)


def _check_loads(code: UserCode, names: tuple[str, ...], fences: Fences | None, timeout_s: float) -> None:
    """Raise ConfigError for a file that cannot be loaded. A process of its own tries it, once a text."""
    failure = _load_failure(code, names, fences, timeout_s)
    if failure is None:
        return
    where = f"{code.file}:{failure.line}" if failure.line else code.file
    if failure.rule:
        raise refused(code.view, "the file of its functions", failure.rule, "", failure.error, where)
    raise ConfigError(
        f'view "{code.view}": its functions cannot be loaded: {failure.error}', where=where, code="HUB-2151"
    )


def _called(call: UdfCall) -> Any:
    def run(*columns: pa.Array) -> pa.Array:
        return call(*columns)

    run.__annotations__ = {
        "columns": pa.Array,
        "return": pa.Array,
    }  # Spark needs types, not their names
    run.__name__ = call.name
    return run
