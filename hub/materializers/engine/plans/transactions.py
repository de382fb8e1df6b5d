"""[core] The transaction topic of a view with ``consistent_with: transaction``, checked against the
cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hub.errors import ConfigError
from hub.log import TopicDescription
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.source_transactions.cuts import CutRules
from hub.topics.tree.tree_file import duration_ms


def cut_rules(
    view: View | SqlView,
    read: Sequence[str],
    topics: Mapping[str, TopicDescription],
    ahead: int,
    *,
    in_place: bool,
) -> CutRules | None:
    """Return the rules by which a view stops between source transactions; None: it stops anywhere.

    ``read``: the topics that it reads; ``topics``: those that exist; ``ahead``: most events to read ahead;
    ``in_place``: another version replaces its rows one by one.

    Raises ConfigError (HUB-2158) if the transaction topic does not exist or has several partitions.
    """
    declared = view.consistent_with
    if declared is None:
        return None
    source = declared.topic(each.topic for each in view.sources.values())
    if in_place:
        raise _refused(
            view,
            "consistent_with: one of its stores keeps one table of a view, and another version replaces its "
            "rows one by one",
            "keep the view in stores of SQLite or Postgres",
        )
    if source not in topics:
        raise _refused(
            view,
            f'the transaction topic "{source}" does not exist',
            "set `provide.transaction.metadata: true` in the connector, which creates it with its next "
            "transaction; or name it: consistent_with: {transaction: TOPIC}",
        )
    if (partitions := topics[source].partitions) > 1:
        raise _refused(
            view,
            f'the transaction topic "{source}" has {partitions} partitions, and their records have no order',
            "declare it with `partitions: 1` in topics.yaml before the connector creates it; give the "
            "connector another `topic.transaction` if it exists",
        )
    tables = {topic: declared.table(topic) for topic in read}
    return CutRules(
        view.name,
        source,
        tables,
        declared.most_rows,
        duration_ms(declared.wait) / 1000,
        declared.larger == "split",
        ahead,
    )


def _refused(view: View | SqlView, problem: str, hint: str) -> ConfigError:
    return ConfigError(f'view "{view.name}": {problem}', hint=hint, code="HUB-2158")
