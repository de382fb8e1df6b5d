"""Files that people write: every error has file, line, column and a solution."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

import hub
from hub.errors import ConfigError
from hub.yaml import load_model, place


class Leaf(BaseModel):
    model_config = ConfigDict(extra="forbid")
    topic: str
    order_by: str = Field("", alias="order")


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    sources: dict[str, Leaf] = Field(default_factory=dict)
    lists: list[Leaf] = Field(default_factory=list)
    count: int | None = Field(None, ge=1)


GOOD = "name: x\nsources:\n  a: {topic: t, order: o}\nlists:\n  - topic: u\n"


@pytest.fixture
def write(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


def test_a_good_file_becomes_its_model(write: Path) -> None:
    write.write_text(GOOD)
    loaded = load_model(write, Tree)
    assert (loaded.sources["a"].order_by, loaded.lists[0].topic) == ("o", "u")


@pytest.mark.parametrize(
    ("text", "where", "message", "hint"),
    [
        ("name: x\nsorces: {}\n", "2:1", 'unknown key "sorces"', 'did you mean "sources"?'),
        ("name: x\nzzzzzz: 1\n", "2:1", 'unknown key "zzzzzz"', "known keys: count, lists, name, sources"),
        (
            "name: x\nsources:\n  a:\n    topic: t\n    odrer: o\n",
            "5:5",
            'unknown key "odrer"',
            'did you mean "order"?',
        ),
        (
            "name: x\nlists:\n  - {topik: t, topic: t}\n",
            "3:6",
            'unknown key "topik"',
            'did you mean "topic"?',
        ),
        ("name: x\nsources:\n  a: {order: o}\n", "3:6", '"sources.a.topic" is missing', 'add "topic"'),
        ("name: x\ncount: 0\n", "2:8", "count: Input should be greater than or equal to 1", "found 0"),
        ("name: x\ncount: many\n", "2:8", "valid integer", "found 'many'"),
        ("name: x\nname: y\n", "2:1", '"name" occurs twice', "keep one"),
        ("name: &a x\n", "1:7", "anchors and aliases", "write the value out"),
        ("name: x\nsources: {a: [}\n", "2:15", "no valid YAML", "line above"),
        ("name: x\n  sources: 1\n", "2:10", "no valid YAML", "line above"),
        ("name: !!python/object:os.system x\n", "1:7", "value cannot be read", None),
        ("name: 2024-99-99\n", "1:7", "", None),
        ("- a\n", "1:1", "", None),
        ("a: b: c\n", "1:5", "no valid YAML", "line above"),
        ("a\n", "1:1", "", None),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    write: Path, text: str, where: str, message: str, hint: str | None
) -> None:
    write.write_text(text)
    with pytest.raises(ConfigError) as refusal:
        load_model(write, Tree)
    assert refusal.value.where == f"{write}:{where}"
    assert message in refusal.value.message
    if hint is not None:
        assert hint in str(refusal.value.hint)


def test_files_that_are_none(write: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_model(write, Tree)
    write.write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        load_model(write, Tree)
    write.write_bytes(b"name: \xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_model(write, Tree)
    write.write_text("name: '" + "x" * 1_000_001 + "'")
    with pytest.raises(ConfigError, match="larger than"):
        load_model(write, Tree)


def test_nesting_without_end_is_refused(write: Path) -> None:
    write.write_text("a: " + "[" * 50_000 + "]" * 50_000)
    with pytest.raises(ConfigError, match="nested"):
        load_model(write, Tree)


@pytest.mark.parametrize("text", ["name: \x07x\n", "name: x\n\x00"])
def test_control_characters_are_refused(write: Path, text: str) -> None:
    write.write_text(text)
    with pytest.raises(ConfigError, match="no valid YAML"):
        load_model(write, Tree)


def test_place_finds_values_and_keys(write: Path) -> None:
    write.write_text(GOOD)
    assert place(write, "sources", "a", "topic") == f"{write}:3:14"
    assert place(write, "sources", "a") == f"{write}:3:3"
    assert place(write, "lists", 0, "topic") == f"{write}:5:12"
    assert place(write, "sources", "gone", "x") == f"{write}:2:1"


def kinds_of(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for kind in model.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def test_every_model_of_a_file_or_a_request_refuses_unknown_keys() -> None:
    folder = Path(hub.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        if "BaseModel" in path.read_text():
            importlib.import_module(".".join(path.relative_to(folder.parent).with_suffix("").parts))
    # ``hub.yaml`` has one model of several parts: the whole refuses unknown keys.
    ours = [each for each in kinds_of(BaseModel) if each.__module__.startswith("hub.")]
    open_ = {each.__name__ for each in ours if each.model_config.get("extra") != "forbid"}
    assert len(ours) > 100
    assert open_ == {"KafkaSettings", "OperationSettings", "ServerSettings", "ViewSettings"}
