"""[edge] Addresses that a target's request must not reach: those of the machine's own cloud.

Whoever writes sinks.yaml could otherwise have a record sent to a cloud's metadata service, and read its
answer in a dead-letter record. Private networks are allowed: most receivers are there.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from hub.errors import ConfigError, PeerError

# Other than the link-local 169.254.169.254: AWS over IPv6, Alibaba, Azure's host.
_METADATA = frozenset(
    ipaddress.ip_address(each) for each in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")
)
_CHECKED_S = 10.0
Resolve = Callable[[str, int], Iterable[str]]


def is_refused(address: str) -> bool:
    """Return whether requests must not reach the address.

    >>> is_refused("169.254.169.254"), is_refused("::ffff:169.254.1.1"), is_refused("10.0.0.7")
    (True, True, False)
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_link_local or found.is_multicast or found.is_unspecified or found in _METADATA


def resolved(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises OSError."""
    return [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def check_address(url: str, resolve: Resolve = resolved, kind: str = "webhook") -> None:
    """Raise ConfigError (HUB-1824) if a request to the URL would reach a refused address, PeerError
    (HUB-3820) if its host has no address now. ``kind``: kind of the target, for messages.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        addresses = list(resolve(host, parts.port or (443 if parts.scheme == "https" else 80)))
    except (OSError, ValueError) as error:
        raise PeerError(f'{kind}: host "{host}" has no address: {error}', code="HUB-3820") from None
    for address in addresses:
        if is_refused(address):
            raise ConfigError(
                f'{kind}: host "{host}" is {address}, a link-local or metadata address',
                hint="name another host; or set sink_link_local: true in hub.yaml",
                code="HUB-1824",
            )


class CheckedAddress:
    """The address of a target, checked again from time to time: its host's name may lead elsewhere by then.
    ``kind``: see ``check_address``. ``link_local``: every address is allowed.
    """

    def __init__(self, url: str, kind: str = "webhook", *, link_local: bool = False) -> None:
        self.url = url
        self._kind, self._link_local = kind, link_local
        self._checked_s = float("-inf")

    def check(self) -> None:
        """Raises as ``check_address``."""
        if not self._link_local and time.monotonic() - self._checked_s > _CHECKED_S:
            check_address(self.url, kind=self._kind)
            self._checked_s = time.monotonic()
