"""[edge] ``hub schema explain``: the rules of a subject and their sources, and the violations of its schema,
including warnings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.config import Settings

if TYPE_CHECKING:
    from hub.schema_registry.client.remote import RemoteRegistry
    from hub.schema_registry.folder.files import SchemaFile
    from hub.schema_registry.policy.policy_checks import PolicyViolation
    from hub.schema_registry.registry.rulebook import Rulebook
    from hub.schema_registry.registry.snapshot import ParsedSchema
    from hub.topics.tree.tree import TopicTree

TOPICS_FILE = "topics.yaml"


def _known_level(text: str) -> str:
    """Return the level in capitals. Raises ConfigError with a similar one."""
    from hub.errors import ConfigError, did_you_mean
    from hub.schema_registry.model.levels import LEVELS

    level = text.upper()
    if level not in LEVELS:
        raise ConfigError(
            f'"{text}" is not a compatibility level',
            hint=did_you_mean(level, LEVELS, f"known: {', '.join(LEVELS)}"),
        )
    return level


def explain(
    subject: Annotated[str, typer.Argument(help="A subject, or a topic: retail.orders-value, retail.orders")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The rules. Default: policies.yaml of the project")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="The subject's own level. Default: the level of the topic in topics.yaml"),
    ] = None,
    registered: Annotated[
        bool, typer.Option("--registered", help="Check the registry's latest version, not the project's file")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Show every rule that applies to SUBJECT, the node that set it, the values of the nodes above, and
    the violations of the subject's schema in the project (! warns, x blocks). Needs no server.

    Example: hub schema explain retail.orders-value
    """
    from hub.schema_registry.policy import policy
    from hub.schema_registry.registry.rulebook import Rulebook
    from hub.yaml import is_there

    settings = load_settings()
    path = file or settings.project / policy.POLICIES_FILE
    tree = _tree(settings.project / TOPICS_FILE)
    owners = {each.name: each.owner for each in tree.topics} if tree is not None else {}
    exists = file is not None or is_there(path)
    policies = policy.load_policies(path, owners) if exists else policy.Policies(topics=owners)
    if not exists:
        note(f"{path} does not exist: no rules but the level. See docs/reference/policies.md")
    effective = policies.effective(subject)
    topic = tree.find(effective.topic) if tree is not None else None
    declared = None if topic is None else topic.compatibility
    own = declared if level is None else _known_level(level)
    rows = [asdict(row) for row in policy.explain(policies, subject, own)]
    # what may be a topic's name may be a subject's as well
    called = [subject, f"{subject}-value"] if subject == effective.topic else [subject]
    broken = _broken(settings, Rulebook(policies, owners), called, registered)
    nodes = " > ".join(effective.trail) or "none"
    place = f'topic "{effective.topic}"' if effective.topic else "no topic"
    note(f'Subject "{subject}": {place}{", its keys" if effective.is_key else ""}. Nodes that hold: {nodes}')
    if output is Output.json:
        for row in rows:
            row["violations"] = [_as_json(each) for each in broken if each.rule == row["rule"]]
        show(rows, output)
        return
    show(rows, output, ("rule", "value", "set_by", "severity", "trail", "place"))
    for each in broken:
        print(f"{'!' if each.severity == 'warn' else 'x'} {each}")


def _as_json(violation: PolicyViolation) -> dict[str, object]:
    return {each: getattr(violation, each) for each in ("severity", "path", "what", "fix")}


def _broken(
    settings: Settings, book: Rulebook, subjects: Sequence[str], registered: bool
) -> list[PolicyViolation]:
    """Return the rules that the subject's schema breaks; [] and a note if there is no schema. The rule on
    registrars is not checked.
    """
    from hub.schema_registry.folder.rules import violations_of

    found = _registered(settings, subjects) if registered else _in_folder(settings.project, subjects)
    if found is None:
        return []
    broken = violations_of(book, *found, is_new=not registered)
    return [each for each in broken if each.rule != "registrars"]


def _registered(settings: Settings, subjects: Sequence[str]) -> tuple[SchemaFile, ParsedSchema]:
    """Raises NotFound, PeerError."""
    from contextlib import closing

    from hub.schema_registry.client.remote import RemoteRegistry
    from hub.schema_registry.folder.files import SchemaFile

    with closing(RemoteRegistry(settings.registry)) as registry:
        subject = next((each for each in subjects[:-1] if _is_in(registry, each)), subjects[-1])
        latest = registry.version(subject, registry.numbers(subject)[-1])
        parsed = registry.parsed(latest)
    note(f"Checked: version {latest.version} of the registry.")
    file = SchemaFile("", "", subject, latest.schema_type, latest.text, metadata=latest.metadata)
    return file, parsed


def _is_in(registry: RemoteRegistry, subject: str) -> bool:
    from hub.errors import NotFound

    try:
        return bool(registry.numbers(subject))
    except NotFound:
        return False


def _in_folder(project: Path, subjects: Sequence[str]) -> tuple[SchemaFile, ParsedSchema] | None:
    from hub.schema_registry.folder.load import load
    from hub.schema_registry.folder.plan import plan
    from hub.schema_registry.registry.snapshot import RegistryState
    from hub.topics.tree.tree import declared_schemas

    folder = project / "schemas"
    whole = load(folder, declared_schemas(project)) if folder.is_dir() else None
    subject = next((each for each in subjects if whole is not None and whole.find(each) is not None), None)
    if whole is None or subject is None:
        which = " or ".join(subjects)
        note(f"No schema is checked: the project has none of {which}; --registered checks the registry's.")
        return None
    wanted, left = set(), [subject]
    while left:  # the subject and its references
        name = left.pop()
        file = whole.find(name)
        if name not in wanted and file is not None:
            wanted.add(name)
            left += [each.subject for each in file.references]
    part = replace(whole, files=tuple(each for each in whole.files if each.subject in wanted))
    item = next(each for each in plan(part, RegistryState()).items if each.subject == subject)
    if item.new is None or item.file is None:
        note(f"No schema is checked: {'; '.join(each.what for each in item.reasons)}")
        return None
    note(f"Judged: {item.file.where}")
    return item.file, item.new


def _tree(path: Path) -> TopicTree | None:
    from hub.topics.tree.tree import load
    from hub.yaml import is_there

    return load(path) if is_there(path) else None
