"""[core] Rows with positions, translated; the digest of a plan.

A dry run prints the digest of the positions that it read. The update is carried out only while the positions
still have that digest, so a plan is applied once: after the update they have another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from hub.errors import CallerError, Conflict
from hub.record import TopicPartition
from hub.replication.positions.translation import MapsOfMirror, TranslatedPosition, first_inexact


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Rows of a table by distinct position. ``digest``: of the positions as they are now."""

    table: str
    positions: tuple[TranslatedPosition, ...]
    digest: str


def digest_of(positions: Iterable[tuple[str, int, int]]) -> str:
    """Return a short digest of (topic, partition, offset) in any order.

    >>> digest_of([("t", 0, 1), ("t", 1, 2)]) == digest_of([("t", 1, 2), ("t", 0, 1)])
    True
    """
    return hashlib.sha256(orjson.dumps(sorted(positions))).hexdigest()[:16]


def plan_table(
    table: str, rows: Sequence[tuple[str, int, int]], maps: MapsOfMirror, *, back: bool = False
) -> TablePlan:
    """Translate each row: topic, partition, next offset. Raises CallerError (HUB-1642) for an invalid
    row.
    """
    found = []
    for topic, partition, offset in rows:
        if not isinstance(topic, str) or not all(
            type(each) is int and each >= 0 for each in (partition, offset)
        ):
            raise CallerError(
                f'table "{table}": ({topic!r}, {partition!r}, {offset!r}) is not topic, partition, offset',
                hint="partition and offset are integers from 0",
                code="HUB-1642",
            )
        found.append(maps.translate(TopicPartition(topic, partition), offset, back=back))
    return TablePlan(table, tuple(found), digest_of(rows))


def check_table(plan: TablePlan, digest: str) -> None:
    """Raise Conflict if the plan is another than the one that was shown (HUB-1978), or has a position without
    an exact translation (HUB-1975).
    """
    if plan.digest != digest:
        raise Conflict(
            f'table "{plan.table}": its positions have the digest {plan.digest}, not {digest}: nothing was '
            "changed",
            hint="they moved since the dry run, or were translated already: stop their reader, and look at a "
            "new dry run",
            code="HUB-1978",
        )
    if (inexact := first_inexact(plan.positions)) is not None:
        raise Conflict(
            f'table "{plan.table}": topic "{inexact.place.topic}" partition {inexact.place.partition} offset '
            f"{inexact.offset:,} has no exact translation: {inexact.why}",
            hint="wait until the mirror has copied it (hub mirror status), then translate again",
            code="HUB-1975",
        )
