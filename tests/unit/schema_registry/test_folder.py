"""Folders of schemas: files, references, the plan against a registry, and an empty plan after apply."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.errors import ConfigError, Conflict
from hub.schema_registry.compat.compatibility import Incompatibility
from hub.schema_registry.folder.apply import apply
from hub.schema_registry.folder.files import DeclaredSchema, Folder
from hub.schema_registry.folder.load import load
from hub.schema_registry.folder.plan import SchemaRequirements, Status, as_state, plan
from hub.schema_registry.folder.rules import rules_of, with_levels
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.policy.policy import Policies
from hub.schema_registry.registry.rulebook import Rulebook
from hub.schema_registry.registry.snapshot import RegistryState, SubjectState, SubjectVersion, state_of
from hub.schema_registry.registry.state_machine import RegisterSchema, Registry, SetLevel


def record(name: str, *fields: tuple[Any, ...]) -> str:
    made = [
        {"name": each[0], "type": each[1], **({"default": each[2]} if len(each) > 2 else {})}
        for each in fields
    ]
    return json.dumps({"type": "record", "name": name, "fields": made}, indent=2)


def write(root: Path, files: dict[str, str]) -> Folder:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return load(root)


ORDER = record("shop.Order", ("id", "long"))


# ---- which file is which subject


def test_a_subject_is_the_files_name_a_folder_is_a_topic_and_a_file_may_say_otherwise(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "plain.avsc": ORDER,
            "shop.orders/value.avsc": ORDER,
            "shop/payments/key.avsc": '"string"',
            "other.json": '{"type": "object"}',
            "a.proto": 'syntax = "proto3"; message A {}',
            "README.md": "no schema",
            ".hidden.avsc": "{",
            "schemas.yaml": "schemas:\n  other.json: {subjects: [x-value, y-value]}\n",
        },
    )
    assert {(each.subject, each.schema_type) for each in folder.files} == {
        ("plain", "AVRO"),
        ("shop.orders-value", "AVRO"),
        ("shop.payments-key", "AVRO"),
        ("x-value", "JSON"),
        ("y-value", "JSON"),
        ("a", "PROTOBUF"),
    }
    assert folder.ignored == ("README.md",)


def test_what_topics_say_of_a_file_gives_its_subject_and_schemas_yaml_goes_before(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"orders.avsc": ORDER, "mine.avsc": ORDER, "schemas.yaml": "schemas: {mine.avsc: {subject: m}}"},
    )
    told = {
        (tmp_path / name).resolve(): [DeclaredSchema("shop.orders-value", "FULL")]
        for name in ("orders.avsc", "mine.avsc")
    }
    found = {each.path: (each.subject, each.compatibility) for each in load(tmp_path, told).files}
    assert found == {"orders.avsc": ("shop.orders-value", "FULL"), "mine.avsc": ("m", None)}


@pytest.mark.parametrize(
    ("said", "level", "problem"),
    [
        ("schemas: {a.avsc: {compatibility: NONE}}", "NONE", "schemas.yaml declares compatibility NONE"),
        ("schemas: {a.avsc: {compatibility: FULL}}", "FULL", None),
        ("defaults: {compatibility: NONE}", "FULL", None),
        ("schemas: {a.avsc: {subject: other, compatibility: NONE}}", "NONE", None),
    ],
)
def test_a_level_is_said_in_one_place(tmp_path: Path, said: str, level: str, problem: str | None) -> None:
    """Two that differed were set by turns: by the folder's apply, and by the topics'."""
    write(tmp_path, {"a.avsc": ORDER, "schemas.yaml": said})
    told = {(tmp_path / "a.avsc").resolve(): [DeclaredSchema("shop.orders-value", "FULL")]}
    (file,) = load(tmp_path, told).files
    assert file.compatibility == level
    assert (file.problem is None) if problem is None else problem in str(file.problem)


def test_owner_tags_and_properties_become_metadata(tmp_path: Path) -> None:
    (file,) = write(
        tmp_path,
        {
            "a.avsc": ORDER,
            "schemas.yaml": "defaults: {owner: us, compatibility: full}\n"
            "schemas:\n  a.avsc: {tags: [pii], metadata: {cost: '7'}}\n",
        },
    ).files
    assert file.metadata == {"tags": {"**": ["pii"]}, "properties": {"cost": "7", "owner": "us"}}
    assert file.compatibility == "FULL"


@pytest.mark.parametrize(
    ("settings_text", "where", "message"),
    [
        ("schemas:\n  b.avsc: {}\n", ":2:3", 'file "b.avsc" is not in the folder'),
        ("schemas:\n  a.avsc: {ownr: x}\n", ":2:12", 'unknown key "ownr"'),
        ("defaults: {compatibility: LOOSE}\n", ":1:27", "no compatibility level"),
        ("schemas: [\n", ":2:1", "no valid YAML"),
    ],
)
def test_what_is_wrong_in_schemas_yaml_has_line_and_column(
    tmp_path: Path, settings_text: str, where: str, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        write(tmp_path, {"a.avsc": ORDER, "schemas.yaml": settings_text})
    assert f"schemas.yaml{where}" in refused.value.message and message in refused.value.message


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("schemas.yml", "rename it to schemas.yaml"),
        ("shop/schemas.yaml", "with paths from there (shop/…)"),
        ("shop/schemas.yml", "with paths from there (shop/…)"),
    ],
)
def test_a_schemas_yaml_that_nobody_reads_is_told(tmp_path: Path, name: str, way_out: str) -> None:
    """Regression: the file was ignored, and its owners and subjects were silently lost."""
    with pytest.raises(ConfigError, match=r"only schemas\.yaml of the folder itself is read") as refused:
        write(tmp_path, {"shop/a.avsc": ORDER, name: "defaults: {owner: us}", "schemas.yaml": "schemas: {}"})
    assert name in refused.value.message and way_out in (refused.value.hint or "")


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "no")


@pytest.mark.parametrize(
    ("name", "text", "line_column", "what"),
    [
        ("a.avsc", '{\n  "type": "record",,\n}', (2, 20), "not JSON"),
        ("a.json", '{"type": "object"', (1, 18), "not JSON"),
        ("a.avsc", record("A", ("x", "shop.Missing")), (7, 15), 'unknown type "shop.Missing"'),
        ("a.proto", 'syntax = "proto3";\nmessage A { Nope n = 1; }', (2, 13), '"Nope" is not defined'),
        ("a.json", '{"type": 7}', (1, 1), "not valid JSON Schema"),
        ("a.json", '{"$ref": "b.json"}', (1, 10), "b.json"),
    ],
)
def test_a_broken_file_is_refused_with_its_place_and_stops_no_other(
    tmp_path: Path, name: str, text: str, line_column: tuple[int, int], what: str
) -> None:
    made = plan(write(tmp_path, {name: text, "fine.avsc": ORDER}), RegistryState())
    by = {each.subject: each for each in made.items}
    assert by["a"].status is Status.refused and by["fine"].status is Status.new
    (reason,) = by["a"].reasons
    assert what in str(reason) and reason.fix
    assert by["a"].place(reason) == line_column
    assert made.exit_code == 1


def test_text_that_is_no_utf8_and_a_subject_twice_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_bytes(b'\n"\xff"')
    made = plan(write(tmp_path, {"b-value.avsc": ORDER, "b/value.avsc": ORDER}), RegistryState())
    told = {(each.file.path if each.file else ""): str(each.reasons[0]) for each in made.refused}
    assert "not UTF-8 text" in told["a.avsc"]
    assert "that of the file b/value.avsc already" in told["b-value.avsc"]
    assert made.refused[0].place() == (2, 1)


# ---- references


def test_a_file_whose_name_is_no_text_and_a_folder_that_cannot_be_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.avsc")
    odd.write_text(ORDER)
    with pytest.raises(ConfigError, match="its name is not UTF-8") as refused:
        load(tmp_path)
    assert r"caf\xe9.avsc" in refused.value.message
    odd.unlink()
    (tmp_path / "loop.avsc").symlink_to("loop.avsc")
    (loop,) = load(tmp_path).files
    assert loop.problem is not None and "cannot be read (Too many levels" in loop.problem.what
    write(tmp_path, {"a.avsc": ORDER, "shut/b.avsc": ORDER})
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ConfigError, match=r"shut\" cannot be read \(Permission denied\)"):
        load(tmp_path)


def test_references_are_found_and_come_first_whatever_the_names(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "a.avsc": record("shop.Order", ("to", "shop.Address")),
            "z.avsc": record("shop.Address", ("land", "Country")),
            "country.avsc": json.dumps({"type": "enum", "name": "shop.Country", "symbols": ["NO"]}),
            "order.json": '{"properties": {"to": {"$ref": "common/address.json#/definitions/a"}}}',
            "common/address.json": '{"definitions": {"a": {"type": "string"}}}',
            "p/order.proto": 'syntax = "proto3"; import "p/money.proto"; import '
            '"google/protobuf/empty.proto";'
            " message O { M m = 1; }",
            "p/money.proto": 'syntax = "proto3"; /* import "no.proto"; */ message M {}',
        },
    )
    order = [each.subject for each in folder.files]
    assert order.index("country") < order.index("z") < order.index("a")
    assert order.index("common-address") < order.index("order")
    assert order.index("p-money") < order.index("p-order")
    made = plan(folder, RegistryState())
    assert not made.refused and made.exit_code == 2
    references = {each.subject: each.references for each in made.items}
    assert references["a"] == (Reference("shop.Address", "z", 1),)
    assert references["order"] == (Reference("common/address.json", "common-address", 1),)
    assert references["p-order"] == (Reference("p/money.proto", "p-money", 1),)


def test_a_path_starts_at_its_file_in_json_and_at_the_root_in_protobuf(tmp_path: Path) -> None:
    money = 'syntax = "proto3"; message M { int32 %s = 1; }'
    folder = write(
        tmp_path,
        {
            "address.json": '{"type": "integer"}',
            "shop/address.json": '{"type": "string"}',
            "shop/order.json": '{"properties": {"to": {"$ref": "address.json"}}}',
            "money.proto": money % "a",
            "shop/money.proto": money % "b",
            "shop/payment.proto": 'syntax = "proto3"; import "money.proto"; message P { M m = 1; }',
        },
    )
    references = {each.subject: each.references for each in plan(folder, RegistryState()).items}
    assert references["shop-order"] == (Reference("address.json", "shop-address", 1),)
    assert references["shop-payment"] == (Reference("money.proto", "money", 1),)


def test_references_in_a_circle_are_refused_and_named(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "a.avsc": record("A", ("b", "B")),
            "b.avsc": record("B", ("a", "A")),
            "c.avsc": record("C", ("a", "A")),
            "d.avsc": ORDER,
        },
    )
    by = {each.subject: each for each in plan(folder, RegistryState()).items}
    assert "references form a cycle: " in by["a"].reasons[0].what and by["b"].status is Status.refused
    assert by["c"].reasons[0].rule == "REFERENCE_REFUSED"
    assert by["d"].status is Status.new


def test_a_name_that_two_files_define_must_be_said(tmp_path: Path) -> None:
    files = {"a.avsc": record("A", ("o", "shop.Order")), "b.avsc": ORDER, "c.avsc": ORDER}
    (refused,) = plan(write(tmp_path, files), RegistryState()).refused
    assert "`shop.Order` is defined in b.avsc and c.avsc" in refused.reasons[0].what
    said = "schemas:\n  a.avsc:\n    references: [{name: shop.Order, subject: c}]\n"
    made = plan(write(tmp_path, {**files, "schemas.yaml": said}), RegistryState())
    assert not made.refused and made.items[-1].references == (Reference("shop.Order", "c", 1),)


def test_a_reference_may_lead_to_what_only_the_registry_has(tmp_path: Path) -> None:
    said = "schemas:\n  a.avsc:\n    references: [{name: shop.Order, subject: order%s}]\n"
    files = {"a.avsc": record("A", ("o", "shop.Order"))}
    state = RegistryState({"order": SubjectState((SubjectVersion(1, '"int"'), SubjectVersion(4, ORDER)))})
    folder = write(tmp_path, {**files, "schemas.yaml": said % ""})
    assert plan(folder, state).items[0].references == (Reference("shop.Order", "order", 4),)
    (refused,) = plan(folder, RegistryState()).refused
    assert refused.reasons[0].rule == "REFERENCE_MISSING"
    folder = write(tmp_path, {**files, "schemas.yaml": said % ", version: 9"})
    assert "no version 9" in plan(folder, state).refused[0].reasons[0].what


# ---- the plan


def versions(*texts: str, level: str = "BACKWARD", **more: Any) -> SubjectState:
    return SubjectState(tuple(SubjectVersion(n, text, **more) for n, text in enumerate(texts, 1)), level)


V1 = record("R", ("a", "int"))
V2 = record("R", ("a", "int"), ("b", "string", ""))
BREAKS = record("R", ("a", "int"), ("c", "string"))


@pytest.mark.parametrize(
    ("now", "registered", "status", "version", "said"),
    [
        (V1, None, Status.new, 1, ""),
        (V1, versions(V1), Status.unchanged, 1, ""),
        (json.dumps(json.loads(V1)), versions(V1), Status.unchanged, 1, ""),
        (V2, versions(V1), Status.changed, 2, "field `b` (string, default \"\") is added"),
        (BREAKS, versions(V1), Status.refused, 2, "READER_FIELD_MISSING_DEFAULT_VALUE"),
        (BREAKS, versions(V1, level="NONE"), Status.changed, 2, ("field `c` (string, "
        "without a default) is added")),
        (V1, versions(V1, V2), Status.unchanged, 1, "it is version 1, the registry has 2"),
        (V2, versions(V1, level="FORWARD"), Status.changed, 2, ""),
        (BREAKS, versions(V1, level="FORWARD"), Status.changed, 2, ""),
        (V1, versions(V2, level="FORWARD"), Status.changed, 2, ""),
        (V1, versions(BREAKS, level="FORWARD"), Status.refused, 2, "fix: give `c` a default"),
        (record("R", ("a", "int"), ("d", "int")), versions(BREAKS, V1, level="FORWARD_TRANSITIVE"),
        Status.refused, 3,
         "(version 1)"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_subject(
    tmp_path: Path, now: str, registered: SubjectState | None, status: Status, version: int, said: str
) -> None:
    state = RegistryState({"s": registered} if registered else {})
    (item,) = plan(write(tmp_path, {"s.avsc": now}), state).items
    assert (item.status, item.version) == (status, version)
    assert said in "; ".join([*map(str, item.reasons), *map(str, item.changes), item.remark])
    assert item.registers == (status in (Status.new, Status.changed))


def test_of_the_versions_that_break_the_newest_is_told(tmp_path: Path) -> None:
    registered = versions(record("R", ("x", "int")), record("R", ("y", "int")), level="FORWARD_TRANSITIVE")
    (item,) = plan(write(tmp_path, {"s.avsc": V1}), RegistryState({"s": registered})).refused
    assert [(each.against, each.field) for each in item.reasons] == [(2, "y")]


def test_the_order_of_keys_and_empty_metadata_are_no_change(tmp_path: Path) -> None:
    json_schema = '{"type": "object", "properties": {"b": {}, "a": {}}}'
    state = RegistryState(
        {
            "j": versions('{"properties":{"a":{},"b":{}},"type":"object"}', schema_type="JSON"),
            "p": versions('syntax = "proto3";\nmessage M {\n  int32 a = 1;\n}\n', schema_type="PROTOBUF"),
            "m": versions(V1, metadata={"properties": {"owner": "us"}, "tags": None, "sensitive": None}),
        }
    )
    files = {"j.json": json_schema, "p.proto": 'syntax="proto3"; message M { int32 a=1; }', "m.avsc": V1}
    settings_text = "schemas: {m.avsc: {owner: us}}"
    made = plan(write(tmp_path, {**files, "schemas.yaml": settings_text}), state)
    assert [each.status for each in made.items] == [Status.unchanged] * 3
    made = plan(write(tmp_path, {**files, "schemas.yaml": "schemas: {m.avsc: {owner: them}}"}), state)
    (changed,) = made.steps
    assert changed.changes[0].kind == "metadata"


def test_deleted_versions_bind_nothing_and_are_counted(tmp_path: Path) -> None:
    state = RegistryState(
        {"s": SubjectState((SubjectVersion(1, V1, deleted=True),)), "t": versions(V1, deleted=True)}
    )
    (item,) = plan(write(tmp_path, {"s.avsc": BREAKS}), state).items
    assert (item.status, item.version) == (Status.new, 2)


def test_what_only_the_registry_has_is_left_alone_and_no_change(tmp_path: Path) -> None:
    made = plan(write(tmp_path, {"s.avsc": V1}), RegistryState({"s": versions(V1), "t": versions(V1)}))
    assert [(each.subject, each.status) for each in made.items][1:] == [("t", Status.only_in_registry)]
    assert made.exit_code == 0


def test_another_schema_type_and_rules_of_others_refuse(tmp_path: Path) -> None:
    state = RegistryState({"s": versions(V1)})
    (item,) = plan(write(tmp_path, {"s.json": "{}"}), state).items
    assert item.reasons[0].rule == "SCHEMA_TYPE_CHANGED"

    def no_docs(file: Any, parsed: Any, subject: Any) -> list[Incompatibility]:
        return [] if "doc" in parsed.schema else [Incompatibility("DOC", "/", "no doc", "write one", "")]

    (tmp_path / "s.json").unlink()
    (item,) = plan(write(tmp_path, {"s.avsc": V2}), state, SchemaRequirements((no_docs,))).refused
    assert [each.rule for each in item.reasons] == ["DOC"]


@dataclass
class MemoryRegistry:
    """The registry's own rules, without a log."""

    registry: Registry = field(default_factory=Registry)

    def register(
        self,
        subject: str,
        text: str,
        schema_type: str,
        references: Sequence[Reference],
        metadata: Mapping[str, Any] | None,
    ) -> int:
        command = RegisterSchema(
            subject,
            text,
            schema_type=schema_type,
            references=tuple(
                replace(each, subject=names.written_in(subject, each.subject)) for each in references
            ),
            metadata=metadata,
        )
        return int(self._submit(command).version)

    def set_level(self, subject: str, level: str) -> None:
        self._submit(SetLevel(subject, {"compatibilityLevel": level}))

    def state(self) -> RegistryState:
        return state_of(self.registry)

    def _submit(self, command: RegisterSchema | SetLevel) -> Any:
        decision = self.registry.decide(command)
        for fact in decision.facts:
            self.registry.apply(fact)
        return decision.answer


def test_a_level_alone_is_a_change_and_registers_nothing(tmp_path: Path) -> None:
    registry = MemoryRegistry()
    registry.register("s", V1, "AVRO", (), None)
    folder = write(tmp_path, {"s.avsc": V1, "schemas.yaml": "defaults: {compatibility: FULL}"})
    (item,) = plan(folder, registry.state()).steps
    assert item.level == ("BACKWARD", "FULL") and not item.registers
    apply(plan(folder, registry.state()), registry)
    assert (
        registry.state().subjects["s"].level == "FULL" and len(registry.state().subjects["s"].versions) == 1
    )
    assert plan(folder, registry.state()).exit_code == 0


def submit(registry: MemoryRegistry, command: RegisterSchema | SetLevel) -> None:
    for fact in registry.registry.decide(command).facts:
        registry.registry.apply(fact)


def test_a_level_that_the_tree_does_not_allow_is_refused_though_the_schema_is_registered(
    tmp_path: Path,
) -> None:
    """The plan promised the level; apply then ended at the registry's refusal, with the rest not done."""
    book = Rulebook(Policies.of({"shop": {"compatibility": "FULL"}}))
    registry = MemoryRegistry()
    registry.registry.rulebook = book
    registry.register("shop.a-value", V1, "AVRO", (), None)
    said = "schemas: {shop.a-value.avsc: {compatibility: BACKWARD}}"
    folder = write(tmp_path, {"shop.a-value.avsc": V1, "schemas.yaml": said})
    (refused,) = plan(folder, registry.state(), rules_of(book)).refused
    assert "level BACKWARD is looser than FULL" in refused.reasons[0].what and not refused.registers
    folder = write(tmp_path, {"schemas.yaml": said.replace("BACKWARD", "FULL_TRANSITIVE")})
    made = plan(folder, registry.state(), rules_of(book))
    apply(made, registry)
    assert plan(folder, registry.state(), rules_of(book)).exit_code == 0


def test_a_subject_spelled_with_the_default_context_is_the_same_subject(tmp_path: Path) -> None:
    """The registry knows it by its short name alone: the plan called it new for ever."""
    said = "schemas: {o.avsc: {subject: ':.:orders', references: [{name: A, subject: ':.:a'}]}}"
    folder = write(tmp_path, {"o.avsc": record("O", ("a", "A")), "a.avsc": record("A"), "schemas.yaml": said})
    registry = MemoryRegistry()
    apply(plan(folder, registry.state()), registry)
    assert [(each.subject, each.status) for each in plan(folder, registry.state()).items] == [
        ("a", Status.unchanged),
        ("orders", Status.unchanged),
    ]


def test_offline_too_an_alias_stands_for_its_subject(tmp_path: Path) -> None:
    registry = MemoryRegistry()
    registry.register("orders", V1, "AVRO", (), None)
    submit(registry, SetLevel("old", {"alias": "orders"}))
    book = Rulebook(Policies.of({"orders": {"compatibility": "FORWARD"}, "old": {"compatibility": "FULL"}}))
    folder = write(tmp_path, {"old.avsc": V1})
    made = plan(folder, with_levels(registry.state(), folder, book), rules_of(book))
    assert [(each.subject, each.status) for each in made.items] == [("orders", Status.unchanged)]
    assert with_levels(registry.state(), folder, book).subject("orders").level == "FORWARD"


def test_rules_are_asked_with_the_metadata_that_the_registry_puts_in(tmp_path: Path) -> None:
    """The folder has no owner: that of the latest version, or of the settings, applies."""
    book = Rulebook(Policies.of({"**": {"owner": "required"}}))
    registry = MemoryRegistry()
    registry.register("s", V1, "AVRO", (), {"properties": {"owner": "us"}})
    submit(registry, SetLevel("t", {"defaultMetadata": {"properties": {"owner": "them"}}}))
    registry.register("t", V1, "AVRO", (), None)
    registry.register("u", V1, "AVRO", (), None)
    registry.registry.rulebook = book
    folder = write(tmp_path, {"s.avsc": V2, "t.avsc": V2, "u.avsc": V2})
    made = plan(folder, registry.state(), rules_of(book))
    assert [each.subject for each in made.refused] == ["u"]
    (tmp_path / "u.avsc").unlink()
    apply(plan(load(tmp_path), registry.state(), rules_of(book)), registry)


def test_metadata_that_the_registry_adds_are_no_change(tmp_path: Path) -> None:
    """Regression: each plan reported the change again, and each apply changed nothing."""
    registry = MemoryRegistry()
    owned = {"properties": {"owner": "us"}}
    submit(registry, RegisterSchema("s", V1, metadata=owned, version=-1))  # stores its number in the metadata
    submit(
        registry, SetLevel("t", {"defaultMetadata": {"properties": {"team": "x"}}, "overrideMetadata": owned})
    )
    folder = write(tmp_path, {"s.avsc": V1, "t.avsc": V1, "schemas.yaml": "defaults: {owner: us}"})
    assert [each.subject for each in plan(folder, registry.state()).steps] == ["t"]
    apply(plan(folder, registry.state()), registry)
    assert plan(folder, registry.state()).steps == []
    folder = write(tmp_path, {"schemas.yaml": "defaults: {owner: us, metadata: {more: y}}"})
    apply(plan(folder, registry.state()), registry)
    assert plan(folder, registry.state()).steps == []
    assert [len(each.versions) for each in registry.state().subjects.values()] == [2, 2]


def test_a_place_is_where_the_field_stands(tmp_path: Path) -> None:
    (item,) = plan(write(tmp_path, {"s.avsc": BREAKS}), RegistryState({"s": versions(V1)})).refused
    line, column = item.place(item.reasons[0])
    assert BREAKS.splitlines()[line - 1][column - 1 :].startswith('"c"')


# ---- apply


def test_apply_follows_references_as_they_move_and_then_there_is_nothing_to_do(tmp_path: Path) -> None:
    registry = MemoryRegistry()
    files = {"a.avsc": record("A", ("b", "B")), "b.avsc": record("B", ("x", "int")), "c.avsc": V1}
    folder = write(tmp_path, files)
    done: list[str] = []
    apply(plan(folder, registry.state()), registry, lambda item: done.append(item.subject))
    assert sorted(done) == ["a", "b", "c"] and done.index("b") < done.index("a")
    assert plan(folder, registry.state()).exit_code == 0

    folder = write(tmp_path, {"b.avsc": record("B", ("x", "int"), ("y", "int", 0))})
    made = plan(folder, registry.state())
    assert [(each.subject, each.version) for each in made.steps] == [("b", 2), ("a", 2)]
    # somebody is quicker: b gets another version than was planned, and a refers to the one it got
    registry.register("b", record("B", ("x", "int"), ("z", "int", 0)), "AVRO", (), None)
    apply(made, registry)
    assert registry.registry.version("a", 2).references == (Reference("B", "b", 3),)
    assert plan(folder, registry.state()).exit_code == 0


def test_apply_stops_at_the_first_failure_and_says_what_is_left(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.avsc": V1, "b.avsc": V1, "c.avsc": V1})
    registry, done = MemoryRegistry(), []

    class Failing:
        def register(self, subject: str, *more: Any) -> int:
            if subject == "b":
                raise Conflict("no", hint="mend it")
            return registry.register(subject, *more)

        def set_level(self, subject: str, level: str) -> None: ...

    with pytest.raises(Conflict) as stopped:
        apply(plan(folder, registry.state()), Failing(), lambda item: done.append(item.subject))
    assert done == ["a"] and stopped.value.hint == "mend it; not done: b, c; apply again when it is corrected"
    apply(plan(folder, registry.state()), registry)
    assert plan(folder, registry.state()).exit_code == 0


def test_nothing_is_applied_while_something_is_refused(tmp_path: Path) -> None:
    registry = MemoryRegistry()
    with pytest.raises(Conflict, match="b: INVALID"):
        apply(plan(write(tmp_path, {"a.avsc": V1, "b.avsc": "{"}), registry.state()), registry)
    assert not registry.registry.subjects


def test_a_folder_as_a_state_is_compared_with_its_next_revision(tmp_path: Path) -> None:
    files = {"a.avsc": record("A", ("b", "B")), "b.avsc": record("B", ("x", "int")), "c.avsc": "{"}
    before = as_state(write(tmp_path, files))
    assert {name: len(each.versions) for name, each in before.subjects.items()} == {"a": 1, "b": 1}
    made = plan(write(tmp_path, {"b.avsc": record("B", ("x", "string")), "c.avsc": V1}), before)
    assert {each.subject: each.status for each in made.items} == {
        "b": Status.refused,
        "a": Status.refused,
        "c": Status.new,
    }


# ---- a law: after apply there is nothing to do

NAMES = ("A", "B", "C", "D")
PRIMITIVE = st.sampled_from(["int", "long", "string", ["null", "string"]])


@st.composite
def folders(draw: st.DrawFn) -> dict[str, str]:
    """Some of four records, each of which may use those before it; owners now and then."""
    files, owners = {}, []
    for index, name in enumerate(NAMES):
        if not draw(st.booleans()):
            continue
        fields = [{"name": f"f{n}", "type": draw(PRIMITIVE)} for n in range(draw(st.integers(0, 2)))]
        used = [each for each in NAMES[:index] if f"{each.lower()}.avsc" in files and draw(st.booleans())]
        fields += [{"name": f"r{each}", "type": each} for each in used]
        text = {"type": "record", "name": name, "fields": fields}
        files[f"{name.lower()}.avsc"] = json.dumps(text, indent=draw(st.sampled_from([None, 2])))
        if draw(st.booleans()):
            owners.append(f"  {name.lower()}.avsc: {{owner: team{draw(st.integers(0, 1))}}}\n")
    files["schemas.yaml"] = (
        f"defaults: {{compatibility: NONE}}\nschemas:{' {}' if not owners else ''}\n" + "".join(owners)
    )
    return files


def _owned_by(team: str) -> dict[str, str]:
    return {
        "a.avsc": record("A"),
        "schemas.yaml": f"defaults: {{compatibility: NONE}}\nschemas:\n  a.avsc: {{owner: {team}}}\n",
    }


@given(revisions=st.lists(folders(), min_size=1, max_size=3))
@example(revisions=[_owned_by("a"), _owned_by("b"), _owned_by("a")])
@settings(max_examples=fast_or(15, 60), deadline=None)
def test_after_apply_the_plan_is_empty_revision_after_revision(revisions: list[dict[str, str]]) -> None:
    registry = MemoryRegistry()
    for files in revisions:
        with tempfile.TemporaryDirectory() as root:
            folder = write(Path(root), files)
            made = plan(folder, registry.state())
            assert not made.refused
            apply(made, registry)
            again = plan(folder, registry.state())
            assert [(each.subject, each.changes) for each in again.steps] == []


def test_what_no_level_sees_is_a_warning_of_the_plan(tmp_path: Path) -> None:
    """Whatever the rules, and in nobody's way."""
    before = as_state(write(tmp_path, {"a.avsc": record("A", ("id", "long", 1), ("name", "string", ""))}))
    after = write(tmp_path, {"a.avsc": record("A", ("id", "long", 2), ("title", "string", ""))})
    (item,) = plan(after, before).items
    assert item.status is Status.changed and not item.reasons
    assert [(each.rule, each.field) for each in item.warnings] == [
        ("DEFAULT_CHANGED", "id"),
        ("FIELD_RENAMED", "title"),
    ]
    assert plan(write(tmp_path, {}), as_state(after)).items[0].warnings == ()
