"""[edge] confluent-kafka, tink: wrap and unwrap data encryption keys with keys of a key management service.

A KEK comes from whoever may write the DEK registry, and names the server of its KMS. The hub therefore uses
only keys that ``kms`` in hub.yaml names, with the access that is written there; ``kmsProps`` of a KEK are
ignored. Otherwise a KEK could send the hub's credentials to a server of its author.

Credentials are read for each request, so a changed file is used at once. Nothing here keeps a key, and no
message has a part of one: of an error of a driver only its type is reported.
"""

from __future__ import annotations

import base64
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from hub.config.kms import KmsKey
from hub.errors import CallerError, HubError, PeerError
from hub.schema_registry.dek_registry.records import DEFAULT_ALGORITHM
from hub.schema_registry.encryption.aws import AwsKmsKey

_CONFLUENT = "confluent_kafka.schema_registry.rules.encryption"
_DRIVERS: Mapping[str, tuple[str, str]] = {
    "local-kms": ("localkms.local_driver", "LocalKmsDriver"),
    "hcvault": ("hcvault.hcvault_driver", "HcVaultKmsDriver"),
    "azure-kms": ("azurekms.azure_driver", "AzureKmsDriver"),
    "gcp-kms": ("gcpkms.gcp_driver", "GcpKmsDriver"),
}
_NO_DATA = b""


class KeyRefused(CallerError):
    """A key of field encryption does not exist, or the hub may not use it."""

    code = "HUB-1217"


class KeyMissing(KeyRefused):
    """A data key does not exist: it was never made, or was deleted permanently."""


class KmsFailed(PeerError):
    """A KMS does not wrap or unwrap a key."""

    code = "HUB-3036"


class Aead(Protocol):
    """Encryption by a key of a KMS."""

    def encrypt(self, plaintext: bytes, associated_data: bytes) -> bytes: ...

    def decrypt(self, ciphertext: bytes, associated_data: bytes) -> bytes: ...


class KmsClient:
    """Access to the KMS keys that hub.yaml names. ``project``: the folder of the files with secrets."""

    def __init__(self, allowed: Sequence[KmsKey], project: Path) -> None:
        self._allowed, self._project = allowed, project

    def wrap(self, kms_type: str, kms_key_id: str, key: bytes) -> bytes:
        """Return the key, encrypted by the KMS. Raises KeyRefused, KmsFailed."""
        return self._call_kms(kms_type, kms_key_id, lambda aead: aead.encrypt(key, _NO_DATA))

    def unwrap(self, kms_type: str, kms_key_id: str, wrapped: bytes) -> bytes:
        """Return the key that ``wrap`` encrypted. Raises KeyRefused, KmsFailed."""
        return self._call_kms(kms_type, kms_key_id, lambda aead: aead.decrypt(wrapped, _NO_DATA))

    def _call_kms(self, kms_type: str, kms_key_id: str, call: Callable[[Aead], bytes]) -> bytes:
        url = f"{kms_type}://{kms_key_id}"
        access = next((each for each in self._allowed if each.covers(url)), None)
        if access is None:
            raise KeyRefused(
                f'KMS key "{url}": this hub has no access to it',
                hint="name it under `kms` in hub.yaml: docs/how-to/encrypt-fields.md",
            )
        try:
            return call(self._aead(kms_type, url, access))
        except HubError:
            raise
        except Exception as error:  # noqa: BLE001 - drivers raise anything
            # Its text may have what the driver sent.
            raise KmsFailed(
                f'KMS key "{url}": the KMS does not encrypt or decrypt with it ({type(error).__name__})',
                hint="check the KMS, its key, and the access under `kms` in hub.yaml",
            ) from None

    def _aead(self, kms_type: str, url: str, access: KmsKey) -> Aead:
        properties = dict(access.properties)
        for name, file in access.secrets.items():
            properties[name] = self._secret(url, file)
        if kms_type == "aws-kms":
            return AwsKmsKey(url, properties)
        imported(f"{_CONFLUENT}.encrypt_executor")  # registers the algorithms of Tink
        module, driver = _DRIVERS[kms_type]
        loaded = imported(f"{_CONFLUENT}.{module}")
        aead: Aead = getattr(loaded, driver)().new_kms_client(properties, url).get_aead(url)
        return aead

    def _secret(self, url: str, file: str) -> str:
        path = self._project / file
        try:
            return path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise KeyRefused(
                f'KMS key "{url}": its secret file {path} cannot be read',
                hint="check `kms` in hub.yaml, and that the hub's user may read the file",
            ) from None


def imported(module: str) -> Any:
    """Import a module of Confluent's encryption. Raises KeyRefused if its packages are not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise KeyRefused(
            f"field encryption needs the package {(error.name or 'tink').partition('.')[0]}, "
            "which is not installed",
            hint="pip install 'event-hub[encryption]'; Azure and Google also need their own packages: "
            "docs/how-to/encrypt-fields.md",
        ) from None


def new_key(algorithm: str) -> bytes:
    """Make a data encryption key, in Tink's form. Raises KeyRefused."""
    executor = imported(f"{_CONFLUENT}.encrypt_executor")
    made: bytes = executor.Cryptor(executor.DekAlgorithm(algorithm)).generate_key()
    return made


def encrypt(key: bytes, plain: bytes, about: bytes) -> bytes:
    """Encrypt with a data key of the default algorithm. ``about``: associated data. Raises KeyRefused."""
    made: bytes = _cryptor().encrypt(key, plain, about)
    return made


def decrypt(key: bytes, ciphertext: bytes, about: bytes) -> bytes:
    """Return what ``encrypt`` encrypted. Raises KeyRefused if it was another key, or other data."""
    try:
        found: bytes = _cryptor().decrypt(key, ciphertext, about)
    except imported("tink").TinkError:
        raise KeyRefused(
            "a ciphertext does not belong to its key", hint="it was changed, or moved from another record"
        ) from None
    return found


@cache
def _cryptor() -> Any:
    executor = imported(f"{_CONFLUENT}.encrypt_executor")
    return executor.Cryptor(executor.DekAlgorithm(DEFAULT_ALGORITHM))


def encoded(key: bytes) -> str:
    """Return base64 text, as the DEK registry has keys."""
    return base64.b64encode(key).decode()
