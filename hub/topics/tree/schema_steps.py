"""[core] Steps for the schemas of a topic: register, and set the level of compatibility."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro import schema as avro
from hub.topics.tree.steps import RegisterSchema, SetCompatibility, Step, TreeRefusal
from hub.topics.tree.tree import TopicSpec


def level_step(topic: TopicSpec, schemas: PlanSchemas) -> Iterator[SetCompatibility]:
    """Yield the step that sets the level, also for a subject without schemas: it applies to anybody who
    registers one.
    """
    if topic.compatibility is not None:
        now = schemas.compatibility(topic.subject)
        if topic.compatibility != now:
            yield SetCompatibility(topic, topic.compatibility, now)


def schema_steps(
    topic: TopicSpec, text: str, schemas: PlanSchemas, refusals: list[TreeRefusal]
) -> list[Step]:
    level = topic.compatibility or schemas.compatibility(topic.subject)
    versions = [_canonical_or_none(version) for version in schemas.versions(topic.subject)]
    wanted = _canonical(text)
    if versions and versions[-1] == wanted:
        return []

    def refuse(reason: str, hint: str, declared: str, found: str = f"version {len(versions)}") -> None:
        refusals.append(TreeRefusal(topic.name, reason, hint, "schema", declared, found))

    if wanted in versions:
        # For an old schema the registry returns its old version, and producers would continue to use the
        # latest.
        number = versions.index(wanted) + 1
        refuse(
            f"its schema is version {number} of {len(versions)}, and later ones exist",
            "versions go forward only: make the next one, or delete the later ones from the registry",
            f"version {number}",
        )
        return []
    # Check at the level of the tree, because it is set before the schema is registered.
    try:
        reasons = schemas.incompatibilities(topic.subject, text, level)
    except InvalidSchema as error:  # only the registry can check it, and it uses its current level
        refuse(
            f"its schema cannot be compared with the registered ones at {level}: {error.message}",
            f"set the subject's level to {level} in the registry first, then the registry checks the schema",
            "a new version",
        )
        return []
    for reason in reasons:
        refuse(
            f"its schema breaks {level if versions else 'a rule'}: {reason}",
            "change the schema so that it follows the registered one, or the level in topics.yaml"
            if versions
            else "change the schema; hub schema explain shows who set the rule",
            "a schema that breaks the rule",
            f"version {len(versions)}" if versions else "no version",
        )
    return [RegisterSchema(topic, text, not versions)]


def _canonical_or_none(text: str) -> str | None:
    """Return the canonical form, None for a registered schema that is not self-contained Avro (another
    format, or references); it never equals a schema of the tree.
    """
    try:
        return _canonical(text)
    except InvalidSchema:
        return None


def _canonical(text: str) -> str:
    return avro.canonical(avro.parse(text))


class PlanSchemas(Protocol):
    """Registry reads that the plan needs. Schemas are texts."""

    def versions(self, subject: str) -> Sequence[str]:
        """Return the registered schemas, oldest first. The last one is in use by producers; [] if there is
        none.
        """

    def compatibility(self, subject: str) -> str:
        """Return the subject's effective compatibility level."""

    def incompatibilities(self, subject: str, schema: str, level: str) -> Sequence[str]:
        """Return why the schema cannot be the subject's next (or first) version at that level: which field,
        which rule.
        """
