"""Erasures: commands, places, versions of views, and a runner over a log in memory that is killed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub.access_log.chain import LogSigner
from hub.erasure.keys import LAG, PersonKeys
from hub.erasure.log import ERASURES_TOPIC, erasure_log, erasure_of, stored_erasure
from hub.erasure.model import (
    Erasure,
    ErasureRefused,
    NoErasure,
    Place,
    approve,
    cancel,
    checked_request,
    find_erasure,
)
from hub.erasure.places import ProjectFacts, SinkFacts, TopicPlace, ViewPlace, find_places
from hub.erasure.proof import proof_of, signature_holds
from hub.erasure.runner import ErasureRunner
from hub.erasure.views import DELETED_AFTER_MS, ViewEraser, next_step
from hub.errors import HubFault, PeerError
from hub.log import MemoryCluster
from hub.record import Record
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.dek_registry.records import KEYS_TOPIC, Dek, DekId, Kek, KekId
from hub.schema_registry.encryption.erasable import person_hash
from hub.schema_registry.model.subject_names import person_subject

FACTS = ProjectFacts(
    (
        TopicPlace("crm.people", True, lake=True, mirrors=("eu-us",)),
        TopicPlace("crm.claims", True, hold="case 7"),
        TopicPlace("crm.plain", False),
        TopicPlace("shop.orders", True),
    ),
    (
        ViewPlace("people", ("crm.*",), stores=(("serving", "sqlite"), ("wide", "postgresql"))),
        ViewPlace("totals", reads=("people",), stores=(("lake", "iceberg"),), in_place=True),
        ViewPlace("sealed"),
        ViewPlace("orders", ("shop.orders",)),
    ),
    (SinkFacts("mail", "totals", "webhook"),),
    ("/backups/main",),
    ("mirrors.yaml",),
)


def asked(*topics: str, facts: ProjectFacts = FACTS, id: str = "e1", person: str = "C-1") -> Erasure:
    return Erasure(id, person, topics, "letter", "ana", 1_000, find_places(facts, topics))


def test_every_place_is_named_and_what_is_not_erased_says_why() -> None:
    found = {each.id: each for each in find_places(FACTS, ["crm.**"])}
    states = {id: each.state for id, each in found.items()}
    assert states == {
        "topic:crm.people": "planned",
        "topic:crm.claims": "not erased",
        "topic:crm.plain": "not erased",
        "keys:_dek_registry_keys": "planned",
        "copies:crm.people in mirror eu-us": "planned",
        "copies:crm.people as an Iceberg table": "planned",
        "copies:crm.people in dead-letter records, sinks and backups": "planned",
        "view:people": "planned",
        "store:serving of view people": "planned",
        "store:wide of view people": "planned",
        "view over views:totals": "not erased",
        "store:lake of view totals": "not erased",
        "sink:mail from view totals": "not erased",
        "readers:views.people": "unknown",
        "readers:views.totals": "unknown",
        "readers:mirrors.yaml": "unknown",
        "backup:/backups/main": "not erased",
        "backup:backups of other homes, and of databases": "unknown",
    }
    assert found["topic:crm.claims"].detail == "legal hold: case 7"
    assert all(each.detail for each in found.values() if each.state in ("not erased", "unknown"))


def test_a_request_that_erases_nothing_is_refused_with_the_reason() -> None:
    assert checked_request(asked("crm.**"), {}).status == "requested"
    with pytest.raises(ErasureRefused, match="crm.claims: legal hold: case 7"):
        checked_request(asked("crm.claims"), {})
    with pytest.raises(ErasureRefused, match="no topic matches"):
        checked_request(asked("none"), {})
    known = {"e1": asked("crm.**")}
    with pytest.raises(ErasureRefused, match="erasure e1 of the same person and topics is requested"):
        checked_request(asked("crm.**", id="e2"), known)
    assert checked_request(asked("crm.**", id="e2", person="C-2"), known).id == "e2"


def test_a_second_person_approves_and_nothing_that_began_is_canceled() -> None:
    new = asked("crm.people")
    with pytest.raises(ErasureRefused, match="a second person approves"):
        approve(new, "ana", 2_000, 500, needs_second=True)
    ready = approve(new, "ben", 2_000, 500, needs_second=True)
    assert (ready.status, ready.due_at_ms, ready.approved_by) == ("approved", 2_500, "ben")
    assert approve(new, "ana", 2_000, 500, needs_second=False).status == "approved"
    assert cancel(ready, "ana", 2_100).status == "canceled"
    for begun in (replace(ready, status="running"), replace(ready, status="done"), cancel(ready, "ana", 1)):
        with pytest.raises(ErasureRefused, match=begun.status):
            cancel(begun, "ana", 3_000)
        with pytest.raises(ErasureRefused, match=begun.status):
            approve(begun, "ben", 3_000, 0, needs_second=True)
    with pytest.raises(NoErasure):
        find_erasure({}, "e9")


def body(last: int, served: int, versions: Mapping[int, str], **more: Any) -> dict[str, Any]:
    found = [{"number": number, "state": state, "plain": number == 1} for number, state in versions.items()]
    rest = {"dropping": [], "answered": None, "refusal": None, **more}
    return {"last": last, "served": served, "versions": found, **rest}


def test_a_view_is_done_when_no_earlier_version_is_left() -> None:
    place = Place("view", "people", "")
    place, command = next_step(place, "e1", body(1, 1, {1: "served"}), 0)
    assert place.mark == 1 and command is None  # stored before any command
    _, command = next_step(place, "e1", body(1, 1, {1: "served"}), 0)
    assert command is not None and (command.action, command.id) == ("erase", "erase-e1-people")
    refused = body(1, 1, {1: "served"}, answered=command.id, refusal="no")
    assert next_step(place, "e1", refused, 0)[0].state == "not erased"
    for state, dropped in (
        (body(2, 1, {1: "served", 2: "building"}), None),
        (body(2, 2, {1: "former", 2: "served"}), 1),
        (body(2, 2, {2: "served"}, dropping=[None]), None),
    ):
        waiting, command = next_step(place, "e1", state, 0)
        assert waiting.state == "waiting"
        assert (None if command is None else command.number) == dropped
    waiting, _ = next_step(place, "e1", body(2, 2, {2: "served"}), 0)
    assert "Kafka deletes their files" in waiting.detail  # of the former changelog
    for now_ms, state in ((DELETED_AFTER_MS - 1, "waiting"), (DELETED_AFTER_MS, "done")):
        assert next_step(waiting, "e1", body(2, 2, {2: "served"}), now_ms)[0].state == state
    assert next_step(place, "e1", None, 0)[0].state == "done"
    above = replace(place, kind="view over views")
    assert next_step(above, "e1", body(1, 1, {1: "served"}), 0)[1] is None  # it follows its sources


class World:
    """A hub's log in memory with keys of two persons, and the record of one view."""

    def __init__(self, store: Path) -> None:
        self.now_ms = 10_000
        self.cluster = MemoryCluster(now_ms=1_000)
        self.node = DekNode(self.cluster)
        self.url = f"sqlite:///{store}"
        self.progress: dict[str, Any] = {"versions:people": body(1, 1, {1: "served"})}
        kek = Kek(KekId("erasable"), "local-kms", "people")
        self.node.submit(lambda _state: [kek, *(self.dek(each) for each in ("C-1", "C-2"))])
        self.cluster.create_topic("_hub.progress", partitions=1, config={}, replication_factor=1)
        self.start()

    @staticmethod
    def dek(person: str) -> Dek:
        subject = person_subject("crm.people", person_hash("crm.people", person))
        return Dek(DekId("erasable", subject, "AES256_GCM", 1), "d3JhcHBlZA==")

    def start(self) -> None:
        """Start a server; the one before was killed."""
        self.log = erasure_log(self.cluster, 1)
        keys = PersonKeys(self.cluster, 1_000, 1, lambda: self.now_ms)
        views = ViewEraser(self.cluster, lambda: self.progress, {"serving": self.url}, lambda: self.now_ms)
        self.runner = ErasureRunner(self.log, keys, views, lambda: FACTS, 300_000, None, lambda: self.now_ms)

    def persons(self) -> list[str]:
        found = self.node.read(lambda state: {each.subject for each in state.deks})
        return [each for each in ("C-1", "C-2") if self.dek(each).id.subject in found]

    def compact(self) -> None:
        """Compact the log of keys, as Kafka does."""
        records = self.cluster.logs[KEYS_TOPIC][0]
        last = {each.key: each.offset for each in records}
        for index, each in enumerate(records):
            if last[each.key] != each.offset:
                records[index] = Record(*each[:4], b"{}", None, *each[6:])

    def states(self) -> dict[str, str]:
        return {each.id: each.state for each in self.log.all()["e1"].places}


def test_an_erasure_waits_for_its_delay_and_for_each_place(tmp_path: Path) -> None:
    world = World(tmp_path / "hub.db")
    world.log.submit(lambda _known: approve(asked("crm.people"), "ben", 10_000, 60_000, needs_second=True))
    world.runner.step()
    assert world.persons() == ["C-1", "C-2"] and world.log.all()["e1"].status == "approved"
    world.now_ms += 60_000
    world.runner.step()
    assert world.persons() == ["C-2"]
    assert world.states()["copies:crm.people in mirror eu-us"] == world.states()["topic:crm.people"] == "done"
    assert world.states()["keys:_dek_registry_keys"] == world.states()["view:people"] == "waiting"
    assert world.cluster.topic_config([KEYS_TOPIC])[KEYS_TOPIC][LAG] == "1000"
    for _ in range(3):  # killed again and again
        world.start()
        world.runner.step()
    assert world.states()["keys:_dek_registry_keys"] == "waiting"
    world.compact()
    world.runner.step()
    assert "Kafka deletes the former segments" in str(world.log.all()["e1"].places)
    world.now_ms += 60_000
    world.start()
    world.runner.step()
    assert world.states()["keys:_dek_registry_keys"] == "done"
    assert not world.cluster.logs["_hub.progress"][0]  # processes may still have the key
    world.now_ms += 300_000
    for _ in range(2):
        world.runner.step()
    (command,) = world.cluster.logs["_hub.progress"][0]
    assert json.loads(command.value or b"")["action"] == "erase"
    world.progress["versions:people"] = body(2, 2, {2: "served"})
    for _ in range(3):
        world.runner.step()
        world.now_ms += DELETED_AFTER_MS
    assert world.states()["view:people"] == world.states()["store:serving of view people"] == "done"
    # The second store is not there: it waits, and nothing says that the person is erased.
    assert world.states()["store:wide of view people"] == "waiting"
    assert world.log.all()["e1"].status == "running"


def test_a_key_that_was_destroyed_before_a_crash_is_counted_once(tmp_path: Path) -> None:
    world = World(tmp_path / "hub.db")
    world.log.submit(lambda _known: approve(asked("crm.people"), "ben", 0, 0, needs_second=True))
    destroy = world.runner.keys.destroy

    def dies(topic: str, person: str) -> None:
        destroy(topic, person)
        raise PeerError("killed")

    world.runner.keys.destroy = dies  # type: ignore[method-assign]
    world.runner.step()
    assert world.persons() == ["C-2"] and world.states()["topic:crm.people"] == "waiting"
    world.start()
    world.runner.step()
    (topic, *_) = world.log.all()["e1"].places
    assert topic.state == "done" and topic.detail.startswith("keys destroyed: 1")


def test_a_topic_under_legal_hold_since_the_request_is_left_out(tmp_path: Path) -> None:
    world = World(tmp_path / "hub.db")
    world.log.submit(lambda _known: approve(asked("crm.people"), "ben", 0, 0, needs_second=True))
    held = replace(FACTS, topics=[replace(FACTS.topics[0], hold="case 8")])
    world.runner.facts = lambda: held
    world.runner.step()
    found = world.log.all()["e1"]
    assert world.persons() == ["C-1", "C-2"] and found.status == "done"
    assert [each.detail for each in found.places] == ["legal hold: case 8"]


def test_erasures_survive_their_log_and_foreign_records_are_named() -> None:
    made = approve(asked("crm.**"), "ben", 2_000, 500, needs_second=True)
    assert erasure_of(json.loads(json.dumps({**made_json(made)}))) == made
    with pytest.raises(HubFault, match=f'topic "{ERASURES_TOPIC}" offset 7') as foreign:
        stored_erasure(Record(ERASURES_TOPIC, 0, 7, 0, b"x", b"{}"))
    assert foreign.value.code == "HUB-5703"


def made_json(erasure: Erasure) -> dict[str, Any]:
    from hub.erasure.log import as_json

    return as_json(erasure)


def test_a_proof_is_signed_and_never_says_more_than_its_places() -> None:
    signer, erasure = LogSigner(b"k" * 32), asked("crm.people")
    proof = proof_of(erasure, signer, 5_000)
    assert signature_holds(proof) and proof["report"]["erased_everywhere"] is False
    assert {each["place"] for each in proof["report"]["places"]} == {each.id for each in erasure.places}
    partly = erasure.put([each.now("done", "", 1) for each in erasure.of_kind("topic")])
    assert proof_of(partly, signer, 5_000)["report"]["erased_everywhere"] is False
    done = replace(erasure, places=tuple(each.now("done", "", 1) for each in erasure.places))
    assert proof_of(done, signer, 5_000)["report"]["erased_everywhere"] is True
    changed = {**proof, "report": {**proof["report"], "erased_everywhere": True}}
    assert not signature_holds(changed) and not signature_holds({}) and not signature_holds({"key": "zz"})
