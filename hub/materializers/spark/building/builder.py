"""[shell] SQL of PySpark views: built in a process of its own, and kept by the view's files and schemas.

``built(view, schemas)`` returns a view that has SQL. A view whose files, function and source columns were
built before is read from the home folder; a view of the log has its SQL already. One process runs at a time,
and each wait is bounded: a function that never returns, or ends its process, is an error of its view alone.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from hub.config import Settings
from hub.embedded import ensure_jars, find_java
from hub.embedded.hadoop_defaults import hadoop_defaults
from hub.embedded.jars import lock_path
from hub.errors import ConfigError, HubError, PeerError
from hub.files import write_text
from hub.materializers.dataframes.declared_build import WRONG
from hub.materializers.definition.load import body_of, view_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.validation import check_python
from hub.materializers.types.avro_types import AvroType
from hub.sandbox.environment import safe_environment
from hub.sandbox.launch import launched

log = logging.getLogger(__name__)
UNAVAILABLE = "HUB-3100"
# Settings that the process needs. Others, such as passwords, stay here.
_SETTINGS = (
    *("project", "transforms", "python_memory_mb", "python_call_cpu_s", "build_timeout_s", "start_timeout_s"),
    *("realtime_gather_ms", "live_tasks"),
)
# Changes when the same files may give another SQL.
_RULES = 1
_MOST_KEPT = 200
# How long a refusal is repeated without running the function again: the engine asks about a view each second.
_REFUSED_S = 600.0
# Processes take turns: each has a JVM.
_TURN = threading.Lock()


@dataclass(frozen=True, slots=True)
class BuildTask:
    """A view as JSON (``body_of``), the schemas of its sources, and the settings that its process needs. They
    have no secrets: the view's function can read them."""

    view: str
    schemas: Mapping[str, Any]
    settings: Mapping[str, Any]


@dataclass
class ViewBuilder:
    """Builds PySpark views of one project. Thread-safe."""

    settings: Settings
    _refused: dict[str, tuple[float, ConfigError]] = field(default_factory=dict)

    def built(self, view: SqlView, schemas: Mapping[str, AvroType]) -> SqlView:
        """Return the view with its SQL. Blocks while its function runs.

        Raises ConfigError for a function that is refused, PeerError (HUB-3100) if no process answers.
        """
        if view.python is None or view.sql:
            return view
        check_python(view, self.settings.transforms)
        key = _key_of(view, schemas)
        file = self.settings.home / "pyspark" / f"{key}.json"
        kept = _kept(file)
        if kept is None:
            self._require_not_refused(key)
            with _TURN:  # another thread may have built it meanwhile
                kept = _kept(file)
                if kept is None:
                    kept = self._carried(key, view, schemas)
                    _keep(file, kept)
        return view.model_copy(
            update={
                "sql": kept["sql"],
                "python": view.python.model_copy(update={"lines": kept["lines"]}),
            }
        )

    def _carried(self, key: str, view: SqlView, schemas: Mapping[str, AvroType]) -> Mapping[str, Any]:
        self._require_not_refused(key)
        try:
            made = _answer_of(self.settings, view, schemas)
        except ConfigError as error:
            self._refused = {
                **dict(list(self._refused.items())[-_MOST_KEPT:]),
                key: (time.monotonic(), error),
            }
            raise
        assert made.python is not None
        return {"sql": made.sql, "lines": made.python.lines}

    def _require_not_refused(self, key: str) -> None:
        at, refused = self._refused.get(key, (0.0, None))
        if refused is not None and time.monotonic() < at + _REFUSED_S:
            raise refused


def _key_of(view: SqlView, schemas: Mapping[str, AvroType]) -> str:
    """Return a hash of all that the SQL is made of."""
    assert view.python is not None
    sources = {name: each.model_dump(mode="json", by_alias=True) for name, each in view.sources.items()}
    for each in sources.values():
        each.pop("topic", None)  # the version of a source view
    body = [
        _RULES,
        view.python.model_dump(mode="json", exclude={"lines"}),
        view.transforms.model_dump(mode="json") if view.transforms is not None else None,
        sources,
        schemas,
    ]
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _kept(file: Path) -> Mapping[str, Any] | None:
    """Return an earlier plan; None if there is none, or the file is corrupt."""
    try:
        body = orjson.loads(file.read_bytes())
        if isinstance(body["sql"], str) and isinstance(body["lines"], list):
            return {"sql": body["sql"], "lines": body["lines"]}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _keep(file: Path, kept: Mapping[str, Any]) -> None:
    """Keep a result. A full disk costs only the time to build it again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, orjson.dumps(dict(kept)).decode())
        files = sorted(file.parent.glob("*.json"), key=lambda each: each.stat().st_mtime_ns)
        for old in files[:-_MOST_KEPT]:
            old.unlink(missing_ok=True)
    except (OSError, HubError) as error:
        log.warning("%s cannot be written: %s", file, error)


def _answer_of(settings: Settings, view: SqlView, schemas: Mapping[str, AvroType]) -> SqlView:
    """Run the process and return its view. Raises ConfigError, PeerError."""
    settings.home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hub-build-") as folder:
        task = BuildTask(body_of(view), dict(schemas), _settings_of_process(settings, Path(folder)))
        process = _started(settings, task, Path(folder))
        return _answered(process, task, settings, view)


def _settings_of_process(settings: Settings, folder: Path) -> dict[str, Any]:
    fields = {name: getattr(settings, name) for name in _SETTINGS}
    java, cache = find_java(settings).path.resolve(), settings.cache.expanduser().absolute()
    return {**fields, "java": java, "cache": cache, "home": folder}


def _started(settings: Settings, task: BuildTask, folder: Path) -> subprocess.Popen[bytes]:
    """Start the process, in a sandbox unless Python of views is trusted. ``folder``: the one that it may
    change."""
    command = [sys.executable, "-P", "-m", "hub.materializers.spark.building.build_process"]
    environment = dict(os.environ)
    if settings.transforms != "trusted":
        java_home = task.settings["java"].parents[1]
        cache: Path = task.settings["cache"]
        ensure_jars(settings, ("spark",))  # the process has no network, and cannot write the cache
        hadoop_defaults(settings)
        views = settings.project.expanduser().absolute() / "views"
        readable = [java_home, cache, lock_path(), views, *Path("/etc").glob("java*")]
        command = launched(command, readable, [folder, cache / "jars" / ".lock"])
        # The JVM cannot look up the name of its user, and its temporary files are the view's.
        environment = {
            **safe_environment(os.environ),
            "HADOOP_USER_NAME": "hub",
            "SPARK_USER": "hub",
            "TMPDIR": str(folder),
            "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={folder} -Duser.home={folder}",
        }
    with (settings.home.absolute() / "build.log").open("ab") as build_log:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=build_log,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )


def _answered(
    process: subprocess.Popen[bytes], task: BuildTask, settings: Settings, view: SqlView
) -> SqlView:
    """Return the view that the process answers, and end it. Raises ConfigError, PeerError."""
    try:
        answer = _Answers(process)
        answer.send(pickle.dumps(task))
        answer.line(settings.start_timeout_s + settings.build_timeout_s, _no_spark)
        return _view_of(answer.line(settings.build_timeout_s, lambda why: _no_answer(view, why, settings)))
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _view_of(answer: Mapping[str, Any]) -> SqlView:
    if "error" in answer:
        kind: type[HubError] = ConfigError if answer["of_view"] else PeerError
        error = kind(answer["error"], hint=answer["hint"], code=answer["code"])
        error.details = answer["details"]
        raise error
    view = view_of(answer["view"])
    assert isinstance(view, SqlView)
    return view


def _no_spark(why: str) -> HubError:
    return PeerError(
        f"Spark did not start to build a PySpark view ({why})",
        hint="build.log in the home folder says why; `hub doctor` checks Java",
        code=UNAVAILABLE,
    )


def _no_answer(view: SqlView, why: str, settings: Settings) -> HubError:
    assert view.python is not None
    reason = (
        f"{view.python.function} did not return within {settings.build_timeout_s:g} s (build_timeout_s)"
        if why == "late"
        else f"{view.python.function} ended its process"
    )
    return ConfigError(
        f'view "{view.name}": {reason}',
        where=view.python.file,
        hint="build describes the view and reads no rows; build.log in the home folder has what it printed",
        code=WRONG,
    )


class _Answers:
    """Lines of JSON that the process writes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._read = b""

    def send(self, body: bytes) -> None:
        try:
            self._stdin.write(body)
            self._stdin.flush()
        except OSError as error:
            raise _no_spark("its process ended") from error

    def line(self, seconds: float, missing: Callable[[str], HubError]) -> Mapping[str, Any]:
        """Return the next line. Raises the error of ``missing`` with "late" or "ended" if none comes."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._stdout], [], [], left)[0]:
                raise missing("late")
            more = self._stdout.read1(65_536)  # type: ignore[attr-defined]
            if not more:
                raise missing("ended")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        found: Mapping[str, Any] = orjson.loads(line)
        return found
