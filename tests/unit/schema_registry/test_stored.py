"""A new schema tried on stored events, and the registry's log as a file and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hub.errors import ConfigError, Conflict, HubFault, NotFound
from hub.log import MemoryCluster
from hub.record import NewRecord
from hub.schema_registry.client import backup
from hub.schema_registry.client.stored_events_check import check_stored, decoded, last_records
from hub.schema_registry.codecs.values import Protobuf
from hub.schema_registry.codecs.wire_format import Undecodable, encode, frame, parsed
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, LevelSet, SchemaStored, record_of
from hub.schema_registry.registry.snapshot import ParsedSchema, parse


def record(*fields: dict[str, Any], name: str = "R") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


A = {"name": "a", "type": "int"}
A_TEXT = {"name": "a", "type": ["int", "string"]}
WRITERS = {1: record(A), 2: record(A_TEXT)}


def writer_of(schema_id: int) -> ParsedSchema:
    if schema_id not in WRITERS:
        raise NotFound("no")
    return parse("AVRO", WRITERS[schema_id])


def cluster_with(*events: tuple[int, bytes | None]) -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.create_topic("t", partitions=2, config={}, replication_factor=1)
    cluster.writer().append([NewRecord("t", b"k", value, partition=partition) for partition, value in events])
    return cluster


def event(schema_id: int, **value: Any) -> bytes:
    return encode(schema_id, parsed(json.loads(WRITERS[schema_id])), value)


def test_what_cannot_be_read_is_counted_with_its_offset_apart_from_what_nobody_can_read() -> None:
    cluster = cluster_with(
        (0, event(1, a=1)),
        (0, event(2, a="x")),  # no int: the new schema cannot
        (1, event(2, a=7)),
        (1, None),  # a tombstone
        (1, b"junk"),
        (1, frame(9, b"\x02")),  # no such schema
        (1, frame(1, b"")),  # cut off
    )
    heard: list[tuple[int, int]] = []
    new = parse("AVRO", record(A, {"name": "b", "type": "string", "default": ""}))
    found = check_stored(cluster, "t", new, writer_of, progress=lambda *each: heard.append(each))
    assert (found.checked, found.failed, found.broken) == (6, 1, 3)
    assert [(each.partition, each.offset) for each in found.failures] == [(0, 1)]
    assert str(found) == "1 of 6 stored events of t cannot be read, 3 are broken whatever reads them"
    assert heard[-1] == (7, 7)


def test_a_field_without_a_default_fails_every_event_and_the_first_are_shown() -> None:
    cluster = cluster_with(*((0, event(1, a=n)) for n in range(30)))
    new = parse("AVRO", record(A, {"name": "b", "type": "string"}))
    found = check_stored(cluster, "t", new, writer_of, sample=None)
    assert (found.checked, found.failed, len(found.failures)) == (30, 30, 20)
    assert "b" in found.failures[0].reason


@pytest.mark.parametrize(
    ("sample", "offsets"), [(2, [3, 4]), (100, [0, 1, 2, 3, 4]), (None, [0, 1, 2, 3, 4])]
)
def test_the_last_of_each_partition(sample: int | None, offsets: list[int]) -> None:
    cluster = cluster_with(*((0, b"x") for _ in range(5)))
    found: list[int] = []
    last_records(cluster, "t", sample, lambda each: found.append(each.offset))
    assert found == offsets


def test_an_empty_topic_is_fine_a_missing_one_and_another_format_are_not() -> None:
    cluster = cluster_with()
    assert check_stored(cluster, "t", parse("AVRO", record(A)), writer_of).checked == 0
    with pytest.raises(NotFound):
        check_stored(cluster, "no", parse("AVRO", record(A)), writer_of)


def test_an_event_of_another_format_cannot_be_read() -> None:
    cluster = cluster_with((0, event(1, a=1)))
    found = check_stored(cluster, "t", parse("JSON", "{}"), writer_of)
    assert (found.failed, found.broken) == (1, 0)
    assert found.failures[0].reason == "it is AVRO, the schema JSON"


# ---- JSON Schema and Protobuf


def tried(schema_type: str, old: str, new: str, *bodies: bytes) -> Any:
    written = parse(schema_type, old)
    cluster = cluster_with(*((0, frame(1, each)) for each in bodies))
    return check_stored(cluster, "t", parse(schema_type, new), lambda _: written)


def test_stored_json_is_held_to_the_new_json_schema_and_what_was_never_right_is_told_apart() -> None:
    old = '{"type": "object", "properties": {"n": {"type": "integer"}}}'
    new = '{"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}}'
    found = tried("JSON", old, new, b'{"n": 1}', b'{"n": 10}', b'{"n": "x"}', b"{", b"[]")
    assert (found.checked, found.failed, found.broken) == (5, 1, 3)
    assert (found.failures[0].offset, "n" in found.failures[0].reason) == (1, True)


def proto(fields: str, more: str = "", syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; package p; message M {{ {fields} }} {more}'


def message(schema: str, value: dict[str, Any]) -> bytes:
    return Protobuf(parse("PROTOBUF", schema).schema).body(value)


@pytest.mark.parametrize(
    ("old", "new", "value", "reason"),
    [
        ("int32 n = 1;", "int64 n = 1;", {"n": 7}, None),
        ("int32 n = 1;", "string s = 2;", {"n": 7}, None),  # a field that is gone
        ("int64 n = 1;", "int32 m = 1;", {"n": 7}, None),  # renamed, and short enough
        ("int64 n = 1;", "int32 n = 1;", {"n": 1 << 33}, "n: 8589934592 is read as 0"),
        ("int32 n = 1;", "sint32 n = 1;", {"n": 7}, "n: 7 is read as -4"),
        ("int32 n = 1;", "string n = 1;", {"n": 7}, "n: 7 is read as ''"),
        ("optional int32 n = 1;", "string n = 1;", {"n": 0}, "n: 0 is read as ''"),
        ("bytes b = 1;", "string b = 1;", {"b": "YQ=="}, None),
        ("bytes b = 1;", "string b = 1;", {"b": "/w=="}, "no p.M"),
        ("string s = 1;", "bytes s = 1;", {"s": "a"}, None),
        ("repeated string s = 1;", "string s = 1;", {"s": ["a", "b"]}, None),  # the last one
        ("repeated int32 n = 1;", "int32 n = 1;", {"n": [1, 2]}, "n: 2 is read as 0"),  # they were packed
        ("int32 n = 1;", "repeated int32 n = 1;", {"n": 2}, None),
        ("repeated int32 n = 1;", "repeated string n = 1;", {"n": [1, 2]}, "n: 1 of 2 values are read"),
        ("map<string, int64> m = 1;", "map<string, int32> m = 1;", {"m": {"a": 1 << 33}}, ("m: 8589934592 is "
        "read as 0")),
        ("map<string, int64> m = 1;", "map<string, int64> m = 1;", {"m": {"a": 3}}, None),
        ("map<string, int64> m = 1;", "repeated int64 m = 1;", {"m": {"a": 3}}, "m: is no longer a map"),
        ("int32 a = 1; int32 b = 2;", ("oneof o { int32 "
        "a = 1; int32 b = 2; }"), {"a": 1, "b": 2}, "a: 1 is read as 0"),
        ("int32 a = 1; int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }", {"b": 2}, None),
        ("message I { int64 q = 1; } repeated I i = 1;", "message I { int32 q = 1; } repeated I i = 1;",
         {"i": [{"q": "1"}, {"q": str(1 << 40)}]}, "i.q: 1099511627776 is read as 0"),
        ("message I { int64 q = 1; } I i = 1;", "bytes i = 1;", {"i": {"q": 1}}, None),
        ("message I { int64 q = 1; } I i = 1;", "string i = 1;", {"i": {"q": 1}}, "i: a message is read as"),
        ("double d = 1;", "double d = 1;", {"d": "NaN"}, None),
    ],
)  # fmt: skip
def test_what_a_protobuf_reader_would_see_otherwise(
    old: str, new: str, value: dict[str, Any], reason: str | None
) -> None:
    found = tried("PROTOBUF", proto(old), proto(new), message(proto(old), value))
    assert (found.failed, found.broken) == ((0, 0) if reason is None else (1, 0)), found
    if reason is not None:
        assert found.failures[0].reason.startswith(reason)


def test_a_protobuf_message_is_found_by_its_name_and_missed_when_it_is_gone_and_junk_is_junk() -> None:
    old = 'syntax = "proto3"; message A { int64 n = 1; } message B { message C { int64 n = 1; } }'
    moved = 'syntax = "proto3"; message B { message C { int32 n = 1; } } message A { int64 n = 1; }'
    c = b"\x04\x02\x00"  # indexes [1, 0]
    far = c + b"\x08\x80\x80\x80\x80\x20"
    found = tried("PROTOBUF", old, moved, b"\x00\x08\x07", c + b"\x08\x07", far, b"\x02\x12", b"\x00\xff")
    assert (found.checked, found.failed, found.broken) == (5, 1, 2)
    assert found.failures[0].offset == 2
    gone = tried("PROTOBUF", old, 'syntax = "proto3"; message A { int64 n = 1; }', c)
    assert "no message B.C" in gone.failures[0].reason


def test_a_required_field_and_a_symbol_that_proto2_does_not_know() -> None:
    old, new = (
        proto(
            f"optional int32 n = 1; {more} optional E e = 3;",
            f"enum E {{ A = 0; B = 1; {symbol} }}",
            "proto2",
        )
        for more, symbol in (("", "C = 2;"), ("required int32 m = 2;", "C = 2;"))
    )
    (failure,) = tried("PROTOBUF", old, new, message(old, {"n": 1})).failures
    assert failure.reason == "required and not there: m"
    less = old.replace("C = 2;", "")
    (failure,) = tried("PROTOBUF", old, less, message(old, {"e": "C"})).failures
    assert failure.reason == "e: 2 is read as 0"


def test_a_schema_without_values_is_told() -> None:
    with pytest.raises(InvalidSchema, match="no message"):
        check_stored(
            cluster_with(), "t", parse("PROTOBUF", 'syntax = "proto3"; enum E { A = 0; }'), writer_of
        )


def test_schemas_with_references_decode() -> None:
    item = parse("AVRO", record(A, name="Item"))
    holder = parse("AVRO", record({"name": "i", "type": "Item"}), {"Item": item.schema})
    assert decoded(frame(5, b"\x0e"), lambda _: holder, {}) == {"i": {"a": 7}}
    cluster = cluster_with((0, frame(5, b"\x0e")))
    assert check_stored(cluster, "t", holder, lambda _: holder).failed == 0


def test_a_type_of_another_subject_that_is_within_itself_does_not_nest_without_end() -> None:
    """Regression: recursion was not detected, and 200,000 bytes ended the process: fastavro recurses in C."""
    node = parse("AVRO", record({"name": "n", "type": ["null", "Node"]}, name="Node"))
    holder = parse("AVRO", record({"name": "n", "type": "Node"}), {"Node": node.schema})
    deep = frame(5, b"\x02" * 200_000 + b"\x00")
    with pytest.raises(Undecodable, match="recursive"):
        decoded(deep, lambda _: holder, {})
    cluster = cluster_with((0, deep), (0, frame(5, b"\x02\x00")))
    found = check_stored(cluster, "t", holder, lambda _: holder)
    assert (found.checked, found.failed, found.broken) == (2, 0, 1)


def test_a_few_bytes_do_not_say_billions_of_items() -> None:
    nothings = parse("AVRO", '{"type": "array", "items": "null"}')
    endless = frame(5, b"\xff" * 8 + b"\x7f\x00\x00")
    assert check_stored(cluster_with((0, endless)), "t", nothings, lambda _: nothings).broken == 1
    assert decoded(frame(5, b"\x06\x00"), lambda _: nothings, {}) == [None] * 3


def test_a_schema_within_itself_does_not_nest_without_end() -> None:
    endless = parse("AVRO", record({"name": "next", "type": ["null", "R"]}))
    cluster = cluster_with((0, frame(1, b"\x02" * 20_000)), (0, frame(1, b"\x02\x02\x00")))
    found = check_stored(cluster, "t", endless, lambda _: endless)
    assert (found.checked, found.failed, found.broken) == (2, 0, 1)


# ---- backup


def registry_log(*more: NewRecord) -> MemoryCluster:
    cluster = MemoryCluster(now_ms=1_700_000_000_000)
    cluster.create_topic(
        SCHEMAS_TOPIC, partitions=1, config={"cleanup.policy": "compact"}, replication_factor=1
    )
    facts = (SchemaStored("s", 1, 7, '"string"'), SchemaStored("s", 2, 9, '"int"'), LevelSet("s", "NONE"))
    cluster.writer().append([*map(record_of, facts), *more])
    return cluster


ODD = (
    NewRecord(SCHEMAS_TOPIC, b"\xff\x00", None, (("h", b"\xfe"),), 5),
    NewRecord(SCHEMAS_TOPIC, None, b"\xff", (), 6),
    NewRecord(SCHEMAS_TOPIC, "ø\u2028\n".encode(), b"", (), 7),
)


def written(cluster: MemoryCluster) -> list[bytes]:
    return list(backup.lines(backup.read_all(cluster)))


def test_a_backup_is_restored_byte_for_byte_and_only_into_nothing() -> None:
    source, target = registry_log(*ODD), MemoryCluster(now_ms=99)
    content = written(source)
    assert len(content) == 8 and b'"keytype\\":\\"SCHEMA\\"' in content[1]
    backup.restore(backup.records(content, "f"), target)
    assert target.logs[SCHEMAS_TOPIC] == source.logs[SCHEMAS_TOPIC]
    assert target.descriptions[SCHEMAS_TOPIC].config == {"cleanup.policy": "compact"}
    assert written(target) == content
    with pytest.raises(Conflict, match="has records") as refused:
        backup.restore(backup.records(content, "f"), target)
    assert "delete the topic" in str(refused.value.hint)
    assert len(target.logs[SCHEMAS_TOPIC][0]) == 6


def test_a_backup_keeps_headers_without_a_value() -> None:
    kept = backup.BackupRecord(b"k", None, 5, (("empty", b""), ("none", None)))
    assert backup.records(list(backup.lines([kept])), "f") == [kept]


def test_a_backup_is_a_state_without_kafka() -> None:
    state = backup.state_in(written(registry_log()), "f")
    assert [(each.version, each.schema_id) for each in state.subjects["s"].versions] == [(1, 7), (2, 9)]
    assert (state.subjects["s"].level, state.default_level) == ("NONE", "BACKWARD")


def test_a_file_that_was_changed_cut_off_or_is_another_is_refused() -> None:
    content = written(registry_log())
    for wrong, what in (
        (content[:-1], "it is cut off"),
        ([*content[:1], *content[2:]], "the checksum does not match"),
        ([content[0], content[1].replace(b"string", b"strinG"), *content[2:]], "the checksum does not match"),
        ([*content, content[1]], "there is more after its last line"),
        ([b'{"a": 1}\n'], "no backup of a registry"),
        ([content[0].replace(b":1", b":2")], "version 2 of hub-schemas is not known"),
        ([content[0], b"{\n"], "no record of a backup"),
        ([], "it is cut off"),
    ):
        with pytest.raises(ConfigError, match=what):
            backup.records(wrong, "f")


def test_what_is_read_back_as_another_is_a_fault() -> None:
    class Lossy(MemoryCluster):
        def writer(self, name: str | None = None) -> Any:
            made = super().writer(name)
            made.append = lambda records: type(made).append(made, records[:-1])
            return made

    with pytest.raises(HubFault, match="3 records were written and 2 are read back"):
        backup.restore(backup.records(written(registry_log()), "f"), Lossy())
