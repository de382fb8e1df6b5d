"""The rule of a schema that encrypts fields with the tag PII, as Confluent's clients write it."""

from __future__ import annotations

from typing import Any


def encrypt_rule(kek: str, **params: str) -> dict[str, Any]:
    """Return the rule. ``params``: more parameters of it."""
    return {
        "name": "encrypt-pii",
        "kind": "TRANSFORM",
        "type": "ENCRYPT",
        "mode": "WRITEREAD",
        "tags": ["PII"],
        "params": {
            "encrypt.kek.name": kek,
            "encrypt.kms.type": "local-kms",
            "encrypt.kms.key.id": "people",
            **params,
        },
        "onFailure": "ERROR,NONE",
    }
