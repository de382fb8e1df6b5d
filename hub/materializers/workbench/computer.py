"""[edge] The process that computes previews: one Spark session, one case at a time, until its pipe closes.

It imports Spark only when it runs: the server names its function, and has no Spark itself.
"""

from __future__ import annotations

import logging
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hub.config import Settings
from hub.errors import HubError, HubFault
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.golden.cases import Case
from hub.materializers.types.avro_types import AvroType

log = logging.getLogger(__name__)
_SLOTS = 2


@dataclass(frozen=True, slots=True)
class PreviewTask:
    """A view with the schemas of its sources, by name, and the case to compute."""

    view: SqlView
    schemas: Mapping[str, AvroType]
    case: Case


def compute_previews(settings: Settings, tasks: Connection) -> None:
    """Answer each PreviewTask with an Outcome or a HubError. Sends None first, when Spark has started."""
    from hub.materializers.spark.session import open_session
    from hub.materializers.spark.slots import Slots

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which closes the pipe
    with tempfile.TemporaryDirectory(prefix="hub-preview-") as temporary:
        folder = Path(temporary)
        own = settings.model_copy(
            update={"home": folder, "spark_heap_mb": settings.preview_heap_mb, "spark_off_heap_mb": 0}
        )
        try:
            session, gateway = open_session(own, Slots(_SLOTS, _SLOTS, _SLOTS), settings.home / "preview.log")
        except HubError as error:
            tasks.send(error)
            return
        try:
            tasks.send(None)
            while (task := _next(tasks)) is not None:
                tasks.send(_answer(session, task, folder / "streams"))
        finally:
            session.stop()
            gateway.stop()


def _next(tasks: Connection) -> PreviewTask | None:
    try:
        task: PreviewTask = tasks.recv()
    except EOFError:
        return None
    return task


def _answer(session: Any, task: PreviewTask, folder: Path) -> object:
    from hub.materializers.golden.runner import GoldenRunner

    name = task.view.name
    runner = GoldenRunner(session, {name: task.view}, {name: task.schemas}, folder)
    try:
        return runner.run(name, task.case)
    except HubError as error:
        return error
    except Exception as error:
        log.exception("a preview of view %s failed", name)
        return HubFault(f'view "{name}": its preview failed: {type(error).__name__}: {str(error)[:300]}')
