"""[edge] pyarrow: decrypt events of sources with ``decrypt``, batch by batch, in Spark's Python workers.

The clear value is decoded in place of the stored one, which dead-letter records keep. An event that cannot be
decrypted becomes a dead-letter record with the reason; while a key cannot be had, the batch fails and is
tried again. Imports little, because each worker imports it at its start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from hub.errors import CallerError

SEALED, OPENED = "_sealed", "_opened"
_KIND = "value binary, why string"


@dataclass(frozen=True, slots=True)
class Opening:
    """Access to keys for a worker. ``registry_url`` has its credentials; ``kms`` is the setting as JSON."""

    registry_url: str = field(repr=False)
    kms: str
    project: str
    timeout_s: float
    kept_s: float


def with_clear_values(events: DataFrame, mine: str, opening: Opening) -> DataFrame:
    """Return the events with clear values where the condition ``mine`` holds. ``SEALED`` has the stored
    value, and ``OPENED.why`` the reason where it could not be decrypted.
    """

    def read(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        return (opened(topics, values, opening) for topics, values in batches)

    # Spark needs types as annotations, not their names. A function of iterators never shares a worker with
    # functions of views, which may be sandboxed and could then not ask for keys.
    read.__annotations__ = {
        "batches": Iterator[tuple[pa.Array, pa.Array]],
        "return": Iterator[pa.Array],
    }
    untyped: Any = arrow_udf  # its stubs know fewer types than it accepts
    call = untyped(read, _KIND)(F.col("_topic"), F.expr(f"IF({mine}, value, NULL)"))
    found = events.withColumn(OPENED, call).withColumnRenamed("value", SEALED)
    return found.withColumn("value", F.expr(f"coalesce({OPENED}.value, {SEALED})"))


def with_stored_values(events: DataFrame) -> DataFrame:
    """Return decoded events with their stored values, as dead-letter records have them."""
    return events.drop("value", OPENED).withColumnRenamed(SEALED, "value")


def opened(topics: pa.Array, values: pa.Array, opening: Opening) -> pa.StructArray:
    """Return a struct per value: the clear value, or why it cannot be decrypted. Null gives nulls."""
    opener = _opener(opening)
    clear: list[bytes | None] = []
    reasons: list[str | None] = []
    for topic, value in zip(topics.to_pylist(), values.to_pylist(), strict=True):
        made, why = None, None
        if value is not None:
            try:
                made = opener.opened(topic, value)
            except CallerError as error:
                why = f"it cannot be decrypted: {error.message}"
        clear.append(made)
        reasons.append(why)
    return pa.StructArray.from_arrays(
        [pa.array(clear, pa.binary()), pa.array(reasons, pa.string())], names=["value", "why"]
    )


@lru_cache(maxsize=8)
def _opener(opening: Opening) -> Any:
    """Make the opener of a worker; it keeps keys for its life, as ``kept_s`` allows."""
    from hub.config.kms import KmsKey
    from hub.schema_registry.client.registry_client import RegistryClient
    from hub.schema_registry.encryption.key_ring import KeyRing
    from hub.schema_registry.encryption.kms import KmsClient
    from hub.schema_registry.encryption.opener import Opener
    from hub.schema_registry.encryption.remote_deks import RemoteDeks

    allowed = [KmsKey.model_validate(each) for each in json.loads(opening.kms)]
    kms = KmsClient(allowed, Path(opening.project))
    ring = KeyRing(RemoteDeks(opening.registry_url, opening.timeout_s), kms, kept_s=opening.kept_s)
    return Opener(RegistryClient(opening.registry_url, opening.timeout_s), ring)
