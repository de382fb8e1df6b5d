"""[core] Parts of the materializer process that all threads share, and the name of a version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.materializers.definition.declared import table_of
from hub.materializers.isolation.isolated_process import IsolatedProcess
from hub.materializers.isolation.processes import SharedProcess
from hub.materializers.progress.progress_queue import ProgressQueue
from hub.materializers.spark.pyspark_types import SparkSession
from hub.materializers.spark.slots import Slots
from hub.materializers.versions.version_log import VersionLog
from hub.schema_registry.client.registry_client import RegistryClient


@dataclass(slots=True)
class EngineParts:
    """Parts of the materializer process. ``session`` is replaced when Spark starts again with more slots."""

    settings: Settings
    session: SparkSession
    slots: Slots
    cluster: KafkaCluster
    registry: RegistryClient
    progress: ProgressQueue
    versions: VersionLog
    isolation: SharedProcess | IsolatedProcess


@dataclass(frozen=True, slots=True)
class VersionName:
    """Name of one version. ``suffix`` None: the version that has the view's own name."""

    path: Path
    suffix: int | None = None

    @property
    def view(self) -> str:
        return self.path.stem

    @property
    def table(self) -> str:
        return table_of(self.path.stem, self.suffix)

    def folders(self, settings: Settings) -> Mapping[str, Path]:
        """Return the folders that the version's engine writes to, by description."""
        return {
            "its checkpoints": settings.checkpoints / self.table,
            "Spark's own files": settings.home / "spark",
        }
