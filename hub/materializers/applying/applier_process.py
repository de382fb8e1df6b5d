"""[shell] The applier process: one thread per store, each with its own applier, reader and back-off.

Further threads report each store's position (as consumer groups for other tools, and as records of
``_hub.progress`` for the hub's own lists), expire rows older than their view's ttl (ttl_thread.py), and
verify stores against their changelogs (verification/continuous_check.py).

Limitation: each store decodes the changelog for itself, so n stores of a view cost n times its decoding.
"""

from __future__ import annotations

import logging
import threading
import time

from hub.config import Settings
from hub.kafka import own_cluster
from hub.materializers.applying.store_reporting import LagReporter, LatencySampler, VersionComparer
from hub.materializers.applying.store_thread import StoreThread
from hub.materializers.applying.ttl_thread import Expirer
from hub.materializers.applying.view_files import ViewFiles
from hub.materializers.progress.span_counts import telling
from hub.materializers.verification.continuous_check import ContinuousVerifier
from hub.schema_registry.client.registry_client import RegistryClient

log = logging.getLogger(__name__)

_RESCAN_S = 2.0
_STOP_S = 10.0


def run(settings: Settings, stop: threading.Event) -> None:
    """Apply every view of the project to its stores until ``stop``; wait for unavailable services and log
    them.
    """
    schemas = RegistryClient(settings.registry)
    stores = [StoreThread(name, url, settings, schemas) for name, url in settings.store_urls.items()]
    threads = [
        threading.Thread(target=each.run, args=(stop,), name=each.name, daemon=True) for each in stores
    ]
    teller = LagReporter(own_cluster(settings), stores)
    threads.append(threading.Thread(target=teller.run, args=(stop,), name="publish", daemon=True))
    timer = LatencySampler(own_cluster(settings), stores)
    threads.append(threading.Thread(target=timer.run, args=(stop,), name="latency", daemon=True))
    comparer = VersionComparer(own_cluster(settings), stores[0])
    threads.append(threading.Thread(target=comparer.run, args=(stop,), name="compare", daemon=True))
    expirer = Expirer(
        own_cluster(settings),
        stores,
        settings.expiry_every_s,
        settings.expiry_rows_per_s,
    )
    threads.append(threading.Thread(target=expirer.run, args=(stop,), name="expire", daemon=True))
    prover = ContinuousVerifier(
        own_cluster(settings),
        RegistryClient(settings.registry),
        stores,
        settings.home / "proof",
        settings.proof_core_share,
        settings.proof_every_s,
    )
    threads.append(threading.Thread(target=prover.run, args=(stop,), name="prove", daemon=True))
    for thread in threads:
        thread.start()
    known: set[str] = set()
    files = ViewFiles(settings.project)
    with telling(own_cluster(settings), "hub-applier"):
        while not stop.wait(_RESCAN_S):
            for view in files.views():
                for name in set(view.stores) - set(settings.store_urls) - known:
                    known.add(name)
                    log.error('view %s: store "%s" is not in hub.yaml: it is not filled', view.name, name)
    deadline = time.monotonic() + _STOP_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
