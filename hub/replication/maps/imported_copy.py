"""[core] Extent of a copy that another tool made: written by an import, read when its mirror is reversed.

``_hub.mirror.checkpoints`` has it next to the checkpoints, as ``copied|link|topic|partition``. The map of
such a copy has holes where a record came twice or was not compared. No record of it was born at the target,
and none is sent home.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from hub.record import NewRecord, Record
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, not_ours

_KIND = b"copied|"


@dataclass(frozen=True, slots=True)
class ImportedCopy:
    """A copy in the target's partition: all records before offset ``end``, mapped or not.
    ``target_topic_id``: a recreated topic has none of it.
    """

    link: str
    topic: str
    partition: int
    target_topic_id: str
    end: int

    @property
    def key(self) -> bytes:
        return f"copied|{self.link}|{self.topic}|{self.partition}".encode()

    def record(self, partition: int | None = None) -> NewRecord:
        """Return the record to write. ``partition``: of the checkpoints topic, see
        ``checkpoint_partition``.
        """
        body = {"target_topic_id": self.target_topic_id, "end": self.end}
        return NewRecord(CHECKPOINTS_TOPIC, self.key, orjson.dumps(body), partition=partition)


def copied_of(record: Record) -> ImportedCopy | None:
    """Parse a record; None for a tombstone and for other kinds. Raises HubFault (HUB-5603)."""
    if record.key is None or record.value is None or not record.key.startswith(_KIND):
        return None
    try:
        _, link, topic, partition = record.key.decode().split("|")
        body: dict[str, Any] = orjson.loads(record.value)
        return ImportedCopy(link, topic, int(partition), str(body["target_topic_id"]), int(body["end"]))
    except (ValueError, TypeError, KeyError) as error:
        raise not_ours(record, repr(error)) from None


def born_from(mark: Checkpoint, copied: ImportedCopy | None) -> int:
    """Return the first target offset from which on records can be born there, or be in the map. ``mark``: of
    the mirror that leads there.

    Only records from a former generation or an import are known to be copies. Other records that existed when
    a mirror began were born there: a way home begins after home's own records.
    """
    stands = copied is not None and copied.target_topic_id == mark.target_topic_id
    if not mark.generation and not stands:
        return 0
    return max(mark.target_start, copied.end if copied is not None and stands else 0)
