"""[core] State of a hub's outbox relay in words: for `hub status`, `hub doctor` and the alert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hub.outbox.note import OutboxNote


@dataclass(frozen=True, slots=True)
class RelayState:
    """State of the relay, and what is known of it.

    ``off``: there is no relay. ``unknown``: it has not reported for 30 s. ``refused``: it works, and Kafka
    refuses some events.
    """

    state: Literal["off", "unknown", "failing", "refused", "ok"]
    found: str


def relay_state(note: OutboxNote | None, *, declared: bool) -> RelayState:
    """Return the state of the relay. ``note``: its last report. ``declared``: hub.yaml names its database."""
    if note is None or note.state == "STOPPED":
        if not declared:
            return RelayState("off", "hub.yaml names no outbox_database")
        return RelayState("unknown", "no relay of this home has reported for 30 s")
    if note.state == "STANDBY":
        return RelayState("ok", "standby: another relay reads the slot")
    if note.state == "STARTING":
        return RelayState("unknown", "the relay is starting")
    if note.state != "RELAYING":
        return RelayState("failing", note.trouble or note.state)
    late = "" if note.lag_s is None else f", {note.lag_s:.1f} s behind"
    if note.refused:
        return RelayState("refused", f"relays{late}; Kafka refuses {note.refused} events")
    return RelayState("ok", f"relays{late}")
