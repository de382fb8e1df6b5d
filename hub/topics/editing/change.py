"""[core] A change of one topic of topics.yaml: the request, and its plan as it is shown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hub.errors import CallerError, Conflict
from hub.project_edits.yaml_text import Scalar
from hub.topics.tree.confirmed_plans import plan_digest, require_same_plan
from hub.topics.tree.plan import TreePlan
from hub.topics.tree.tree import TopicSpec, TopicTree

INHERIT = "inherit"
COMMAND = "hub topic plan\nhub topic apply"


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Request. An empty setting stays as it is; ``inherit`` takes it out of the topic's node. ``config``:
    one ``KEY=VALUE`` per line."""

    topic: str
    partitions: str = ""
    retention: str = ""
    owner: str = ""
    config: str = ""

    def settings(self) -> dict[str, Scalar | None]:
        """Return the settings as topics.yaml names them; None: inherited again. Raises CallerError."""
        given = {"owner": self.owner, "partitions": self.partitions, "retention": self.retention}
        for line in filter(None, map(str.strip, self.config.splitlines())):
            key, equals, value = (part.strip() for part in line.partition("="))
            if not (key and equals and value):
                raise CallerError(
                    f'topic "{self.topic}": "{line[:100]}" is not KEY=VALUE',
                    hint="one setting a line, such as cleanup.policy=compact",
                )
            given[f"config.{key}"] = value
        return {
            name: None if text.strip() == INHERIT else _value(text.strip())
            for name, text in given.items()
            if text.strip()
        }


def _value(text: str) -> Scalar:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else text


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting that the topic has after the change, and the node that sets it."""

    name: str
    value: str
    set_by: str


@dataclass(frozen=True, slots=True)
class Remark:
    """Refusal or warning of the plan."""

    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class TopicChangePlan:
    """Plan of a change. ``diff``: of topics.yaml, empty if the file needs no change. ``steps``: those of
    apply in the cluster. ``read_only``: why this server does not write the file; "": it writes it."""

    request: TopicChange
    exists: bool
    diff: str
    steps: tuple[str, ...]
    refusals: tuple[Remark, ...]
    cautions: tuple[Remark, ...]
    settings: tuple[ShownSetting, ...]
    read_only: str
    digest: str
    command: str = COMMAND

    @property
    def changes(self) -> bool:
        return bool(self.diff or self.steps)


def shown(
    request: TopicChange,
    texts: tuple[str, str],
    spec: TopicSpec,
    made: TreePlan,
    facts: Mapping[str, str],
    read_only: str = "",
) -> TopicChangePlan:
    """Return the plan. ``texts``: of topics.yaml before and after. ``facts``: digests of the cluster and the
    topic."""
    before, after = (text.splitlines() for text in texts)
    lines = difflib.unified_diff(before, after, "topics.yaml", "topics.yaml", lineterm="")
    facts_text = [
        *map(str, made.steps),
        *map(str, made.refusals),
        *sorted(f"{k} {v}" for k, v in facts.items()),
    ]
    digest = plan_digest([request.topic, *texts, *facts_text])
    return TopicChangePlan(
        request,
        not any(step.startswith("+ topic") for step in map(str, made.steps)),
        "\n".join(lines),
        tuple(map(str, made.steps)),
        tuple(Remark(each.reason, each.hint) for each in made.refusals),
        tuple(Remark(each.reason, each.hint) for each in made.cautions),
        settings_of(spec),
        read_only,
        digest,
    )


def settings_of(spec: TopicSpec) -> tuple[ShownSetting, ...]:
    """Return owner, partitions and Kafka's settings of a topic, with the nodes that set them."""
    values = {"owner": spec.owner, "partitions": str(spec.partitions)}
    values |= {f"config.{key}": value for key, value in spec.config.items()}
    return tuple(
        ShownSetting(name, value, spec.set_by.get(name, "")) for name, value in values.items() if value
    )


def check_plan(plan: TopicChangePlan, digest: str | None) -> None:
    """Raise Conflict where the plan is refused or is another one than the caller saw (HUB-1941), and
    CallerError where this server does not write the file. ``digest`` None: the caller saw no plan."""
    topic = plan.request.topic
    if plan.read_only:
        raise CallerError(
            f'topic "{topic}": {plan.read_only}', hint="change the file in git, then: hub topic apply"
        )
    require_same_plan(digest, plan.digest, f'topic "{topic}"')
    if plan.refusals:
        first = plan.refusals[0]
        raise Conflict(f'topic "{topic}": {first.reason}', hint=first.hint)


def check_others(topic: str, before: TopicTree, after: TopicTree) -> None:
    """Raise Conflict where a change of one topic would change another one, or none would be left."""
    for spec in before.topics:
        now = after.find(spec.name)
        if spec.name != topic and (now is None or replace(now, set_by=spec.set_by) != spec):
            raise Conflict(
                f'topic "{topic}": the change would change topic "{spec.name}" too, which inherits from it',
                hint="edit topics.yaml, and look at all topics: hub topic plan",
            )
