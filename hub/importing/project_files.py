"""[core] Files of a project that an import makes, merged with those that exist."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from hub.importing.report import NotTranslated
from hub.yaml import written

TOPICS, CONNECTORS = "topics.yaml", "connectors.yaml"


@dataclass
class ProjectFiles:
    """Texts of files by their path in the project. ``before``: those that exist. ``made``: new and
    changed ones."""

    before: Mapping[str, str]
    made: dict[str, str] = field(default_factory=dict)
    topics: dict[str, Any] = field(default_factory=dict)
    connectors: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def over(cls, before: Mapping[str, str]) -> ProjectFiles:
        """Return no changes yet of a project. ``before``: the texts of its files."""
        project_files = cls(before)
        project_files.topics = _content(before.get(TOPICS)) or {}
        project_files.connectors = _content(before.get(CONNECTORS)) or {}
        return project_files

    def text(self, path: str) -> str | None:
        return self.made.get(path, self.before.get(path))

    def has_topic(self, name: str) -> bool:
        node = _node(self.topics, name)
        return node is not None and (not node.get("topics") or bool(node.get("topic")))

    def add_topic(self, name: str, node: Mapping[str, Any]) -> bool:
        """Add a topic unless it is there; return whether it was added. Raises NotTranslated."""
        if self.has_topic(name):
            return False
        labels = name.split(".")
        if not all(label and label.replace("-", "").replace("_", "").isalnum() for label in labels):
            raise NotTranslated(
                f'"{name}" cannot be a topic of topics.yaml', "letters, digits, _ and -, joined by dots"
            )
        at, is_new = self.topics, False
        for label in labels:
            if at is not self.topics and not is_new and not at.get("topics"):
                at["topic"] = True  # a topic that gets topics below it must say that it is one
            at["topics"] = below = at.get("topics") or {}
            is_new = label not in below
            below[label] = at = below.get(label) or {}
        if at.get("topics"):
            at["topic"] = True
        at.update(node)
        self.made[TOPICS] = self._written(TOPICS, self.topics)
        return True

    def add_connector(self, name: str, node: Mapping[str, Any]) -> bool:
        known = self.connectors.setdefault("connectors", {})
        if name in known:
            return False
        known[name] = dict(node)
        self.made[CONNECTORS] = self._written(CONNECTORS, self.connectors)
        return True

    def undo(self, made: Mapping[str, str]) -> None:
        """Return to the changes of before a statement."""
        self.made = dict(made)
        self.topics = _content(self.text(TOPICS)) or {}
        self.connectors = _content(self.text(CONNECTORS)) or {}

    def changes(self) -> list[str]:
        """Return the paths of files whose text differs from that of today."""
        return sorted(path for path, text in self.made.items() if self.before.get(path) != text)

    def existing(self) -> list[str]:
        """Return the changed paths that exist already. A file that lists nothing yet is as good as a new one:
        nothing but text is added to it.
        """
        return [path for path in self.changes() if path in self.before and not self._lists_nothing(path)]

    def _lists_nothing(self, path: str) -> bool:
        lists = {TOPICS: "topics", CONNECTORS: "connectors"}
        content = _content(self.before[path]) or {}
        return path in lists and not content.get(lists[path])

    def _written(self, path: str, content: Mapping[str, Any]) -> str:
        """Return the text of a file, after the comments at the head of the existing one."""
        head = itertools.takewhile(
            lambda line: not line.strip() or line.startswith("#"),
            self.before.get(path, "").splitlines(keepends=True),
        )
        return "".join(head) + written(content)

    def diff(self) -> list[str]:
        lines: list[str] = []
        for path in self.changes():
            before, after = self.before.get(path, "").splitlines(), self.made[path].splitlines()
            old = path if path in self.before else "/dev/null"
            lines += difflib.unified_diff(before, after, old, path, lineterm="")
        return lines


def _node(body: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    at: Any = body
    for label in name.split("."):
        at = (at.get("topics") or {}).get(label)
        if at is None:
            return None
    return at if isinstance(at, dict) else None


def _content(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    found = yaml.safe_load(text)
    return found if isinstance(found, dict) else {}
