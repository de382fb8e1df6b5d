"""Settings that follow the source, settings that stay at the target, and topics that must not be mirrored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plan_sides import DEFAULTS, T, altered, made, mark, side, topic

from hub.log import TopicDescription
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.planning.plan import MirrorPlan, plan, synced_of
from hub.replication.planning.schema_plan import (
    DeleteSchema,
    ImportSchema,
    RegisterTargetSchema,
    RegistrySide,
    SchemaVersion,
    SetSubject,
    SubjectSettings,
    SyncedSubject,
    synced_subject_of,
)
from hub.replication.planning.steps import (
    Acl,
    AddTargetPartitions,
    AlterAcls,
    ClusterSide,
    CreateTargetTopic,
    NewGeneration,
    Remember,
    SyncedTopic,
)
from hub.replication.rewriting.filter_history import FilterVersion
from hub.replication.rewriting.record_filter import RecordRules
from hub.schema_registry.model.facts import Reference


def test_a_new_topic_is_made_as_it_is_at_the_source() -> None:
    found = made(
        side(topic({"retention.ms": "1", "compression.type": "zstd", "min.insync.replicas": "2"})), side(None)
    )
    create, remember = found.steps
    assert create == CreateTargetTopic(T, 3, 3, {"retention.ms": "1", "min.insync.replicas": "2"})
    assert isinstance(remember, Remember) and "compression.type" not in remember.synced.config


def test_what_the_copy_needs_is_set_when_the_target_has_other_defaults() -> None:
    other = {
        **DEFAULTS,
        "compression.type": "gzip",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "1000",
        "max.message.bytes": "1000",
    }
    create = made(side(topic()), side(None, defaults=other)).steps[0]
    assert isinstance(create, CreateTargetTopic)
    assert create.config == {
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
        "retention.ms": "604800000",
        "max.message.bytes": "1048588",
    }


def test_durability_is_never_lowered() -> None:
    strict = {**DEFAULTS, "min.insync.replicas": "2"}
    create = made(
        side(topic({"min.insync.replicas": "1", "unclean.leader.election.enable": "true"})),
        side(None, defaults=strict),
    ).steps[0]
    assert isinstance(create, CreateTargetTopic) and create.config == {}
    last = SyncedTopic("nyc-lon", T, {"min.insync.replicas": "2"})
    there = side(topic({"min.insync.replicas": "2"}, id="t"))
    lowered = made(side(topic({"min.insync.replicas": "1"})), there, last)
    assert altered(lowered) == {} and "less durable" in lowered.cautions[0].reason


def test_large_records_fit_a_target_whose_default_is_smaller() -> None:
    small = {**DEFAULTS, "max.message.bytes": "1000"}
    found = made(side(topic()), side(topic(id="t"), defaults=small))
    assert altered(found) == {"max.message.bytes": (None, "1048588")} and not found.refusals


def test_too_few_brokers_are_told() -> None:
    found = made(side(topic({"min.insync.replicas": "2"})), side(None, brokers=1))
    assert isinstance(found.steps[0], CreateTargetTopic)
    assert (found.steps[0].replication_factor, found.steps[0].config["min.insync.replicas"]) == (1, "1")
    assert len(found.cautions) == 2


@pytest.mark.parametrize(
    ("last", "source", "target", "change", "said"),
    [
        ("5", "6", "5", ("5", "6"), None),  # changed at the source: follows
        ("5", None, "5", ("5", None), None),  # taken away at the source: taken away
        ("5", "5", "6", None, "changed at the target"),  # changed at the target: stays
        ("5", "5", None, None, "changed at the target"),  # taken away at the target: does not come back
        ("5", "6", "7", None, "both set by hand"),
        ("5", "6", "6", None, None),
        (None, "6", None, (None, "6"), None),
        (None, "6", "7", None, "both set by hand"),
        (None, "6.0", "6", None, None),
    ],
)
def test_three_sides(
    last: str | None, source: str | None, target: str | None, change: object, said: str | None
) -> None:
    key = "segment.bytes"

    def own(value: str | None) -> dict[str, str]:
        return {} if value is None else {key: value}

    found = made(
        side(topic(own(source))), side(topic(own(target), id="t")), SyncedTopic("nyc-lon", T, own(last))
    )
    assert altered(found).get(key) == change
    assert [said] == [None] if said is None else said in found.cautions[0].reason
    assert not found.refusals


def test_a_plan_that_was_carried_out_has_nothing_left() -> None:
    config = {"retention.ms": "5"}
    first = made(side(topic(config)), side(None))
    remembered = next(step.synced for step in first.steps if isinstance(step, Remember))
    again = made(side(topic(config)), side(topic(config, id="t")), remembered)
    assert again == MirrorPlan((), (), ())


def test_a_shorter_retention_is_told_and_follows() -> None:
    found = made(
        side(topic({"retention.ms": "5"})),
        side(topic({"retention.ms": "-1"}, id="t")),
        SyncedTopic("nyc-lon", T, {"retention.ms": "-1"}),
    )
    assert (
        altered(found) == {"retention.ms": ("-1", "5")}
        and "deleted at the target too" in found.cautions[0].reason
    )


def test_partitions_grow_and_never_shrink() -> None:
    assert AddTargetPartitions(T, 2, 3) in made(side(topic()), side(topic(partitions=2, id="t"))).steps
    more = made(side(topic()), side(topic(partitions=4, id="t")))
    assert (
        not any(isinstance(step, AddTargetPartitions) for step in more.steps)
        and "after a failover" in more.cautions[0].reason
    )


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"compression.type": "zstd"}, "compress every batch again"),
        ({"message.timestamp.type": "LogAppendTime"}, "overwrite every record's time"),
        ({"message.timestamp.before.max.ms": "1000"}, "refuse older records"),
        ({"max.message.bytes": "1000"}, "large records would not fit"),
    ],
)
def test_limits_at_the_target_are_refused(config: dict[str, str], said: str) -> None:
    found = made(side(topic()), side(topic(config, id="t")))
    assert said in found.refusals[0].reason and not found.steps and found.blocked == {T}


def test_the_record_engine_may_compress_anew() -> None:
    assert not made(
        side(topic()), side(topic({"compression.type": "zstd"}, id="t")), engine="record"
    ).refusals


ENDS = {"ends": Positions.of([(T, 0, 12)])}


@pytest.mark.parametrize(
    ("source", "target", "marks", "said"),
    [
        (topic(), side(topic(id="t"), **ENDS), (), "no checkpoint of this mirror"),
        (topic(), side(topic(id="t"), **ENDS, void=frozenset({T})), (), None),
        (
            topic(),
            side(topic(id="t"), **ENDS, void=frozenset({"another"})),
            (),
            "no checkpoint of this mirror",
        ),
        (topic(), side(topic(id="t"), **ENDS), (mark(),), None),
        (topic(), side(topic(id="t"), **ENDS), (mark(target_next=13),), "ends at 12 at the target"),
        (topic(), side(topic(id="t2"), **ENDS), (mark(),), "target's topic was deleted and made again"),
        (topic(), side(None), (mark(),), "topic is gone"),
        (topic(), side(None), (mark(target_next=0, target_topic_id=""),), None),  # of it nothing was mirrored
        (topic(id="s2"), side(topic(id="t"), **ENDS), (mark(),), "created again at the source"),
        (topic(id="s2"), side(topic(id="t"), **ENDS), (mark(), mark(topic_id="s2", generation=1)), None),
    ],
)
def test_only_the_topics_that_the_checkpoints_are_of(
    source: TopicDescription, target: ClusterSide, marks: tuple[Checkpoint, ...], said: str | None
) -> None:
    found = made(side(source), target, None, marks)
    assert [said] == [None] if said is None else said in found.refusals[0].reason
    assert bool(found.refusals) == (said is not None)


def test_a_topic_made_again_goes_on_as_a_new_generation_when_asked() -> None:
    found = made(side(topic(id="s2")), side(topic(id="t"), **ENDS), None, (mark(),), on_recreate="continue")
    assert NewGeneration(T, "s", "s2", 1) in found.steps


def acl(
    operation: str, name: str = T, pattern: Any = "LITERAL", permission: Any = "ALLOW", who: str = "User:a"
) -> Acl:
    return Acl(name, pattern, who, "*", operation, permission)


def test_rules_are_copied_for_the_topic_alone_and_without_write() -> None:
    rules = {
        acl("READ", "nyc.", "PREFIXED"),
        acl("WRITE"),
        acl("ALL", "*", who="User:b"),
        acl("DELETE"),
        acl("WRITE", permission="DENY"),
        acl("READ", "lon."),
    }
    found = made(
        side(topic(), acls=frozenset(rules)), side(topic(id="t")), acls={"principals": {"User:b": "User:B"}}
    )
    (step,) = [step for step in found.steps if isinstance(step, AlterAcls)]
    assert set(step.add) == {
        acl("READ"),
        acl("WRITE", permission="DENY"),
        *(acl(each, who="User:B") for each in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")),
    }
    with_write = made(
        side(topic(), acls=frozenset({acl("WRITE")})), side(topic(id="t")), acls={"write": True}
    )
    assert AlterAcls(T, (acl("WRITE"),), ()) in with_write.steps


def test_only_rules_that_were_copied_are_taken_away() -> None:
    there = side(topic(id="t"), acls=frozenset({acl("READ"), acl("DESCRIBE")}))
    last = SyncedTopic("nyc-lon", T, {}, frozenset({acl("READ")}))
    found = made(side(topic()), there, last)
    assert AlterAcls(T, (), (acl("READ"),)) in found.steps


def schema(id: int, version: int = 1, text: str = "A", subject: str = f"{T}-value") -> SchemaVersion:
    return SchemaVersion(subject, version, id, "AVRO", text)


def test_schemas_come_first_with_their_ids() -> None:
    found = made(
        side(topic(), schemas=(schema(7), schema(9, 2, "B"), schema(8, subject="lon.chat-value"))),
        side(None, schemas=(schema(7),)),
    )
    assert found.steps[0] == ImportSchema(T, schema(9, 2, "B")) and isinstance(
        found.steps[1], CreateTargetTopic
    )


def test_what_a_schema_refers_to_comes_before_it_and_once() -> None:
    money = schema(1, subject="common.money")
    price = replace(schema(2, subject="common.price"), references=(Reference("m", "common.money", 1),))
    here = (
        replace(schema(7), references=(Reference("p", "common.price", 1),)),
        replace(schema(9, 2, "B"), references=(Reference("m", "common.money", 1),)),
        schema(5, subject="common.other"),
        money,
        price,
    )
    found = made(side(topic(), schemas=here), side(None, schemas=()))
    imported = [step.schema.id for step in found.steps if isinstance(step, ImportSchema)]
    assert imported == [1, 2, 7, 9, 5]  # what no topic's name is in may be used by any
    found = made(side(topic(), schemas=here), side(None, schemas=(money,)))
    assert [step.schema.id for step in found.steps if isinstance(step, ImportSchema)] == [2, 7, 9, 5]
    # An id that it needs and that is another's there: better now than when the registry refuses it.
    found = made(
        side(topic(), schemas=here),
        side(None, schemas=(schema(1, text="C", subject="x"),)),
        schema_ids="keep",
    )
    assert "schema id 1 is common.money" in found.refusals[0].reason


@pytest.mark.parametrize(
    ("there", "said"),
    [(schema(7, text="B", subject="x-value"), "schema id 7 is"), (schema(3), "has id 7 at the source and 3")],
)
def test_an_id_that_means_something_else_is_refused(there: SchemaVersion, said: str) -> None:
    found = made(side(topic(), schemas=(schema(7),)), side(None, schemas=(there,)), schema_ids="keep")
    assert said in found.refusals[0].reason and not found.steps
    assert "schema_ids: auto" in found.refusals[0].hint
    # By default the records get the target's ids instead.
    found = made(side(topic(), schemas=(schema(7),)), side(None, schemas=(there,)))
    assert found.refusals == () and found.own_ids == {T}
    assert [step for step in found.steps if isinstance(step, ImportSchema | RegisterTargetSchema)] in (
        [RegisterTargetSchema(T, schema(7))],
        [],
    )


def test_ids_that_were_put_in_stay_so() -> None:
    """Also when nothing stands in the way any more: one copy has one kind of ids from there on."""
    mirror = Mirror.model_validate({"source": "nyc", "target": "lon", "topics": ["nyc.*"]})
    source, target = side(topic(), schemas=(schema(7),)), side(topic(id="t"), schemas=())
    put_in = {TopicPartition(T, 0): FilterVersion(RecordRules(T, rewrites_ids=True, as_needed=True))}
    found = plan("nyc-lon", mirror, [T], source, target, {}, (mark(),), put_in)
    assert found.own_ids == {T} and found.refusals == ()
    kept = plan("nyc-lon", mirror, [T], source, target, {}, (mark(),), {})
    assert kept.own_ids == frozenset() and ImportSchema(T, schema(7)) in kept.steps


def test_deletions_follow_users_before_what_they_use() -> None:
    money = replace(schema(1, subject="common.money"), deleted=True)
    order = replace(schema(7, text="O"), deleted=True, references=(Reference("m", "common.money", 1),))
    here = (money, order, schema(9, 2, "B"))
    found = made(side(topic(), schemas=here), side(None, schemas=()))
    steps = [step for step in found.steps if isinstance(step, ImportSchema | DeleteSchema)]
    assert [str(step).split("  ")[0] for step in steps] == [
        "+ schema common.money v1",
        f"+ schema {T}-value v1",
        f"+ schema {T}-value v2",
        f"- schema {T}-value v1",
        "- schema common.money v1",
    ]
    there = made(side(topic(), schemas=here), side(None, schemas=here))
    assert not [step for step in there.steps if isinstance(step, ImportSchema | DeleteSchema)]
    live = tuple(replace(each, deleted=False) for each in here)
    revived = made(side(topic(), schemas=live), side(None, schemas=here))
    # A subject that the topic owns comes back; what others may use, too, stays as somebody left it there.
    assert [step.schema.subject for step in revived.steps if isinstance(step, ImportSchema)] == [f"{T}-value"]


def test_subjects_are_found_by_each_naming_strategy() -> None:
    other = replace(topic(), name="nyc.other")
    versions = tuple(
        schema(id, subject=subject, text=subject)
        for id, subject in enumerate(
            [
                f"{T}-value",
                f"{T}-acme.Order",
                "acme.Refund",
                "nyc.other-value",
                "nyc.other-acme.X",
                ":.ctx:acme.Y",
            ],
            1,
        )
    )
    source = ClusterSide({T: topic(), "nyc.other": other}, DEFAULTS, registry=RegistrySide(versions))
    found = made(source, side(None, schemas=()))
    imported = {step.schema.subject for step in found.steps if isinstance(step, ImportSchema)}
    assert imported == {f"{T}-value", f"{T}-acme.Order", "acme.Refund"}
    limited = made(source, side(None, schemas=()), record_subjects=["lon.**"])
    assert {s.schema.subject for s in limited.steps if isinstance(s, ImportSchema)} == imported - {
        "acme.Refund"
    }


def test_settings_follow_the_source_and_what_was_changed_at_the_target_stays() -> None:
    full, none = SubjectSettings.of({"compatibilityLevel": "FULL"}, None), SubjectSettings()
    subject = f"{T}-value"

    def planned(mine: SubjectSettings, theirs: SubjectSettings, last: SubjectSettings | None) -> MirrorPlan:
        sides = [
            ClusterSide(
                {T: topic()} if at == "s" else {}, DEFAULTS, registry=RegistrySide((), {subject: each}, level)
            )
            for at, each, level in (("s", mine, "BACKWARD"), ("t", theirs, "BACKWARD"))
        ]
        mirror = Mirror.model_validate({"source": "nyc", "target": "lon", "topics": ["nyc.*"]})
        known = {} if last is None else {subject: SyncedSubject("nyc-lon", subject, last)}
        return plan("nyc-lon", mirror, [T], *sides, synced_subjects=known)

    def steps(found: MirrorPlan) -> list[SubjectSettings]:
        return [step.synced.settings for step in found.steps if isinstance(step, SetSubject)]

    assert steps(planned(full, none, None)) == [full]
    assert steps(planned(none, full, full)) == [none]
    assert steps(planned(none, full, None)) == []  # the target's own
    backward = SubjectSettings.of({"compatibilityLevel": "BACKWARD"}, "READONLY")
    stays = planned(full, backward, full)
    assert steps(stays) == [] and any("left so" in each.reason for each in stays.cautions)
    assert steps(planned(backward, full, full)) == [backward]
    remembered = [step for step in planned(full, full, None).steps if isinstance(step, Remember)]
    assert SyncedSubject("nyc-lon", subject, full) in [each.synced for each in remembered]
    record = SyncedSubject("nyc-lon", subject, backward).record()
    assert synced_subject_of(Record(record.topic, 0, 0, 0, record.key, record.value)) == SyncedSubject(
        "nyc-lon", subject, backward
    )


USER = '{"type":"record","name":"U","fields":[{"name":"email","type":"string"}]}'


@pytest.mark.parametrize(
    ("field", "how", "said"),
    [
        ("email", "redact", ""),
        ("email", None, 'a mask does not fit nyc.chat-value v1: field "email" may not be null'),
        ("emial", "redact", 'the mask of "emial" masks nothing'),
        ("email.x", "redact", 'the mask of "email.x" masks nothing'),
    ],
)
def test_masks_are_held_to_the_schemas(field: str, how: str | None, said: str) -> None:
    schema = SchemaVersion(f"{T}-value", 1, 7, "AVRO", USER)
    rule = {"topics": ["nyc.*"], "fields": [field], "with": how}
    found = made(side(topic(), schemas=(schema,)), side(None, schemas=()), mask=[rule])
    reasons = [*(each.reason for each in found.refusals), *(each.reason for each in found.cautions)]
    assert "".join(reasons).startswith(said or "")
    assert bool(found.refusals or found.cautions) is bool(said)


def test_with_ids_of_its_own_the_target_registers_what_it_does_not_have() -> None:
    schema = SchemaVersion(f"{T}-value", 1, 7, "AVRO", USER)
    there = SchemaVersion(f"{T}-value", 4, 90, "AVRO", USER.replace(",", ", "))
    other = SchemaVersion(f"{T}-key", 1, 7, "AVRO", '"string"')
    source = side(topic(), schemas=(schema,))
    for known, steps in (((), 1), ((there, other), 0), ((other,), 1)):
        found = made(source, side(None, schemas=known), schema_ids="rewrite")
        assert len([each for each in found.steps if isinstance(each, RegisterTargetSchema)]) == steps
        assert found.refusals == () and not any(isinstance(each, ImportSchema) for each in found.steps)


def test_a_name_that_collides_is_refused() -> None:
    other = replace(topic(id="t"), name="nyc_chat")
    found = made(side(topic()), ClusterSide({"nyc_chat": other}, DEFAULTS, 3))
    assert "collides" in found.refusals[0].reason


def test_what_was_synced_is_read_as_written() -> None:
    last = SyncedTopic("nyc-lon", T, {"a": "b"}, frozenset({acl("READ")}))
    new: NewRecord = last.record()
    assert synced_of(Record(new.topic, 0, 0, 0, new.key, new.value)) == last
