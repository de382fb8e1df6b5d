"""[edge] ``hub schema explain``: which rules hold for a subject, who set each, and how it came about."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.output import Output, OutputOption, note, show

if TYPE_CHECKING:
    from hub.topics.tree import TopicTree

TOPICS_FILE = "topics.yaml"


def explain(
    subject: Annotated[str, typer.Argument(help="A subject, or a topic: retail.orders-value, retail.orders")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The rules. Default: policies.yaml of the project")
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="The subject's own level. Default: what topics.yaml says of the topic")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Every rule that holds for SUBJECT, the node that set it, and what the nodes above said. Needs no server.

    Example: hub schema explain retail.orders-value
    """
    from hub.errors import ConfigError, nearest
    from hub.schema_registry import policy
    from hub.schema_registry.compatibility import LEVELS

    project = load_settings().project
    path = file or project / policy.POLICIES_FILE
    tree = _tree(project / TOPICS_FILE)
    names = [topic.name for topic in tree.topics] if tree is not None else []
    if file is None and not path.exists():
        note(f"{path} does not exist: no rules but the level. See docs/policies.md")
        policies = policy.Policies(topics=names)
    else:
        policies = policy.load_policies(path, names)
    effective = policies.effective(subject)
    own = level.upper() if level is not None else None
    if own is not None and own not in LEVELS:
        guess = nearest(own, LEVELS)
        raise ConfigError(
            f'"{level}" is no compatibility level',
            hint=f'did you mean "{guess}"?' if guess else f"known: {', '.join(LEVELS)}",
        )
    topic = tree.find(effective.topic) if tree is not None else None
    if own is None and topic is not None:
        own = topic.compatibility
    rows = [asdict(row) for row in policy.explain(policies, subject, own)]
    nodes = " > ".join(effective.trail) or "none"
    what = f'topic "{effective.topic}"' if effective.topic else "no topic"
    note(f'Subject "{subject}": {what}{", its keys" if effective.is_key else ""}. Nodes that hold: {nodes}')
    show(rows, output, ("rule", "value", "set_by", "severity", "trail", "place"))


def _tree(path: Path) -> TopicTree | None:
    from hub.topics.tree import load

    return load(path) if path.exists() else None
