"""[edge] Plans and applies refuse what flows.yaml refuses, from the project's files alone: on the command
line and over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hub.config import Settings
from hub.errors import ConfigError

if TYPE_CHECKING:
    from hub.governance.flow_rules import FlowJudgement

Passing = Literal["mirror", "view", "sink"]


def refuse_flows(
    settings: Settings, passing: Passing | None, mirrors: Path | None, say: Callable[[str], None]
) -> None:
    """Pass ``say`` each flow that breaks a rule of flows.yaml. ``passing``: only flows through such an
    object; None: all. ``mirrors``: another mirrors.yaml than that of the project. Raises ConfigError
    (HUB-1118) if one is refused, or a file cannot be read."""
    judgement = judged_files(settings, mirrors)
    if judgement is None:
        return
    broken = [
        each
        for each in judgement.violations
        if passing is None or any(step.startswith(f"{passing} ") for step in each.flow.steps)
    ]
    for each in broken:
        say(f"{'✗' if each.is_refused else '!'} {each}; {each.hint}")
    refused = sum(each.is_refused for each in broken)
    if refused or judgement.unread:
        unread = f"{', '.join(judgement.unread)} cannot be read, so nothing is proved"
        raise ConfigError(
            f"flows of tagged fields that a rule refuses: {refused}" if refused else unread,
            hint="hub governance check shows all of them",
            where=str(settings.project / "flows.yaml"),
            code="HUB-1118",
        )


def judged_files(settings: Settings, mirrors: Path | None = None) -> FlowJudgement | None:
    """Return the result of the rules for the project's files; None without rules. Raises ConfigError."""
    project = settings.project.expanduser()
    if not (project / "flows.yaml").exists():
        return None
    from hub.api.masking.schema_fields import tagged_fields
    from hub.api.masking.view_origins import declared_facts
    from hub.governance.declared_fields import DeclaredMaskFacts
    from hub.governance.facts import governance_facts
    from hub.governance.flow_rules import judged
    from hub.governance.flows_file import load_flows

    rules = load_flows(project)
    masks = DeclaredMaskFacts(project, tagged_fields)
    return judged(governance_facts(settings, masks, declared_facts, mirrors), rules)
