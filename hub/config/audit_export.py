"""[edge] Setting ``audit_export``: targets of the access log, such as a SIEM."""

from __future__ import annotations

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, model_validator

SYSLOG_PORTS = {"udp": 514, "tcp": 601, "tls": 6514}


class AuditExport(BaseModel, extra="forbid", frozen=True):
    """One target. A value ``${NAME}`` is read from the environment of the server."""

    syslog: str | None = Field(None, description="tls://host:6514, tcp://host:601 or udp://host:514")
    webhook: str | None = Field(None, repr=False, description="URL that takes batches of CloudEvents")
    otlp: str | None = Field(None, description="base URL of an OpenTelemetry collector (OTLP over HTTP)")
    bearer: str | None = Field(None, repr=False, description="token for webhook and otlp: ${NAME}")
    timeout_s: float = Field(10.0, gt=0.0, le=300.0)

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        named = [each for each in ("syslog", "webhook", "otlp") if getattr(self, each) is not None]
        if len(named) != 1:
            raise ValueError(f"a target has one of syslog, webhook and otlp, this one has {len(named)}")
        if self.syslog is not None:
            parts = urlsplit(self.syslog)
            if parts.scheme not in SYSLOG_PORTS or not parts.hostname or parts.path or parts.query:
                raise ValueError("syslog is tls://host:6514, tcp://host:601 or udp://host:514")
        if self.bearer is not None and not (self.bearer.startswith("${") and self.bearer.endswith("}")):
            raise ValueError(
                "bearer names a variable, such as ${SIEM_TOKEN}: secrets do not belong into files"
            )
        return self

    @property
    def kind(self) -> Literal["syslog", "webhook", "otlp"]:
        return "syslog" if self.syslog is not None else "webhook" if self.webhook is not None else "otlp"
