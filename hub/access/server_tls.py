"""[shell] TLS of the server itself: a context that follows its files, and names in clients' certificates.

Each new connection uses the newest valid files, so a renewed certificate needs no restart; connections that
are open keep theirs. Files that do not fit each other (as while they are being replaced) change nothing.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hub.errors import ConfigError
from hub.files import Stamp, stamp_of

log = logging.getLogger(__name__)

_SAN = {"DNS": "DNS", "URI": "URI", "email": "email"}


class FollowedContext(ssl.SSLContext):
    """A server's context. ``refresh`` reads the files again when they have changed. ``client_ca``:
    certificates of clients are asked for and verified; clients without one sign in otherwise.
    """

    certificate: Path
    key: Path
    client_ca: Path | None
    current: ssl.SSLContext
    read: list[Stamp]

    @staticmethod
    def of(certificate: Path, key: Path, client_ca: Path | None) -> FollowedContext:
        """Load the files. Raises ConfigError (HUB-1721)."""
        made = FollowedContext(ssl.PROTOCOL_TLS_SERVER)
        made.certificate, made.key, made.client_ca = certificate, key, client_ca
        try:
            made.read = made.stamp()
            made.current = made.loaded()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f'https: "{certificate}" and "{key}" cannot be used: {error}',
                hint="write PEM files that belong together; the key without a password",
                code="HUB-1721",
            ) from None
        return made

    def loaded(self) -> ssl.SSLContext:
        """Return a context of the files as they are now. Raises OSError, which ssl.SSLError is."""
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        made.set_alpn_protocols(["http/1.1"])
        if self.client_ca is not None:
            made.load_verify_locations(self.client_ca)
            made.verify_mode = ssl.CERT_OPTIONAL
        return made

    def stamp(self) -> list[Stamp]:
        """Return the stamps of the files. Raises OSError."""
        return [stamp_of(path) for path in (self.certificate, self.key, self.client_ca) if path is not None]

    def refresh(self) -> None:
        """Use changed files for new connections. Blocks.
        Invalid files are logged once, and the old ones remain."""
        try:
            stamp = self.stamp()
            if stamp == self.read:
                return
            self.read = stamp
            self.current = self.loaded()
        except (OSError, ValueError) as error:
            log.error("the certificate stays as it was, %s cannot be used: %s", self.certificate, error)
        else:
            log.info("new connections use the changed %s", self.certificate)

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Begin TLS on a new connection, by the newest context."""
        return self.current.wrap_bio(*given, **named)


def names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names in a verified certificate, as ``SSLObject.getpeercert`` has it.

    >>> names_of({"subject": ((("commonName", "checkout"),),), "subjectAltName": (("DNS", "a.shop"),
    ... ("IP Address", "::1"))})
    ('DNS:a.shop', 'CN=checkout')
    """
    return (*_alternatives(certificate.get("subjectAltName", ())), *_common(certificate.get("subject", ())))


def _alternatives(entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    for kind, value in entries:
        if kind in _SAN:
            yield f"{_SAN[kind]}:{value}"


def _common(subject: Sequence[Sequence[tuple[str, str]]]) -> Iterator[str]:
    for part in subject:
        for kind, value in part:
            if kind == "commonName":
                yield f"CN={value}"
