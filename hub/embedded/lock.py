"""[core] The lock file of jars: which exact bytes Kafka and Spark are started from.

::

    [[jar]]
    set = "kafka"            # "kafka": the broker's classpath; "spark": added to PySpark's own jars;
                             # "connect", "connect-file", "connect-postgres": fetched with connectors.yaml;
                             # "registry-client", "mirror-maker", "old-kafka", "flink", "postgres-client":
                             # fetched by tests and benches only
    group = "org.apache.kafka"
    artifact = "kafka_2.13"
    version = "4.3.1"
    sha256 = "…64 hex digits…"
    size = 1621852           # bytes; for the progress bar
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hub.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    """One locked jar."""

    set: str
    group: str
    artifact: str
    version: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def parse_lock(text: str, where: str = "locks/jars.toml") -> list[Jar]:
    """Return the jars of a lock file.
    Raises ConfigError (HUB-1111) naming an incomplete or duplicate entry."""
    hint = "restore the file from version control, or create it again: python -m hub.embedded lock"
    try:
        entries = tomllib.loads(text).get("jar", [])
        jars = [Jar(**entry) for entry in entries]
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise ConfigError(f"lock file: {error}", where=where, hint=hint, code="HUB-1111") from error
    names: dict[str, Jar] = {}
    for jar in jars:
        if len(jar.sha256) != 64 or jar.size <= 0:
            raise ConfigError(
                f"{jar.coordinate} lacks a sha256 or a size",
                where=where,
                hint=hint,
                code="HUB-1111",
            )
        other = names.setdefault(jar.file_name, jar)
        if other is not jar:
            raise ConfigError(
                f"{other.coordinate} and {jar.coordinate} share the file name {jar.file_name}",
                where=where,
                hint=hint,
                code="HUB-1111",
            )
    if not jars:
        raise ConfigError("lock file names no jar", where=where, hint=hint, code="HUB-1111")
    return jars


def render_lock(jars: Iterable[Jar], made_by: str = "python -m hub.embedded lock") -> str:
    """Return the lock file's text, sorted so that a new lock is a small diff."""
    head = f"# Made by `{made_by}`; read by hub/embedded/lock.py. Do not edit by hand.\n"
    return head + "".join(
        f'\n[[jar]]\nset = "{jar.set}"\ngroup = "{jar.group}"\nartifact = "{jar.artifact}"\n'
        f'version = "{jar.version}"\nsha256 = "{jar.sha256}"\nsize = {jar.size}\n'
        for jar in sorted(jars)
    )


def of_sets(jars: Iterable[Jar], sets: Sequence[str]) -> list[Jar]:
    """Return the jars of those sets, in the lock's order."""
    return [jar for jar in jars if jar.set in sets]
