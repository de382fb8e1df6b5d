"""[shell] Write guard: which topics this server may accept records for, by mirrors.yaml. Topics that another
cluster owns are refused.

Ownership is in ``_hub.mirror.control`` of this cluster, where a transfer writes it: the answer needs no other
cluster. Records written while this cluster was cut off are a tail (docs/reference/mirrors.md).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hub.errors import HubError, PeerError
from hub.files import Stamp, stamp_if_there
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.replication.clusters.clusters import ClusterHandle, name_by_address, name_by_id
from hub.replication.clusters.control_follower import ControlFollower
from hub.replication.config.load_mirrors import load
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership.links import checked, is_guarded, write_refusal

log = logging.getLogger(__name__)

LOOK_S = 2.0
ASK_AGAIN_S = 30.0
_CATCH_UP_S = 5.0


@dataclass(frozen=True)
class _OwnCluster:
    """Content of mirrors.yaml, and the name of this cluster in it."""

    file: MirrorsFile
    here: str
    listener: ControlFollower


class WriteGuard(threading.Thread):
    """Thread that follows ownership. Call ``start`` before use, ``stop`` after.

    ``own``: this server's cluster. Without a mirrors.yaml nothing is refused.
    """

    def __init__(
        self,
        path: Path,
        own: KafkaCluster,
        access: ClusterAccess,
        environ: Mapping[str, str] = os.environ,
        timeout_s: float = 5.0,
    ) -> None:
        super().__init__(name="hands", daemon=True)
        self.path, self.own, self.access, self.environ, self.timeout_s = path, own, access, environ, timeout_s
        self._place: _OwnCluster | None = None
        self._caught_up = False
        self._stamp: Stamp | None = None
        self._unplaced: MirrorsFile | None = None
        self._ask_at_s: float | None = None  # None: its clusters were not queried yet
        self._halt = threading.Event()

    def start(self) -> None:
        self._look()  # before the first record: the address alone usually identifies this cluster
        super().start()

    def stop(self) -> None:
        self._halt.set()
        if self.is_alive():
            self.join(self.timeout_s)
        self._leave()

    def run(self) -> None:
        while True:
            try:
                self._look()
                self._ask()
            except Exception:
                log.exception("whose topics these are is not looked at")
            if self._halt.wait(LOOK_S):
                return

    def refusal(self, topic: str) -> HubError | None:
        """Return why no record of the topic may be written here now; None: it may be."""
        place, unplaced = self._place, self._unplaced
        if unplaced is not None and self._ask_at_s is None and is_guarded(unplaced, topic):
            return PeerError(
                f'whether records of "{topic}" may be written here is not known yet: mirrors.yaml has '
                "another address of "
                "this cluster, and its clusters are being asked which one it is",
                hint=f"try again in a moment; with {self.own.bootstrap} in mirrors.yaml no other "
                "cluster needs to be asked",
            )
        if place is None or not is_guarded(place.file, topic):
            return None
        if not self._caught_up:
            # A former owner must not write because the control topic was not read up to its end.
            try:
                place.listener.catch_up(_CATCH_UP_S)
            except HubError as error:
                return error
            self._caught_up = True
        return write_refusal(place.file, place.here, place.listener.control, topic)

    # ---- which cluster this is

    def _look(self) -> None:
        """Read the file again when it has changed; an invalid file leaves the previous one in effect."""
        stamp = stamp_if_there(self.path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        if stamp is None:
            self._unplaced = None
            self._leave()
            return
        try:
            file = checked(load(self.path))
        except (HubError, OSError) as error:
            log.error("%s: the ownership of topics cannot be read from it: %s", self.path, error)
            return
        here = name_by_address(file, self.own)
        self._ask_at_s = None
        self._unplaced = None if here else file
        if here:
            self._settle(file, here)
        else:
            self._leave()

    def _ask(self) -> None:
        """Identify this cluster by Kafka's cluster id when no address matches; repeated, since a cluster
        may be away now."""
        file = self._unplaced
        if file is None or (self._ask_at_s is not None and time.monotonic() < self._ask_at_s):
            return
        name, silent = name_by_id(file, self.own, self.environ, self.path.parent, self.timeout_s)
        for each, error in silent.items():
            log.info("cluster %s: is it this one? %s", each, error.message)
        if name is None:
            self._ask_at_s = time.monotonic() + ASK_AGAIN_S
        else:
            self._settle(file, name)
            self._unplaced = None

    def _settle(self, file: MirrorsFile, here: str) -> None:
        before = self._place
        if before is not None and before.here == here:
            self._place = _OwnCluster(file, here, before.listener)
            return
        self._leave()
        listener = ControlFollower(ClusterHandle(here, self.own, self.access), status=False)
        listener.start()
        self._place = _OwnCluster(file, here, listener)

    def _leave(self) -> None:
        place, self._place, self._caught_up = self._place, None, False
        if place is not None:
            place.listener.stop()
            place.listener.join(2.0)
