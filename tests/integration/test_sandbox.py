"""The sandbox of Python functions with a real Spark: each rule, and the ways around a worker into the hub."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hub.config import Settings
from hub.errors import ConfigError
from hub.materializers.definition.load import load_view, view_files
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.golden.cases import Case, differences
from hub.materializers.golden.runner import GoldenRunner
from hub.materializers.spark.building.builder import ViewBuilder
from hub.sandbox.launch import probed_platform
from hub.sandbox.platforms import gaps

pytestmark = pytest.mark.skipif(
    bool(gaps(probed_platform())), reason=f"not enforced on this machine: {gaps(probed_platform())}"
)
FUNCTIONS = """
import builtins
import os
import socket
import subprocess

from pyspark import accumulators


class Evil:
    def __reduce__(self):
        return open, ("MARK", "w")


class Update:
    _value = Evil()


def attacked(what: str) -> str:
    if what == "files":
        return open("/etc/passwd").read()
    if what == "network":
        socket.create_connection(("127.0.0.1", 9092))
    if what == "processes":
        return subprocess.check_output(["id"]).decode()
    if what == "memory":
        return str(len(bytearray(64 << 30)))
    if what == "environment":
        return str([name for name, value in os.environ.items() if "s3cr3t" in value])
    if what == "accumulators":
        accumulators._accumulatorRegistry[0] = Update()
    builtins.was_here = True
    return "done"


def visited(what: str) -> bool:
    return hasattr(builtins, "was_here")
"""
VIEW = """
view: {name}
transforms: functions.py
sources: {{s: {{topic: t, format: json, schema: {{id: bigint, what: string}}}}}}
sql: SELECT s.id, {call}(s.what) AS said FROM s
key: id
"""
FRAME = """
view: {name}
key: id
sources: {{s: {{topic: t, format: json, schema: {{id: bigint}}}}}}
python: {name}.py
"""


@pytest.fixture(scope="module")
def mark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the hub would make if it ran code of a worker."""
    return tmp_path_factory.mktemp("mark") / "made"


@pytest.fixture(scope="module")
def runs(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory, mark: Path) -> GoldenRunner:
    project = tmp_path_factory.mktemp("sandbox")
    (project / "views").mkdir()
    (project / "views" / "functions.py").write_text(FUNCTIONS.replace("MARK", str(mark)))
    for name, call in (("attacker", "attacked"), ("neighbor", "visited")):
        (project / "views" / f"{name}.yaml").write_text(VIEW.format(name=name, call=call))
    views = {path.stem: load_view(path) for path in view_files(project)}
    return GoldenRunner(spark_session, views, {name: {} for name in views}, project / "streams")


def case(what: str, said: Any) -> Case:
    events = [{"source": "s", "value": {"id": 1, "what": what}}]
    return Case.model_validate({"events": events, "rows": {"1": {"said": said}}})


@pytest.mark.parametrize("rule", ["files", "network", "processes", "memory"])
def test_a_function_that_breaks_a_rule_is_named_with_its_view(runs: GoldenRunner, rule: str) -> None:
    with pytest.raises(ConfigError) as raised:
        runs.run("attacker", case(rule, ""))
    assert raised.value.code == "HUB-2157" and (raised.value.where or "").startswith("functions.py:")
    assert 'view "attacker": the sandbox stopped function "attacked"' in raised.value.message
    assert f"by its rule `{rule}`" in raised.value.message


def test_a_worker_gets_no_secrets_and_gives_no_code_to_the_hub(runs: GoldenRunner, mark: Path) -> None:
    # The materializer would unpickle the value of an accumulator.
    for what, said in (("environment", "[]"), ("accumulators", "done")):
        wanted = case(what, said)
        assert differences(wanted, runs.run("attacker", wanted)) == []
    assert not mark.exists()


def test_views_share_no_worker(runs: GoldenRunner) -> None:
    done = case("nothing", "done")
    assert differences(done, runs.run("attacker", done)) == []
    unseen = case("nothing", False)
    assert differences(unseen, runs.run("neighbor", unseen)) == []


# ---- the function of a PySpark view, which has Spark's JVM at hand


def built(folder: Path, name: str, code: str, **settings: Any) -> SqlView:
    (folder / "views").mkdir(exist_ok=True)
    (folder / "views" / f"{name}.yaml").write_text(FRAME.format(name=name))
    (folder / "views" / f"{name}.py").write_text(code)
    view = load_view(folder / "views" / f"{name}.yaml")
    assert isinstance(view, SqlView)
    schemas = {source: each.declared for source, each in view.sources.items()}
    return ViewBuilder(Settings(home=folder / ".hub", project=folder, **settings)).built(view, schemas)


def test_the_function_of_a_pyspark_view_reaches_nothing_with_the_jvm(tmp_path: Path) -> None:
    secret = tmp_path / "hub.yaml"
    secret.write_text("admin_token: s3cr3t")
    heard = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            try:
                server.accept()
                heard.set()
            except OSError:
                return

        threading.Thread(target=listen, daemon=True).start()
        port = server.getsockname()[1]
        code = f"""
import os
import socket


def build(s):
    jvm = s.sparkSession._jvm
    path = jvm.java.io.File({str(secret)!r}).toPath()
    shell = jvm.java.util.ArrayList()
    for word in ("cat", {str(secret)!r}):
        shell.add(word)
    attempts = {{
        "read": lambda: open({str(secret)!r}).read(),
        "read by the JVM": lambda: jvm.java.nio.file.Files.readString(path),
        "write by the JVM": lambda: jvm.java.io.FileWriter({str(tmp_path / "made")!r}),
        "connect": lambda: socket.create_connection(("127.0.0.1", {port}), 5),
        "connect by the JVM": lambda: jvm.java.net.Socket("127.0.0.1", {port}),
        "program by the JVM": lambda: jvm.java.lang.ProcessBuilder(shell).start(),
        "environment": lambda: next(value for value in os.environ.values() if "s3cr3t" in value),
        "signal": lambda: os.kill({os.getpid()}, 0),
    }}
    done = []
    for name, attempt in attempts.items():
        try:
            attempt()
            done.append(name)
        except BaseException:
            pass
    return s.selectExpr("id", f"{{done!r}} AS done" if done else "id AS nothing")
"""
        view = built(tmp_path, "reaching", code)
    assert not heard.is_set() and not (tmp_path / "made").exists()
    assert "nothing" in view.sql and "done" not in view.sql, view.sql


def test_the_function_of_a_pyspark_view_that_breaks_a_rule_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        built(tmp_path, "reading", "\n\ndef build(s):\n    return open('/etc/shadow')\n")
    assert raised.value.message.startswith(
        'reading.py:4: view "reading": the sandbox stopped build, by its rule'
    )
