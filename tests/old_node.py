"""A real broker of Kafka 3.7, from the jars of the lock's set "old-kafka"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hub.embedded import KafkaNode, ensure_jars
from hub.embedded.jars import lock_path
from hub.embedded.lock import parse_lock

LOGGING = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p %c{1}: %m%n
"""


class OldNode(KafkaNode):
    """A broker of an older Kafka. Third-party jars that both brokers use are locked once, in the newer set;
    the newer broker's own and logging jars are left out.
    """

    def jars(self) -> Sequence[Path]:
        found = ensure_jars(self.settings, ("old-kafka", "kafka"))
        locked = parse_lock(lock_path().read_text())
        newer = {jar.file_name for jar in locked if (jar.set, jar.group) == ("kafka", "org.apache.kafka")}
        logging = {"log4j-api", "log4j-core", "log4j-slf4j-impl"}
        newer |= {jar.file_name for jar in locked if jar.artifact in logging}
        return [*found["old-kafka"], *(jar for jar in found["kafka"] if jar.name not in newer)]

    def prepare(self) -> list[str]:
        command = super().prepare()
        file = self.folder / "log4j.properties"
        file.write_text(LOGGING)
        return [command[0], f"-Dlog4j.configuration=file:{file}", *command[1:]]
