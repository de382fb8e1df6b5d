"""[edge] The process that carries one PySpark view to SQL: its own Spark, one answer, and it ends.

It reads a BuildTask from standard input, and writes lines of JSON to standard output: first ``{}`` when Spark
has started, then the view or the error. It ends when standard input closes, as it does when its parent dies.
What the user's code and Spark print goes to standard error. Unless Python of views is trusted, the process
and its JVM are in the sandbox of ``hub/sandbox/launch.py``.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO

import orjson

from hub.config import Settings
from hub.errors import ConfigError, HubError
from hub.materializers.definition.load import body_of, view_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.spark.building.builder import BuildTask
from hub.materializers.spark.building.carried_view import carried_view
from hub.materializers.spark.session import open_session
from hub.materializers.spark.slots import Slots

# Lines of errors: each call on a column passes its line of Python to the JVM, and errors repeat it.
_LINES = {
    "spark.python.sql.dataFrameDebugging.enabled": "true",
    "spark.sql.dataFrameQueryContext.enabled": "true",
}
_HEAP_MB = 512


def main() -> None:
    """Answer the task on standard input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    task: BuildTask = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _answer(answers, _outcome(task, answers))
    os._exit(0)  # the user's code may have started threads


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _outcome(task: BuildTask, answers: BinaryIO) -> dict[str, Any]:
    settings = Settings.model_construct(**task.settings).model_copy(
        update={
            "spark_master": "local[1]",
            "spark_heap_mb": _HEAP_MB,
            "spark_off_heap_mb": 0,
            "spark_conf": _LINES,
        }
    )
    try:
        session, gateway = open_session(settings, Slots(1, 1, 1))
        _answer(answers, {})
        try:
            view = view_of(task.view)
            assert isinstance(view, SqlView)
            return {"view": body_of(carried_view(session, view, task.schemas))}
        finally:
            session.stop()
            gateway.stop()
    except HubError as error:
        known = isinstance(error, ConfigError)
        return {
            "error": error.message,
            "hint": error.hint,
            "code": error.code,
            "of_view": known,
            "details": dict(error.details),
        }


def _answer(answers: BinaryIO, body: Mapping[str, Any]) -> None:
    answers.write(orjson.dumps(body) + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
