"""[core] Access to a cluster: addresses, credentials, and the silence that its brokers may keep."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from hub.kafka.protocol.broker_client.errors import BrokerRefused
from hub.kafka.protocol.unpacked_size import DEFAULT_BOUNDS, UnpackedBounds
from hub.log.topic_names import EQUAL_NAMES, TopicNames

_FORGIVEN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """Addresses and credentials of a cluster; the settings have Kafka's names. ``token`` returns an OAuth
    bearer token. Times are in seconds. ``silence_s``: longest silence of a broker before its connection is
    given up, see ``Patience``. ``bounds``: limits on the unpacked size of its batches. ``topic_names``: the
    names of topics in this cluster, where they are not the hub's.
    """

    bootstrap: str
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    client_id: str = "hub-mirror"
    bounds: UnpackedBounds = DEFAULT_BOUNDS
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    silence_s: float = 10.0
    topic_names: TopicNames = EQUAL_NAMES

    def ssl_context(self) -> ssl.SSLContext | None:
        if self.security_protocol not in ("SSL", "SASL_SSL"):
            return None
        context = ssl.create_default_context(cafile=self.ssl_cafile)
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_certfile is not None:
            context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, self.ssl_key_password)
        return context


class Patience:
    """For how long the brokers of one cluster may be silent: ``silence_s`` at first, twice that after each
    time that it was exceeded, and ``request_timeout_s`` at most, so that a broker that is merely slow gets
    its turn. After two minutes without that it is as at first.
    """

    def __init__(self, access: ClusterAccess, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_s = access.request_timeout_s
        self._first_s = min(access.silence_s, self._most_s)
        self._clock = clock
        self._times, self._last_at = 0, 0.0

    @property
    def seconds(self) -> float:
        if self._times and self._clock() - self._last_at > _FORGIVEN_S:
            self._times = 0
        return float(min(self._most_s, self._first_s * 2**self._times))

    def exceeded(self) -> None:
        """Record that a broker was silent for longer."""
        self._times = min(self._times + 1, 8)
        self._last_at = self._clock()


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Host and port of each server of ``host:port,[v6]:port``. Raises Refused."""
    found = []
    for part in bootstrap.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise BrokerRefused(f'bootstrap servers: "{part}" is not host:port')
        found.append((host.strip("[]"), int(port)))
    return found
