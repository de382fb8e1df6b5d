"""[core] What a view is: one YAML file, checked before anything runs.

An *entity view* folds the events of n sources by key. Its expressions are Spark SQL. One rule gives them meaning:
**inside an aggregate, ``source.column`` is every event's value; outside, it is the latest event's value**, where
latest is decided by the source's ``order`` (then by the log's own order).

The grammar of a file is the models below; ``docs/views.md`` explains it with examples.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hub.errors import ConfigError, nearest
from hub.files import read_text
from hub.materializers import transforms
from hub.materializers.avro_shape import PROOF, AvroType
from hub.materializers.formats import TYPE_NAMES, UnknownType, declared, of_ddl
from hub.materializers.transforms import Function
from hub.topics.tree import LatencyNode, duration_ms
from hub.yaml import kept_to, load_model, place, places

if TYPE_CHECKING:
    from hub.materializers.sql_view import SqlView

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
Sql = Annotated[str, Field(min_length=1, max_length=10_000)]

# How a view runs once it has caught up: micro-batches (auto, live) or Spark's real-time mode. ``live`` catches up in
# micro-batches too. No part of a view's meaning: the state stays when it is edited.
RunMode = Literal["auto", "live", "realtime"]

CHANGELOG_PREFIX = "views."

# Of a view with a ttl: the topic that says which rows are over, the name under which it is read like a source (no
# source of a file can be called so), and the column that the ttl is counted from.
EXPIRY_PREFIX = "_hub.expiry."
EXPIRY = "_expiry"
LAST_EVENT_AT = "last_event_at"
_SHORTEST_TTL_MS = 1_000
_SHORTEST_RECOMPUTE_MS = 60_000
_WORDY = re.compile(r"(\d+)\s*(second|minute|hour|day)s?", re.IGNORECASE)

_RESERVED = {"_topic", "_partition", "_offset", "_timestamp", "_key", "_deleted", PROOF, "_broken"}


def table_of(view: str, number: int | None) -> str:
    """A version's name: that of its tables, its checkpoint folder, its records. ``number`` None: the view's own name.

    >>> table_of("customer_360", None), table_of("customer_360", 2)
    ('customer_360', 'customer_360@2')
    """
    return view if number is None else f"{view}@{number}"


def changelog_of(table: str) -> str:
    """The topic of a version.

    >>> changelog_of("customer_360"), changelog_of("customer_360@2")
    ('views.customer_360', 'views.customer_360.v2')
    """
    name, _, number = table.partition("@")
    return f"{CHANGELOG_PREFIX}{name}.v{number}" if number else CHANGELOG_PREFIX + name


def table_of_changelog(topic: str) -> str:
    """The version whose topic it is.

    >>> table_of_changelog("views.customer_360.v2")
    'customer_360@2'
    """
    name, _, number = topic.removeprefix(CHANGELOG_PREFIX).partition(".v")
    return table_of(name, int(number) if number else None)


class Swap(BaseModel):
    """How a changed view takes over from the one that serves. ``when``: by itself, when it was asked for
    (``hub view apply``), or ``in_place``: not beside it, but row by row in the same changelog and table.

    ``keep_hours``: how long the former version goes on beside, for ``hub view rollback``. ``rows_within``: by which share
    the number of rows may differ; ``same``: columns of which no row may differ. What breaks these waits for apply.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    when: Literal["auto", "manual", "in_place"] = "auto"
    keep_hours: float = Field(24.0, ge=0, le=24 * 365)
    rows_within: float | None = Field(None, ge=0)
    same: list[Name] = Field(default_factory=list)


class Proof(BaseModel):
    """What proves a view beside what always does. ``recompute``: how often it is computed again from its sources, beside the version that
    serves, and all rows compared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recompute: str | None = None

    @field_validator("recompute")
    @classmethod
    def _lasts(cls, text: str | None) -> str | None:
        if text is not None and duration_ms(text) < _SHORTEST_RECOMPUTE_MS:
            raise ValueError(f'a recompute every "{text}" is too often: at least 1m')
        return text


class Csv(BaseModel):
    """How a line of CSV is written: what stands between values, and the text that means null."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    separator: str = Field(",", min_length=1, max_length=1)
    null: str = Field("", max_length=20)


def _type(text: str) -> str:
    try:
        of_ddl(text)
    except UnknownType as error:
        guess = nearest(error.word, TYPE_NAMES)
        hint = f"did you mean {guess}?" if guess else f"types: {', '.join(TYPE_NAMES)}"
        raise ValueError(f"{error}; {hint}") from None
    return text


ColumnName = Annotated[str, Field(min_length=1, max_length=200)]
ColumnType = Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_type)]


class EventFormat(BaseModel):
    """What a source says of its events' bytes. Nothing: the registry says it, by the schema id in each event (Avro, JSON
    Schema, Protobuf). Else ``format``, without a schema id, and ``schema``: the columns, with Spark's types; of CSV in
    the order of the line."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["json", "csv"] | None = None
    columns: dict[ColumnName, ColumnType] = Field(default_factory=dict, alias="schema", max_length=2_000)
    csv: Csv | None = None

    @model_validator(mode="after")
    def _whole_format(self) -> Self:
        if self.format is None:
            if self.columns or self.csv is not None:
                raise ValueError(
                    f"`{'schema' if self.columns else 'csv'}` belongs to events without a schema id: "
                    "write also format: json, or format: csv"
                )
            return self
        if not self.columns:
            raise ValueError(f"format: {self.format} wants a schema: its columns and their types")
        if self.csv is not None and self.format != "csv":
            raise ValueError("`csv` says how lines are written: it belongs to format: csv")
        lower = [name.lower() for name in self.columns]
        for name, text in self.columns.items():
            if lower.count(name.lower()) > 1:
                raise ValueError(
                    f'two columns are called "{name.lower()}": SQL does not tell apart upper and lower case'
                )
            if name in _RESERVED:
                raise ValueError(f'a column "{name}" is the hub\'s own: every event has it, or must not')
            if self.format == "csv" and "<" in text:
                raise ValueError(f'column "{name}": a line of CSV holds plain values, not {text}')
        return self

    @property
    def declared(self) -> AvroType | None:
        """The schema of its events as the file says it; None: the registry says it."""
        if self.format is None:
            return None
        how = self.csv or Csv()
        return declared(self.format, self.columns, separator=how.separator, null=how.null)


class Source(EventFormat):
    """Where events of one system come from and which entity they belong to.

    ``topic`` may be a pattern over the tree (``nyc.*.departures``). ``key`` gives the entity's key from an event's
    columns. ``order`` decides which event is the latest (default: the order of the log). Events with the same
    ``unique_by`` count once in aggregates, with the values of the latest of them. Events for which ``where`` is not
    true are left out.
    """

    topic: str = Field(min_length=1, max_length=249)
    key: Sql
    order: Sql | None = None
    unique_by: Sql | None = None
    where: Sql | None = None


class Transforms(BaseModel):
    """A file of Python functions beside the view (transforms.py), and what it says: a version keeps what it was made with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*\.py$", max_length=200)
    text: str = Field("", max_length=transforms.MOST_CHARACTERS)

    @field_validator("file")
    @classmethod
    def _beside(cls, file: str) -> str:
        if ".." in file.split("/"):
            raise ValueError("the file must be in the folder of the views, or below it")
        return file


def _ttl_ms(text: str) -> int:
    """Raises ValueError with what to write instead."""
    try:
        found = duration_ms(text)
    except ValueError:
        worded = _WORDY.fullmatch(text.strip())
        instead = (
            f"{worded[1]}{worded[2][0].lower()}" if worded else "a number and its unit, such as 12h or 30d"
        )
        raise ValueError(f'"{text}" is no ttl: write {instead}') from None
    if found < _SHORTEST_TTL_MS:
        raise ValueError(f'a ttl of "{text}" is too short: at least 1s')
    return found


class Declared(BaseModel):
    """What every kind of view says of itself, and what its versions are called."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    view: Name
    doc: str = ""
    owner: str = ""
    mode: RunMode = "auto"
    indexes: list[Name] = Field(default_factory=list)
    partitions: int | None = Field(None, ge=1, le=256)
    stores: list[Name] = Field(default_factory=list)
    swap: Swap = Swap()
    transforms: Transforms | None = None
    slo: LatencyNode = LatencyNode()
    ttl: str | None = None
    # The group that it moves in step with, so that one query can ask all of them at one place of the log.
    cut: Name | None = None
    proof: Proof = Proof()
    _number: int | None = PrivateAttr(None)
    _table: str | None = PrivateAttr(None)

    @field_validator("swap", mode="before")
    @classmethod
    def _short(cls, given: object) -> object:
        """``swap: manual`` is short for ``swap: {when: manual}``."""
        return {"when": given} if isinstance(given, str) else given

    @field_validator("transforms", mode="before")
    @classmethod
    def _file(cls, given: object) -> object:
        """``transforms: transforms.py`` is short for ``transforms: {file: transforms.py}``."""
        return {"file": given} if isinstance(given, str) else given

    @field_validator("ttl", mode="before")
    @classmethod
    def _unit(cls, given: object) -> object:
        return str(given) if isinstance(given, int | float) else given  # no unit: the next check says so

    @field_validator("ttl")
    @classmethod
    def _lasts(cls, text: str | None) -> str | None:
        if text is not None:
            _ttl_ms(text)
        return text

    @model_validator(mode="after")
    def _in_batches_only(self) -> Self:
        if self.transforms is not None and self.mode == "realtime":
            raise ValueError(
                "Python functions are called for batches, and real-time mode has none; write `mode: live`"
            )
        if self.cut is not None and self.mode == "realtime":
            raise ValueError(
                "the views of a `cut` stop at the same place again and again, and real-time mode stops nowhere; write "
                "`mode: live`, or leave `cut` out"
            )
        return self

    @property
    def functions(self) -> tuple[Function, ...]:
        """The Python functions that its SQL may call. Raises ConfigError when their file is wrong."""
        if self.transforms is None:
            return ()
        return transforms.functions(self.transforms.text, self.transforms.file)

    @field_validator("indexes", "stores")
    @classmethod
    def _distinct(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))

    @property
    def name(self) -> str:
        return self.view

    @property
    def ttl_ms(self) -> int | None:
        """After how long without an event a row is deleted; None: never."""
        return None if self.ttl is None else _ttl_ms(self.ttl)

    @property
    def recompute_ms(self) -> int | None:
        """How often it is computed again from its sources, as a proof; None: when somebody asks."""
        return None if self.proof.recompute is None else duration_ms(self.proof.recompute)

    @property
    def expiry_topic(self) -> str | None:
        """Where it is said which rows are over, of all versions of the view; None: it has no ttl."""
        return None if self.ttl is None else f"{EXPIRY_PREFIX}{self.view}"

    @property
    def kept_indexes(self) -> list[str]:
        """The indexes that stores keep: those of the file, and that by which rows are found that are over."""
        own = [] if self.ttl is None or LAST_EVENT_AT in self.indexes else [LAST_EVENT_AT]
        return [*self.indexes, *own]

    @property
    def table(self) -> str:
        """Its name where versions are told apart."""
        return self._table or table_of(self.view, self._number)

    @property
    def changelog(self) -> str:
        """The topic that this version of the view is published to."""
        return changelog_of(table_of(self.view, self._number))

    def of_version(self, number: int | None, table: str | None = None) -> Self:
        """The same view as its version of that number; None: the one that has the view's own names. ``table``: what it
        is called where only one version is kept."""
        found = self.model_copy()
        found._number, found._table = number, table
        return found


class View(Declared):
    """An entity view as its file says it."""

    sources: dict[Name, Source] = Field(min_length=1)
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
        twice = self.fields.keys() & self.computed.keys()
        if twice:
            raise ValueError(f'"{min(twice)}" is declared both in fields and in computed')
        for index in self.indexes:
            if index not in self.columns:
                guess = nearest(index, self.columns)
                raise ValueError(
                    f'index "{index}" is no field of the view'
                    + (f'; did you mean "{guess}"?' if guess else "")
                )
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The row's columns in order: fields, then computed, then when its last event was if it has a ttl."""
        return (*self.fields, *self.computed, *(() if self.ttl is None else (LAST_EVENT_AT,)))

    @property
    def counted_within(self) -> dict[str, str]:
        """By source with unique_by: within what an identity counts once. It may count under several keys: see docs/views.md."""
        return {
            name: f"each {source.unique_by} once within its {source.key}; one that moves to another {source.key} stays "
            "counted under the former, too"
            for name, source in self.sources.items()
            if source.unique_by is not None and source.unique_by != source.key
        }

    @property
    def all_sources(self) -> dict[str, Source]:
        """Its sources, and with a ttl the topic that says which rows are over: read like one more."""
        topic = self.expiry_topic
        if topic is None:
            return dict(self.sources)
        said = Source.model_validate(
            {"topic": topic, "key": "_key", "format": "json", "schema": {"cutoff": "timestamp"}}
        )
        return {**self.sources, EXPIRY: said}


def load_view(path: Path) -> View | SqlView:
    """The view in one file: a SQL view when it has ``sql:``, else an entity view.

    Raises ConfigError with file, line and column and what was expected there.
    """
    with kept_to(path):
        return _load_view(path)


def _load_view(path: Path) -> View | SqlView:
    if ("sql",) in places(path):
        from hub.materializers.sql_view import SqlView

        view: View | SqlView = load_model(path, SqlView)
    else:
        view = load_model(path, View)
    if view.view != path.stem:
        raise ConfigError(
            f'view "{view.view}" is in the file "{path.name}"',
            hint=f"name the file {view.view}.yaml: a view is found by its file name",
            where=str(path),
        )
    view = _with_functions(path, view)
    if not isinstance(view, View):
        from hub.materializers.sql_view import readable  # it is made of this module's names

        readable(path, view)
    return view


def _with_functions(path: Path, view: View | SqlView) -> View | SqlView:
    """The view with what its file of functions says. Raises ConfigError with file, line and function."""
    if view.transforms is None:
        return view
    file = path.parent / view.transforms.file
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        there = [each.name for each in path.parent.glob("*.py")]
        guess = nearest(view.transforms.file, there)
        raise ConfigError(
            f'its functions\' file "{file}" cannot be read ({type(error).__name__})',
            where=place(path, "transforms"),
            hint=f"did you mean {guess}?" if guess else "it is found from the folder of the view's file",
            code="HUB-2151",
        ) from None
    if len(text) > transforms.MOST_CHARACTERS:
        raise ConfigError(
            f"longer than {transforms.MOST_CHARACTERS} characters",
            where=str(file),
            hint="import a package for what is large",
            code="HUB-2151",
        )
    transforms.functions(text, str(file))
    return view.model_copy(update={"transforms": view.transforms.model_copy(update={"text": text})})


_NAMES_FILE = re.compile(r"""^transforms:\s*(?:\{\s*file:\s*)?["']?([\w./-]+\.py)""", re.MULTILINE)


def files_of(path: Path) -> tuple[Path, ...]:
    """The files that define a view: its own, and that of its functions where it names one that is there."""
    named = _NAMES_FILE.search(read_text(path, errors="replace"))
    beside = path.parent / named[1] if named else None
    return (path, beside) if beside is not None and beside.is_file() else (path,)


def definition_text(path: Path) -> str:
    """What defines a view, as it is written: its file, and behind it the functions that it names."""
    own, *beside = files_of(path)
    text = read_text(own, errors="replace")
    for each in beside:
        text += f"\n# ---- {each.name}\n{read_text(each, errors='replace')}"
    return text


def view_of(body: str) -> View | SqlView:
    """A view that was checked before, from the JSON that ``body_of`` made of it."""
    if "sql" in orjson.loads(body):
        from hub.materializers.sql_view import SqlView

        return SqlView.model_validate_json(body)
    return View.model_validate_json(body)


def body_of(view: View | SqlView) -> str:
    """As JSON, for the log."""
    return view.model_dump_json(by_alias=True, exclude_defaults=True)


def view_files(project: Path) -> list[Path]:
    """The files of a project's views, by name; none of those that editors leave for a while: hidden ones, links to nothing."""
    found = (project / "views").glob("*.yaml")
    return sorted(path for path in found if not path.name.startswith(".") and path.exists())


def load_views(
    project: Path, refused: Callable[[Path, ConfigError], None] | None = None
) -> list[View | SqlView]:
    """Load all views of a project folder, by name; [] when it has none.

    ``refused`` is called with each file that does not load, and the others are returned. Without it ConfigError is raised.
    """
    found = []
    for path in view_files(project):
        try:
            found.append(load_view(path))
        except ConfigError as error:
            if refused is None:
                raise
            refused(path, error)
    return found
