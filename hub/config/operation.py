"""[edge] Settings of operation: lag, outbox, backup, connectors, alerts, timeouts."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, Field, field_validator

from hub.config.audit_export import AuditExport

# Default of ``slot_wal_mb``, and what Prometheus's rules have.
SLOT_WAL_MB = 1024


class OperationSettings(BaseModel):
    """Lag, outbox, backup, connectors, alerts, and timeouts."""

    lag_sample_s: float = Field(10.0, gt=0.0, description="pause between two measurements of every consumer")
    lag_objective_s: float = Field(10.0, gt=0.0, description="a consumer no later than this is OK")
    lag_series: int = Field(
        200,
        ge=0,
        description="consumers with series of their own in /metrics, the worst; all others are counted",
    )

    series_most: int = Field(
        2_000,
        ge=0,
        le=100_000,
        description="series of the web app's charts that the home folder keeps at 10 s and 1 min; those "
        "beyond it by the hour, up to five times as many. 0: none (docs/how-to/read-charts.md)",
    )
    series_mb: int = Field(
        1_000, ge=1, le=1_000_000, description="most MB of these series; the oldest points are deleted first"
    )
    prometheus_url: str | None = Field(
        None,
        repr=False,
        pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$",
        description="Prometheus that scrapes this hub, such as http://prometheus:9090: charts are read from "
        "it, so their ranges exceed the own store's; a user and password belong into HUB_PROMETHEUS_URL",
    )
    prometheus_timeout_s: float = Field(
        5.0,
        gt=0.0,
        le=60.0,
        description="longest wait for Prometheus; then charts show the hub's own store, and say so",
    )

    outbox_database: str | None = Field(
        None,
        repr=False,
        description="Postgres with an outbox table, as postgresql://user:password@host/database: `hub up` "
        "relays it to Kafka (docs/how-to/use-the-outbox.md); a password belongs into HUB_OUTBOX_DATABASE",
    )
    outbox_table: str = Field(
        "hub_outbox", description="name of the outbox table in `outbox_database`; schema.table is possible"
    )
    outbox_delete: bool = Field(
        False, description="delete rows of the outbox table once their events are in Kafka"
    )
    backup_to: str | None = Field(
        None, description="place of the backup: a folder (from the project's), or s3://BUCKET/PATH"
    )
    backup_key: str | None = Field(
        None,
        description="key that encrypts the backup, 32 bytes in base64 or hex: ${NAME} of the environment, "
        "or a file; None: not encrypted",
    )

    lake_catalog: Literal["sql", "rest"] = Field(
        "sql",
        description="kind of catalog of the Iceberg tables: sql (SQLite, Postgres), or rest (a server "
        "with Iceberg's REST API)",
    )
    lake_uri: str | None = Field(
        None,
        repr=False,
        description="its address: sqlite:////PATH, postgresql+psycopg://user:password@host/database or "
        "http://host:8181; a "
        "password belongs into HUB_LAKE_URI. None: SQLite in the home folder",
    )
    lake_warehouse: str | None = Field(
        None,
        description="where the files of the tables are: a folder (from the project's), s3://BUCKET/PATH, "
        "or a name that a REST "
        "catalog knows. None: a folder in the home folder",
    )
    lake_namespace: str = Field(
        "topics",
        pattern=r"^[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*$",
        description="namespace of the tables; a topic's labels follow it",
    )
    lake_properties: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="more properties of the catalog and of its storage, by pyiceberg's names, such as "
        "credential: ${LAKE_SECRET}",
    )
    lake_commit_s: float = Field(
        60.0, ge=1.0, le=86_400.0, description="pause between two commits of a topic's new records"
    )
    lake_keep_h: float = Field(
        120.0, ge=0.0, description="hours that an old snapshot can be read, for time travel; then it expires"
    )
    lake_maintain_h: float = Field(
        6.0, ge=0.0, description="hours between two upkeeps of a table (`hub lake maintain`); 0: none"
    )

    connect_urls: list[str] = Field(
        default_factory=list,
        max_length=32,
        description="REST addresses of Kafka Connect's workers, such as http://connect:8083: shown, alerted "
        "on, and used by `hub connector`",
    )
    embedded_connect: bool | None = Field(
        None,
        description="start a worker of Kafka Connect; None: where the project has a connectors.yaml and "
        "`connect_urls` names no worker",
    )
    connect_port: int = Field(
        8083, description="port of the embedded Kafka Connect's REST API, on 127.0.0.1 alone"
    )
    connect_heap_mb: int = Field(512, ge=128, description="Java heap of the embedded Kafka Connect")

    access_log: bool | None = Field(
        None,
        description="log who did what in the topic _hub.access_log; None: while access.yaml or `admin_token` "
        "controls access. A change that cannot be logged does not happen "
        "(docs/how-to/audit-who-did-what.md)",
    )
    access_log_days: int = Field(
        365, ge=1, le=36_500, description="days that entries of the access log are kept"
    )

    audit_export: dict[str, AuditExport] = Field(
        default_factory=dict,
        max_length=10,
        description="targets of the access log by name, each with one of syslog, webhook and otlp, such as "
        "siem: {syslog: tls://siem:6514} (docs/how-to/audit-who-did-what.md). Set it at one server",
    )

    sink_link_local: bool = Field(
        False,
        description="let webhooks of sinks reach link-local addresses and those of a cloud's metadata "
        "service (docs/how-to/send-events-out.md)",
    )

    slot_wal_mb: int = Field(
        SLOT_WAL_MB,
        ge=1,
        description="WAL that the replication slot of a Postgres connector may retain before "
        "`slot-retains-wal` fires",
    )

    canary: bool = Field(
        False,
        description="send a record per second to each partition of `canary_topic` and report its arrival",
    )
    canary_topic: str = Field(
        "_hub.canary",
        pattern=r"^[a-zA-Z0-9._-]{1,249}$",
        description="mirrors carry no topics that begin with _: name one of theirs to measure them too",
    )
    latency_replay_s: float = Field(
        1_800.0, gt=0.0, description="an event older than this when its row is made is replayed, not late"
    )

    otlp_endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        description="base URL of an OpenTelemetry collector (OTLP over HTTP): the destination of traces. "
        "None: the value of OTEL_EXPORTER_OTLP_ENDPOINT, and without it no traces",
    )
    alerts: bool = Field(
        True, description="evaluate objectives and send notifications (docs/how-to/set-up-alerts.md)"
    )
    alert_every_s: float = Field(5.0, gt=0.0, description="pause between two looks at all that may alert")

    cut_wait_s: float = Field(
        10.0,
        gt=0.0,
        le=600.0,
        description="longest that rows of views with a `cut` wait in a store for their cut; then they are "
        "applied as they come",
    )
    largest_batch_mb: int = Field(
        64,
        ge=0,
        le=2_000,
        description="largest batch of records that a reader unpacks, in MiB once unpacked; a larger one "
        "becomes a dead-letter record with its position and size. 0: no limit, and a batch of a few kB may "
        "exhaust a process's memory",
    )
    largest_record_mb: int = Field(
        16, ge=1, le=2_000, description="the same of a single record: Spark holds several copies of it"
    )
    kafka_timeout_s: float = Field(15.0, description="longest wait for one Kafka request")
    kafka_cut_off_s: float = Field(
        30.0,
        ge=1.0,
        le=3_600.0,
        description="a client of Kafka that has had no answer for so long is asked no more, and replaced as "
        "soon as Kafka answers a fresh one",
    )
    start_timeout_s: float = Field(
        90.0,
        gt=0.0,
        le=3_600.0,
        description="how long `hub up` waits for each process to start before it continues without it; the "
        "process is tried further",
    )
    query_timeout_ms: int = Field(5_000, description="longest wait of a read-your-writes query by default")
    search_timeout_s: float = Field(
        10.0, gt=0.0, le=600.0, description="time after which a text search in a view is stopped"
    )

    @field_validator("audit_export")
    @classmethod
    def _targets_have_plain_names(cls, targets: dict[str, AuditExport]) -> dict[str, AuditExport]:
        for name in targets:
            if not re.fullmatch(r"[a-z0-9-]{1,40}", name):
                raise ValueError(f'audit_export: "{name[:40]}" is not a name: use a-z, 0-9 and -')
        return targets

    @field_validator("connect_urls")
    @classmethod
    def _connect_is_asked_over_http(cls, urls: list[str]) -> list[str]:
        for url in urls:
            if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", url):
                shown = url.rpartition("@")[2][:100]
                raise ValueError(f'connect_urls: "{shown}" is not an address such as http://connect:8083')
        return urls
