"""[core] Allow-list of host names in the header ``Host``, against DNS rebinding.

If ``evil.example`` suddenly resolves to 127.0.0.1, a browser regards its page as the same site as the hub on
that port, and the page may read everything. Its requests carry ``Host: evil.example``, which no page can
change. Addresses are always allowed: a page loaded from an address comes from that address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from hub.errors import CallerError

_LOOPBACK = ("localhost", "*.localhost")
_PATTERN = re.compile(r"\*|(\*\.)?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")


class UnknownHost(CallerError):
    """The request is for a host name that is not this server's."""

    code = "HUB-1704"


def checked_host(pattern: str) -> str:
    """Return the pattern in lower case, without its last dot. Raises ValueError if it is not a host name.

    >>> checked_host("Hub.Example.com"), checked_host("*.example.com"), checked_host("*")
    ('hub.example.com', '*.example.com', '*')
    """
    found = pattern.strip().lower().rstrip(".")
    if not _PATTERN.fullmatch(found):
        raise ValueError(
            f'"{pattern[:100]}" is not a host name: write hub.example.com, *.example.com, or * '
            "for any, without a port"
        )
    return found


def name_in(host: str) -> str:
    """Return the name in a header ``Host``: without its port and last dot, in lower case.

    >>> name_in("Hub.example.com.:8088"), name_in("[::1]:8088"), name_in("127.0.0.1")
    ('hub.example.com', '::1', '127.0.0.1')
    """
    found = host.strip().lower()
    if found.startswith("["):
        return found[1:].partition("]")[0]
    return found.rpartition(":")[0].rstrip(".") if ":" in found else found.rstrip(".")


@dataclass(frozen=True, slots=True)
class Hosts:
    """Names of the server: ``names`` as they are, ``suffixes`` of everything below a domain;
    ``anyone``: all names."""

    names: frozenset[str]
    suffixes: tuple[str, ...] = ()
    anyone: bool = False

    @staticmethod
    def of(patterns: Iterable[str]) -> Hosts:
        """Allow the loopback's names and these patterns, which were checked."""
        found = {*_LOOPBACK, *patterns}
        return Hosts(
            frozenset(each for each in found if "*" not in each),
            tuple(sorted(each[1:] for each in found if each.startswith("*."))),
            "*" in found,
        )

    def admit(self, host: str) -> bool:
        """Return whether a request with this ``Host`` header may be answered. "" is admitted: only programs
        omit the header, browsers always send it.
        """
        name = name_in(host)
        if not name or self.anyone or name in self.names or name.endswith(self.suffixes):
            return True
        try:
            ip_address(name.partition("%")[0])
        except ValueError:
            return False
        return True

    def require(self, host: str) -> None:
        """Raise UnknownHost for a name that is not the server's."""
        if not self.admit(host):
            name = name_in(host)[:100]
            raise UnknownHost(
                f'this server is not known as "{name}"',
                hint=f"if it is, add the name to allowed_hosts in hub.yaml: allowed_hosts: [{name}] "
                "(docs/how-to/control-access.md); otherwise another site's page has sent this request",
            )
