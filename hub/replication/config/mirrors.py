"""[core] ``mirrors.yaml``: the clusters, what each owns, and the mirrors between them.

::

    clusters:
      nyc: {bootstrap: nyc-1:9092, owns: ["nyc.**"]}
      lon:
        bootstrap: lon-1:9093
        owns: ["lon.**"]
        tls: {ca: certs/lon.pem}
        sasl: {mechanism: SCRAM-SHA-512, username: hub, password: "${LON_PASSWORD}"}
    mirrors:
      nyc-lon: {source: nyc, target: lon, topics: ["nyc.*", "**.chat"]}

A topic has the same name in every cluster, unless a mirror says ``rename``. The file contains references to
secrets, never their values:
``${NAME}`` is read from the environment when a connection is made. topology.py decides which mirror carries
which topic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from hub.replication.config.amounts import DurationMs, SizeBytes
from hub.replication.config.deletion_policy import DeletionPolicy, OnDelete
from hub.replication.config.rehearsal_schedule import Rehearse
from hub.replication.config.topic_names import RenameConfig
from hub.schema_registry.policy.label_patterns import checked
from hub.security import Sasl, Secret, TlsOrNot
from hub.topics.tree.tree import matches

MIRRORS_FILE = "mirrors.yaml"

OwnerRule = Literal["source", "transit", "any"]
OnTrouble = Literal["stop", "continue"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

_DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
_MOST_MIRRORS = 1_000


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(
            f'name "{text[:80]}" must be small letters, digits, "_" and "-", at most 63, no "_" or "-" first'
        )
    return text


Name = Annotated[str, AfterValidator(_name)]


def checked_pattern(text: str) -> str:
    """Return a pattern of mirrors.yaml or of its commands, such as ``orders-*``, if it is valid. Raises
    ValueError.
    """
    return checked(text, stars_inside=True)


Pattern = Annotated[str, AfterValidator(checked_pattern)]


class _MirrorsModel(BaseModel, extra="forbid", frozen=True):
    """A part of mirrors.yaml."""


class ClusterConfig(_MirrorsModel):
    """A cluster: its address, its credentials, and the label patterns that only it may write (``owns``).
    ``closed``: it accepts connections only from inside its region.
    """

    bootstrap: str
    owns: list[Pattern] = Field(default_factory=list)
    registry: str | None = None
    tls: TlsOrNot = None
    sasl: Sasl | None = None
    closed: bool = False

    @field_validator("bootstrap")
    @classmethod
    def _hosts(cls, value: str) -> str:
        for host in value.split(","):
            if not re.fullmatch(r"\s*[^\s:,]+:\d{1,5}\s*|\s*\[[0-9a-fA-F:]+\]:\d{1,5}\s*", host):
                raise ValueError(f'"{host.strip()}" is not host:port')
        return ",".join(host.strip() for host in value.split(","))


class Window(_MirrorsModel):
    """A time window in which a mirror may run: from ``from`` until before ``to``, local time; it spans
    midnight when ``to`` is earlier.
    """

    days: list[Day] = Field(default_factory=lambda: list(_DAYS), min_length=1)
    begins: str = Field("00:00", alias="from")
    ends: str = Field("24:00", alias="to")

    @field_validator("begins", "ends", mode="before")
    @classmethod
    def _clock(cls, value: object) -> object:
        if isinstance(value, int):  # YAML 1.1 reads 22:30 as a base-60 number
            value = f"{value // 60:02}:{value % 60:02}"
        if not _CLOCK.fullmatch(str(value)):
            raise ValueError(f'"{value}" is not a time such as "22:30"')
        return value


class Schedule(_MirrorsModel):
    zone: str = "UTC"
    windows: list[Window] = Field(min_length=1)

    @field_validator("zone")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError(f'"{value}" is not a time zone; say one such as Europe/London') from None
        return value


class LimitsConfig(_MirrorsModel):
    """Rate limits of a mirror. Bytes are counted as they are on the wire, compressed."""

    bytes_per_second: SizeBytes | None = None


class CommitConfig(_MirrorsModel):
    """Limits of a transaction, which ends at whichever is reached first."""

    interval: DurationMs = 100
    size: SizeBytes = 32 << 20
    records: int = Field(200_000, ge=1, le=1_000_000)


class LinkConfig(_MirrorsModel):
    """Memory and bandwidth of a long link, for each shard: `fetch` is the largest fetch of one broker,
    `in_flight` the largest amount of batches that were sent and not acknowledged. Below 10 ms of round trip
    both stay small.
    """

    fetch: SizeBytes = Field(16 << 20, ge=1 << 20, le=64 << 20)
    in_flight: SizeBytes = Field(32 << 20, ge=1 << 20, le=256 << 20)
    compression: Literal["none", "lz4", "zstd"] = "none"


class StartConfig(_MirrorsModel):
    timestamp: datetime

    @field_validator("timestamp")
    @classmethod
    def _zoned(cls, value: datetime) -> datetime:
        return value if value.tzinfo else value.replace(tzinfo=UTC)


class GroupsConfig(_MirrorsModel):
    """Selection of the consumer groups that are carried over; ``force`` moves a group back when the source's
    was reset.
    """

    include: list[Pattern] = Field(default_factory=lambda: ["**"])
    exclude: list[Pattern] = Field(default_factory=list)
    interval: DurationMs = 5_000
    force: bool = False


class AclsConfig(_MirrorsModel):
    """Copying of ACLs. WRITE is copied only if ``write`` is set: a writer at the source does not write to the
    copy.
    """

    copy_: bool = Field(True, alias="copy")
    write: bool = False
    principals: dict[str, str] = Field(default_factory=dict)


Comparable = str | int | float | bool | None


class RecordCondition(_MirrorsModel):
    """Condition on a header, or on a field of the value. A missing header or field counts as null."""

    header: str | None = None
    field: str | None = Field(None, min_length=1)
    in_: list[Comparable] | None = Field(None, alias="in", min_length=1)
    not_in: list[Comparable] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.header is None) == (self.field is None):
            raise ValueError("say header or field, one of them")
        if (self.in_ is None) == (self.not_in is None):
            raise ValueError("say in or not_in, one of them")
        if self.header is not None and any(
            not isinstance(each, str | None) for each in self.in_ or self.not_in or ()
        ):
            raise ValueError(f'header "{self.header}" is compared as text: put its values in quotes')
        return self

    def accepts(self, values: Sequence[object]) -> bool:
        """Return whether the condition accepts these values: one, or several where the field is inside an
        array.
        """
        listed = {(isinstance(each, bool), each) for each in self.in_ or self.not_in or ()}
        found = any(
            (isinstance(each, bool), each) in listed
            for each in values
            if isinstance(each, str | int | float | None)
        )
        return found == (self.in_ is not None)

    def __str__(self) -> str:
        place = f"header {self.header}" if self.header is not None else f"field {self.field}"
        values = ", ".join("null" if each is None else str(each) for each in self.in_ or self.not_in or ())
        return f"{place} {'in' if self.in_ is not None else 'not in'} [{values}]"


class RecordFilterConfig(_MirrorsModel):
    topics: list[Pattern] = Field(min_length=1)
    where: RecordCondition


class MaskRule(_MirrorsModel):
    """Mask for fields of values. ``fields``: dotted paths; ``key``: the secret of a hash."""

    topics: list[Pattern] = Field(min_length=1)
    fields: list[Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]] = Field(min_length=1)
    how: Literal["hash", "null", "redact"] = Field(alias="with")
    key: Secret | None = None

    @field_validator("how", mode="before")
    @classmethod
    def _null(cls, value: object) -> object:
        return "null" if value is None else value

    @model_validator(mode="after")
    def _keyed(self) -> Self:
        if (self.how == "hash") != (self.key is not None):
            raise ValueError('a hash needs a key, "${NAME}", and nothing else does')
        return self


class Mirror(_MirrorsModel):
    """A mirror: the topics it copies between two clusters, and how. ``owner`` None: "source" when the source
    owns anything, else "any".

    ``schema_ids`` auto: ids are kept, or replaced by the target's where the same ids mean other schemas
    there. ``record_subjects``: the subjects without a topic's name in them that are copied, too
    (RecordNameStrategy).

    ``on_delete``: what becomes of the copy of a topic that was deleted at the source. ``drift``: of settings
    that somebody changed at the copy.

    ``owner`` source: only topics that the source owns. transit: also topics that came to the source through
    other mirrors, never those that the target owns. any: every topic that fits, for one-way copies.
    """

    source: str
    target: str
    topics: list[Pattern] = Field(min_length=1)
    exclude: list[Pattern] = Field(default_factory=list)
    owner: OwnerRule | None = None
    start: Literal["earliest", "latest"] | StartConfig = "earliest"
    engine: Literal["auto", "batch", "record"] = "auto"
    shards: int = Field(8, ge=1, le=1_000)
    on_gap: OnTrouble = "stop"
    on_recreate: OnTrouble = "stop"
    rename: RenameConfig | None = None
    on_delete: OnDelete = DeletionPolicy()
    drift: Literal["keep", "revert", "alert"] = "keep"
    limits: LimitsConfig = LimitsConfig()
    schedule: Schedule | None = None
    commit: CommitConfig = CommitConfig()
    link: LinkConfig = LinkConfig()
    groups: GroupsConfig = GroupsConfig()
    acls: AclsConfig = AclsConfig()
    configs: list[str] = Field(default_factory=list)
    only: list[RecordFilterConfig] = Field(default_factory=list)
    mask: list[MaskRule] = Field(default_factory=list)
    schema_ids: Literal["auto", "keep", "rewrite"] = "auto"
    record_subjects: list[Pattern] = Field(default_factory=lambda: ["**"])
    on_unreadable: Literal["stop", "drop"] = "stop"
    verify: bool = True
    protect: bool = True
    rehearse: Rehearse = None
    paused: bool = False

    @model_validator(mode="after")
    def _batches_stay_as_they_are(self) -> Self:
        if self.engine == "batch" and self.rewrites:
            raise ValueError("only, mask and schema_ids re-encode records: remove engine: batch")
        if self.rename is not None and self.acls.copy_:
            raise ValueError("rename does not copy access rules: say acls: {copy: false}")
        return self

    @property
    def ids(self) -> Literal["auto", "keep", "rewrite"]:
        """``schema_ids`` in effect; batches that are copied unchanged keep their ids."""
        return "keep" if self.schema_ids == "auto" and self.engine == "batch" else self.schema_ids

    @property
    def protects(self) -> bool:
        """Return whether the mirror denies others to write its copies; needs ``acls.copy``."""
        return self.protect and self.acls.copy_

    @property
    def rewrites(self) -> bool:
        """Return whether the file filters or changes records of the copy."""
        return bool(self.only or self.mask) or self.schema_ids == "rewrite"

    def masks(self, topic: str) -> bool:
        """Return whether the copy of the topic has masked values."""
        return any(matches(pattern, topic) for each in self.mask for pattern in each.topics)

    def selects(self, topic: str) -> bool:
        """Return whether the patterns select the topic; topics of the hub and of Kafka itself are never
        selected.
        """
        return (
            not topic.startswith("_")
            and any(matches(pattern, topic) for pattern in self.topics)
            and not any(matches(pattern, topic) for pattern in self.exclude)
        )

    def selects_group(self, group: str) -> bool:
        return any(matches(pattern, group) for pattern in self.groups.include) and not any(
            matches(pattern, group) for pattern in self.groups.exclude
        )


class MirrorsFile(_MirrorsModel):
    """Content of mirrors.yaml."""

    clusters: dict[Name, ClusterConfig] = Field(min_length=1)
    mirrors: dict[Name, Mirror] = Field(default_factory=dict, max_length=_MOST_MIRRORS)

    def rule(self, mirror: str) -> OwnerRule:
        """Return the mirror's owner rule: the configured one, or the default by whether its source owns
        anything.
        """
        found = self.mirrors[mirror]
        return found.owner or ("source" if self.clusters[found.source].owns else "any")


def is_open(schedule: Schedule | None, now: datetime) -> bool:
    """Return whether the schedule lets a mirror run at ``now`` (an aware time). Without a schedule always."""
    if schedule is None:
        return True
    local = now.astimezone(ZoneInfo(schedule.zone))
    minute = local.hour * 60 + local.minute
    return any(_open(window, local.weekday(), minute) for window in schedule.windows)


def opens_at(schedule: Schedule, now: datetime) -> datetime | None:
    """Return the next minute at which a window opens, within 8 days; ``now`` itself when one is open; else
    None.
    """
    if is_open(schedule, now):
        return now
    minute = now.replace(second=0, microsecond=0)
    for _ in range(8 * 24 * 60):
        minute += timedelta(minutes=1)
        if is_open(schedule, minute):
            return minute
    return None


def _open(window: Window, weekday: int, minute: int) -> bool:
    begins, ends = _minutes(window.begins), _minutes(window.ends)
    if begins < ends:
        return _DAYS[weekday] in window.days and begins <= minute < ends
    # Across midnight: the night belongs to the day on which it begins.
    evening = _DAYS[weekday] in window.days and minute >= begins
    return evening or (_DAYS[weekday - 1] in window.days and minute < ends)


def _minutes(clock: str) -> int:
    hours, minutes = clock.split(":")
    return int(hours) * 60 + int(minutes)
