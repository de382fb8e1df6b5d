"""[edge] Open the erasures of a server."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from fastapi import FastAPI

from hub.access_log.chain import LogSigner
from hub.config import Settings
from hub.erasure.facts import project_facts
from hub.erasure.keys import PersonKeys
from hub.erasure.log import erasure_log
from hub.erasure.routes import Erasing, create_router
from hub.erasure.runner import ErasureRunner
from hub.erasure.views import ViewEraser
from hub.home_key import make_key
from hub.kafka import KafkaCluster
from hub.materializers.progress.view_states import Newest
from hub.materializers.stores.sql_store import Store
from hub.runtime import repeating
from hub.times import epoch_ms

_LOOK_S = 2.0
_HOUR_MS = 3_600_000


def add_erasures(
    app: FastAPI,
    settings: Settings,
    cluster: KafkaCluster,
    store: Store,
    newest: Newest,
    opened: AsyncExitStack,
) -> None:
    """Add the routes, and start the thread that carries out erasures. Raises ConfigError."""
    facts, log = partial(project_facts, settings), erasure_log(cluster, settings.replication_factor)
    delay_ms = int(settings.erase_delay_hours * _HOUR_MS)
    erasing = Erasing(log, facts, LogSigner(make_key(settings.home)), delay_ms, epoch_ms)
    app.include_router(create_router(erasing))
    runner = ErasureRunner(
        log,
        PersonKeys(cluster, int(settings.erase_compaction_s * 1_000), settings.replication_factor, epoch_ms),
        ViewEraser(cluster, lambda: newest(store.progress()), settings.store_urls, epoch_ms),
        facts,
        int(settings.erase_key_cache_s * 1_000),
        app.state.access_log if settings.writes_access_log else None,
        epoch_ms,
    )
    opened.enter_context(
        repeating(
            runner.step,
            name="erasures",
            pause_s=lambda took_s: max(_LOOK_S, 2 * took_s),
            failed="erasures are not carried out now",
        )
    )
