"""[edge] ``hub access plan``, ``apply`` and ``drift``: the grants of access.yaml as access rules of Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from hub.access.access_yaml import AccessFile
from hub.access.decide import Principal
from hub.cli.audited import planned
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.config import Settings
from hub.errors import ConfigError

if TYPE_CHECKING:
    from hub.access.kafka_grants import RulesPlan
    from hub.kafka import KafkaCluster
    from hub.kafka.acls import AccessRule

EXIT_CHANGES = 2

PruneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prune",
        metavar="USER",
        help="Remove the rules of this user of Kafka, whom access.yaml does not name. "
        "May stand several times",
    ),
]


def plan(file: AccessFile, prune: PruneOption = None, output: OutputOption = Output.table) -> None:
    """Print the access rules of Kafka that `apply` would add and remove. Exit code 0: none. 2: some."""
    made, _ = _made(load_settings(), file, prune)
    _show(made, output)
    if made.add or made.remove:
        raise typer.Exit(EXIT_CHANGES)


def apply(file: AccessFile, prune: PruneOption = None, output: OutputOption = Output.table) -> None:
    """Make the access rules of Kafka like the grants: first add, then remove."""
    made, cluster = _made(load_settings(), file, prune)
    _show(made, output)
    rows = [*_rows("add", made.add), *_rows("remove", made.remove)]
    planned([" ".join(str(each) for each in row.values()) for row in rows])
    cluster.add_rules(made.add)
    cluster.remove_rules(made.remove)
    note(f"Added {len(made.add)}, removed {len(made.remove)}.")


def drift(file: AccessFile, output: OutputOption = Output.table) -> None:
    """Print what differs between the grants and the cluster, with rules of other principals.
    Exit code 2: something."""
    made, _ = _made(load_settings(), file, None)
    rows = [
        *_rows("missing in Kafka", made.add),
        *_rows("not granted", made.remove),
        *_rows("not in access.yaml", made.foreign),
    ]
    show(rows, output)
    if rows:
        raise typer.Exit(EXIT_CHANGES)


def _made(settings: Settings, file: AccessFile, prune: list[str] | None) -> tuple[RulesPlan, KafkaCluster]:
    """Return the plan, and the cluster that it is for.
    Raises ConfigError (HUB-1719) without an authorizer."""
    from hub.access.kafka_grants import desired_rules, plan_rules, principal_of
    from hub.kafka import own_cluster

    cluster = own_cluster(settings)
    existing = cluster.all_rules()
    if existing is None:
        raise ConfigError(
            f'Kafka at "{settings.bootstrap}" has no authorizer: whoever reaches it may do everything',
            hint="set authorizer.class.name on its brokers (docs/how-to/control-access.md); the embedded "
            "Kafka has none, so let only this machine reach it",
            code="HUB-1719",
        )
    people = [
        *(Principal(name, "user", frozenset(node.groups)) for name, node in file.users.items()),
        *(Principal(name, "token", frozenset(node.groups)) for name, node in file.tokens.items()),
    ]
    own = settings.sasl.username if settings.sasl is not None else None
    desired = desired_rules(file.policy(), people, tuple(cluster.topics()), file.mask_policy())
    pruned = [principal_of(each) for each in prune or ()]
    return plan_rules(desired, existing, people, own=own, prune=pruned), cluster


def _show(made: RulesPlan, output: Output) -> None:
    show([*_rows("add", made.add), *_rows("remove", made.remove)], output)
    left = sorted({each.principal.removeprefix("User:") for each in made.foreign})
    if left:
        note(
            f"Left alone: {len(made.foreign)} rules of {', '.join(left[:10])}, whom access.yaml does not "
            f"name. To remove those of one: --prune {left[0]}"
        )


def _rows(what: str, rules: Iterable[AccessRule]) -> list[dict[str, object]]:
    """Return a row for each principal and resource, with its operations."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for each in rules:
        found.setdefault((each.principal, each.resource, each.pattern, each.name), []).append(each.operation)
    return [
        {
            "change": what,
            "principal": principal,
            "on": f"{resource.lower().replace('_', ' ')} {name}{'*' if pattern == 'PREFIXED' else ''}",
            "operations": ", ".join(sorted(operations)),
        }
        for (principal, resource, pattern, name), operations in found.items()
    ]
