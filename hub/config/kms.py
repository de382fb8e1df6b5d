"""[edge] Settings of key management services (KMS): which of their keys the hub may use, and how."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator

KMS_TYPES = ("local-kms", "aws-kms", "azure-kms", "gcp-kms", "hcvault")


class KmsKey(BaseModel, extra="forbid", frozen=True):
    """Keys of one KMS that the hub may use, with its access to them."""

    key: str = Field(description="TYPE://KEY as KEKs name it; a * at the end stands for any rest")
    properties: dict[str, str] = Field(
        default_factory=dict, description="properties of Confluent's driver, such as namespace"
    )
    secrets: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="properties whose values are in files of the project, such as token.id: vault.token",
    )

    @field_validator("key")
    @classmethod
    def _known(cls, key: str) -> str:
        kms_type, colon, rest = key.partition("://")
        if not colon or not rest or kms_type not in KMS_TYPES:
            raise ValueError(f"{key} is not TYPE://KEY with one of the types {', '.join(KMS_TYPES)}")
        if rest == "*" and kms_type == "hcvault":
            raise ValueError("name Vault's address: hcvault://https://vault:8200/transit/keys/*")
        return key

    def covers(self, url: str) -> bool:
        """Return whether this entry is about a KMS key.

        >>> KmsKey(key="local-kms://pii-*").covers("local-kms://pii-eu")
        True
        """
        return url.startswith(self.key[:-1]) if self.key.endswith("*") else url == self.key
