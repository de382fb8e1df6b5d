"""Effects of a mirror's rules on records: filters, masks, schema ids; and no other changes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import ConfigError, NotFound
from hub.kafka.protocol.record_batch import HEADER, RecordBatch
from hub.replication.config.load_mirrors import load, mask_secrets
from hub.replication.config.mirrors import Mirror, MirrorsFile
from hub.replication.config.topology import check
from hub.replication.ownership.links import links, masked, way_back
from hub.replication.rewriting.avro_masking import avro_masking
from hub.replication.rewriting.mask import json_masking
from hub.replication.rewriting.mask_tree import Mask, Unmaskable, tree_of
from hub.replication.rewriting.record_filter import (
    NoSchemas,
    RecordRewriter,
    RecordSchemas,
    RulesNotApplicable,
    stretches,
)
from hub.replication.rewriting.reencode import RawRecord, batch_of, fields_of, patched, records_in, rest_of
from hub.replication.rewriting.rules_of_schema import objection, shape_of
from hub.schema_registry.compat.resolved_schema import SchemaSource

KEY = {"${K}": "secret"}
HASH = Mask("hash", b"secret")
USER = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "id", "type": ["int", "long", "string"]},
        {"name": "email", "type": "string"},
        {"name": "phone", "type": ["null", "string", "bytes"], "default": None},
        {
            "name": "home",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "street", "type": "string"}, {"name": "no", "type": "int"}],
            },
        },
        {"name": "others", "type": {"type": "array", "items": "Place"}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 40}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}


class Known(NoSchemas):
    def __init__(self, sources: Mapping[int, SchemaSource], ids: Mapping[int, int] | None = None) -> None:
        self.sources, self.ids = sources, ids or {}

    def source(self, schema_id: int) -> SchemaSource:
        if schema_id not in self.sources:
            raise NotFound(f"no schema {schema_id}")
        return self.sources[schema_id]

    def target_id(self, schema_id: int, subject: str) -> int:
        if schema_id not in self.ids:
            raise NotFound(f"no schema {schema_id}")
        return self.ids[schema_id]

    def has_keys(self, topic: str) -> bool:
        return topic == "nyc.keyed"


def mirror(**said: Any) -> Mirror:
    return Mirror.model_validate({"source": "nyc", "target": "lon", "topics": ["nyc.**"], **said})


def shaper(schemas: RecordSchemas | None = None, topic: str = "nyc.chat", **said: Any) -> RecordRewriter:
    shape = shape_of(mirror(**said), topic)
    assert shape is not None
    return RecordRewriter(shape, schemas or NoSchemas(), KEY)


def rule(how: str | None, *fields: str) -> dict[str, Any]:
    made: dict[str, Any] = {"topics": ["nyc.chat"], "fields": list(fields), "with": how}
    return made | ({"key": "${K}"} if how == "hash" else {})


def batch(records: list[RawRecord]) -> RecordBatch:
    payload = batch_of(records).payload
    HEADER.pack_into(payload, 0, *(records[0].offset, *HEADER.unpack_from(payload, 0)[1:]))
    return patched(payload)


# ---- JSON: only what is masked changes


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ('{"email": "a@b", "n": 1.50}', '{"email": "***", "n": 1.50}'),
        ('{"n":123456789012345678901234567890,"email":7}', '{"n":123456789012345678901234567890,"email":0}'),
        ('{ "email" :"a", "email": [1], "x": {"email": "y"}}', ('{ "email" :"***", "email": '
        '[], "x": {"email": "y"}}')),
        (r'{"\u0065mail": "a\"}", "s": "\u00e9"}', r'{"\u0065mail": "***", "s": "\u00e9"}'),
        ('{"home": [{"street": "x"}, {"no": 1}, 4], "email": null}',
        '{"home": [{"street": "***"}, {"no": 1}, 4], "email": null}'),
        ('{"home.street": "x", "home": {"street": true}}',
        '{"home.street": "***", "home": {"street": false}}'),
        ('[{"email": {"a": "]"}}, [], {}]', '[{"email": {}}, [], {}]'),
        ('"email"', '"email"'),
        ("  {} ", "  {} "),
    ],
)  # fmt: skip
def test_only_what_is_masked_changes_in_json(text: str, made: str) -> None:
    mask = json_masking(tree_of([("email", Mask("redact")), ("home.street", Mask("redact"))]))
    assert mask(text.encode(), 0) == made.encode()


@pytest.mark.parametrize(
    "text", ["", "hello", '{"email": "a"', '{"email": "\\ud800"}', "{'a': 1}", "[" * 100_000]
)
def test_what_is_no_json_is_not_let_through(text: str) -> None:
    with pytest.raises(Unmaskable):
        json_masking(tree_of([("email", HASH)]))(text.encode(), 0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", 'q"',
    "é"]) | st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def nulled(value: Any, path: list[str]) -> Any:
    if isinstance(value, list):
        return [nulled(each, path) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: (None if path == [name] else nulled(below, path[1:]) if path[:1] == [name] else below)
        for name, below in value.items()
    }


@given(json_values, st.sampled_from(["a", "a.b", "b.a", 'q"']), st.booleans())
def test_masking_is_what_it_says_of_any_json(value: Any, path: str, indented: bool) -> None:
    text = json.dumps(value, indent=2 if indented else None, ensure_ascii=indented)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return  # a lone surrogate
    made = json_masking(tree_of([(path, Mask("null"))]))(text.encode(), 0)
    expected = nulled(json.loads(text), path.split("."))
    if "." not in str(list(walk_names(value))):
        assert json.loads(made) == expected


def walk_names(value: Any) -> Any:
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from walk_names(each)
    yield from value if isinstance(value, dict) else ()


def test_a_hash_is_keyed_and_the_same_for_the_same_text_in_any_format() -> None:
    tree = tree_of([("email", HASH)])
    plain = orjson.loads(json_masking(tree)('{"email": "é"}'.encode(), 0))["email"]
    escaped = orjson.loads(json_masking(tree)(b'{"email": "\\u00e9"}', 0))["email"]
    other = orjson.loads(json_masking(tree_of([("email", Mask("hash", b"x"))]))('{"email": "é"}'.encode(), 0))
    assert plain == escaped != other["email"] != plain and len(plain) == 32
    assert decoded(avro_masked({**PERSON, "email": "é"}, [("email", HASH)]))["email"] == plain
    assert orjson.loads(json_masking(tree)(b'{"email": ["a", null, "b"]}', 0))["email"][1] is None


# ---- Avro

PERSON: dict[str, Any] = {
    "id": 5,
    "email": "a@b",
    "phone": "123",
    "home": {"street": "x", "no": 1},
    "others": [{"street": "y", "no": 2}, {"street": "", "no": 3}],
    "tags": {"secret": "s", "open": "o"},
    "born": 100,
    "ref": "12345678-1234-5678-1234-567812345678",
    "raw": b"r" * 40,
    "kind": "B",
}
PLAIN = json.loads(json.dumps(USER).replace('"logicalType"', '"wasLogical"'))


def encoded(value: Any, schema: Any = USER) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(PLAIN if schema is USER else schema), value)
    return b"\0\0\0\0\x07" + body.getvalue()


def decoded(value: bytes, schema: Any = PLAIN) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema), None)


def avro_masked(value: Any, fields: list[tuple[str, Mask]], schema: Any = USER) -> bytes:
    source = SchemaSource.of("AVRO", json.dumps(schema))
    return avro_masking(source.parsed(), tree_of(fields))(encoded(value, schema), 5)


def test_only_what_is_masked_changes_in_avro() -> None:
    made = decoded(
        avro_masked(
            PERSON,
            [
                ("email", Mask("redact")),
                ("phone", Mask("null")),
                ("home.street", Mask("redact")),
                ("others.street", HASH),
                ("tags.secret", Mask("redact")),
                ("born", Mask("redact")),
                ("ref", HASH),
                ("raw", HASH),
                ("no.such", HASH),
            ],
        )
    )
    streets = [HASH.digest(each["street"].encode()).hex() for each in PERSON["others"]]
    assert made["raw"] == HASH.digest(b"r" * 40, 40) and made["ref"].count("-") == 4 != PERSON["ref"]
    assert made == {
        **PERSON,
        "email": "***",
        "phone": None,
        "home": {"street": "***", "no": 1},
        "others": [{"street": street, "no": each["no"]} for street, each in zip(streets, PERSON["others"],
        strict=True)],
        "tags": {"secret": "***", "open": "o"},
        "born": 0,
        "ref": made["ref"],
        "raw": made["raw"],
    }  # fmt: skip
    whole = decoded(avro_masked(PERSON, [("others", Mask("redact")), ("tags", Mask("redact"))]))
    assert whole == {**PERSON, "others": [], "tags": {}}


def test_a_key_with_dots_is_what_the_path_with_these_dots_names() -> None:
    tags = {"user.email": "a@b", "user": "c", "user.name": "d", "a.b.c": "e"}
    fields = [("tags.user.email", Mask("redact")), ("tags.a.b.c", Mask("redact"))]
    made = decoded(avro_masked({**PERSON, "tags": tags}, fields))["tags"]
    assert made == {**tags, "user.email": "***", "a.b.c": "***"}
    assert orjson.loads(json_masking(tree_of(fields))(orjson.dumps({"tags": tags}), 0))["tags"] == made


def test_the_branch_of_a_union_and_a_null_stay_as_they_were() -> None:
    # 5 as the union's second branch: a writer would choose the first.
    original = encoded(PERSON)
    odd = original[:5] + b"\x02" + original[6:]
    source = SchemaSource.of("AVRO", json.dumps(USER))
    made = avro_masking(source.parsed(), tree_of([("phone", HASH), ("email", Mask("redact"))]))(odd, 5)
    assert made[5:7] == b"\x02\x0a"
    gone = {**PERSON, "phone": None}
    assert avro_masked(gone, [("phone", HASH)]) == encoded(gone)
    assert avro_masked(PERSON, [("email", HASH)])[: len(original) - 90] != original[: len(original) - 90]


def test_a_block_that_says_its_size_is_still_right() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}],
    }
    # -2 items, 6 bytes: "ab", "cd"; then one more block and the end.
    body = b"\0\0\0\0\x01" + b"\x03\x0c" + b"\x04ab\x04cd" + b"\x02\x02x" + b"\0"
    mask = avro_masking(SchemaSource.of("AVRO", json.dumps(schema)).parsed(), tree_of([("a", HASH)]))
    made = decoded(mask(body, 5), schema)
    assert made["a"] == [HASH.digest(each).hex() for each in (b"ab", b"cd", b"x")]


@pytest.mark.parametrize(
    ("path", "mask", "said"),
    [
        ("email", Mask("null"), "may not be null"),
        ("id", HASH, "is int: hash has no value"),
        ("kind", Mask("redact"), "is enum"),
        ("home", Mask("redact"), "is record"),
        ("born", HASH, "is date"),
    ],
)
def test_a_mask_that_the_schema_does_not_allow_is_told_before_any_value(
    path: str, mask: Mask, said: str
) -> None:
    with pytest.raises(Unmaskable, match=said):
        avro_masked(PERSON, [(path, mask)])
    shape = shape_of(mirror(mask=[rule(None if mask.how == "null" else mask.how, path)]), "nyc.chat")
    assert shape is not None and said in (objection(shape, "AVRO", json.dumps(USER)) or "")


@given(st.binary(max_size=60), st.integers(0, 80))
def test_damaged_avro_is_never_let_through_nor_a_crash(noise: bytes, cut: int) -> None:
    mask = avro_masking(
        SchemaSource.of("AVRO", json.dumps(USER)).parsed(),
        tree_of([("email", HASH), ("others.street", HASH)]),
    )
    for value in (b"\0\0\0\0\x07" + noise, encoded(PERSON)[: 5 + cut]):
        try:
            made = mask(value, 5)
        except Unmaskable:
            continue
        assert decoded(made)["email"] != decoded(value)["email"]


def test_json_schemas_tell_what_does_not_fit() -> None:
    schema = json.dumps({"properties": {"email": {"type": "string"}, "n": {"type": ["integer", "null"]}}})

    def why(how: str | None, path: str) -> str | None:
        shape = shape_of(mirror(mask=[rule(how, path)]), "nyc.chat")
        assert shape is not None
        return objection(shape, "JSON", schema)

    assert why(None, "email") == 'field "email" may not be null'
    assert why("hash", "n") == 'field "n" is integer, null: a hash is text'
    assert why(None, "n") is why("hash", "email") is why("redact", "n") is why("hash", "other") is None
    shape = shape_of(mirror(mask=[rule("hash", "a")]), "nyc.chat")
    assert shape is not None and "Protobuf" in (objection(shape, "PROTOBUF", "") or "")


# ---- records


def record(
    value: bytes | None, headers: list[tuple[bytes, bytes | None]] | None = None, key: bytes | None = b"k"
) -> bytes:
    return rest_of(key, value, headers or [])


@pytest.mark.parametrize(
    ("where", "rest", "wanted"),
    [
        ({"header": "region", "in": ["eu"]}, record(b"", [(b"region", b"eu")]), True),
        ({"header": "region", "in": ["eu"]}, record(b"", [(b"region", b"eu"), (b"region", b"us")]), False),
        ({"header": "region", "in": ["eu"]}, record(None, []), False),
        ({"header": "region", "in": ["eu", None]}, record(None, []), True),
        ({"header": "region", "in": ["eu", None]}, record(None, [(b"region", None)]), True),
        ({"header": "region", "not_in": ["eu"]}, record(b"", [(b"region", b"\xff")]), True),
        ({"field": "a.b", "in": [1]}, record(b'{"a": [{"b": 2}, {"b": 1}]}'), True),
        ({"field": "a.b", "in": [1]}, record(b'{"a": {"b": true}}'), False),
        ({"field": "a.b", "in": [None]}, record(b'{"a": 3}'), True),
        ({"field": "a", "not_in": ["x", 3]}, record(b'{"a": 3}'), False),
        ({"field": "a", "in": ["x"]}, record(None), True),
    ],
)
def test_which_records_are_wanted(where: dict[str, Any], rest: bytes, wanted: bool) -> None:
    made = shaper(only=[{"topics": ["nyc.*"], "where": where}]).apply(rest)
    assert made == (rest if wanted else None)


def test_a_field_of_avro_is_compared_too() -> None:
    schemas = Known({7: SchemaSource.of("AVRO", json.dumps(USER))})
    chosen = shaper(schemas, only=[{"topics": ["nyc.*"], "where": {"field": "home.no", "in": [1]}}])
    assert chosen.apply(record(encoded(PERSON))) is not None
    assert chosen.apply(record(encoded({**PERSON, "home": {"street": "", "no": 2}}))) is None


def test_key_headers_nulls_and_other_topics_stay() -> None:
    assert shape_of(mirror(mask=[rule("redact", "email")]), "nyc.loot") is None
    made = shaper(mask=[rule("redact", "email")])
    deletion = record(None, [(b"email", b"a")])
    untouched = record(b'{"mail": 1}', [(b"\xff", b""), (b"\xff", None)], None)
    assert made.apply(deletion) is deletion and made.apply(untouched) is untouched
    found = fields_of(made.apply(record(b'{"email": "a"}', [(b"\xff", None)], b"a@b")) or b"")
    assert found == (b"a@b", b'{"email": "***"}', ((b"\xff", None),))


def test_ids_become_the_targets_and_numbers_as_keys_stay() -> None:
    schemas = Known({}, {7: 70})
    value, number = b"\0\0\0\0\x07body", (7 << 24).to_bytes(8, "big")
    made = shaper(schemas, schema_ids="rewrite").apply(record(value, key=number))
    assert fields_of(made or b"")[:2] == (number, b"\0\0\0\0\x46body")
    keyed = shaper(schemas, "nyc.keyed", schema_ids="rewrite").apply(record(b"{}", key=value))
    assert fields_of(keyed or b"")[:2] == (b"\0\0\0\0\x46body", b"{}")
    with pytest.raises(RulesNotApplicable, match="schema 8 has no id at the target"):
        shaper(schemas, schema_ids="rewrite").apply(record(b"\0\0\0\0\x08body"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"hello", "not JSON"),
        (b"\0\0", "cut off"),
        (b"\0\0\0\0\x09{}", "no schema 9"),
        (b"\0\0\0\0\x08\0", "is PROTOBUF"),
        (b"\0\0\0\0\x07\xff", "do not fit its schema"),
        (b'\0\0\0\0\x06{"email": "a@b", "email": "c"}', None),
        (b'\0\0\0\0\x05{"email": "hide"}', "does not fit its schema 5"),
    ],
)
def test_what_cannot_be_masked_is_not_carried(value: bytes, said: str | None) -> None:
    schemas = Known(
        {
            5: SchemaSource.of("JSON", '{"properties": {"email": {"type": "string", "minLength": 4}}}'),
            6: SchemaSource.of("JSON", '{"properties": {"email": {"type": "string"}}}'),
            7: SchemaSource.of("AVRO", json.dumps(USER)),
            8: SchemaSource.of("PROTOBUF", 'syntax = "proto3"; message A {}'),
        }
    )
    made = shaper(schemas, mask=[rule("redact", "email")])
    if said is None:
        assert b"@" not in (made.apply(record(value)) or b"@")
        return
    with pytest.raises(RulesNotApplicable, match=said) as caught:
        made.apply(record(value))
    assert "hide" not in caught.value.message


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_holes_are_told_and_what_is_kept_keeps_its_time_and_order(codec: int) -> None:
    raws = [
        RawRecord(100 + n, 5 - n, 0, record(b'{"a":%d}' % n, [(b"r", b"eu" if n % 3 else b"us")]))
        for n in range(9)
    ]
    (made,) = shaper(
        only=[{"topics": ["nyc.*"], "where": {"header": "r", "in": ["eu"]}}], mask=[rule("redact", "a")]
    ).reencode([batch(raws)], 102, 100_000)  # fmt: skip
    kept = [each for each in raws if each.offset >= 102 and each.offset % 3 != 1]
    assert [run.source for run in made.runs] == [102, 104, 107] and made.count == len(kept)
    found = list(records_in(patched(made.payload)))
    assert [each.timestamp_ms for each in found] == [each.timestamp_ms for each in kept]
    assert {fields_of(each.rest).value for each in found} == {b'{"a":0}'}


def test_the_unreadable_stop_or_are_left_out_and_told() -> None:
    raws = [RawRecord(n, 0, 0, record(b"{}" if n % 4 == 0 else b"no")) for n in range(8)]
    with pytest.raises(RulesNotApplicable, match="offset 1: "):
        shaper(mask=[rule("redact", "a")]).reencode([batch(raws)], 0, 100_000)
    dropping = shaper(mask=[rule("redact", "a")], on_unreadable="drop")
    (made,) = dropping.reencode([batch(raws)], 0, 100_000)
    assert made.count == 2 and list(stretches(dropping.unreadable)) == [(1, 4), (5, 8)]
    assert dropping.reencode([batch(raws[1:3])], 0, 100_000) == []


# ---- the file

FILE = """\
clusters:
  nyc: {bootstrap: "h:1", owns: ["nyc.**"], registry: "http://r"}
  lon: {bootstrap: "h:2", registry: "http://q"}
mirrors:
  nyc-lon:
    source: nyc
    target: lon
    topics: ["nyc.**"]
    only: [{topics: [nyc.chat], where: {header: region, in: [eu]}}]
    mask: [{topics: ["nyc.**"], fields: [email, address.street], with: hash, key: "${MASK}"}, {topics: [nyc.a], fields: [x], with: null}]
    schema_ids: rewrite
"""  # noqa: E501


def test_the_file_says_it_shortly(tmp_path: Path) -> None:
    path = tmp_path / "mirrors.yaml"
    path.write_text(FILE)
    file = load(path)
    shape = shape_of(file.mirrors["nyc-lon"], "nyc.chat")
    assert str(shape) == (
        "only where header region in [eu]; mask email (hash); mask address.street (hash); "
        "schema ids of the target"
    )
    assert mask_secrets(file, {"MASK": "s"}) == {"${MASK}": "s"}
    with pytest.raises(ConfigError, match="key of a mask: the variable MASK is not set"):
        mask_secrets(file, {})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("header: region", "heder: region", r':9:.*unknown key "heder"\nHint: did you mean "header"'),
        ("header: region", "header: region, field: x", ":9:.*header or field"),
        ("in: [eu]", "in: [eu], not_in: [us]", ":9:.*in or not_in"),
        ("in: [eu]", "in: [no]", ":9:.*put its values in quotes"),
        ("with: null", "with: hide", ":10:.*'hash', 'null' or 'redact'"),
        (', key: "${MASK}"', "", ":10:.*a hash needs a key"),
        ('"${MASK}"', "hunter2", ":10:.*must not be in the file"),
        (', registry: "http://q"', "", r":7:.*needs a registry on both sides"),
        ("schema_ids: rewrite", "engine: batch", r":\d+:.*remove engine: batch"),
        ("fields: [x]", "fields: [x.]", ":10:"),
    ],
)
def test_a_mistake_is_shown_where_it_is(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in FILE
    path = tmp_path / "mirrors.yaml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError, match="(?s)mirrors.yaml" + said):
        load(path)


@pytest.mark.parametrize(
    ("topics", "pattern", "refused"),
    [
        (["nyc.**"], "nyc.*.chat", False),
        (["nyc.*"], "nyc.*.chat", True),
        (["nyc.*.chat"], "**.chat", False),
        (["nyc.**"], "lon.**", True),
        (["nyc.**"], "nyc.secret", True),
    ],
)
def test_a_rule_that_is_about_no_topic_is_refused(topics: list[str], pattern: str, refused: bool) -> None:
    said = {"source": "nyc", "target": "lon", "topics": topics, "exclude": ["nyc.secret"]}
    file = MirrorsFile.model_validate(
        {
            "clusters": {"nyc": {"bootstrap": "h:1", "owns": ["nyc.**"]}, "lon": {"bootstrap": "h:2"}},
            "mirrors": {"a": {**said, "mask": [{"topics": [pattern], "fields": ["x"], "with": None}]}},
        }
    )
    assert any("about no topic" in each.reason for each in check(file)) is refused


def test_what_is_masked_never_goes_home_and_the_rest_goes_whole() -> None:
    file = MirrorsFile.model_validate(
        {
            "clusters": {"nyc": {"bootstrap": "h:1", "owns": ["nyc.**"]}, "lon": {"bootstrap": "h:2"}},
            "mirrors": {
                "nyc-lon": {
                    "source": "nyc",
                    "target": "lon",
                    "topics": ["nyc.**"],
                    "mask": [rule("hash", "a")],
                    "only": [{"topics": ["nyc.**"], "where": {"field": "x", "in": [1]}}],
                }
            },
        }
    )
    assert masked(file, "nyc.chat", "nyc", "lon") and not masked(file, "nyc.loot", "nyc", "lon")
    assert way_back(file, "nyc.chat", "nyc", "lon") is None
    assert way_back(file, "nyc.loot", "nyc", "lon") == "nyc-lon~back"
    assert shape_of(links(file)["nyc-lon~back"].mirror, "nyc.loot") is None
    # Nor through a mirror that is declared for the other direction.
    both = file.model_copy(
        update={
            "mirrors": {
                **file.mirrors,
                "lon-nyc": mirror(source="lon", target="nyc", topics=["**"], owner="transit"),
            }
        }
    )
    assert way_back(both, "nyc.chat", "nyc", "lon") is None
    assert way_back(both, "nyc.loot", "nyc", "lon") == "lon-nyc"


def test_numbers_as_keys_do_not_ask_the_registry_once_a_record() -> None:
    """Java's LongSerializer: eight bytes, of which the first is 0 as before an id."""
    asked: list[str] = []

    class Counting(Known):
        def has_keys(self, topic: str) -> bool:
            asked.append(topic)
            return len(asked) > 1

    made = shaper(Counting({}, {7: 9}), schema_ids="rewrite")
    key = (7 << 24).to_bytes(8, "big")
    records = [RawRecord(number, 0, 0, record(None, key=key)) for number in range(50)]
    assert [
        fields_of(each.rest).key
        for new in made.reencode([batch(records)], 0, 1 << 20)
        for each in records_in(patched(new.payload))
    ] == [key] * 50
    assert asked == ["nyc.chat"]
    # Its first key schema comes before the records that name it.
    (new,) = made.reencode([batch(records)], 0, 1 << 20)
    assert {fields_of(each.rest).key for each in records_in(patched(new.payload))} == {
        (9 << 24).to_bytes(8, "big")
    }
    made.reencode([batch(records)], 0, 1 << 20)
    assert len(asked) == 2
