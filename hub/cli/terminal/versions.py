"""[edge] Versions of the hub and of the programs that it runs on."""

from __future__ import annotations

import sys
from importlib.metadata import version


def hub_version() -> str:
    """Return the version of the installed package ``event-hub``, such as ``0.1.0``."""
    return version("event-hub")


def versions() -> dict[str, str]:
    """Return the version of each program by its name.
    Kafka's is that of the locked jars: of the embedded Kafka."""
    from hub.embedded.jars import lock_path
    from hub.embedded.lock import parse_lock

    jars = parse_lock(lock_path().read_text(encoding="utf-8"), str(lock_path()))
    kafka = next(jar.version for jar in jars if jar.set == "kafka" and jar.artifact == "kafka-clients")
    python = ".".join(map(str, sys.version_info[:3]))
    return {"hub": hub_version(), "Python": python, "Spark": version("pyspark"), "Kafka": kafka}
