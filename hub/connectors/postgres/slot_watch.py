"""[edge] psycopg: read the replication slots of declared connectors, in a thread,
one short connection each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from hub.connectors.connectors_file import load_connectors
from hub.connectors.postgres.slots import SlotState, WatchedSlot, watched
from hub.errors import ConfigError
from hub.runtime import repeating

EVERY_S = 30.0
CONNECT_S = 5
_STATEMENT_MS = 5_000
MOST_SLOTS = 100
_SLOT = """
SELECT active, wal_status, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint,
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint
FROM pg_replication_slots WHERE slot_name = %s
"""


def read_slot(slot: WatchedSlot) -> SlotState:
    """Return the slot's state; unknown, with the reason, when the database does not answer."""
    if slot.missing:
        why = f"the server does not have {slot.missing}"
        return SlotState(slot.connector, slot.slot, slot.owner, why)
    try:
        with psycopg.connect(
            host=slot.host,
            port=slot.port,
            dbname=slot.database,
            user=slot.user,
            password=slot.password,
            connect_timeout=CONNECT_S,
            autocommit=True,
            options=f"-c statement_timeout={_STATEMENT_MS}",
        ) as connection:
            row = connection.execute(_SLOT, (slot.slot,)).fetchone()
    except (psycopg.Error, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        reason = reason.replace(slot.password, "(hidden)") if slot.password else reason
        return SlotState(slot.connector, slot.slot, slot.owner, reason)
    if row is None:
        return SlotState(slot.connector, slot.slot, slot.owner, exists=False)
    active, wal_status, retained, lag = row
    return SlotState(
        slot.connector, slot.slot, slot.owner, None, True, bool(active), wal_status or "", retained, lag
    )


class SlotWatch:
    """Poller of the slots of the project's connectors. ``latest()`` returns from memory."""

    def __init__(self, project: Path, every_s: float = EVERY_S) -> None:
        self._project, self._every_s = project, every_s
        self._known: tuple[SlotState, ...] = ()

    @contextmanager
    def running(self) -> Iterator[SlotWatch]:
        """Poll for as long as the block runs."""
        with repeating(
            self.step,
            name="slots",
            pause_s=lambda took_s: max(self._every_s - took_s, 1.0),
            failed="replication slots could not be read",
        ):
            yield self

    def step(self) -> None:
        """Read every slot once; a file that does not load leaves none."""
        try:
            file = load_connectors(self._project)
        except ConfigError:
            self._known = ()
            return
        slots = list(watched(file, dict(os.environ)))[:MOST_SLOTS]
        self._known = tuple(map(read_slot, slots))

    def latest(self) -> tuple[SlotState, ...]:
        return self._known
