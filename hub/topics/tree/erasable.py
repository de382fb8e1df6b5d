"""[shell] Let the writers of a process encrypt the erasable fields that topics.yaml declares."""

from __future__ import annotations

from pathlib import Path

from hub.schema_registry.encryption.erasable import ErasableFields
from hub.schema_registry.encryption.sealing import SEALER
from hub.topics.tree.live_rules import TOPICS_FILE
from hub.topics.tree.tree import LiveTree


def seal_by_tree(project: Path, kek: str) -> None:
    """Let this process's writers encrypt by the tree of a project; changes of the file are followed."""
    tree = LiveTree(project / TOPICS_FILE)

    def fields_of(topic: str) -> ErasableFields | None:
        spec = tree.find(topic)
        if spec is None and tree.error is not None:
            raise tree.error  # nobody knows what the topic declares
        return None if spec is None else spec.erasable

    SEALER.fields_of, SEALER.kek = fields_of, kek
