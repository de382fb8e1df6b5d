"""[core] ``alerts.yaml``: rules, channels and routes of alerts; ``alerts/*.yaml``: queries on views as
alerts.

::

    link: https://hub.example.com            # URL of the web app, for links in notifications
    group: {by: [owner, node], wait: 30s, repeat: 4h}
    rules:
      lag: {for: 2m, severity: page}
      topic-freshness: off
      mirror-lag: {limit: 10m}
    channels:
      ops: {webhook: {url: "https://ops.example.com/hook", bearer: "${OPS_TOKEN}"}}
      shop: {slack: {url: "${SHOP_SLACK_URL}"}}
      mail: {email: {server: "smtp.example.com:587", from: hub@example.com, to: [team@example.com],
                     user: hub, password: "${SMTP_PASSWORD}"}}
    routes:
      - {match: {severity: page}, to: [ops], continue: true}
      - {match: {topic: "shop.**"}, to: [shop]}
      - {to: [mail]}

Secrets are referenced, never written: ``${NAME}`` is taken from the environment when a notification is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator

from hub.alerts.model.alert_state import NotificationRoute
from hub.alerts.model.matching import matchers_of
from hub.alerts.model.rules import RULES, AlertRule, RuleChange, RuleChanges, Severity
from hub.errors import ConfigError, nearest
from hub.security import is_reference, variable_of
from hub.topics.tree.tree_file import duration_ms
from hub.yaml import load_model, place

ALERTS_FILE = "alerts.yaml"
FOLDER = "alerts"
MOST_CHANNELS, MOST_ROUTES, MOST_QUERIES = 50, 200, 100
LABELS = (
    *("alertname", "severity", "owner", "node"),
    *("topic", "consumer", "kind", "view", "tier", "connector", "worker", "mirror", "broker", "folder"),
    *("process", "file", "part"),
)
COLUMN = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_ADDRESS = re.compile(r"[^@\s,<>]{1,100}@[^@\s,<>]{1,200}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f'name "{text[:80]}" must be small letters, digits, "_" and "-", at most 63')
    return text


def _secret(text: str) -> str:
    if not is_reference(text):
        raise ValueError("a secret must not be in the file: write ${NAME} and set the variable NAME")
    return text


def _url(text: str) -> str:
    if not is_reference(text) and not re.fullmatch(r"https?://[^\s@]+", text):
        raise ValueError(
            "write an address that begins with https:// or http:// and has no password, or ${NAME}"
        )
    return text


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError(f'"{text[:100]}" is not an e-mail address')
    return text


def _duration(value: object) -> object:
    return duration_ms(str(value)) if not isinstance(value, bool) else value


def _rule_name(text: str) -> str:
    if text not in RULES:
        guess = nearest(text, RULES)
        raise ValueError(
            f'rule "{text[:60]}" does not exist'
            + (f'; did you mean "{guess}"?' if guess else f": {', '.join(RULES)}")
        )
    return text


def _label(text: str) -> str:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", text):
        raise ValueError(
            f'"{text[:60]}" is not a label; alerts have {", ".join(LABELS)}, and columns named by `by`'
        )
    return text


Name = Annotated[str, AfterValidator(_name)]
Label = Annotated[str, AfterValidator(_label)]
Secret = Annotated[str, AfterValidator(_secret)]
Address = Annotated[str, AfterValidator(_address)]
DurationMs = Annotated[int, BeforeValidator(_duration)]
SecondsMs = Annotated[int, BeforeValidator(_duration), Field(ge=1_000)]
Match = dict[Label, str | list[str]]


class _AlertsModel(BaseModel, extra="forbid", frozen=True):
    """A part of alerts.yaml."""


class Webhook(_AlertsModel):
    """Webhook channel: POST of JSON in Alertmanager's format."""

    url: Annotated[str, AfterValidator(_url)]
    bearer: Secret | None = None


class Slack(_AlertsModel):
    """Slack channel: an incoming webhook, whose URL is a secret."""

    url: Secret


class Email(_AlertsModel):
    """E-mail channel over SMTP. ``tls``: ``starttls``, ``implicit`` (port 465), or ``off`` for a relay on
    this machine.
    """

    server: str = Field(pattern=r"^[A-Za-z0-9.\[\]:_-]+:\d{1,5}$")
    sender: Address = Field(alias="from")
    to: list[Address] = Field(min_length=1, max_length=50)
    tls: Literal["starttls", "implicit", "off"] = "starttls"
    user: str | None = None
    password: Secret | None = None

    @field_validator("tls", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML parses off as false

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password belong together: say both or neither")
        if self.password is not None and self.tls == "off":
            raise ValueError("a password is not sent without TLS: write tls: starttls or tls: implicit")
        return self


class Channel(_AlertsModel):
    """A notification channel. ``timeout`` applies to one attempt."""

    webhook: Webhook | None = None
    slack: Slack | None = None
    email: Email | None = None
    timeout: DurationMs = 10_000

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(each is not None for each in (self.webhook, self.slack, self.email)) != 1:
            raise ValueError("a channel is one of webhook, slack and email")
        return self

    @property
    def kind(self) -> str:
        return "webhook" if self.webhook else "slack" if self.slack else "email"

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that the channel needs."""
        values: list[str | None] = []
        if self.webhook is not None:
            values += [self.webhook.url, self.webhook.bearer]
        if self.slack is not None:
            values.append(self.slack.url)
        if self.email is not None:
            values.append(self.email.password)
        return tuple(variable_of(each) for each in values if each and is_reference(each))


class Grouping(_AlertsModel):
    by: list[Label] = Field(default=["owner", "node"], max_length=10)
    wait: DurationMs = 30_000
    repeat: DurationMs = Field(4 * 3_600_000, ge=1_000)


class RouteNode(_AlertsModel):
    match: Match = Field(default_factory=dict)
    to: list[Name] = Field(min_length=1)
    goes_on: bool = Field(False, alias="continue")
    by: list[Label] | None = None
    wait: DurationMs | None = None
    repeat: SecondsMs | None = None


class RuleNode(_AlertsModel):
    for_: DurationMs | None = Field(None, alias="for")
    keep: DurationMs | None = None
    severity: Severity | None = None
    limit: SecondsMs | None = None
    off: bool = False


class AlertsFile(_AlertsModel):
    """Content of alerts.yaml."""

    link: str | None = Field(None, pattern=r"^https?://[^\s]+$")
    group: Grouping = Grouping()
    rules: dict[Annotated[str, AfterValidator(_rule_name)], RuleNode] = Field(default_factory=dict)
    channels: dict[Name, Channel] = Field(default_factory=dict, max_length=MOST_CHANNELS)
    routes: list[RouteNode] = Field(default_factory=list, max_length=MOST_ROUTES)

    @field_validator("rules", mode="before")
    @classmethod
    def _off(cls, rules: object) -> object:
        """Expand ``lag: off`` to ``lag: {off: true}``."""
        if not isinstance(rules, dict):
            return rules
        return {name: {"off": True} if each in (False, "off") else each for name, each in rules.items()}

    @field_validator("rules")
    @classmethod
    def _limits(cls, rules: dict[str, RuleNode]) -> dict[str, RuleNode]:
        having = [name for name, rule in RULES.items() if rule.limit_ms is not None]
        for name, each in rules.items():
            if each.limit is not None and name not in having:
                raise ValueError(
                    f'rule "{name}" has no limit of its own; {" and ".join(having)} have one,'
                    " for the others the objective is in topics.yaml or in the view"
                )
        return rules

    def as_routes(self) -> tuple[NotificationRoute, ...]:
        """Return the routes for the state machine. Without routes, everything goes to every channel."""
        nodes = self.routes or ([RouteNode(to=sorted(self.channels))] if self.channels else [])
        return tuple(
            NotificationRoute(
                matchers_of(each.match),
                tuple(each.to),
                each.goes_on,
                tuple(self.group.by if each.by is None else each.by),
                self.group.wait if each.wait is None else each.wait,
                self.group.repeat if each.repeat is None else each.repeat,
            )
            for each in nodes
        )

    def changes(self) -> RuleChanges:
        return RuleChanges(
            {
                name: RuleChange(each.for_, each.keep, each.severity, each.off, each.limit)
                for name, each in self.rules.items()
            }
        )


class QueryAlert(_AlertsModel):
    """Content of ``alerts/NAME.yaml``. ``by`` names the columns that identify an alert; without it, the query
    is one alert.
    """

    alert: Name
    query: str = Field(min_length=1, max_length=20_000)
    when: Literal["rows", "no rows"] = "rows"
    for_: DurationMs = Field(60_000, alias="for")
    keep: DurationMs = 0
    every: DurationMs = Field(30_000, ge=1_000)
    severity: Severity = Severity.warning
    summary: str = Field("", max_length=1_000)
    by: list[str] = Field(default_factory=list, max_length=10)
    owner: str = ""
    doc: str = ""
    runbook: str = Field("query", pattern=r"^(query|https?://[^\s]+)$")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.when == "no rows" and (self.by or COLUMN.search(self.summary)):
            raise ValueError("without rows there are no columns: `by` and {column} belong to `when: rows`")
        return self

    @property
    def rule(self) -> AlertRule:
        doc = self.doc or f"The query has {self.when}."
        return AlertRule(
            self.alert,
            "query",
            doc,
            self.severity,
            self.for_,
            self.keep,
            self.runbook,
            self.owner,
            self.query,
        )


def load_query_alert(path: Path) -> QueryAlert:
    """Load one query alert. Raises ConfigError with line and column."""
    query_alert = load_model(path, QueryAlert)
    if query_alert.alert != path.stem:
        raise ConfigError(
            f'alert "{query_alert.alert}" is in the file "{path.name}"',
            hint=f"name the file {query_alert.alert}.yaml: an alert is found by its file name",
            where=place(path, "alert"),
            code="HUB-1105",
        )
    if query_alert.alert in RULES:
        raise ConfigError(
            f'"{query_alert.alert}" is the name of a rule that there is already',
            hint="give it another one",
            where=place(path, "alert"),
            code="HUB-1105",
        )
    return query_alert


def query_files(project: Path) -> list[Path]:
    """Return the files of a project's query alerts, sorted by name."""
    return sorted((project / FOLDER).glob("*.yaml"))


def filled(summary: str, row: Mapping[str, object]) -> str:
    """Fill a row's values into the summary; placeholders of missing columns are kept.

    >>> filled("{customer_id} owes {owes}", {"customer_id": "C-1", "owes": 12})
    'C-1 owes 12'
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return found[0] if name not in row else "–" if row[name] is None else str(row[name])[:200]

    return COLUMN.sub(value, summary)


def unknown_columns(alert: QueryAlert, columns: Iterable[str]) -> str | None:
    """Return an error about the first column that the file names and the query lacks, with the nearest name;
    None if all exist.
    """
    known = list(columns)
    for name in (*alert.by, *COLUMN.findall(alert.summary)):
        if name not in known:
            guess = nearest(name, known)
            return f'the query has no column "{name}"' + (
                f'; did you mean "{guess}"?' if guess else f": {', '.join(known)}"
            )
    return None
