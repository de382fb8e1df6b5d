"""[edge] ``hub access plan``, ``apply`` and ``drift``: the grants of access.yaml as access rules of Kafka,
and its quotas as client quotas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hub.access.access_yaml import AccessFile
from hub.access.decide import Principal
from hub.cli.audited import planned
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.config import Settings
from hub.errors import ConfigError
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.access.kafka_grants import RulesPlan
    from hub.access.quotas.kafka_quotas import QuotasPlan
    from hub.kafka import KafkaCluster
    from hub.kafka.acls import AccessRule
    from hub.kafka.protocol.client_quotas import ClientQuota

EXIT_CHANGES = 2

PruneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prune",
        metavar="USER",
        help="Remove the rules of this Kafka user, which access.yaml does not name. May stand several times",
    ),
]


def plan(file: AccessFile, prune: PruneOption = None, output: OutputOption = Output.table) -> None:
    """Print the access rules and client quotas that `apply` would change. Exit code 0: none. 2: some."""
    made, quotas, _ = _made(load_settings(), file, prune)
    _show(made, quotas, output)
    if made.add or made.remove or quotas.set or quotas.remove:
        raise typer.Exit(EXIT_CHANGES)


def apply(file: AccessFile, prune: PruneOption = None, output: OutputOption = Output.table) -> None:
    """Make the access rules of Kafka like the grants: first add, then remove. Then set the client quotas."""
    made, quotas, cluster = _made(load_settings(), file, prune)
    rows = _show(made, quotas, output)
    planned([" ".join(str(each) for each in row.values()) for row in rows])
    cluster.add_rules(made.add)
    cluster.remove_rules(made.remove)
    cluster.alter_user_quotas(quotas.set, quotas.remove)
    note(f"Added {len(made.add)}, removed {len(made.remove)}.")
    if quotas.set or quotas.remove:
        note(f"Client quotas: set {len(quotas.set)}, removed {len(quotas.remove)}.")


def drift(file: AccessFile, output: OutputOption = Output.table) -> None:
    """Print what differs between access.yaml and the cluster, with rules and quotas of other principals.
    Exit code 2: something."""
    made, quotas, _ = _made(load_settings(), file, None)
    rows = [
        *_rows("missing in Kafka", made.add),
        *_rows("not granted", made.remove),
        *_rows("not in access.yaml", made.foreign),
        *_quota_rows("missing in Kafka", quotas.set),
        *_quota_rows("not limited", quotas.remove),
        *_quota_rows("not in access.yaml", quotas.foreign),
    ]
    show(rows, output)
    if rows:
        raise typer.Exit(EXIT_CHANGES)


def _made(
    settings: Settings, file: AccessFile, prune: list[str] | None
) -> tuple[RulesPlan, QuotasPlan, KafkaCluster]:
    """Return the plans of rules and of quotas, and the cluster that they are for.
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
    people = file.principals()
    own = settings.sasl.username if settings.sasl is not None else None
    policy = file.policy(epoch_ms())
    desired = desired_rules(policy, people, tuple(cluster.topics()), file.mask_policy())
    pruned = [principal_of(each) for each in prune or ()]
    rules = plan_rules(desired, existing, people, own=own, prune=pruned)
    return rules, _quotas(cluster, file, people, own, prune), cluster


def _quotas(
    cluster: KafkaCluster,
    file: AccessFile,
    people: Sequence[Principal],
    own: str | None,
    prune: list[str] | None,
) -> QuotasPlan:
    """Return the plan of client quotas; without the section `quotas` those of Kafka are left alone."""
    from hub.access.quotas.kafka_quotas import QuotasPlan, desired_quotas, plan_quotas

    if file.quotas is None:
        return QuotasPlan()
    desired, names = desired_quotas(file.quota_policy(), people), [each.name for each in people]
    return plan_quotas(desired, cluster.user_quotas(), names, own=own, prune=prune or ())


def _show(made: RulesPlan, quotas: QuotasPlan, output: Output) -> list[dict[str, object]]:
    """Print the changes and return their rows."""
    rows = [*_rows("add", made.add), *_rows("remove", made.remove)]
    rows += [*_quota_rows("set", quotas.set), *_quota_rows("remove", quotas.remove)]
    show(rows, output)
    left = sorted({each.principal.removeprefix("User:") for each in made.foreign})
    if left:
        note(
            f"Left alone: {len(made.foreign)} rules of {', '.join(left[:10])}, which access.yaml does not "
            f"name. To remove those of one: --prune {left[0]}"
        )
    return rows


def _quota_rows(what: str, quotas: Iterable[ClientQuota]) -> list[dict[str, object]]:
    """Return a row for each client quota."""
    return [
        {
            "change": what,
            "principal": f"User:{each.user}",
            "on": "client quota",
            "operations": f"{each.key}={each.value:.15g}",
        }
        for each in quotas
    ]


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
