"""[edge] pyspark: register a view's Python functions with a session, and report why one failed.

The file runs once in this process to define its functions, and they are sent to Spark's workers by value. A
version of a view thus runs the code that it was created with, whatever the file contains since.
"""

from __future__ import annotations

import re
import sys
import types
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from hub.errors import ConfigError
from hub.materializers.definition.declared import ViewDeclaration
from hub.materializers.spark.python_udf_worker import FAILED, KeyedFold, UdfCall

_FACTS = re.compile(re.escape(FAILED) + r" (\{.*\})")


def register(session: SparkSession, view: ViewDeclaration | None) -> SparkSession:
    """Register the view's functions with the session and return it. Raises ConfigError when their file cannot
    be run."""
    if view is None or view.transforms is None:
        return session
    file = view.transforms.file
    untyped: Any = arrow_udf  # its stubs know fewer types than it accepts
    space = _run(view.transforms.text, file, view.name)
    for each in view.functions:
        kind = DataType.fromDDL(each.returns)
        own = KeyedFold(space[each.keyed]) if each.keyed else space[each.name]
        call = UdfCall(own, each.name, file, to_arrow_type(kind, timezone="UTC"), each.by_value)
        session.udf.register(each.name, untyped(_called(call), kind))
    return session


def own_session(session: SparkSession, view: ViewDeclaration) -> SparkSession:
    """Return a session that knows the view's functions: one of its own, or the given one if the view has
    none."""
    return session if view.transforms is None else register(session.newSession(), view)


def failure(said: str, view: str) -> ConfigError | None:
    """Return the error for a query that failed in a function; None if it failed for another reason."""
    found = _FACTS.search(said)
    if found is None:
        return None
    try:
        facts = orjson.loads(found[1])
    except orjson.JSONDecodeError:
        return None
    values = f", of {facts['values']}" if facts["values"] else ""
    return ConfigError(
        f'view "{view}": function "{facts["function"]}" failed{values}: {facts["error"]}',
        where=f"{facts['file']}:{facts['line']}" if facts["line"] else facts["file"],
        hint="let it return None for unsuitable values; the view is stopped at this batch "
        "until the file is changed",
        code="HUB-2152",
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


def _run(text: str, file: str, view: str) -> dict[str, Any]:
    # Not in sys.modules: its definitions are sent to workers by value, not by the name of a module that they
    # lack.
    module = types.ModuleType("hub_transforms")
    try:
        exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102 - the project's own code; settings.transforms
    except Exception as error:  # noqa: BLE001 - whatever the file does when it is run
        at, line = sys.exc_info()[2], None
        while at is not None:
            line = at.tb_lineno if at.tb_frame.f_code.co_filename == file else line
            at = at.tb_next
        raise ConfigError(
            f'view "{view}": its functions cannot be loaded: {type(error).__name__}: {error}',
            where=f"{file}:{line}" if line else file,
            code="HUB-2151",
        ) from None
    return module.__dict__
