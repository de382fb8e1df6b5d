"""[edge] A cluster that this process may not connect to, because it accepts connections only from inside its
region (`closed: true` in mirrors.yaml)."""

from __future__ import annotations

from typing import Any, NoReturn

from hub.errors import PeerError
from hub.kafka import KafkaCluster

CLOSED = "HUB-3623"


class ClosedCluster(KafkaCluster):
    """A cluster of which every call raises PeerError (HUB-3623) at once. Opens no connection.

    Callers that go on without a cluster that does not answer go on without this one, and wait for nothing.
    """

    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._name = name

    def refuse(self) -> NoReturn:
        """Raise PeerError (HUB-3623), with the way out."""
        raise PeerError(
            f'cluster "{self._name}" accepts connections only from inside of its region (`closed: true`)',
            hint=f"run the command there, in a project whose hub.yaml has `bootstrap: {self.bootstrap}`",
            code=CLOSED,
        )

    def wait_ready(self, timeout_s: float) -> None:
        """Raise PeerError at once."""
        self.refuse()

    def settings(self, part: str, on_error: Any = None, **more: Any) -> dict[str, Any]:
        """Raise PeerError: no client is made."""
        self.refuse()

    @property
    def admin(self) -> NoReturn:
        """Raise PeerError."""
        self.refuse()

    @property
    def proxy(self) -> NoReturn:
        """Raise PeerError."""
        self.refuse()
