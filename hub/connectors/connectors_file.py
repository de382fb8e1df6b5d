"""[core] ``connectors.yaml``: connectors of Kafka Connect as a project declares them, with the place of every
key.

::

    connectors:
      crm:
        kind: postgres-cdc
        owner: crm-team
        topics: [crm.**]
        config:
          database.hostname: db
          database.password: ${CRM_PASSWORD}

Secrets are ``${NAME}`` (upper case), and never stand in the file: the worker resolves them when it starts a
task, so that neither Connect's topics nor the hub have their values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from hub.connectors.kinds import CONVERTERS, KINDS, Direction, direction_of, kind_of
from hub.errors import ConfigError, did_you_mean
from hub.schema_registry.policy.label_patterns import checked
from hub.topics.tree.tree import reserved_for
from hub.yaml import is_there, kept_to, load_model, place

CONNECTORS_FILE = "connectors.yaml"
State = Literal["running", "paused", "stopped"]
Converter = Literal["json", "json-with-schema", "string", "bytes", "avro", "protobuf", "json-schema"]

REFERENCE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
_EXTERNAL = re.compile(r"\$\{[a-z][a-z0-9]*:[^}]+\}")
_SECRET_KEY = re.compile(
    r"(^|[._-])(password|passphrase|secret|token|credentials|jaas\.config|(private|api|access|account)\.?_?key"
    r"|client_?secret|access\.key\.id)$",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"://[^/\s:@]*:([^@/\s]+)@")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")
_PLACE_OF_SECRET = re.compile(r"file:/[^:}]+:[^:}]+")
# Keys of Connect that other keys of the file set.
_SET_ELSEWHERE = {
    "name": "the connector's own key",
    "connector.class": "`kind` or `class`",
    "tasks.max": "`tasks`",
    "topics": "`topics`",
    "topics.regex": "`topics`",
}

assert set(CONVERTERS) == set(Converter.__args__)  # type: ignore[attr-defined]


def is_secret_key(key: str) -> bool:
    """Return whether a setting of a connector holds a secret, by its name.

    >>> is_secret_key("database.password"), is_secret_key("aws.secret.access.key")
    (True, True)
    >>> is_secret_key("key.converter")
    False
    """
    return _SECRET_KEY.search(key) is not None


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f'connector "{text[:60]}": a name is letters, digits, ".", "_" and "-", at most 100')
    return text


class ConnectorSpec(BaseModel, extra="forbid", frozen=True, populate_by_name=True):
    """A connector. Values of ``config`` go to Connect as texts;
    ``secrets`` has the place where a worker finds each secret."""

    kind: str | None = Field(None, description="a short kind; or write `class`")
    class_name: str | None = Field(
        None,
        alias="class",
        pattern=r"^[A-Za-z_$][A-Za-z0-9_$.]{0,249}$",
        description="the connector's Java class, where no kind names it",
    )
    owner: str = Field("", description="who answers for it")
    doc: str = ""
    topics: list[str] = Field(
        min_length=1,
        max_length=1_000,
        description="topics that a sink reads or a source writes: names, or patterns of the "
        "tree such as `crm.**`",
    )
    tasks: int = Field(1, ge=1, le=10_000, description="most tasks")
    config: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="settings of the connector, by its own names; they win over the hub's",
    )
    secrets: dict[str, str] = Field(
        default_factory=dict,
        description="where a worker finds `${NAME}`: `file:/run/secrets/crm.properties:password`; without "
        "an entry it is the worker's environment variable",
    )
    converter: Converter = Field("json", description="format of values")
    key_converter: Converter | None = Field(None, description="format of keys; without it that of values")
    state: State | None = Field(
        None, description="`plan` and `apply` keep it so; without it, pausing is left to operators"
    )
    on_error: Literal["dead-letter", "stop"] = Field(
        "dead-letter", description="what a sink does with a record that it cannot convert"
    )

    @field_validator("kind")
    @classmethod
    def _require_known_kind(cls, kind: str | None) -> str | None:
        if kind is not None and kind not in KINDS:
            way = did_you_mean(kind, KINDS, f"one of: {', '.join(KINDS)}; or write `class`")
            raise ValueError(f'no kind is called "{kind[:60]}"; {way}')
        return kind

    @field_validator("topics")
    @classmethod
    def _patterns(cls, topics: list[str]) -> list[str]:
        return [checked(each) for each in topics]

    @field_validator("secrets")
    @classmethod
    def _places(cls, secrets: dict[str, str]) -> dict[str, str]:
        for name, where in secrets.items():
            if not _PLACE_OF_SECRET.fullmatch(where):
                raise ValueError(
                    f"{name}: write file:/PATH:KEY, with the absolute path of a .properties file"
                )
        return secrets

    @model_validator(mode="after")
    def _one_class(self) -> Self:
        if (self.kind is None) == (self.class_name is None):
            raise ValueError("name either `kind` or `class`")
        return self

    @property
    def java_class(self) -> str:
        return self.class_name or kind_of(self.kind or "", self.config).class_name

    @property
    def direction(self) -> Direction:
        if self.class_name is not None:
            return direction_of(self.class_name)
        return kind_of(self.kind or "", self.config).direction

    @property
    def variables(self) -> frozenset[str]:
        """Return the environment variables that a worker needs for it."""
        named = {name for value in self.config.values() for name in REFERENCE.findall(str(value))}
        return frozenset(named - self.secrets.keys())


class ConnectorsFile(BaseModel, extra="forbid", frozen=True):
    """Content of connectors.yaml."""

    connectors: dict[Annotated[str, AfterValidator(_name)], ConnectorSpec] = Field(
        max_length=1_000, description="by name"
    )


@dataclass(frozen=True)
class Connectors:
    """The declared connectors, and the file that they are from."""

    path: Path
    by_name: Mapping[str, ConnectorSpec]

    def place(self, name: str, *keys: str) -> str:
        """Return ``file:line:column`` of a connector or of one of its keys."""
        return place(self.path, "connectors", name, *keys)

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset().union(*(each.variables for each in self.by_name.values()))


def load_connectors(project: Path, file: Path | None = None) -> Connectors:
    """Load the project's connectors; none without a file. Raises ConfigError with file, line and column."""
    path = file or project / CONNECTORS_FILE
    if file is None and not is_there(path):
        return Connectors(path, {})
    with kept_to(path):
        found = Connectors(path, load_model(path, ConnectorsFile).connectors)
        for name, spec in found.by_name.items():
            for keys, message, hint in _faults(name, spec):
                raise ConfigError(message, where=found.place(name, *keys), hint=hint, code="HUB-1104")
        return found


def _faults(name: str, spec: ConnectorSpec) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield (keys, message, hint) of errors that the model alone cannot place."""
    for key, value in spec.config.items():
        at, text = ("config", key), str(value)
        if key in _SET_ELSEWHERE:
            yield (
                at,
                f'connector "{name}": "{key}" does not belong into config',
                f"it is {_SET_ELSEWHERE[key]}",
            )
        left = REFERENCE.sub("", _EXTERNAL.sub("", text))
        if is_secret_key(key) and (left == text or (left and not key.endswith("jaas.config"))):
            yield (
                at,
                f'connector "{name}": the value of "{key}" stands in the file',
                (
                    f"write ${{NAME}}, and set the variable NAME where the worker runs: {key}: "
                    f"${{{_suggested(name, key)}}}"
                ),
            )
        if (inside := _IN_URL.search(text)) and not inside[1].startswith("${"):
            yield (
                at,
                f'connector "{name}": "{key}" is a URL with a password in the file',
                "write the password as ${NAME}",
            )
    if spec.direction == "source":
        for pattern in spec.topics:
            if (owner := reserved_for(pattern)) is not None:
                yield (
                    ("topics",),
                    f'connector "{name}": topics "{pattern}" belong to {owner[0]}',
                    "name others",
                )


def _suggested(name: str, key: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", f"{name}_{key.rpartition('.')[2]}".upper())
