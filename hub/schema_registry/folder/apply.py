"""[shell] Apply the plan of a folder, one subject after the other, referenced subjects first.

Each step is idempotent, so the next apply completes an interrupted one. The first step that fails ends the
apply, because later steps may reference what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from hub.errors import Conflict, HubError
from hub.schema_registry.folder.plan import FolderItem, FolderPlan
from hub.schema_registry.model.facts import Reference


class FolderWriter(Protocol):
    """Port: the part of a registry that apply uses."""

    def register(
        self,
        subject: str,
        text: str,
        schema_type: str,
        references: Sequence[Reference],
        metadata: Mapping[str, Any] | None,
    ) -> int:
        """Register the schema; return its version. Raises Conflict, CallerError, PeerError."""

    def set_level(self, subject: str, level: str) -> None: ...


def apply(
    made: FolderPlan, registry: FolderWriter, on_step: Callable[[FolderItem], None] = lambda _item: None
) -> None:
    """Execute the steps of a plan; call ``on_step`` with each completed step.

    Raises Conflict, before any change, when the plan has refusals; the registry's error at the first step
    that fails, with the remaining subjects as its hint.
    """
    if made.refused:
        reasons = [f"{each.subject}: {reason}" for each in made.refused for reason in each.reasons]
        raise Conflict("\n".join(reasons), hint="nothing was changed; see hub schema plan", code="HUB-1910")
    got: dict[str, int] = {}
    for index, item in enumerate(made.steps):
        try:
            _carry_out(item, registry, got)
        except HubError as error:
            left = [each.subject for each in made.steps[index:]]
            error.hint = f"{error.hint}; {_left(left)}" if error.hint else _left(left)
            raise
        on_step(item)


def _carry_out(item: FolderItem, registry: FolderWriter, got: dict[str, int]) -> None:
    if item.level is not None:
        registry.set_level(item.subject, item.level[1])
    if not item.registers or item.file is None:
        return
    # Another client may have registered a version since the plan was made, so its number may differ.
    follows = {each.name: each.subject for each in item.file.references if each.version is None}
    references = [
        replace(each, version=got[each.subject])
        if follows.get(each.name) == each.subject and each.subject in got
        else each
        for each in item.references
    ]
    got[item.subject] = registry.register(
        item.subject, item.file.text, item.file.schema_type, references, item.file.metadata
    )


def _left(subjects: Sequence[str]) -> str:
    more = f" and {len(subjects) - 10} more" if len(subjects) > 10 else ""
    return f"not done: {', '.join(subjects[:10])}{more}; apply again when it is corrected"
