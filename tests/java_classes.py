"""Java's classes from Python: ``from java_classes import JavaClasses``.
py4j and its server come with PySpark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import py4j.java_gateway
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import get_return_value

from hub.config import Settings
from hub.embedded import find_java
from hub.embedded.jars import pyspark_home
from hub.runtime import die_with_parent
from hub.supervisor import end


class JavaClasses:
    """A small JVM with these jars, and those of PySpark's own jars with these names. It ends with this
    process. Inside its block, Java's errors are py4j's own classes; a former Spark session of this process
    leaves a handler in py4j that asks each JVM for Spark's classes.
    """

    def __init__(self, settings: Settings, jars: Iterable[Path], of_pyspark: Iterable[str] = ()) -> None:
        beside = pyspark_home() / "jars"
        own = [next(beside.glob(f"{name}-[0-9]*.jar")) for name in ("py4j", *of_pyspark)]
        command = [str(find_java(settings).path), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", ":".join(map(str, [*own, *jars])), "py4j.GatewayServer", "--enable-auth", "0"]
        self._process = subprocess.Popen(
            die_with_parent(command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        port, token = (self._process.stdout.readline().decode().strip() for _ in range(2))
        assert port, "py4j's server did not start"
        self._patched = pytest.MonkeyPatch()
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
        )

    def __getitem__(self, name: str) -> Any:
        """Return a class by its full name. Call it to create an object; its attributes are the static
        members.
        """
        found: Any = self._gateway.jvm
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def __enter__(self) -> Self:
        self._patched.setattr(py4j.java_gateway, "get_return_value", get_return_value)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patched.undo()
        self._gateway.close()
        end(self._process, 10.0)
        if self._process.stdout is not None:
            self._process.stdout.close()
