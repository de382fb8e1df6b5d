"""``python -m hub.embedded lock``: resolve the roots below again and write ``locks/jars.toml``.

``python -m hub.embedded fetch`` fetches what is locked and prepares quick starts (for images and for test
machines).
"""

from __future__ import annotations

import sys

from hub.config import Settings
from hub.embedded.class_archive import has_archive, make_archive
from hub.embedded.jars import ensure_jars, lock_path, missing_jars, resolve_set
from hub.embedded.java import find_java
from hub.embedded.lock import Jar, render_lock
from hub.errors import HubError

# Spark's set is listed jar by jar: the newest connector's own transitive versions do not resolve
# (docs/adr/0002).
ROOTS = {
    "kafka": [
        ("org.apache.kafka", "kafka_2.13", "4.3.1", True),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", False),
    ],
    "spark": [
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", False),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", False),
        ("org.apache.spark", "spark-avro_2.13", "4.1.1", False),
        ("org.apache.kafka", "kafka-clients", "3.9.2", False),
        ("org.apache.commons", "commons-pool2", "2.12.1", False),
        ("com.globalmentor", "hadoop-bare-naked-local-fs", "0.1.0", False),
    ],
    # Tests only: clients of the registry that others wrote. The first jar has Confluent's own client inside.
    "registry-client": [
        ("org.apache.flink", "flink-sql-avro-confluent-registry", "2.3.0", False),
        ("org.apache.flink", "flink-core", "2.3.0", False),
        ("org.apache.flink", "flink-core-api", "2.3.0", False),
        ("org.apache.flink", "flink-annotations", "2.3.0", False),
        ("org.springframework.cloud", "spring-cloud-schema-registry-client", "1.1.5", False),
        ("org.springframework", "spring-beans", "5.3.39", False),
        ("org.springframework", "spring-core", "5.3.39", False),
        ("org.springframework", "spring-jcl", "5.3.39", False),
        ("org.springframework", "spring-web", "5.3.39", False),
    ],
    # The embedded Kafka Connect: fetched when a project declares connectors. It runs with the set "kafka",
    # which has some of its jars.
    "connect": [("org.apache.kafka", "connect-runtime", "4.3.1", True)],
    # Plugins of Connect that come with the hub; each is fetched when a connector needs it.
    "connect-file": [("org.apache.kafka", "connect-file", "4.3.1", False)],
    "connect-postgres": [("io.debezium", "debezium-connector-postgres", "3.7.0.Final", True)],
    # Tests and benchmarks only: MirrorMaker 2. It runs with the sets "kafka" and "connect", which have most
    # of its jars.
    "mirror-maker": [("org.apache.kafka", "connect-mirror", "4.3.1", True)],
    # Tests only: a broker of the oldest Kafka that mirrors support. It runs with third-party jars of the set
    # "kafka".
    "old-kafka": [
        ("org.apache.kafka", "kafka_2.13", "3.7.2", True),
        ("org.slf4j", "slf4j-reload4j", "1.7.36", True),
    ],
    # Tests only: the JDBC driver of Postgres' protocol.
    "postgres-client": [("org.postgresql", "postgresql", "42.7.14", False)],
    # Benchmarks only: Flink's connector. It runs with the Avro of the set "registry-client".
    "flink": [("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2", False)],
}


def resolve(settings: Settings) -> list[Jar]:
    """Return every jar of every set as the repository offers it now."""
    java = find_java(settings)
    jars: list[Jar] = []
    for set_name, roots in ROOTS.items():
        for jar in resolve_set(java, set_name, roots):
            if all(jar.file_name != other.file_name for other in jars):  # an earlier set has it
                jars.append(jar)
    return jars


def main(arguments: list[str]) -> int:
    settings = Settings()
    try:
        if arguments == ["lock"]:
            jars = resolve(settings)
            lock_path().write_text(render_lock(jars))
            print(
                f"{lock_path()}: {len(jars)} jars, {sum(jar.size for jar in jars) / 1e6:.0f} MB",
                file=sys.stderr,
            )
            return 0
        if arguments == ["fetch"]:
            if missing := missing_jars(settings):
                print(f"Fetching {len(missing)} jars of Kafka and Spark's connectors ...", file=sys.stderr)
            spark_jars = ensure_jars(settings)["spark"]
            if not has_archive(settings, spark_jars):
                print("Preparing Spark for quick starts (once, about 30 s) ...", file=sys.stderr)
                make_archive(settings, spark_jars)
            return 0
    except HubError as error:
        print(error, file=sys.stderr)
        return 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
