"""Replication slots: unknown is neither healthy nor zero; a lost slot is bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hub.alerts.model.rules import RuleChanges, Verdict
from hub.connectors.connectors_file import load_connectors
from hub.connectors.postgres.slot_watch import SlotWatch, read_slot
from hub.connectors.postgres.slots import MIB, SlotState, observe_slots, slot_series, watched

GOOD = SlotState("crm", "hub_crm", "crm-team", None, True, True, "reserved", 5 * MIB, 3)
FILE = """\
connectors:
  crm:
    kind: postgres-cdc
    owner: crm-team
    topics: [crm.**]
    config: {database.hostname: 127.0.0.1, database.port: 1, database.dbname: d, database.user: u, database.password: "${CRM_PW}"}
  out: {kind: file, topics: [a], config: {file: f}}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (GOOD, Verdict.GOOD),
        (replace(GOOD, retained_bytes=6 * MIB), Verdict.BAD),
        (replace(GOOD, wal_status="unreserved"), Verdict.BAD),
        (replace(GOOD, wal_status="lost", retained_bytes=None), Verdict.BAD),
        (replace(GOOD, retained_bytes=None), Verdict.UNKNOWN),
        (replace(GOOD, error="no answer"), Verdict.UNKNOWN),
        (replace(GOOD, exists=False), Verdict.UNKNOWN),
    ],
)
def test_a_slot_is_judged(state: SlotState, verdict: Verdict) -> None:
    (found,) = observe_slots([state], 5, RuleChanges()).observations
    assert found.verdict is verdict


def test_what_is_unknown_has_no_number() -> None:
    registry = CollectorRegistry()

    class Slots:
        def collect(self) -> list[object]:
            unknown = SlotState("b", "hub_b", error="no answer")
            return list(slot_series([GOOD, unknown]))

    registry.register(Slots())  # type: ignore[arg-type]
    text = generate_latest(registry).decode()
    assert 'hub_postgres_slot_retained_bytes{connector="crm",slot="hub_crm"} 5.24288e+06' in text
    assert 'slot_retained_bytes{connector="b"' not in text and 'known{connector="b",slot="hub_b"} 0.0' in text


def test_a_slot_is_read_with_the_variables_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "connectors.yaml").write_text(FILE)
    file = load_connectors(tmp_path)
    (found,) = watched(file, {"CRM_PW": "s3cret"})
    assert (found.slot, found.password, found.owner) == ("hub_crm", "s3cret", "crm-team")
    assert "s3cret" not in repr(found)
    state = read_slot(found)  # nobody listens there
    assert state.error is not None and "s3cret" not in state.error
    monkeypatch.delenv("CRM_PW", raising=False)
    watch = SlotWatch(tmp_path)
    watch.step()
    (unknown,) = watch.latest()
    assert unknown.error == "the server does not have CRM_PW"
    (tmp_path / "connectors.yaml").write_text("connectors: [")
    watch.step()
    assert watch.latest() == ()
