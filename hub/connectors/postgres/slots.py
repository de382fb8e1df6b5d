"""[core] Replication slots of declared Postgres connectors: WAL that a slot retains, its lag, and what is to
be alerted on.

A slot that nobody reads keeps the database's WAL until its disk is full, or until ``max_slot_wal_keep_size``
is over and the slot is lost; then only a new snapshot helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric

from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import Observation, RuleChanges, RuleObservations, Verdict
from hub.connectors.connectors_file import REFERENCE, Connectors
from hub.connectors.kinds import DEBEZIUM_POSTGRES, KINDS
from hub.metrics.gauges import gauge

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class WatchedSlot:
    """A slot to read: of a connector, with the address of its database.
    ``missing``: variables without a value here."""

    connector: str
    slot: str
    host: str = ""
    port: str = "5432"
    database: str = ""
    user: str = ""
    password: str = ""
    owner: str = ""
    missing: str = ""

    def __repr__(self) -> str:
        return f"WatchedSlot({self.connector}, {self.slot})"


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as last read. ``error``: why nothing is known. ``exists`` False: the database has no such slot.

    ``retained_bytes``: WAL from its restart position to the end; ``lag_bytes``: from what its reader
    confirmed.
    """

    connector: str
    slot: str
    owner: str = ""
    error: str | None = None
    exists: bool = True
    active: bool = False
    wal_status: str = ""
    retained_bytes: int | None = None
    lag_bytes: int | None = None


def watched(file: Connectors, environment: dict[str, str]) -> Iterator[WatchedSlot]:
    """Yield the slots of the file's connectors. Secrets are taken from ``environment``."""
    for name, spec in file.by_name.items():
        if spec.java_class != DEBEZIUM_POSTGRES:
            continue
        kind = KINDS[spec.kind] if spec.kind else None
        config = {**(kind.defaults(name) if kind else {}), **spec.config}
        slot = str(config.get("slot.name", "debezium"))
        needed = ("hostname", "port", "dbname", "user", "password")
        options = {key: str(config.get(f"database.{key}", "")) for key in needed}
        variables = {found for value in options.values() for found in REFERENCE.findall(value)}
        missing = sorted(each for each in variables if not environment.get(each) or each in spec.secrets)
        if missing:
            yield WatchedSlot(name, slot, owner=spec.owner, missing=", ".join(missing))
            continue
        host, port, database, user, password = (
            REFERENCE.sub(lambda found: environment[found[1]], options[key]) for key in needed
        )
        yield WatchedSlot(name, slot, host, port or "5432", database, user, password, spec.owner)


def observe_slots(states: Sequence[SlotState], most_mb: int, changes: RuleChanges) -> RuleObservations:
    """Return the observations of rule ``slot-retains-wal``:
    bad beyond ``most_mb`` of WAL, and for a lost slot."""
    return RuleObservations(
        changes.rule("slot-retains-wal"), tuple(_observed(each, most_mb * MIB) for each in states)
    )


def _observed(state: SlotState, most_bytes: int) -> Observation:
    about = labels_of({"connector": state.connector, "slot": state.slot})
    labels = labels_of({"owner": state.owner} if state.owner else {})
    if state.error is not None or not state.exists:
        why = state.error or "the database has no such slot: the connector makes it when it starts"
        return Observation(about, Verdict.UNKNOWN, labels=labels, detail=why)
    retained = state.retained_bytes
    if state.wal_status == "lost":
        summary = (
            f"slot {state.slot} of connector {state.connector} is lost: the database "
            "removed WAL that it needs"
        )
        return Observation(about, Verdict.BAD, summary, labels=labels, detail="only a new snapshot helps")
    if retained is None:
        return Observation(about, Verdict.UNKNOWN, labels=labels, detail="the slot has no position yet")
    value = float(retained)
    if retained <= most_bytes and state.wal_status != "unreserved":
        return Observation(about, Verdict.GOOD, value=value, labels=labels)
    summary = f"slot {state.slot} of connector {state.connector} retains {retained // MIB} MiB of WAL"
    detail = "its connector reads it" if state.active else "nobody reads it"
    return Observation(about, Verdict.BAD, summary, value, labels, detail)


def slot_series(states: Sequence[SlotState]) -> Iterable[Metric]:
    """Return the gauges of all slots. Unknown values have no sample."""
    labels = ("connector", "slot")

    def key(state: SlotState) -> tuple[str, str]:
        return state.connector, state.slot

    yield gauge(
        "hub_postgres_slot_retained_bytes",
        "WAL that a database keeps for the replication slot of a connector",
        labels,
        ((key(each), each.retained_bytes) for each in states if each.retained_bytes is not None),
    )
    yield gauge(
        "hub_postgres_slot_lag_bytes",
        "WAL that the connector of a replication slot has not confirmed",
        labels,
        ((key(each), each.lag_bytes) for each in states if each.lag_bytes is not None),
    )
    yield gauge(
        "hub_postgres_slot_known",
        "1 while the slot of a declared connector can be read, else 0",
        labels,
        ((key(each), float(each.error is None and each.exists)) for each in states),
    )
