"""Starting Spark's JVM, with a stand-in for java that is a shell script:
what happens around the start is ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.config import Settings
from hub.embedded.class_archive import archive_path
from hub.embedded.jars import spark_classpath
from hub.embedded.java import Java
from hub.embedded.spark_gateway import start_spark_gateway
from hub.errors import PeerError

# Writes port 4711 and the secret "abc" as PySpark's gateway does, then lives as long as its standard input.
ANSWERS = r"""printf '\000\000\022\147\000\000\000\003abc' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.part"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.part" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
cat"""


def stand_in(folder: Path, script: str) -> Java:
    path = folder / "java"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Java(path, 17, "test")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        monkeypatch.setenv(name, "")


def test_port_and_secret_come_from_the_jvm_and_it_ends_with_its_input(tmp_path: Path) -> None:
    java = stand_in(tmp_path, ANSWERS)
    gateway = start_spark_gateway(Settings(cache=tmp_path), java, [], {})
    assert (gateway.port, gateway.secret) == (4711, "abc")
    gateway.stop()
    assert gateway.process.returncode == 0


def test_a_jvm_that_ends_at_once_is_an_error_with_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="Java 17\\) did not start: exit code 3"):
        start_spark_gateway(Settings(cache=tmp_path), stand_in(tmp_path, "exit 3"), [], {})


def test_a_broken_archive_is_removed_and_the_start_goes_on(tmp_path: Path) -> None:
    settings = Settings(cache=tmp_path)
    java = stand_in(tmp_path, f'case "$*" in *SharedArchiveFile*) kill -BUS $$ ;; esac\n{ANSWERS}')
    archive = archive_path(settings, java, spark_classpath(settings, []))
    archive.parent.mkdir(exist_ok=True)
    archive.write_bytes(b"cut short")
    gateway = start_spark_gateway(settings, java, [], {})
    assert gateway.port == 4711
    assert not archive.exists()
    gateway.stop()
