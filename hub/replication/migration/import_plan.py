"""[core] Findings of an import of MirrorMaker 2, and its action for each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hub.record import TopicPartition
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.migration.alignment import Alignment
from hub.replication.migration.mirror_maker_records import GroupCheckpoint
from hub.replication.operations.group_carrier import Found

NOTHING = Alignment(0)


State = Literal["ready", "has a checkpoint", "refused", "held", "renamed"]


@dataclass(frozen=True, slots=True)
class MirrorMakerState:
    """Records of MirrorMaker: their topics, offset pairs by partition of the source, and group
    checkpoints.
    """

    syncs_at: str
    syncs_topic: str
    checkpoints_topic: str
    syncs: Mapping[TopicPartition, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    checkpoints: tuple[GroupCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedPartition:
    """One partition, and what the import does with it. ``hint``: the way out of a refusal.

    Offsets: the mirror continues at ``source_next``, after ``target_next``; ``source_from`` is the first
    mapped one.
    """

    place: TopicPartition
    state: State
    alignment: Alignment = NOTHING
    target_next: int = 0
    reason: str = ""
    hint: str = ""

    @property
    def mapped_to(self) -> int:
        """The end of the map at the target. The copy may continue with a marker or with repeated records: no
        map reaches beyond its last record, and one that does not reach its checkpoint counts as unreadable.
        """
        runs = self.alignment.runs
        return runs[-1].target_end if runs else self.target_next


@dataclass(frozen=True, slots=True)
class MirrorMakerImport:
    """Result of the inspection, and the import to carry out."""

    mirror_maker: MirrorMakerState
    places: tuple[ImportedPartition, ...] = ()
    groups: tuple[Found, ...] = ()

    @property
    def ready(self) -> tuple[ImportedPartition, ...]:
        return tuple(each for each in self.places if each.state == "ready")

    @property
    def refused(self) -> tuple[ImportedPartition, ...]:
        return tuple(each for each in self.places if each.state in ("refused", "renamed"))


def table_of(each: ImportedPartition) -> OffsetMap:
    alignment = each.alignment
    return OffsetMap.of(
        alignment.runs,
        source_start=None if alignment.runs else alignment.source_next,
        target_start=None if alignment.runs else each.target_next,
        source_next=alignment.source_next,
        target_next=each.mapped_to,
    )


def imported_whole(places: Sequence[ImportedPartition]) -> list[ImportedPartition]:
    """Return a topic's partitions, none of them ready when one is refused: a topic is imported completely or
    not at all.
    """
    bad = next((each for each in places if each.state == "refused"), None)
    if bad is None:
        return list(places)
    why = f"partition {bad.place.partition} is refused: a topic is imported as a whole"
    return [replace(each, state="held", reason=why) if each.state == "ready" else each for each in places]
