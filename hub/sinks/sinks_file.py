"""[edge] ``sinks.yaml``: where records of topics and rows of views go.

::

    sinks:
      large-payments:
        from: shop.payments
        where: amount > 1000
        fields: [id, amount, upper(country) AS country]
        owner: risk
        webhook: {url: "https://alerts.example.com/hook", secrets: ["${ALERTS_SECRET}"]}

The worker reads it again when it changes. A wrong entry stops its own sink; the others work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from hub.errors import ConfigError, NotFound, did_you_mean
from hub.security import SECRET_IN_FILE, VARIABLE, Secret, is_reference
from hub.sinks.assembling.entry import Assemble
from hub.topics.tree.tree_file import duration_ms
from hub.yaml import load_parts

SINKS_FILE = "sinks.yaml"
NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"
VIEWS = "views."
KINDS = ("webhook", "topic", "database", "files", "search")
_Name = Annotated[str, StringConstraints(pattern=NAME)]
_Topic = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
_Column = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]


def _duration(text: str) -> str:
    duration_ms(text)
    return text


def _address(text: str) -> str:
    """Refuse an address with a password in the file."""
    if not is_reference(text) and urlsplit(text).password:
        raise PydanticCustomError(
            SECRET_IN_FILE, "a secret must not be in the file: write ${NAME} for the whole address"
        )
    return text


def _http(text: str) -> str:
    if not is_reference(text) and not re.match(r"https?://[^/\s]", text):
        raise ValueError("write http://…, https://…, or ${NAME} of a variable that has it")
    return text


Duration = Annotated[str, AfterValidator(_duration)]
Address = Annotated[str, AfterValidator(_address)]
HttpAddress = Annotated[str, AfterValidator(_address), AfterValidator(_http)]


class _Model(BaseModel, extra="forbid", frozen=True, populate_by_name=True):
    """A part of sinks.yaml."""


class WebhookTarget(_Model):
    """Requests, signed as Standard Webhooks. At least once: a repeated one has the same `webhook-id`."""

    url: HttpAddress = Field(description="where to POST, or `${NAME}` of a variable that has the address")
    secrets: list[Secret] = Field(
        min_length=1,
        max_length=5,
        description="`${NAME}` of the worker's environment: the present one, then former ones, which sign "
        "too while a receiver changes its own",
    )
    parallel: int = Field(
        8, ge=1, le=64, description="most requests at a time; those of one key follow each other"
    )
    timeout: Duration = Field("10s", description="how long a receiver may take for its answer")
    attempts: int = Field(
        8,
        ge=1,
        le=100,
        description="attempts at a record that the receiver answers with an error of its own, or not in "
        "time; then it is a dead-letter record. A receiver that is down is waited for without an end",
    )


class TopicTarget(_Model):
    """Another topic, exactly once. Without `fields`, records are copied as they are."""

    name: _Topic = Field(description="the topic; it must exist")


class DatabaseTarget(_Model):
    """A table of Postgres or SQLite, exactly once: rows and position are one transaction."""

    url: Address = Field(
        description="postgresql://user@host/database or sqlite:////PATH; with a password as `${NAME}`"
    )
    table: _Column = Field(description="the table; it is made if it does not exist")
    key: _Column = Field(
        "key", description="the column that has the record's key; a newer record of the key replaces the row"
    )
    append: bool = Field(
        False, description="insert a row for every record; `key` then has topic-partition-offset"
    )


class FilesTarget(_Model):
    """Files with one JSON object a line, exactly once: their names have the offsets."""

    to: str = Field(min_length=1, max_length=1_000, description="a folder (from the project's), or s3://…")
    roll_mb: float = Field(
        16.0, gt=0.0, le=256.0, description="write files when this much text waits, in MB before compression"
    )
    roll_every: Duration = Field("60s", description="write files when the oldest waiting record is this old")
    compress: bool = Field(True, description="compress with gzip: `.ndjson.gz`")


class SearchTarget(_Model):
    """An index of Elasticsearch or OpenSearch, by the `_bulk` API. Repeats change nothing, by versions."""

    url: HttpAddress = Field(description="address of the cluster, or `${NAME}` of a variable that has it")
    index: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,254}$", description="the index, a data stream excepted"
    )
    authorization: Secret | None = Field(
        None, description="`${NAME}` of the worker's environment with the header, such as `ApiKey …`"
    )
    request_mb: float = Field(5.0, gt=0.0, le=100.0, description="most text of one request, in MB")
    timeout: Duration = Field("30s", description="how long the cluster may take for its answer")
    attempts: int = Field(
        8,
        ge=1,
        le=100,
        description="attempts at a document that the cluster answers with an error of its own; then its "
        "record is a dead-letter record. A cluster that is down or busy is waited for without an end",
    )


class SinkEntry(_Model):
    """A sink: its source, its condition, and one target."""

    source: _Topic = Field(
        alias="from", description="a topic, or a view as `views.NAME`; with `assemble`, the transaction topic"
    )
    assemble: Assemble | None = Field(
        None, description="tables whose rows of one source transaction become one event of a topic"
    )
    where: str | None = Field(
        None,
        min_length=1,
        max_length=10_000,
        description="a condition in the hub's SQL over a record's fields; tombstones always pass",
    )
    fields: list[str] = Field(
        default_factory=list,
        max_length=400,
        description="columns or SQL expressions with AS; none: all fields",
    )
    owner: str = Field(
        "", max_length=200, description="who answers for it, and with whose grants in access.yaml it acts"
    )
    doc: str = ""
    start: Literal["beginning", "now"] = Field(
        "beginning", description="where a new sink begins to read; later it continues at its position"
    )
    late_after: Duration = Field("5m", description="age of its oldest waiting record that is an alert")
    webhook: WebhookTarget | None = None
    topic: TopicTarget | None = None
    database: DatabaseTarget | None = None
    files: FilesTarget | None = None
    search: SearchTarget | None = None

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        kinds = [kind for kind in KINDS if getattr(self, kind)]
        if len(kinds) != 1:
            found = ", ".join(kinds) or "none"
            raise ValueError(f"a sink has one target: {', '.join(KINDS[:-1])} or {KINDS[-1]}; here: {found}")
        if self.source.startswith("_"):
            raise ValueError(f"topic \"{self.source}\" is the hub's own or Kafka's: sinks read users' topics")
        if self.topic is not None and self.topic.name.startswith(("_", VIEWS)):
            raise ValueError(f'topic "{self.topic.name}" is the hub\'s own: sinks do not write it')
        if self.assemble is not None and (self.topic is None or self.where or self.fields):
            raise ValueError(
                "`assemble` has the target `topic`, without where and fields: another sink reads that topic"
            )
        if self.assemble is not None and len(set(self.topics)) < len(self.topics):
            raise ValueError("`from` is the transaction topic, not the topic of a table")
        return self

    @property
    def topics(self) -> list[str]:
        """Return the topics that the sink reads."""
        tables = self.assemble.tables.values() if self.assemble is not None else ()
        return [self.source, *(each.topic for each in tables)]

    @property
    def kind(self) -> str:
        """Return the kind of the target."""
        return next(kind for kind in KINDS if getattr(self, kind))

    @property
    def place(self) -> str:
        """Return the target in words, without secrets."""
        if self.webhook is not None:
            return _without_secrets(self.webhook.url)
        if self.database is not None:
            return f"{_without_secrets(self.database.url)} {self.database.table}"
        if self.search is not None:
            return f"{_without_secrets(self.search.url)} {self.search.index}"
        if self.files is not None:
            return self.files.to.split("?", 1)[0]
        assert self.topic is not None
        return self.topic.name

    @property
    def of_view(self) -> bool:
        """Return whether the source is a view, whose records are rows that replace earlier ones."""
        return self.source.startswith(VIEWS)

    @property
    def late_after_ms(self) -> int:
        return duration_ms(self.late_after)


class SinksFile(_Model):
    """Sinks, by name."""

    sinks: dict[_Name, SinkEntry] = Field(max_length=1_000, description="sinks, by name")


def _without_secrets(address: str) -> str:
    """Return an address without what may be a secret: user, query and fragment."""
    if is_reference(address):
        return address
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def load_sinks(path: Path) -> tuple[Mapping[str, SinkEntry], Mapping[str, ConfigError]]:
    """Return the entries of a file, and the errors of those that are wrong; none of either for no file.

    Raises ConfigError for a file that cannot be read at all, and for sinks that feed each other.
    """
    if not path.exists():
        return {}, {}
    model, wrong = load_parts(path, SinksFile, {"sinks"})
    errors = {str(entry[1]) if len(entry) > 1 else "": each for entry, each in wrong.items()}
    if circle := find_circle(model.sinks):
        raise ConfigError(
            f"sinks feed each other without an end: {' -> '.join(circle)}",
            where=f"{path}",
            hint="take one of these sinks out",
            code="HUB-1820",
        )
    return model.sinks, errors


def find_circle(sinks: Mapping[str, SinkEntry]) -> list[str]:
    """Return topics that sinks copy in a circle, the first one again at the end; [] if there are none."""
    onward: dict[str, list[str]] = {}
    for entry in sinks.values():
        if entry.topic is not None:
            for source in entry.topics:
                onward.setdefault(source, []).append(entry.topic.name)
    done: set[str] = set()
    for start in onward:
        paths = [[start]]
        while paths:
            path = paths.pop()
            for after in onward.get(path[-1], ()):
                if after == start:
                    return [*path, start]
                if after not in done and after not in path:
                    paths.append([*path, after])
        done.add(start)
    return []


def entry_named(name: str, entries: Mapping[str, SinkEntry], wrong: Mapping[str, ConfigError]) -> SinkEntry:
    """Return an entry. Raises its ConfigError, or NotFound (HUB-1821) with a similar name."""
    if name in entries:
        return entries[name]
    if name in wrong or "" in wrong:
        raise wrong.get(name) or wrong[""]
    raise NotFound(
        f'there is no sink "{name[:80]}" in {SINKS_FILE}',
        hint=did_you_mean(name, entries, "hub sink ls lists them"),
        code="HUB-1821",
    )


def filled(sink: str, text: str, environ: Mapping[str, str]) -> str:
    """Return ``${NAME}`` of the environment; other text as it is. Raises ConfigError (HUB-1822)."""
    found = VARIABLE.fullmatch(text)
    if found is None:
        return text
    if not environ.get(found[1]):
        raise ConfigError(
            f'sink "{sink}": the variable {found[1]} is not set where its worker runs',
            hint=f"set {found[1]} where hub up or hub sink run is started, and start it again",
            code="HUB-1822",
        )
    return environ[found[1]]
