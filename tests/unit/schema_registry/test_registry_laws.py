"""Laws of the registry, by random commands: replay, compaction and a second node give the same state; indexes
say what a scan would say; no id is given to two schemas, ever."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hub.record import NewRecord, Record
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import merged_metadata, merged_rules
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, Reference, SchemaStored, fact_of, record_of
from hub.schema_registry.registry.across_contexts import context_names, ids_of_guid
from hub.schema_registry.registry.state_machine import (
    Command,
    DeleteContext,
    DeleteSubject,
    DeleteVersion,
    RegisterSchema,
    Registry,
    RequestRefused,
    SetLevel,
    SetMode,
    guid_of,
    identity,
)


def text(*fields: str) -> str:
    every = [{"name": name, "type": "int", "default": 0} for name in fields]
    return json.dumps({"type": "record", "name": "R", "fields": every})


subjects = st.sampled_from(["a", "b", "base", ":.ctx:a", ":.ctx:base"])
texts = st.sampled_from(["", text(), text("x"), text("x", "y"), text("z"), '{"type":"array","items":"R"}'])
references = st.sampled_from([(), (Reference("R", "base", -1),), (Reference("R", "base", 1),)])
metadata = st.sampled_from([None, {"properties": {"k": "1"}}, {"properties": {"k": "2"}}])
places = st.one_of(st.none(), st.sampled_from([":.ctx:", ":.__GLOBAL:"]), subjects)
versions = st.one_of(st.integers(1, 5), st.just("latest"))
ids = st.one_of(st.none(), st.none(), st.integers(1, 12))


def replayed(log: list[Record]) -> Registry:
    registry = Registry()
    for record in log:
        registry.apply(fact_of(record))
    return registry


def compacted(log: list[Record]) -> list[Record]:
    """Return the log after compaction: the newest record of each key, without tombstones."""
    newest = {record.key: record for record in log}
    return sorted((each for each in newest.values() if each.value is not None), key=lambda each: each.offset)


def known(registry: Registry) -> dict[str, Any]:
    """All that can be asked of a state; no matter by which way it came to be."""
    used = {name: context for name, context in registry.contexts.items() if context.highest_id}
    return {
        "subjects": registry.subjects,
        "settings": (registry.levels, registry.modes, context_names(registry)),
        "bound": {
            name: {number: identity(stored) for number, stored in context.ids.items()}
            for name, context in used.items()
        },
        "highest": {name: context.highest_id for name, context in used.items()},
        "uses": {
            name: {number: set(places) for number, places in context.uses.items()}
            for name, context in used.items()
        },
    }


class RegistryMachine(RuleBasedStateMachine):
    """Two nodes decide in turn, each on its state of the shared log."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = (Registry(), Registry())
        self.read = [0, 0]
        self.log: list[Record] = []
        self.given: dict[tuple[str, int], bytes] = {}
        self.turn = itertools.count()

    def do(self, command: Command) -> None:
        which = next(self.turn) % 2
        node = self.catch_up(which)
        before = len(self.log)
        try:
            decision = node.decide(command)
        except RequestRefused:
            assert known(node) == known(replayed(self.log))
            return
        for fact in decision.facts:
            self.append(record_of(fact))
        self.catch_up(which)
        stored = decision.answer
        if isinstance(command, RegisterSchema):
            assert isinstance(stored, SchemaStored)
            assert node.version(stored.subject, stored.version) == stored
            self.never_given_twice(stored, command, before)

    def never_given_twice(self, stored: SchemaStored, command: RegisterSchema, before: int) -> None:
        place = (names.context_of(stored.subject), stored.schema_id)
        if command.schema_id is None and len(self.log) > before:
            assert self.given.setdefault(place, identity(stored)) == identity(stored)
        self.given[place] = identity(stored)  # an import may bind a free id again

    def append(self, new: NewRecord) -> None:
        self.log.append(Record(SCHEMAS_TOPIC, 0, len(self.log), 0, new.key, new.value))

    def catch_up(self, which: int) -> Registry:
        for record in self.log[self.read[which] :]:
            self.nodes[which].apply(fact_of(record))
        self.read[which] = len(self.log)
        return self.nodes[which]

    @rule(
        subject=subjects,
        schema=texts,
        references=references,
        metadata=metadata,
        schema_id=ids,
        version=st.integers(0, 4),
    )
    def registers(self, subject: str, schema: str, **more: Any) -> None:
        self.do(RegisterSchema(subject, schema, **more))

    @rule(subject=subjects, schema=texts)
    def registers_again(self, subject: str, schema: str) -> None:
        self.do(RegisterSchema(subject, schema))

    @rule(subject=subjects, version=versions, permanent=st.booleans())
    def deletes_a_version(self, subject: str, version: int | str, permanent: bool) -> None:
        self.do(DeleteVersion(subject, version, permanent))

    @rule(subject=subjects, permanent=st.booleans())
    def deletes_a_subject(self, subject: str, permanent: bool) -> None:
        self.do(DeleteSubject(subject, permanent))

    @rule(
        place=places, level=st.sampled_from([None, "NONE", "BACKWARD", "FULL_TRANSITIVE"]), all_=st.booleans()
    )
    def sets_a_level(self, place: str | None, level: str | None, all_: bool) -> None:
        self.do(SetLevel(place, None if all_ else {"compatibility": level, "normalize": True}))

    @rule(
        place=places,
        mode=st.sampled_from([None, "READWRITE", "READWRITE", "IMPORT", "IMPORT", "READONLY"]),
        force=st.booleans(),
        recursive=st.booleans(),
    )
    def sets_a_mode(self, place: str | None, mode: str | None, force: bool, recursive: bool) -> None:
        self.do(SetMode(place, mode, force, recursive))

    @rule()
    def deletes_a_context(self) -> None:
        self.do(DeleteContext(".ctx"))

    @invariant()
    def every_way_leads_to_the_same_state(self) -> None:
        live = known(self.catch_up(0))
        assert live == known(self.catch_up(1)) == known(replayed(self.log))
        assert live == known(replayed(compacted(self.log)))
        assert self.nodes[0].conflict_count == self.nodes[0].unreadable_count == 0

    @invariant()
    def indexes_say_what_a_scan_would_say(self) -> None:
        registry = self.catch_up(0)
        every = [each for versions in registry.subjects.values() for each in versions.values()]
        for each in every:
            context = names.context_of(each.subject)
            uses = registry.uses_of(each.schema_id, subject=names.joined(context, ""), deleted=True)
            assert {(use.subject, use.version) for use in uses} == {
                (other.subject, other.version)
                for other in every
                if (names.context_of(other.subject), other.schema_id) == (context, each.schema_id)
            }
            assert (context, each.schema_id) in ids_of_guid(registry, guid_of(each))
            assert registry.referenced_by(each.subject, each.version, deleted=True) == sorted(
                {
                    other.schema_id
                    for other in every
                    for reference in other.references
                    if names.beside(other.subject, reference.subject) == each.subject
                    and reference.version == each.version
                }
            )
            found = registry.find(
                each.subject,
                each.schema,
                each.schema_type,
                each.references,
                metadata=each.metadata,
                deleted=True,
            )
            assert found is not None and found.schema == each.schema
            assert each.metadata is None or identity(found) == identity(each)
        for subject, found_versions in registry.subjects.items():
            live = sorted(each.version for each in found_versions.values() if not each.deleted)
            assert list(registry.numbers(subject)) == live
            assert list(registry.numbers(subject, deleted=True)) == sorted(found_versions)


RegistryMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestRegistryMachine = RegistryMachine.TestCase


# ---- merging


@pytest.mark.parametrize(
    ("layers", "merged"),
    [
        ((None, None), None),
        ((None, {"sensitive": ["a"]}, None), {"sensitive": ["a"]}),
        (
            ({"properties": {"a": "1", "b": "1"}}, {"properties": {"b": "2"}}),
            {"properties": {"a": "1", "b": "2"}},
        ),
        (
            ({"tags": {"x": ["A"]}}, {"tags": {"x": ["B", "A"], "y": []}}),
            {"tags": {"x": ["A", "B"], "y": []}},
        ),
        (({"sensitive": ["a"]}, {"sensitive": ["b", "a"]}), {"sensitive": ["a", "b"]}),
    ],
)
def test_metadata_is_merged_layer_by_layer(layers: tuple[Any, ...], merged: Any) -> None:
    assert merged_metadata(*layers) == merged


def test_a_rule_replaces_the_one_of_its_name() -> None:
    first = {"domainRules": [{"name": "a", "expr": "1"}, {"name": "b"}]}
    second = {"domainRules": [{"name": "a", "expr": "2"}], "encodingRules": [{"name": "e"}]}
    assert merged_rules(first, None, second) == {
        "domainRules": [{"name": "b"}, {"name": "a", "expr": "2"}],
        "encodingRules": [{"name": "e"}],
    }
    assert merged_rules(None) is None
