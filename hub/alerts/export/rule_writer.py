"""[core] Rules of Prometheus as values for YAML, and the matchers of their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hub.alerts.delivery.payloads import runbook_path
from hub.alerts.model.rules import AlertRule, RuleChanges
from hub.topics.tree.tree import TopicSpec

Who = tuple[str, str]
NOBODY: Who = ("", "")
Grouped = dict[tuple[Any, Who], list[str]]


@dataclass(frozen=True)
class RuleWriter:
    """Writes rules with the project's changes; ``link`` is the address before the runbooks' paths."""

    changes: RuleChanges
    link: str

    def write(
        self,
        rule: str | AlertRule,
        expr: str,
        summary: str,
        who: Who = NOBODY,
        promised: str = "",
        *,
        now: bool = False,
    ) -> dict[str, Any]:
        """Return a rule as a value for YAML. ``who``: owner and node. ``now``: it fires at once."""
        rule = self.changes.rule(rule) if isinstance(rule, str) else rule
        labels = {"severity": str(rule.severity), "owner": who[0], "node": who[1], "promised": promised}
        path = runbook_path(rule.runbook)
        return {
            "alert": rule.name,
            "expr": expr,
            "for": "0s" if now else f"{rule.for_ms // 1000}s",
            "labels": {name: value for name, value in labels.items() if value},
            "annotations": {
                "summary": summary,
                "runbook_url": path if path.startswith("http") else f"{self.link}{path}",
            },
        }


def by_objective(topics: Sequence[TopicSpec], promised: Callable[[TopicSpec], Any], key: str) -> Grouped:
    """Group the topics with an objective by its value, owner and node. ``key``: name of the objective."""
    found: Grouped = {}
    for spec in topics:
        if promised(spec) is not None:
            who = (spec.owner, spec.set_by.get(key, ""))
            found.setdefault((promised(spec), who), []).append(spec.name)
    return dict(sorted(found.items()))


def one_of(label: str, names: Sequence[str]) -> str:
    r"""Build a label matcher: ``topic="a"``, ``topic=~"a\\\\.b|c"``."""
    if len(names) == 1:
        return f'{label}="{names[0]}"'
    return f'{label}=~"{"|".join(sorted(name.replace(".", chr(92) * 2 + ".") for name in names))}"'
