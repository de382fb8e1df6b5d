"""Edits of one topic in the text of topics.yaml: comments and order stay, every other value too."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.errors import CallerError, Conflict
from hub.topics.editing.change import TopicChange, check_others
from hub.topics.editing.tree_text import edit_topic
from hub.topics.tree.tree import TopicTree, load

TEXT = """\
# The shop's topics
defaults: {partitions: 1}
topics:
  shop:
    owner: shop-team  # on call: 4711
    retention: 7d
    topics:
      orders: {doc: "Orders, all", partitions: 2}  # the oldest
      returns:
        partitions: 3
        config:
          # small ones
          max.message.bytes: 1MiB

      empty: {}
  # what nobody owns
  legacy:
    topic: true
    topics:
      # moved soon
      old: {}
"""


def diff(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the lines that are gone, and those that are new."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


@pytest.mark.parametrize(
    ("topic", "settings", "gone", "new"),
    [
        ("shop.returns", {"partitions": 6}, ["        partitions: 3"], ["        partitions: 6"]),
        (
            "shop.returns",
            {"config.cleanup.policy": "compact"},
            [],
            ["          cleanup.policy: compact"],
        ),
        (
            "shop.orders",
            {"partitions": 4, "retention": "30d"},
            ['      orders: {doc: "Orders, all", partitions: 2}  # the oldest'],
            ['      orders: {doc: "Orders, all", partitions: 4, retention: 30d}  # the oldest'],
        ),
        (
            "shop.empty",
            {"config.cleanup.policy": "compact,delete"},
            ["      empty: {}"],
            ["      empty:", "          cleanup.policy: compact,delete"],
        ),
        ("shop.new", {}, [], ["      new: {}"]),
        (
            "crm.eu.people",
            {"partitions": 6},
            [],
            ["  crm:", "      eu:", "        topics:", "          people:", "            partitions: 6"],
        ),
        (
            "shop",
            {"owner": "a: b"},
            ["    owner: shop-team  # on call: 4711"],
            ["    owner: 'a: b'  # on call: 4711"],
        ),
    ],
)
def test_an_edit_changes_its_lines_alone(
    topic: str, settings: dict[str, str | int | bool | None], gone: list[str], new: list[str]
) -> None:
    edited = edit_topic(TEXT, topic, settings, ())
    assert diff(TEXT, edited) == (gone, new)
    assert edit_topic(edited, topic, settings, ()) == edited


def test_a_setting_is_removed_with_its_line() -> None:
    edited = edit_topic(TEXT, "shop.returns", {"partitions": None}, ())
    assert edited == TEXT.replace("        partitions: 3\n", "")
    assert edit_topic(edited, "shop.returns", {"partitions": None}, ()) == edited
    last = edit_topic(TEXT, "shop.returns", {"config.max.message.bytes": None}, ())
    assert "max.message.bytes" not in last and "# small ones" in last


def test_a_topic_above_stays_a_topic() -> None:
    edited = edit_topic(TEXT, "shop.empty.child", {}, ("shop.empty",))
    assert "      empty:\n        topic: true\n        topics:\n          child: {}\n" in edited


def test_an_empty_file_gets_its_first_topic(tmp_path: Path) -> None:
    (tmp_path / "topics.yaml").write_text(edit_topic("", "a.b", {"partitions": 2}, ()))
    assert [(each.name, each.partitions) for each in load(tmp_path / "topics.yaml").topics] == [("a.b", 2)]


def test_line_ends_of_windows_stay() -> None:
    edited = edit_topic(TEXT.replace("\n", "\r\n"), "shop.returns", {"partitions": 6}, ())
    assert edited == TEXT.replace("partitions: 3", "partitions: 6").replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("topics:\n  a: {partitions: 1,\n    retention: 1d}\n", "a"),
        ("topics:\n  a: [1]\n", "a"),
        ("topics:\n  a:\n    owner: |\n      x\n", "a"),
    ],
)
def test_a_form_that_is_not_safe_is_refused(text: str, topic: str) -> None:
    with pytest.raises(CallerError, match="is not edited here") as refused:
        edit_topic(text, topic, {"owner": "me"}, ())
    assert refused.value.hint == "edit the file, then: hub topic plan"


def test_settings_of_a_request() -> None:
    change = TopicChange("a", partitions="6", retention="inherit", config="x=1\n y.z = compact \n")
    assert change.settings() == {"partitions": 6, "retention": None, "config.x": 1, "config.y.z": "compact"}
    with pytest.raises(CallerError, match='topic "a": "oops" is not KEY=VALUE'):
        TopicChange("a", config="oops").settings()


def tree(folder: Path, text: str) -> TopicTree:
    path = folder / "topics.yaml"
    path.write_text(text)
    return load(path)


def test_a_change_of_another_topic_is_refused_by_its_name(tmp_path: Path) -> None:
    before = tree(tmp_path, TEXT)
    after = tree(tmp_path, edit_topic(TEXT, "legacy", {"retention": "1d"}, ()))
    with pytest.raises(Conflict, match='would change topic "legacy.old" too'):
        check_others("legacy", before, after)
    check_others("shop.new", before, tree(tmp_path, edit_topic(TEXT, "shop.new", {}, ())))
