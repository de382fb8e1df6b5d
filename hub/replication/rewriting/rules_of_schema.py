"""[core] Rules of a mirror applied to a schema: required fields, and refusals."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from hub.replication.config.mirrors import Mirror
from hub.replication.rewriting.avro_masking import fields_in
from hub.replication.rewriting.mask import json_fields_in
from hub.replication.rewriting.mask_tree import Mask, Unmaskable, tree_of
from hub.replication.rewriting.record_filter import RecordRules
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.topics.tree.tree import matches


def shape_of(mirror: Mirror, topic: str, *, rewrites: bool = False) -> RecordRules | None:
    """Return the mirror's rules for the topic; None: its records are copied unchanged. ``rewrites``: the plan
    found that the records need the target's schema ids (``schema_ids: auto``).
    """

    def fits(patterns: Sequence[str]) -> bool:
        return any(matches(pattern, topic) for pattern in patterns)

    made = RecordRules(
        topic,
        tuple(each.where for each in mirror.only if fits(each.topics)),
        tuple(
            (path, each.how, each.key) for each in mirror.mask if fits(each.topics) for path in each.fields
        ),
        mirror.ids == "rewrite" or rewrites,
        mirror.on_unreadable == "drop",
        mirror.ids != "rewrite" and rewrites,
    )
    return made if made.only or made.masks or made.rewrites_ids else None


def objection(shape: RecordRules, kind: str, text: str) -> str | None:
    """Return why the values of one schema cannot be masked; None: they can, or each value is checked on its
    own.
    """
    if not shape.masks:
        return None
    if kind == "PROTOBUF":
        return "its values are Protobuf, of which no field can be masked"
    tree = shape.tree({})
    try:
        if kind == "AVRO":
            fields_in(SchemaSource.of(kind, text).parsed(), tree)
        elif kind == "JSON":
            json_fields_in(orjson.loads(text), tree)
    except Unmaskable as error:
        return str(error)
    except (InvalidSchema, ValueError):
        pass  # with references: each value is checked on its own
    return None


def has_field(path: str, kind: str, text: str) -> bool:
    """Return whether values of a schema have a field that a mask names, as far as the schema
    alone shows it.
    """
    tree = tree_of([(path, Mask("redact"))])
    try:
        if kind == "AVRO":
            return fields_in(SchemaSource.of(kind, text).parsed(), tree)
        return kind != "JSON" or json_fields_in(orjson.loads(text), tree)
    except (Unmaskable, InvalidSchema, ValueError):
        return True
