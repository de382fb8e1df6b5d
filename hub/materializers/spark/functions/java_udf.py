"""[edge] pyspark, py4j: a Python function as Spark's JVM knows it, with an environment of its own.

pyspark gives every function the environment and the accumulator of its context. Here each view has its own
environment, so it has its own workers. There is no accumulator: a worker could return an object that the
materializer would unpickle, which would run the worker's code there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType


def register_function(
    session: SparkSession, name: str, udf: Any, kind: DataType, environment: Mapping[str, str]
) -> None:
    """Register an Arrow function with the session. ``udf``: as ``arrow_udf`` returns it."""
    context = session.sparkContext
    jvm: Any = context._jvm
    serializer: Any = CloudPickleSerializer  # without types
    command = serializer().dumps((udf.func, kind))
    function = jvm.SimplePythonFunction(
        bytearray(command),
        {**context.environment, **environment},
        [],
        context.pythonExec,
        context.pythonVer,
        [],
        None,
    )
    java_session: Any = session._jsparkSession
    java_udf = jvm.org.apache.spark.sql.execution.python.UserDefinedPythonFunction(
        name, function, java_session.parseDataType(kind.json()), udf.evalType, udf.deterministic, [], []
    )
    java_session.udf().registerPython(name, java_udf)
