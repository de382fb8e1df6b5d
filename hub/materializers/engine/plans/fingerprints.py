"""[core] Fingerprints of plans: equal for two plans exactly when one can continue from
the other's checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import orjson

from hub.materializers.definition.declared import META
from hub.materializers.definition.entity_plan import EntityPlan
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.python_functions import digest
from hub.materializers.definition.sql_view import SqlSource, SqlView
from hub.materializers.planning import delta_inputs, exact_numbers
from hub.materializers.planning.classified import Classified
from hub.materializers.planning.delta_plan import DeltaPlan
from hub.materializers.spark.formats.decode import Input
from hub.materializers.types.avro_types import field_types
from hub.materializers.types.cdc import conversions


def entity_fingerprint(compiled: EntityPlan, inputs: tuple[Input, ...]) -> str:
    """Return the fingerprint of an entity view. Covers the expressions and the types that they read."""
    types = {each.source.name: field_types(each.latest) for each in inputs}
    used = {
        each.source.name: {name: types[each.source.name][name] for name in each.source.columns}
        for each in inputs
    }
    body: list[Any] = [
        [
            [s.name, s.topic, s.columns, s.key, s.order, s.unique, s.where, [astuple(e) for e in s.entries]]
            for s in compiled.sources
        ],
        compiled.aggregates,
        compiled.outputs,
        compiled.delete_when,
        used,
    ]
    if resolved := _resolved_columns(inputs):
        body.append(resolved)
    if compiled.expiry is not None:  # only whether there is a ttl: the fold does not depend on its length
        body.append([compiled.expiry.topic, compiled.expired])
    declared = {each.source.name: how for each in inputs if (how := _declared_reading(each)) is not None}
    if declared:
        body.append(declared)
    if converted := {
        each.source.name: conversions(each.latest, each.source.columns) for each in inputs if each.is_cdc
    }:
        body.append(converted)
    if clear := [each.source.name for each in inputs if each.opening is not None]:
        body.append(["decrypt", clear])
    return _hash_of(body)


def sql_fingerprint(
    classified: Classified, inputs: tuple[Input, ...], delta: DeltaPlan | None, rules: int
) -> str:
    """Return the fingerprint of a SQL view. Spaces and comments in its SQL do not count."""
    view = classified.query.view
    types = {each.source.name: field_types(each.latest) for each in inputs}
    used = {
        each.source.name: {
            name: types[each.source.name].get(name) for name in each.source.columns if name not in META
        }
        for each in inputs
    }
    tokens = [token.text for token in classified.query.tokens]
    # The topic of a source view is that of the version that is read.
    topics = {each.source.name: each.source.topic for each in inputs}
    sources = {
        name: {
            **source.model_dump(mode="json", exclude=_unset_fields(source)),
            "topic": topics[name],
        }
        for name, source in view.sources.items()
    }
    body: list[Any] = [tokens, sources, classified.key, used]
    if made_by := exact_numbers.rules_of(view.sql, rules):
        body.append(made_by)
    if resolved := _resolved_columns(inputs):
        body.append(resolved)
    if delta is not None:
        body.append(delta_inputs.fingerprint(delta))
    return _hash_of(body)


def with_functions(fingerprint: str, view: View | SqlView) -> str:
    """Return the fingerprint combined with the view's Python functions: a checkpoint fits only the code that
    it was made with.

    Whole source transactions count, too: the state of a view that was not consistent with them may end within
    one."""
    if view.consistent_with is not None:
        fingerprint = hashlib.sha256(f"{fingerprint} whole transactions".encode()).hexdigest()
    if view.transforms is None:
        return fingerprint
    return hashlib.sha256(f"{fingerprint} {digest(view.transforms.text)}".encode()).hexdigest()


def _hash_of(body: list[Any]) -> str:
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _resolved_columns(inputs: Sequence[Input]) -> dict[str, dict[str, Any]]:
    """Return default and former names of the columns that are read, by source. Columns without either are
    left out."""
    resolved: dict[str, dict[str, Any]] = {}
    for given in inputs:
        for column in given.latest["fields"]:
            names = [column.get("default"), column.get("aliases") or []]
            if column["name"] in given.source.columns and names != [None, []]:
                resolved.setdefault(given.source.name, {})[column["name"]] = names
    return resolved


def _declared_reading(given: Input) -> list[Any] | None:
    """Return how events without a schema id are read, as declared in the view's file; None if the registry
    defines it."""
    how = given.reading
    if how is None or how.framed:
        return None
    columns = list(field_types(given.latest)) if how.form == "csv" else []
    binary = ""  # the bytes of a record change with every field, also with one that the view does not read
    if how.form in ("avro", "protobuf"):
        binary = digest(
            orjson.dumps([given.latest["fields"], how.message], option=orjson.OPT_SORT_KEYS).decode()
        )
    later = [text for text in (how.transform, how.root, binary) if text]
    return [how.form, how.separator, how.null, columns, *later]


def _unset_fields(source: SqlSource) -> set[str]:
    """Return the fields that a source leaves unset and that were added later: they must not change its
    fingerprint."""
    return {
        name
        for name in ("table", "format", "columns", "csv", "xml", "schema_file", "transform", "cdc")
        if not getattr(source, name)
    }
