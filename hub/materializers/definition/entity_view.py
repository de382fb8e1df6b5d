"""[core] An entity view: one YAML file, checked before anything runs.

An *entity view* folds the events of n sources by key. Its expressions are Spark SQL. One rule gives them
meaning: **inside an aggregate, ``source.column`` is every event's value; outside, it is the latest event's
value**, where the source's ``order`` decides which event is the latest (then the order of the log).

The models below are the grammar of a file; ``docs/reference/view-files.md`` explains it with examples.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from hub.errors import nearest
from hub.materializers.definition.declared import EXPIRY, LAST_EVENT_AT, Name, Sql, ViewDeclaration
from hub.materializers.search.declared_indexes import fields_in
from hub.materializers.types.event_format import EventFormat


class EntitySource(EventFormat):
    """A source of an entity view: a topic, and how its events map to entities.

    ``topic`` may be a pattern over the tree (``nyc.*.departures``). ``key`` computes the entity's key from an
    event's columns. ``order`` decides which event is the latest (default: the order of the log). Events with
    the same ``unique_by`` count once in aggregates, with the values of the latest of them. Events for which
    ``where`` is not true are left out. With ``decrypt``, fields that rules of the schema encrypted are read
    in clear, with the access of ``kms`` in hub.yaml.
    """

    topic: str = Field(min_length=1, max_length=249)
    key: Sql
    order: Sql | None = None
    unique_by: Sql | None = None
    where: Sql | None = None
    decrypt: bool = False

    @model_validator(mode="after")
    def _has_rules(self) -> Self:
        if self.decrypt and self.format is not None:
            raise ValueError("`decrypt` reads events of a schema in the registry, which has the rules")
        return self


class View(ViewDeclaration):
    """An entity view as declared in its file."""

    sources: dict[Name, EntitySource] = Field(min_length=1)
    fields: dict[Name, Sql] = Field(min_length=1)
    computed: dict[Name, Sql] = Field(default_factory=dict)
    delete_when: Sql | None = None

    @field_validator("fields", "computed")
    @classmethod
    def _not_the_hub_s(cls, given: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if LAST_EVENT_AT in given and info.data.get("ttl") is not None:
            raise ValueError(
                f'a view with a ttl has a column "{LAST_EVENT_AT}" of the hub\'s own: call this one otherwise'
            )
        return given

    @model_validator(mode="after")
    def _consistent(self) -> View:
        tables = {name for name, each in self.sources.items() if each.cdc is not None}
        self.check_transactions({name: each.topic for name, each in self.sources.items()}, tables)
        twice = self.fields.keys() & self.computed.keys()
        if twice:
            raise ValueError(f'"{min(twice)}" is declared both in fields and in computed')
        for index in fields_in(self.indexes):
            if index not in self.columns:
                guess = nearest(index, self.columns)
                raise ValueError(
                    f'index "{index}" is not a field of the view'
                    + (f'; did you mean "{guess}"?' if guess else "")
                )
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a row, in order: fields, then computed, then with a ttl the time of the last event."""
        return (*self.fields, *self.computed, *(() if self.ttl is None else (LAST_EVENT_AT,)))

    @property
    def counted_within(self) -> dict[str, str]:
        """For each source with unique_by, the scope within which an identity counts once.

        An identity may count under several keys: see docs/reference/view-files.md.
        """
        return {
            name: f"each {source.unique_by} once within its {source.key}; one that moves to another "
            f"{source.key} stays "
            "counted under the former, too"
            for name, source in self.sources.items()
            if source.unique_by is not None and source.unique_by != source.key
        }

    @property
    def all_sources(self) -> dict[str, EntitySource]:
        """The view's sources, and with a ttl the topic of expired rows, which is read like a source."""
        topic = self.expiry_topic
        if topic is None:
            return dict(self.sources)
        expiry = EntitySource.model_validate(
            {"topic": topic, "key": "_key", "format": "json", "schema": {"cutoff": "timestamp"}}
        )
        return {**self.sources, EXPIRY: expiry}
