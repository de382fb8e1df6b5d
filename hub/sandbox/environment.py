"""[core] Variables of the environment that a sandboxed process keeps. All others may be secrets."""

from __future__ import annotations

from collections.abc import Mapping

from hub.sandbox.rules import VARIABLE

_KEPT = frozenset(
    (
        *("LANG", "LANGUAGE", "PATH", "TZ", "TMPDIR", VARIABLE),
        *("SPARK_BUFFER_SIZE", "SPARK_HOME", "SPARK_PREFER_IPV6", "SPARK_REUSE_WORKER"),
        *("SPARK_SIMPLIFIED_TRACEBACK", "SPARK_TESTING", "SPARK_PYTHON_RUNTIME"),
        *("PYSPARK_RUNTIME_PROFILE", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    )
)
# PYTHON_… has the variables of Spark's worker protocol, such as its port and its secret for this worker.
_KEPT_PREFIXES = ("LC_", "PYTHON", "OMP_", "OPENBLAS_", "MKL_", "NUMEXPR_", "ARROW_", "MALLOC_")


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a sandboxed process keeps."""
    return {
        name: value for name, value in environment.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
