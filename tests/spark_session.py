"""A Spark session for tests that need no Kafka: one JVM for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hub.config import Settings
from hub.embedded import ensure_jars
from hub.materializers.spark import session as spark
from hub.materializers.spark.slots import Slots


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    home: Path = tmp_path_factory.mktemp("spark-home")
    settings = Settings(home=home, project=home, spark_master="local[2]", spark_heap_mb=1024)
    ensure_jars(settings)
    session, gateway = spark.open_session(settings, Slots(2, 2, 2))
    try:
        yield session
    finally:
        session.stop()
        gateway.stop()
