"""[edge] Versions of the records in a cluster: the compacted topic ``_hub.formats``.

A key is ``<format>/<version>``; the highest version of a format counts. So two processes of different
releases that start at once cannot hide each other's version.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from hub.formats.stamps import Stamp, stamp_of
from hub.formats.table import written_by
from hub.formats.verdicts import stamps_to_note
from hub.log import Log, ensure_topic, whole
from hub.record import NewRecord

TOPIC = "_hub.formats"


def read_stamps(cluster: Log) -> Mapping[str, Stamp]:
    """Return the noted versions by format; {} without the topic. Raises PeerError, ConfigError (HUB-1151)."""
    if not cluster.partition_counts([TOPIC]):
        return {}
    stamps: dict[str, Stamp] = {}
    for record in whole(cluster, TOPIC):
        name, _, _ = (record.key or b"").decode(errors="replace").rpartition("/")
        if record.value is None:
            continue  # a person took it back
        try:
            body = orjson.loads(record.value)
        except ValueError:
            body = ""
        stamp = stamp_of(body, f'topic "{TOPIC}" offset {record.offset}')
        if name not in stamps or stamps[name].version < stamp.version:
            stamps[name] = stamp
    return stamps


def admit_topics(cluster: Log, process: str, replication_factor: int) -> None:
    """Note the versions of the records that a process writes. Call before it writes any.

    Raises ConfigError (HUB-1150) for a version that this release does not read; HUB-1151; PeerError.
    """
    formats = written_by(process, "topics")
    if not formats:
        return
    noted = stamps_to_note(formats, read_stamps(cluster), "this Kafka")
    if not noted:
        return
    ensure_topic(cluster, TOPIC, replication_factor=replication_factor)
    writer = cluster.writer()
    try:
        writer.append(
            [
                NewRecord(
                    TOPIC,
                    f"{format.name}/{stamp.version}".encode(),
                    orjson.dumps(stamp.as_json()),
                    partition=0,
                )
                for format, stamp in noted.items()
            ]
        )
    finally:
        writer.close()
