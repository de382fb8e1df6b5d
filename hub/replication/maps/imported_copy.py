"""[core] How far a copy that somebody else made reaches: noted by an import, minded when its mirror is turned round.

``_hub.mirror.checkpoints`` has it beside the checkpoints, as ``copied|link|topic|partition``. The map of such a copy has
holes where a record came twice or was not compared. Nothing of that was born there, and nothing of it goes home.
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
    """What stands before offset ``end`` of the target's partition is a copy, mapped or not. ``target_topic_id``: a topic
    made again has none of it."""

    link: str
    topic: str
    partition: int
    target_topic_id: str
    end: int

    @property
    def key(self) -> bytes:
        return f"copied|{self.link}|{self.topic}|{self.partition}".encode()

    def record(self, partition: int | None = None) -> NewRecord:
        """``partition``: of the checkpoints topic, see ``checkpoint_partition``."""
        body = {"target_topic_id": self.target_topic_id, "end": self.end}
        return NewRecord(CHECKPOINTS_TOPIC, self.key, orjson.dumps(body), partition=partition)


def copied_of(record: Record) -> ImportedCopy | None:
    """What a record says; None for a tombstone and for other kinds. Raises HubFault (HUB-5603)."""
    if record.key is None or record.value is None or not record.key.startswith(_KIND):
        return None
    try:
        _, link, topic, partition = record.key.decode().split("|")
        body: dict[str, Any] = orjson.loads(record.value)
        return ImportedCopy(link, topic, int(partition), str(body["target_topic_id"]), int(body["end"]))
    except (ValueError, TypeError, KeyError) as error:
        raise not_ours(record, repr(error)) from None


def born_from(mark: Checkpoint, copied: ImportedCopy | None) -> int:
    """The first offset of the target at which anything can have been born there, or may be told by the map. ``mark``: of the
    mirror that leads there.

    Only what a former generation or an import left is known to be copies. What else stood there when a mirror began was
    born there: a way home begins behind home's own records.
    """
    stands = copied is not None and copied.target_topic_id == mark.target_topic_id
    if not mark.generation and not stands:
        return 0
    return max(mark.target_start, copied.end if copied is not None and stands else 0)
