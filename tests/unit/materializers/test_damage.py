"""Detection of corrupt checkpoints, and the kept files. The messages are Spark 4.3's and DuckDB's own."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from hub.errors import HubFault
from hub.materializers.spark import checkpoint_corruption, delta_engine
from hub.materializers.spark.checkpoint_corruption import (
    aside_of,
    corruption_of_message,
    lately,
    of_duckdb,
    of_logs,
    set_aside,
    why_aside,
)
from hub.materializers.spark.delta.state import DeltaState
from hub.materializers.versions.transitions import decide
from hub.materializers.versions.versions import ComputationKept, VersionDefinition, VersionOpened

METADATA = '{"id":"a7a6c1de-6d2b-4b09-9f4c-0e4d1d2b7a11"}'
OFFSETS = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1767225600000,"conf":{}}\n{"shop.orders":{"0":120,"1":80}}'
)
COMMIT = 'v1\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}'


def write(path: Path, text: str, *, summed: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body := text.encode())
    if summed:
        pieces = (body[at : at + 512] for at in range(0, len(body), 512))
        sums = b"".join(zlib.crc32(piece).to_bytes(4) for piece in pieces)
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4) + sums)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 8 to 10 committed, 11 begun."""
    write(tmp_path / "metadata", METADATA)
    for batch in range(8, 12):
        write(tmp_path / "offsets" / str(batch), OFFSETS.replace("120", str(100 + batch)) + "\n-" * 200)
    for batch in range(8, 11):
        write(tmp_path / "commits" / str(batch), COMMIT)
    return tmp_path


def test_a_checkpoint_as_spark_leaves_it_is_whole_at_every_moment(checkpoint: Path, tmp_path: Path) -> None:
    assert of_logs(checkpoint) is None
    write(checkpoint / "commits" / "11", COMMIT)
    assert of_logs(checkpoint) is None
    (checkpoint / "offsets" / ".12.5f0c.tmp").write_text("v1\n{")  # on its way
    assert of_logs(checkpoint) is None
    assert of_logs(tmp_path / "none") is None
    write(tmp_path / "first" / "metadata", METADATA)
    write(tmp_path / "first" / "offsets" / "0", OFFSETS, summed=False)
    assert of_logs(tmp_path / "first") is None, "the first batch was begun"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "metadata").unlink(), "metadata is missing"),
        (lambda folder: write(folder / "metadata", METADATA[:-4]), "metadata was changed"),
        (lambda folder: write(folder / "metadata", "[]"), "metadata was changed"),
        (lambda folder: write(folder / "offsets" / "11", ""), "offsets/11 is empty"),
        (lambda folder: write(folder / "offsets" / "9", OFFSETS[:-9]), "offsets/9 was changed"),
        (lambda folder: write(folder / "offsets" / "9", "v1"), "offsets/9 was changed"),
        (
            lambda folder: write(folder / "offsets" / "9", OFFSETS.replace("80", '"x"')),
            "offsets/9 was changed",
        ),
        (lambda folder: (folder / "commits" / "10").write_bytes(b"v1\n\xff\xfe"), "commits/10 is not text"),
        (lambda folder: write(folder / "commits" / "10", "v1\n"), "commits/10 was changed"),
        (lambda folder: write(folder / "commits" / "10", COMMIT[3:]), "commits/10 was changed"),
        (
            lambda folder: (folder / "offsets" / "11").write_text(OFFSETS.replace("120", "121")),
            "offsets/11 does not fit its checksum",
        ),
        (
            lambda folder: (folder / "commits" / "10").unlink(),
            "batch 11 was begun, and commits/10 is missing",
        ),
        (
            lambda folder: [(folder / "offsets" / batch).unlink() for batch in ("10", "11")],
            "batch 10 is committed, and offsets/10 is missing",
        ),
    ],
)
def test_what_is_not_as_spark_writes_it_is_named(
    checkpoint: Path, harm: Callable[[Path], object], said: str
) -> None:
    harm(checkpoint)
    assert (of_logs(checkpoint) or "").startswith(said)


def test_a_delta_view_without_its_tables_is_damaged(checkpoint: Path) -> None:
    assert of_logs(checkpoint, delta=True) == "batch 10 is committed, and delta/delta.duckdb is missing"
    write(checkpoint / "delta" / "delta.duckdb", "x")
    assert of_logs(checkpoint, delta=True) is None


LOADING = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  SQLSTATE: 58030"


@pytest.mark.parametrize(
    "said",
    [
        f"{LOADING}\njava.io.IOException: Stream is corrupted",
        f"{LOADING}\njava.io.EOFException",
        f"{LOADING}\n[CANNOT_LOAD_STATE_STORE.AUTO_SNAPSHOT_REPAIR_FAILED] Failed to load snapshot version 4",
        f"{LOADING}\norg.rocksdb.RocksDBException: Corruption: block checksum mismatch",
        (
            "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] Error reading streaming state "
            "file of x does not exist."
        ),
        (
            "[CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED] Checksum verification failed, the "
            "file may be corrupted."
        ),
        (
            "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query "
            "with stateful operators"
        ),
        "Checksum error: file:/h/checkpoints/v/1/state/0/0/_metadata/schema at 0 exp: 1 got: 2",
        "java.io.FileNotFoundException: File /h/checkpoints/v/1/state/0/1/2_a.zip does not exist",
    ],
)
def test_spark_says_that_a_state_is_not_as_it_was_written(said: str) -> None:
    assert corruption_of_message(said, Path("/h/checkpoints/v/1")) is not None


@pytest.mark.parametrize(
    "said",
    [
        f"{LOADING}\njava.io.IOException: No space left on device",
        (
            f"{LOADING}\njava.io.FileNotFoundException: /h/checkpoints/v/1/state/0/1/4_a.zip "
            "(Too many open files)"
        ),
        f"{LOADING}\njava.io.FileNotFoundException: /h/checkpoints/v/1/state/0/1/4_a.zip (Permission denied)",
        (
            f"{LOADING}\n[CANNOT_LOAD_STATE_STORE.AUTO_SNAPSHOT_REPAIR_FAILED] Failed\njava.io.IOException: No "  # noqa: E501
            "space left on device"
        ),
        "[CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY] Could not load RocksDB state store",
        "[CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR] RocksDB instance could not be acquired",
        f"{LOADING}\njava.lang.OutOfMemoryError: Java heap space",
        LOADING,
        "[STREAMING_CHECKPOINT_LOG_WRITE_FAILURE.COMMIT_LOG] Failed to write commit log entry for batch 4",
        "org.apache.kafka.common.errors.TimeoutException: Timeout expired while fetching topic metadata",
        "org.apache.kafka.common.errors.CorruptRecordException: This message has failed its CRC checksum",
        "hub: function words.section (line 4): ValueError: the checksum of 'x' does not exist",
        "java.io.FileNotFoundException: /other/spark/blockmgr-1/0c/shuffle_0_1_0.data does not exist",
        "Executor heartbeat timed out after 130000 ms",
    ],
)
def test_what_comes_and_goes_is_no_damage(said: str) -> None:
    assert corruption_of_message(said, Path("/h/checkpoints/v/1")) is None


def test_duckdb_knows_a_damaged_file_and_a_lock_is_none(tmp_path: Path) -> None:
    state = DeltaState(tmp_path, "f")
    state.db.execute("CREATE TABLE t AS SELECT range AS n, random() AS x FROM range(200000)")
    state.close()
    file = tmp_path / "delta.duckdb"
    body = file.read_bytes()
    file.write_bytes(body[:300_000] + bytes(byte ^ 0x5A for byte in body[300_000:700_000]) + body[700_000:])
    state = DeltaState(tmp_path, "f")  # its catalog is whole
    with pytest.raises(duckdb.Error) as raised:
        state.db.execute("SELECT sum(n), sum(x) FROM t").fetchall()
    state.close()
    assert delta_engine.corruption_of(raised.value) is not None, raised.value
    file.write_bytes(body[:5_000] + bytes(byte ^ 0x5A for byte in body[5_000:]))
    with pytest.raises(HubFault) as fault:
        DeltaState(tmp_path, "f")
    assert fault.value.code == "HUB-5021"
    assert of_duckdb(
        "IO Error: Corrupt database file: computed checksum 1 does not match stored checksum 2 in block 3"
    )
    assert not of_duckdb("Out of Memory Error: could not allocate block of size 256.0 KiB")
    assert not of_duckdb('IO Error: Could not set lock on file "delta.duckdb": Conflicting lock is held')
    assert checkpoint_corruption.is_outage("IO Error: Cannot open file: No space left on device")
    assert delta_engine.corruption_of(ValueError("corrupt")) is None


def test_one_checkpoint_of_a_view_is_kept_and_says_why(tmp_path: Path) -> None:
    aside = aside_of(tmp_path, "orders")
    for version, generation, why in (("orders", "1", "offsets/4 is empty"), ("orders@2", "2", "no state")):
        checkpoint = tmp_path / version / generation
        write(checkpoint / "metadata", METADATA)
        set_aside(checkpoint, aside, version, why, 1_000)
        assert not checkpoint.exists() and (aside / "metadata").exists()
        assert why_aside(aside, version, int(generation)) == why_aside(aside, version, None) == why
    assert why_aside(aside, "orders", 1) is None and why_aside(aside, "orders@2", 3) is None
    assert [path.name for path in tmp_path.glob("*.damaged")] == ["orders.damaged"]
    set_aside(tmp_path / "orders" / "1", aside, "orders", "again", 2_000)  # it is gone already
    assert why_aside(aside, "orders@2", 2) == "no state"


def test_how_often_it_was_within_the_hour(tmp_path: Path) -> None:
    aside, hour_ms = aside_of(tmp_path, "orders"), 3_600_000
    assert lately(aside, 0) == []
    for at_ms in (1_000, 2_000, hour_ms):
        write(tmp_path / "orders" / "1" / "metadata", METADATA)
        set_aside(tmp_path / "orders" / "1", aside, "orders", "no state", at_ms)
    assert lately(aside, hour_ms) == [1_000, 2_000, hour_ms]
    assert lately(aside, hour_ms + 1_500) == [2_000, hour_ms]
    assert lately(aside, 1_500) == [1_000], "a clock that was set back"
    write(aside / "hub.damage", "{}")  # as an earlier hub wrote it
    assert lately(aside, hour_ms) == []


def test_a_view_computed_anew_in_its_place_says_why() -> None:
    definition = VersionDefinition("t", "b", "f")
    state = decide(None, VersionOpened(1, definition), "v", 1)
    assert state is not None
    state = decide(
        state, ComputationKept(1, definition, "its checkpoint is corrupt: metadata is missing"), "v", 2
    )
    assert state is not None and state.served.why == "its checkpoint is corrupt: metadata is missing"
    again = decide(state, ComputationKept(1, definition), "v", 3)
    assert again is state
