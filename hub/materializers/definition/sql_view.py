"""[core] A *SQL view* as declared in its file:
its SELECT in Spark SQL, and topics and other views as its sources."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from hub.materializers.dataframes.declared_build import PythonBuild
from hub.materializers.definition.declared import CHANGELOG_PREFIX, Name, ViewDeclaration
from hub.materializers.types.event_format import EventFormat

# Name of the column that carries a row's version through the SQL. It cannot collide with other names.
VERSION = "_hub_version"
# Name of the column with the event that a stateless row is made of: its source's name, and these META
# columns.
FROM, ORIGIN = "_hub_from", ("topic", "partition", "offset", "timestamp")
# Most characters of a view's SQL.
MOST_SQL = 20_000
As = Literal["stream", "table", "static"]
_UNITS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_DURATION = re.compile(rf"^(\d{{1,6}}) ({'|'.join(_UNITS)})s?$")


def duration_ms(text: str) -> int:
    """Parse a duration such as ``10 minutes`` into milliseconds. Raises ValueError."""
    found = _DURATION.match(text.strip())
    if found is None:
        raise ValueError(f'"{text}" is not a duration: write a number and a unit, such as "10 minutes"')
    return int(found[1]) * _UNITS[found[2]]


class TableOf(BaseModel, extra="forbid", frozen=True):
    """Declaration that a topic's events form a table.

    The latest event of each ``key`` is a row until a tombstone, or until an event for which ``delete_when``
    is true.

    ``key`` names columns of the event; [] means the record key. A tombstone has no columns: its record key is
    the text of that key (for several columns, a JSON array of their texts), as in every changelog.
    """

    key: list[str] = Field(default_factory=list, max_length=8)
    delete_when: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_many(cls, key: Any) -> Any:
        return [key] if isinstance(key, str) else key


class SqlSource(EventFormat):
    """A table of the SQL: the events of a topic (or pattern of topics), or the rows of another view.

    ``as``: *stream*, every event is a row forever (default of a topic); *table*, the latest event of each
    record key until its tombstone (default of a view); *static*, such a table as it is when a batch reads it,
    for enrichment. ``table`` means *table* and gives the key. ``event_time`` names the column with the time
    of the event. The *watermark* follows the maximum of that column at the given distance, and an event
    behind it may be too late. An event whose time is more than ``max_ahead`` after its broker's time becomes
    a dead-letter record: it would move the watermark past all other events.
    """

    topic: str = Field(default="", max_length=249)
    view: Name | None = None
    as_: As | None = Field(default=None, alias="as")
    table: TableOf | None = None
    event_time: str | None = Field(default=None, min_length=1, max_length=200)
    watermark: str | None = None
    max_ahead: str = "1 hour"

    @field_validator("watermark", "max_ahead")
    @classmethod
    def _duration(cls, text: str | None) -> str | None:
        if text is not None:
            duration_ms(text)
        return text

    @field_validator("table", mode="before")
    @classmethod
    def _says_its_key(cls, given: Any) -> Any:
        if isinstance(given, str | list):
            names = ", ".join([given] if isinstance(given, str) else [str(each) for each in given])
            example = names if isinstance(given, str) else f"[{names}]"
            raise ValueError(f"write table: {{key: {example}}}")  # noqa: TRY004 - pydantic wants it
        return {} if given is True else given

    @model_validator(mode="before")
    @classmethod
    def _of_a_view(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("view"), str):
            topic = CHANGELOG_PREFIX + given["view"]
            # The engine sets the topic of the version that is read.
            if given.get("topic", topic) != topic and not str(given["topic"]).startswith(f"{topic}.v"):
                raise ValueError("a source is either a topic or a view")
            return {**given, "topic": given.get("topic") or topic}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> SqlSource:
        if not self.topic:
            raise ValueError('name a topic ("topic: nyc.*.departures") or a view ("view: customer_360")')
        if self.view is not None and self.format is not None:
            raise ValueError("the rows of a view have its schema already: leave `format` out")
        if self.cdc is not None and self.view is not None:
            raise ValueError("the rows of a view are not change events: leave `cdc` out")
        if self.cdc is not None and self.read_as == "stream":
            raise ValueError(
                "change events are rows of a table: write table: {key: id}, or as: static; "
                "a stream would keep rows that the database has deleted"
            )
        if self.table is not None and self.as_ not in (None, "table"):
            raise ValueError(
                f"as: {self.as_} and table: contradict each other; "
                + ("leave out `as`" if self.as_ == "stream" else "a static table is by record key")
            )
        if self.table is not None and self.view is not None and self.table.key:
            raise ValueError("the rows of a view have its key already: leave `key` out")
        if (self.event_time is None) != (self.watermark is None):
            raise ValueError(
                "event_time and watermark go together: the column, and how late an event may come"
            )
        if self.watermark is not None and self.read_as != "stream":
            raise ValueError(f"a {self.read_as} has no watermark: only the events of a stream come late")
        return self

    @property
    def read_as(self) -> As:
        if self.table is not None:
            return "table"
        return self.as_ or ("stream" if self.view is None else "table")

    @property
    def max_ahead_ms(self) -> int:
        return duration_ms(self.max_ahead)


class SqlView(ViewDeclaration):
    """A SQL view as declared in its file.

    ``python``: a function that returns a data frame. ``sql`` is then "" until the function has run
    (``spark/building/builder.py``).
    """

    sources: dict[Name, SqlSource] = Field(min_length=1, max_length=16)
    sql: Annotated[str, Field(max_length=MOST_SQL)] = ""
    python: PythonBuild | None = None
    key: list[Name] = Field(default_factory=list)

    @field_validator("ttl")
    @classmethod
    def _parses_ttl(cls, ttl: str | None) -> str | None:
        if ttl is not None:
            raise ValueError(
                "the rows of a SQL view follow from its SELECT only, so none expires by itself; set the "
                "ttl on an entity view (`fields:`) and read that view here (`{view: NAME}`): rows that it "
                "deletes disappear here, too; or restrict the events in WHERE"
            )
        return ttl

    @model_validator(mode="after")
    def _has_rows(self) -> SqlView:
        if self.python is None and not self.sql:
            raise ValueError("its rows have no definition: write `sql:` or `python:`")
        if self.python is not None and self.mode == "realtime":
            raise ValueError("a PySpark view runs in batches; write `mode: live`, or the view in SQL")
        return self

    @model_validator(mode="after")
    def _by_transactions(self) -> SqlView:
        tables = {name for name, each in self.sources.items() if each.cdc and each.read_as == "table"}
        self.check_transactions({name: each.topic for name, each in self.sources.items()}, tables)
        return self

    @model_validator(mode="after")
    def _in_step(self) -> SqlView:
        if self.cut is None:
            return self
        for name, source in self.sources.items():
            if source.read_as == "static":
                raise ValueError(
                    f'source "{name}" is static: each batch reads its current state, so no position divides '
                    "its content. Write `table: {key: ...}`, or remove `cut`"
                )
        return self

    # For the incremental engine: most input rows of a part that is recomputed as a whole in each batch,
    # because no column ties it to the result.
    whole_rows: int = Field(0, ge=0, le=1_000_000)

    @field_validator("key", mode="before")
    @classmethod
    def _one_or_many(cls, key: Any) -> Any:
        return [key] if isinstance(key, str) else key

    @field_validator("key")
    @classmethod
    def _distinct_key(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))

    @property
    def has_python(self) -> bool:
        return self.transforms is not None or self.python is not None

    @property
    def all_sources(self) -> dict[str, SqlSource]:
        """All topics and views that the view reads: its sources."""
        return dict(self.sources)

    @property
    def late_topic(self) -> str:
        """Topic that receives events that arrived behind the watermark."""
        return f"{CHANGELOG_PREFIX}{self.view}.late"
