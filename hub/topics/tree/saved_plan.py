"""[core] Plans as JSON: for programs, and as a file that is applied later exactly as shown.

A saved plan contains a digest of each topic and subject that it compared. On apply, these are read again; any
difference refuses the whole plan, because it would no longer do what was approved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hub.errors import CallerError, Conflict
from hub.formats.table import SAVED_PLAN
from hub.log import TopicDescription
from hub.topics.tree.plan import TreePlan
from hub.topics.tree.schema_steps import PlanSchemas
from hub.topics.tree.steps import (
    AddPartitions,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    RegisterSchema,
    SetCompatibility,
    Step,
)

FORMAT = SAVED_PLAN.version
_KINDS: Mapping[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind)
    for kind in (CreateTopic, AddPartitions, AlterConfig, SetCompatibility, RegisterSchema, DeleteTopic)
}

Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """The steps, and digests of the plan's inputs (see ``facts``)."""

    steps: tuple[Step, ...]
    facts: Facts


def as_json(plan: TreePlan) -> dict[str, object]:
    """Return the output of ``hub topic plan -o json``, in the plan's order. Keys are only added, never
    removed.
    """
    return {
        "format": FORMAT,
        "steps": [
            {"step": type(step).__name__, "topic": topic_of(step), "text": str(step)} for step in plan.steps
        ],
        "refusals": [
            {"topic": each.topic, "setting": each.setting, "reason": each.reason, "hint": each.hint}
            for each in plan.refusals
        ],
        "warnings": [
            {"topic": each.topic, "reason": each.reason, "hint": each.hint} for each in plan.cautions
        ],
        "kept": [{"topic": name, "destroy": destroy_command(name)} for name in plan.kept],
    }


def topic_of(step: Step) -> str:
    return step.name if isinstance(step, DeleteTopic) else step.topic.name


def destroy_command(name: str) -> str:
    return f"hub topic apply --destroy {name}"


# ---- inputs of a plan


def facts(
    cluster_id: str,
    topics: Iterable[str],
    actual: Mapping[str, TopicDescription],
    subjects: Iterable[str],
    schemas: PlanSchemas,
) -> dict[str, str]:
    """Return digests of the cluster, of each topic and of each subject, by kind and name. Equal facts produce
    the same plan.
    """
    digests = {"cluster": cluster_id}
    for name in sorted(set(topics)):
        current = actual.get(name)
        values = current and [
            current.topic_id,
            current.partitions,
            current.replication_factor,
            sorted(current.config.items()),
        ]
        digests[f'topic "{name}"'] = _digest(values)
    for subject in sorted(set(subjects)):
        digests[f'subject "{subject}"'] = _digest(
            [schemas.compatibility(subject), list(schemas.versions(subject))]
        )
    return digests


def names_in(known: Facts) -> tuple[list[str], list[str]]:
    """Return (topics, subjects) that the facts contain."""

    def named(kind: str) -> list[str]:
        return [key[len(kind) + 2 : -1] for key in known if key.startswith(f'{kind} "')]

    return named("topic"), named("subject")


def check_unchanged(then: Facts, now: Facts) -> None:
    """Raise Conflict naming what changed since the plan was made."""
    changed = sorted(key for key in {*then, *now} if then.get(key) != now.get(key))
    if changed:
        most = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
        other = "it was made for another cluster" if "cluster" in changed else f"changed meanwhile: {most}"
        raise Conflict(
            f"the saved plan does not hold any more: {other}",
            hint="nothing was done; make a new plan: hub topic plan --save FILE",
            code="HUB-1917",
        )


# ---- the file


def write(saved: SavedPlan) -> str:
    """Serialize the plan. The output is deterministic."""
    body: dict[str, object] = {
        "format": FORMAT,
        "steps": [
            {
                "step": type(step).__name__,
                "text": str(step),
                "with": _KINDS[type(step).__name__].dump_python(step, mode="json"),
            }
            for step in saved.steps
        ],
        "facts": dict(saved.facts),
    }
    return json.dumps({**body, "digest": _digest(body)}, indent=1, ensure_ascii=False) + "\n"


def read(text: str, file: str) -> SavedPlan:
    """Parse a saved plan. Raises CallerError if the text is not a plan, has another format version, or is
    truncated or edited.
    """
    try:
        body = json.loads(text)
        digest = body.pop("digest")
        known_format = body["format"] == FORMAT
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CallerError(
            f'file "{file}" is not a saved plan',
            hint="hub topic plan --save FILE makes one; the tree is given with -f",
            code="HUB-1116",
        ) from None
    anew = "plans are not edited: make a new one with hub topic plan --save FILE"
    if not known_format:
        raise CallerError(
            f'file "{file}": plan format {body["format"]!r}, known is {FORMAT}', hint=anew, code="HUB-1116"
        )
    if digest != _digest(body):
        raise CallerError(
            f'file "{file}": the plan was changed after it was saved', hint=anew, code="HUB-1116"
        )
    try:
        steps = tuple(_KINDS[each["step"]].validate_python(each["with"]) for each in body["steps"])
    except (ValidationError, KeyError, TypeError) as error:
        raise CallerError(
            f'file "{file}": a step cannot be read: {error}', hint=anew, code="HUB-1116"
        ) from None
    return SavedPlan(steps, dict(body["facts"]))


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
