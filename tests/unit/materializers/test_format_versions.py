"""State of views and stores that a newer release wrote: refused by name, and left as it is."""

from __future__ import annotations

from pathlib import Path

import duckdb
import orjson
import pytest
import store_contract
from store_contract import schema

from hub.errors import ConfigError
from hub.formats.stamps import FIRST, STORE_KEY, Stamp
from hub.formats.table import CHECKPOINT, DELTA, STORE, VIEW_RULES, DurableFormat
from hub.materializers.engine.failures import FailedView, failure_of
from hub.materializers.engine.life_events import LastingFailure
from hub.materializers.engine.plans.checkpoint_note import CheckpointFolder, noted_versions
from hub.materializers.spark.delta.state import DeltaState
from hub.materializers.stores.open_store import note_version, noted_version, open_store


@pytest.mark.parametrize("kind", sorted(store_contract.URLS))
def test_a_store_notes_its_version_and_a_newer_one_is_refused(kind: str, tmp_path: Path) -> None:
    url, settings = store_contract.URLS[kind](tmp_path), store_contract.settings_in(tmp_path)
    assert noted_version(url, settings) is None and not any(tmp_path.iterdir()), "looking makes no store"
    store = open_store(url, settings)
    store.ensure_view("v", schema({"name": "string"}), [], "topic-id")
    store.close()
    assert noted_version(url, settings) == FIRST, "stores of releases without versions"
    store = open_store(url, settings)
    note_version(store)
    note_version(store)
    noted = store.progress()[STORE_KEY]
    assert noted["version"] == STORE.version and noted["release"]
    store.apply([], {STORE_KEY: {"version": STORE.version + 1, "release": "9.0.0"}})
    store.close()
    assert noted_version(url, settings) == Stamp(STORE.version + 1, "9.0.0")
    for read_only in (False, True):
        with pytest.raises(ConfigError, match=r'format "store" has version 2 \(written by release 9\.0\.0\)'):
            open_store(url, settings, read_only=read_only)


@pytest.mark.parametrize(("key", "format"), [("format", CHECKPOINT), ("rules", VIEW_RULES)])
def test_a_checkpoint_of_a_newer_release_is_refused_and_stays(
    key: str, format: DurableFormat, tmp_path: Path
) -> None:
    folder = CheckpointFolder(tmp_path, "v", "v", 3)
    folder.begin(4, {"fingerprint": "one", "topics": {}, "rules": VIEW_RULES.version})
    path = folder.path / "plan.json"
    assert orjson.loads(path.read_bytes())["format"] == CHECKPOINT.version
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), key: format.version + 1}))
    before = path.read_bytes()
    with pytest.raises(ConfigError) as refused:
        folder.note()
    assert refused.value.code == "HUB-1150" and format.name in refused.value.message
    assert path.read_bytes() == before and folder.generations() == [4]
    lasting = failure_of(refused.value, FailedView("v", None, None, {}))
    assert isinstance(lasting, LastingFailure), "the view fails alone, and is not computed again"
    found = {each.name: stamp for each, stamp, _ in noted_versions(tmp_path)}
    assert found[format.name] == Stamp(format.version + 1)


def test_a_checkpoint_of_an_older_release_continues(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "v", "v", 3)
    folder.path.mkdir()
    note = {"generation": 2, "fingerprint": "one", "topics": {}}  # neither format nor rules
    (folder.path / "plan.json").write_bytes(orjson.dumps(note))
    assert folder.note() == note
    found = [(each.name, stamp) for each, stamp, _ in noted_versions(tmp_path)]
    assert found == [("checkpoint", FIRST), ("view-rules", Stamp(0))]


def test_incremental_state_of_a_newer_release_is_kept_and_of_an_older_one_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "v" / "1" / "delta"
    DeltaState(folder, "plan").db.close()
    for version, code in ((DELTA.version + 1, "HUB-1150"), (DELTA.version - 1, "HUB-5021")):
        with duckdb.connect(str(folder / "delta.duckdb")) as database:
            database.execute("UPDATE delta_state SET format = ?", [version])
        assert [(each, stamp) for each, stamp, _ in noted_versions(tmp_path)] == [(DELTA, Stamp(version))]
        with pytest.raises(Exception, match=r"delta\.duckdb|another plan") as refused:
            DeltaState(folder, "plan")
        assert refused.value.code == code  # type: ignore[attr-defined]
