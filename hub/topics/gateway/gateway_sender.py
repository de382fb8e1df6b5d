"""[shell] The gateway's producer: opened when first needed and again after a failure, and the thread that
takes its acknowledgements.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from hub.errors import HubError
from hub.kafka import KafkaCluster, KafkaSender

log = logging.getLogger(__name__)


class GatewaySender:
    """One producer of a cluster. Thread safe. ``after_poll`` is called after each poll for acknowledgements,
    at least every 0.1 s.
    """

    def __init__(self, cluster: KafkaCluster, after_poll: Callable[[], None]) -> None:
        self.cluster = cluster
        self._after_poll = after_poll
        self._sender: KafkaSender | None = None
        self._opening = threading.Lock()
        self._stop = threading.Event()
        self._poller: threading.Thread | None = None

    def start(self) -> None:
        self._poller = threading.Thread(target=self._poll, name="produce-acknowledged", daemon=True)
        self._poller.start()

    def stop(self) -> None:
        """Wait up to 5 s for outstanding acknowledgements, then end the thread."""
        with contextlib.suppress(HubError):
            if self._sender is not None:
                self._sender.flush(min(5.0, self.cluster.timeout_s))
        self._stop.set()
        if self._poller is not None:
            self._poller.join(5.0)

    def open(self) -> KafkaSender:
        """Return the producer. Raises HubError if it cannot be opened."""
        with self._opening:
            if self._sender is None:
                self._sender = self.cluster.sender(delivery_timeout_s=self.cluster.timeout_s)
            return self._sender

    def drop(self, sender: KafkaSender) -> None:
        """Discard a failed producer so that a new one is opened. Its callbacks report the outcome of its
        records.
        """
        with self._opening:
            if self._sender is sender:
                self._sender = None
        sender.drop()
        with contextlib.suppress(HubError):
            sender.poll(1.0)

    def _poll(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except Exception:  # the only acknowledgement thread must keep running
                log.exception("acknowledgements")
                self._stop.wait(0.5)

    def _step(self) -> None:
        sender = self._sender
        if sender is None:
            self._stop.wait(0.05)
            return
        try:
            sender.poll(0.1)
        except HubError as error:
            log.warning("the gateway's producer is reopened: %s", error.message)
            self.drop(sender)
        self._after_poll()
