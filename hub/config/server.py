"""[edge] Settings of the server: ports, limits, and who may ask."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from hub.config.kms import KmsKey
from hub.hosts import checked_host
from hub.security import ServerTls


class ServerSettings(BaseModel):
    """Ports of the server, its limits, and who may ask."""

    environment: str = Field(
        "",
        max_length=40,
        description="name of this installation, such as production: a badge and the title of every web page "
        "show it; empty: no badge",
    )
    environment_color: Literal["gray", "green", "blue", "amber", "red"] = Field(
        "gray", description="color of that badge"
    )
    http_host: str = "127.0.0.1"
    http_port: int = Field(8088, description="the dashboard, the query API and the schema registry")
    https: ServerTls | None = Field(
        None,
        description="a second port with TLS, for other machines: certificate, key, client_ca (files in the "
        "project), host (0.0.0.0), port (8443); changed files are used without a restart "
        "(docs/how-to/serve-https.md)",
    )
    kms: list[KmsKey] = Field(
        [],
        description="keys of key management services (KMS) that the hub may use for field encryption: key, "
        "properties, and secrets in files of the project (docs/how-to/encrypt-fields.md)",
    )
    erase_kek: str = Field(
        "erasable",
        description="key encryption key (KEK) that wraps the keys of persons in topics with `erasable_by` "
        "(docs/how-to/forget-a-person.md)",
    )
    erase_delay_hours: float = Field(
        24.0,
        ge=0,
        le=8_760,
        description="time between the approval of an erasure and its first step, in which it can be canceled",
    )
    erase_compaction_s: float = Field(
        3_600.0,
        ge=1,
        le=604_800,
        description="longest time that Kafka leaves a destroyed key in the log of keys: the topic's "
        "max.compaction.lag.ms, which the first erasure sets",
    )
    erase_key_cache_s: float = Field(
        300.0,
        ge=1,
        le=3_600,
        description="longest time that a process keeps a key of field encryption in memory; an erasure waits "
        "for it before it computes views again",
    )
    access_request_open_days: float = Field(
        14.0,
        gt=0,
        le=366,
        description="time in which a request for access is answered, and an approved one takes effect; it "
        "expires then (docs/how-to/ask-for-access.md)",
    )
    access_request_most_days: int = Field(
        90, ge=1, le=366, description="longest time that a requested grant lasts, in days"
    )
    access_request_kept_days: float = Field(
        90.0, gt=0, le=3_660, description="time that a request for access is kept after it is over"
    )
    apply_timed_grants: bool = Field(
        True,
        description="add and remove Kafka's access rules (ACLs) of grants with `until`, where Kafka has an "
        "authorizer; others are changed by `hub access apply` only",
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
    def _proxy_has_addresses(self) -> Self:
        if self.proxy_header is not None and not self.proxy_addresses:
            raise ValueError(
                "proxy_header and proxy_addresses belong together: a header is believed "
                "from some addresses only"
            )
        return self
