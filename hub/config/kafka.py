"""[edge] Settings: folders, and the Kafka that the hub uses."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field, model_validator

from hub.security import Sasl, TlsOrNot


class KafkaSettings(BaseModel):
    """Folders, and the Kafka that the hub uses."""

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

    @model_validator(mode="after")
    def _embedded_kafka_is_open(self) -> Self:
        if self.embedded_kafka and (self.tls is not None or self.sasl is not None):
            raise ValueError(
                "tls and sasl are of a Kafka that is yours, and embedded_kafka, which the hub starts, has "
                "neither: write embedded_kafka: false, and bootstrap with that Kafka's address"
            )
        return self
