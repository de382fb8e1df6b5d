"""[edge] OAuth tokens for SASL's OAUTHBEARER, by client credentials (RFC 6749, 4.4; RFC 7628 for how Kafka
takes them).

librdkafka requests its own tokens. This module serves the clients that do not: kafka-python's, and the
mirrors' own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from hub.errors import PeerError

_EARLY_S = 30.0
_TIMEOUT_S = 10.0


@dataclass
class Tokens:
    """OAuth tokens. Thread safe. A token is renewed shortly before it expires."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _known: tuple[float, str] | None = field(default=None, repr=False)

    def __call__(self) -> str:
        """Return a token. Raises PeerError (HUB-3608) when the endpoint returns none."""
        import httpx2  # most clusters need none

        with self._lock:
            if self._known is not None and time.monotonic() < self._known[0]:
                return self._known[1]
            form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
            try:
                answer = httpx2.post(
                    self.url, data=form, auth=(self.client_id, self.client_secret), timeout=_TIMEOUT_S
                )
                answer.raise_for_status()
                body = answer.json()
                found = str(body["access_token"])
                lasts_s = max(1.0, float(body.get("expires_in", 300)) - _EARLY_S)
            except (httpx2.HTTPError, ValueError, TypeError, KeyError) as error:
                raise PeerError(
                    f"{self.url} gives no token ({_message(error)})",
                    hint="look at token_url, client_id and client_secret of the cluster",
                    code="HUB-3608",
                ) from None
            self._known = time.monotonic() + lasts_s, found
            return found


def tokens_of(security: Mapping[str, str]) -> Tokens | None:
    """Out of librdkafka's settings; None where no endpoint is named."""
    url = security.get("sasl.oauthbearer.token.endpoint.url")
    if url is None:
        return None
    return Tokens(
        url,
        security.get("sasl.oauthbearer.client.id", ""),
        security.get("sasl.oauthbearer.client.secret", ""),
        security.get("sasl.oauthbearer.scope"),
    )


def _message(error: Exception) -> str:
    response = getattr(error, "response", None)
    return type(error).__name__ if response is None else f"{response.status_code} {response.reason_phrase}"
