"""[core] Topics that were deleted at the source of a mirror, and the state of their copies.

::

    source|link           Kafka's cluster id of the source, written while a mirrored topic of it proves it
    deletion|link|topic   state of the copy, in the control topic of the target

    kept                  on_delete: keep
    waiting ──due──▶ deleting ──▶ deleted
       └───▲ held         it is not the mirror's alone, so it is kept

``deleting`` is recorded before the copy is deleted, and ``deleted`` after its checkpoints are. A process that
is killed between them leaves a record from which the next one continues. A record is removed when the source
has a topic of that name again, or when the mirror no longer carries the name.

A source that does not answer, or lists too little, has deleted nothing: ``SourceAnswer`` has the conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from hub.formats.fields import fields_of, known_fields
from hub.record import NewRecord
from hub.replication.config.deletion_policy import DeletionPolicy
from hub.replication.maps.checkpoint import CONTROL_TOPIC
from hub.times import iso

CopyStateName = Literal["kept", "waiting", "held", "deleting", "deleted"]

ENOUGH_ANSWERS = 3
"""Answers in a row, one a plan, without which a topic does not count as deleted."""
_RECORDED_DELETIONS = 100


@dataclass(frozen=True, slots=True)
class SourceDeletion:
    """State of the copy of a deleted topic. Times are epoch milliseconds.

    ``topic_id`` and ``copy_id``: of the source's topic and of the copy. ``since_ms``: when the deletion was
    certain. ``due_ms``: when the copy is deleted; 0: it is not. ``missing``: offsets that the source had, as
    reported last, and the copy lacks; None: unknown. ``reason``: why the copy is held.
    """

    link: str
    topic: str
    state: CopyStateName
    topic_id: str
    copy_id: str
    since_ms: int
    due_ms: int = 0
    after_ms: int = 0
    missing: int | None = None
    reason: str = ""
    deleted_at_ms: int = 0

    @property
    def key(self) -> bytes:
        return f"deletion|{self.link}|{self.topic}".encode()

    def record(self) -> NewRecord:
        return NewRecord(CONTROL_TOPIC, self.key, orjson.dumps(fields_of(self, but=("link", "topic"))))

    def forgotten(self) -> NewRecord:
        return NewRecord(CONTROL_TOPIC, self.key, None)

    def __str__(self) -> str:
        since = f"deleted at the source (known since {iso(self.since_ms)})"
        match self.state:
            case "kept":
                text = f"{since}: the copy is kept (on_delete: keep)"
            case "held":
                text = f"{since}: the copy is kept: {self.reason}"
            case "waiting":
                text = f"{since}: the copy will be deleted at {iso(self.due_ms)}; `on_delete: keep` stops it"
            case "deleting":
                text = f"{since}: the copy is being deleted"
            case "deleted":
                return f"{since}: the copy was deleted at {iso(self.deleted_at_ms)}{self._lacked}"
        return text + self._lacked

    @property
    def _lacked(self) -> str:
        if self.missing is None:
            return "; what it lacks of the source is unknown"
        return f"; it lacks {self.missing} offsets that the source had" if self.missing else ""


def deletion_of(rest: str, body: Mapping[str, Any]) -> SourceDeletion:
    """Parse a record. Raises ValueError, TypeError."""
    link, _, topic = rest.partition("|")
    return known_fields(SourceDeletion, body, link=link, topic=topic)


def source_record(link: str, cluster_id: str) -> NewRecord:
    """Return the record that names the cluster that a mirror reads."""
    return NewRecord(CONTROL_TOPIC, f"source|{link}".encode(), orjson.dumps({"cluster_id": cluster_id}))


def deletions_of(known: Mapping[tuple[str, str], SourceDeletion], link: str) -> dict[str, SourceDeletion]:
    """Return the records of a link, by topic."""
    return {topic: each for (name, topic), each in sorted(known.items()) if name == link}


def surplus_deletions(known: Collection[SourceDeletion]) -> tuple[SourceDeletion, ...]:
    """Return the records of deleted copies that are removed: all but the newest hundred."""
    deleted = sorted(
        (each for each in known if each.state == "deleted"), key=lambda each: -each.deleted_at_ms
    )
    return tuple(deleted[_RECORDED_DELETIONS:])


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """One answer of a source about its topics.

    ``cluster_id``: of the cluster that answered. ``listed``: its topics. ``unknown``: the topics of which it
    said, asked by name, that they do not exist. A list alone proves nothing: it leaves out topics that the
    mirror's user may not Describe.
    """

    cluster_id: str
    listed: frozenset[str]
    unknown: frozenset[str]

    def denies(self, topic: str, recorded_cluster: str | None) -> bool:
        """Return whether the answer is evidence that a topic was deleted: the recorded cluster answered,
        shows a topic of applications, and does not know this one.
        """
        return (
            recorded_cluster == self.cluster_id
            and any(not name.startswith("_") for name in self.listed)
            and topic not in self.listed
            and topic in self.unknown
        )


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """A copy and its source. ``current``: the source has the topic, or the mirror no longer carries it.
    ``certain``: the source denied the topic in ``ENOUGH_ANSWERS`` answers in a row. ``copy_id``: id of the
    target's topic; "": there is none. ``shared``: why the copy is not the mirror's alone; "": it is.
    """

    topic: str
    topic_id: str
    copy_id: str
    current: bool = False
    certain: bool = False
    shared: str = ""
    missing: int | None = None


def decide_deletion(
    link: str, policy: DeletionPolicy, copy: CopyFacts, known: SourceDeletion | None, now_ms: int
) -> SourceDeletion | None:
    """Return the state of a copy now; None: nothing is recorded about it. With the state ``deleting`` the
    caller deletes the copy ``copy_id``, if it is still there, and then its checkpoints.
    """
    begun = known is not None and known.state == "deleting" and copy.copy_id != known.copy_id
    if begun:  # the copy is gone, and its checkpoints may be left
        return known
    if copy.current:
        return None
    if not copy.certain or (known is not None and known.state == "deleted"):
        return known
    if not copy.copy_id:
        return None
    if known is None or known.topic_id != copy.topic_id or known.copy_id != copy.copy_id:
        known = SourceDeletion(
            link, copy.topic, "kept", copy.topic_id, copy.copy_id, now_ms, missing=copy.missing
        )
    if policy.do == "keep":
        return replace(known, state="kept", due_ms=0, after_ms=0, reason="")
    if copy.shared:
        return replace(known, state="held", due_ms=0, after_ms=0, reason=copy.shared)
    if known.state == "deleting":
        return known
    if known.state != "waiting" or known.after_ms != policy.after:
        return replace(known, state="waiting", due_ms=now_ms + policy.after, after_ms=policy.after, reason="")
    return replace(known, state="deleting") if now_ms >= known.due_ms else known
