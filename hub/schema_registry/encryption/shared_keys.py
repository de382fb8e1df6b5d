"""[shell] Wrap and unwrap DEKs of shared KEKs for clients of the DEK registry."""

from __future__ import annotations

import base64

from hub.schema_registry.dek_registry.records import Kek
from hub.schema_registry.encryption.kms import KeyRefused, KmsClient, KmsFailed, encoded, new_key
from hub.schema_registry.registry.errors import RequestRefused


class SharedKeys:
    """See ``KeyService`` of the DEK registry. Methods raise RequestRefused 50070 when the KMS fails."""

    def __init__(self, kms: KmsClient) -> None:
        self._kms = kms

    def new_wrapped(self, kek: Kek, algorithm: str) -> str:
        try:
            wrapped = self._kms.wrap(kek.kms_type, kek.kms_key_id, new_key(algorithm))
        except (KmsFailed, KeyRefused) as error:
            raise _failed("encrypted", error) from None
        return encoded(wrapped)

    def unwrap(self, kek: Kek, wrapped: str) -> str:
        return encoded(self._raw(kek, wrapped))

    def rewrap(self, kek: Kek, wrapped: str) -> str:
        raw = self._raw(kek, wrapped)
        try:
            return encoded(self._kms.wrap(kek.kms_type, kek.kms_key_id, raw))
        except (KmsFailed, KeyRefused) as error:
            raise _failed("encrypted", error) from None

    def _raw(self, kek: Kek, wrapped: str) -> bytes:
        try:
            return self._kms.unwrap(kek.kms_type, kek.kms_key_id, base64.b64decode(wrapped))
        except (KmsFailed, KeyRefused) as error:
            raise _failed("raw", error) from None


def _failed(form: str, error: KmsFailed | KeyRefused) -> RequestRefused:
    hint = f": {error.hint}" if error.hint else ""
    return RequestRefused(500, 50070, f"Could not generate {form} dek: {error.message}{hint}")
