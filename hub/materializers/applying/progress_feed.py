"""[shell] Records of ``_hub.progress`` for a store: the newest of each key, and their interpretation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from hub.errors import HubFault
from hub.log import Cluster
from hub.materializers.definition.declared import changelog_of
from hub.materializers.progress.engine_reports import PREFIX as ENGINE
from hub.materializers.progress.records import PROGRESS_TOPIC, Progress, progress_of
from hub.materializers.snapshot_groups.group import CUT, GroupSnapshot, group_snapshot_of
from hub.record import Positions, Record

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """A record that was parsed. ``body`` None: deleted. ``name``: of its view or group. Has ``snapshot`` (of
    a group) or ``progress`` (of a version) if it is one."""

    key: str
    name: str
    body: Mapping[str, Any] | None
    progress: Progress | None = None
    snapshot: GroupSnapshot | None = None


def parse_record(record: Record) -> ProgressRecord | None:
    """Parse a record of the topic. None: it is not for stores.

    Raises HubFault or ValueError for a record that is malformed.
    """
    if record.key is None:
        return None
    key = record.key.decode(errors="replace")
    if key.startswith(ENGINE):
        return None  # the server reads it from the log; a copy in a store may be old
    name = key.partition(":")[2]
    body = None if record.value is None else orjson.loads(record.value)
    if body is not None and not isinstance(body, dict):
        raise ValueError("no JSON object")
    if key.startswith(CUT) and body is not None:
        return ProgressRecord(key, name, body, snapshot=group_snapshot_of(body))
    return ProgressRecord(key, name, body, progress_of(record, changelog_of(name)))


class ProgressFeed:
    """Records that are not in the store yet, newest by key.

    The topic, one small compacted partition, is reread whenever the set of views changes. A compacted topic
    keeps a key's old records for a while, and an old versions record would have current tables dropped, so
    nothing is handed out before everything known at the start is reread.
    """

    def __init__(self, log_: Cluster) -> None:
        self._log = log_
        self._ends = Positions()
        self._waiting: dict[str, Any] = {}

    def restart(self, *, exists: bool) -> Positions:
        """Return the positions at which the topic is read from its start. ``exists``: the topic is there."""
        if not exists:
            return Positions()
        self._ends, self._waiting = self._log.end_offsets([PROGRESS_TOPIC]), {}
        return self._log.beginning_offsets([PROGRESS_TOPIC])

    def take_record(self, record: Record) -> ProgressRecord | None:
        """Take a record. Return None if it is not for stores, or malformed.

        A malformed one concerns one view and holds no rows, so stopping would not help. A group's snapshot is
        not kept: the store notes it once its rows are applied.
        """
        try:
            parsed = parse_record(record)
        except (ValueError, HubFault) as error:
            log.error(
                'topic "%s" partition %d offset %d: left out: %s',
                *(record.topic, record.partition, record.offset, error),
            )
            return None
        if parsed is not None and parsed.snapshot is None:
            self._waiting[parsed.key] = parsed.body
        return parsed

    def take(self, reached: Positions) -> dict[str, Any]:
        """Return the newest record of each key for the store; {} until everything known before is reread.

        ``reached``: the reader's positions.
        """
        if not reached.covers(self._ends):
            return {}
        taken, self._waiting = self._waiting, {}
        return taken
