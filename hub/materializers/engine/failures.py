"""[edge] Classify what Spark, Kafka, DuckDB or the file system raised, for the life cycle to act on."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hub.errors import ConfigError, HubError
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.engine.disks import full_disk
from hub.materializers.engine.life_events import (
    CorruptState,
    DecidedElsewhere,
    Failure,
    LastingFailure,
    TransientFailure,
    UnknownSchemaId,
    ViewFileGone,
)
from hub.materializers.engine.plans.checkpoint_note import first_line
from hub.materializers.spark import checkpoint_corruption, delta_engine, delta_stream
from hub.materializers.spark.formats.decode import UNKNOWN_SCHEMA
from hub.materializers.spark.pyspark_types import PySparkException
from hub.materializers.spark.python_udfs import failure as function_failure
from hub.materializers.versions.version_log import UNDECIDED

log = logging.getLogger(__name__)

_UNKNOWN = re.compile(UNKNOWN_SCHEMA + r" (\d+) ([\w.\-]+)")


@dataclass(frozen=True, slots=True)
class FailedView:
    """The view that failed. ``view``: its last plan's; ``checkpoint``: folder of its last plan; ``causes``:
    what Spark names as causes of its query's failure; ``folders``: what its engine writes to, by
    description."""

    name: str
    view: View | SqlView | None
    checkpoint: Path | None
    folders: Mapping[str, Path]
    causes: str = ""


def failure_of(error: Exception, of: FailedView) -> Failure:
    """Classify an error. Errors caused by a full disk are not corruption: the files are written again when
    there is room."""
    if isinstance(error, PySparkException):
        return _spark_failure(error, of)
    if isinstance(error, HubError):
        if error.code == UNDECIDED:
            return DecidedElsewhere()
        if error.code in delta_stream.LOST:
            return _corrupt(error.message, of)
        return TransientFailure(str(error)) if error.retriable else LastingFailure(str(error))
    if isinstance(error, FileNotFoundError):
        return ViewFileGone()
    full = _full_disk(error, of)
    why = None if full else delta_engine.corruption_of(error)
    if why is not None:
        return _corrupt(why, of)
    log.error("view %s", of.name, exc_info=error)
    return TransientFailure(full or first_line(f"{type(error).__name__}: {error}"))


def _spark_failure(error: PySparkException, of: FailedView) -> Failure:
    text = str(error)
    unknown = _UNKNOWN.search(text)
    if unknown is not None and of.view is not None:
        return UnknownSchemaId(int(unknown.group(1)), unknown.group(2))
    full = _full_disk(error, of)
    if full is not None:
        return TransientFailure(full)
    why = checkpoint_corruption.corruption_of_message(f"{text}\n{of.causes}", of.checkpoint)
    if why is not None:
        return _corrupt(why, of)
    lasting = function_failure(text, of.name) or _too_large(text, of.view)
    return TransientFailure(first_line(text)) if lasting is None else LastingFailure(str(lasting))


def _corrupt(why: str, of: FailedView) -> CorruptState:
    return CorruptState(first_line(why), located=of.checkpoint is not None)


def _full_disk(error: Exception, of: FailedView) -> str | None:
    """Return the message for an error caused by a full disk, else None. The view retries, so it resumes
    when there is room."""
    peer_error = full_disk(of.name, error, of.folders)
    return None if peer_error is None else f"{peer_error.message}; {peer_error.hint}"


def _too_large(text: str, view: View | SqlView | None) -> ConfigError | None:
    """Return the error for a query whose row exceeds its changelog's record limit; None for any
    other error."""
    if view is None or "RecordTooLargeException" not in text:
        return None
    return ConfigError(
        f'view "{view.name}": a row of it is larger than its topic takes',
        hint=f"raise max.message.bytes of topic {view.changelog}, "
        "or keep less in a row: fewer of a list, shorter texts",
        code="HUB-2143",
    )
