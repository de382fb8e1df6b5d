"""``hub upgrade --check`` on a home without a running hub, and the refusals of ``hub up``."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
from ports import free_ports
from processes import call_hub

from hub.cli.platform.up import make_ready
from hub.config import Settings
from hub.errors import ConfigError
from hub.formats.home import FOLDER
from hub.materializers.engine.plans.checkpoint_note import CheckpointFolder
from hub.materializers.stores.open_store import note_version, open_store


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A project whose Kafka does not run, with state of every kind on this machine."""
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    made = Settings(
        project=project, home=home, bootstrap=f"127.0.0.1:{free_ports(1)[0]}", kafka_timeout_s=0.5
    )
    (home / "checkpoints").mkdir(parents=True)
    CheckpointFolder(home / "checkpoints", "v", "v", 0).begin(3, {"fingerprint": "f", "topics": {}})
    (home / "tokens.json").write_text("[]")
    store = open_store(made.store)
    note_version(store)
    store.close()
    return made


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the files of a folder; without those that SQLite makes to read a database."""
    files = (
        path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    )
    return {path: path.read_bytes() for path in files}


def test_the_check_reads_alone_and_an_unknown_part_is_no_success(settings: Settings) -> None:
    before = contents(settings.home)
    done = call_hub(settings, "upgrade", "--check", "-o", "json")
    report = json.loads(done.stdout)
    found = {each["format"]: each for each in report["formats"]}
    assert done.returncode == 1, "Kafka does not answer"
    assert {found[name]["action"] for name in ("tokens", "checkpoint", "store")} == {"nothing"}
    assert found["checkpoint"]["size_bytes"] > 0 and found["store"]["written_by"] == report["release"]
    assert found["changelog"]["action"] == "unknown" and found["changelog"]["detail"]
    assert report["rollback"]["possible"] is None and report["order"][0] == "server"
    assert report["deprecations"] == [] and contents(settings.home) == before
    table = call_hub(settings, "upgrade", "--check")
    assert "Rollback after a start of this release: unknown" in table.stderr
    bare = call_hub(settings, "upgrade")
    assert bare.returncode == 1 and "hub upgrade --check" in bare.stderr


def test_up_names_all_state_of_a_newer_release_and_writes_nothing(settings: Settings) -> None:
    (settings.home / FOLDER).mkdir()
    (settings.home / FOLDER / "tokens.json").write_text('{"version": 2, "release": "9.0.0"}')
    note = settings.checkpoints / "v" / "plan.json"
    note.write_bytes(orjson.dumps({**orjson.loads(note.read_bytes()), "format": 2}))
    store = open_store(settings.store)
    store.apply([], {"format:store": {"version": 2, "release": "9.0.0"}})
    store.close()
    before = contents(settings.home)
    with pytest.raises(ConfigError) as refused:
        make_ready(settings)
    assert refused.value.code == "HUB-1150" and contents(settings.home) == before
    for name in ("tokens", "checkpoint", "store"):
        assert f'format "{name}" has version 2' in refused.value.message
    shown = json.loads(call_hub(settings, "upgrade", "--check", "-o", "json").stdout)
    details = [each["detail"] for each in shown["formats"] if each["action"] == "refused"]
    assert len(details) == 3 and all("start that release or a newer one" in each for each in details)


def test_a_parquet_store_is_named_with_its_files_and_maps_to_iceberg(settings: Settings) -> None:
    (settings.project / "hub.yaml").write_text("stores: {lake: parquet}\n")
    old = settings.home / "stores" / "lake" / "customer_360"
    old.mkdir(parents=True)
    (old / "manifest.json").write_text("{}")
    (old / "000001-delta.parquet").write_bytes(b"12345678")
    done = call_hub(settings, "upgrade", "--check", "-o", "json")
    report = json.loads(done.stdout)
    assert [each["key"] for each in report["deprecations"]] == ["stores.lake"]
    assert [(each["path"], each["size_bytes"]) for each in report["unused"]] == [(str(old), 10)]
    table = call_hub(settings, "upgrade", "--check")
    assert "write `iceberg`" in table.stderr and f"Unused: {old}" in table.stderr
    made = settings.model_copy(update={"stores": {"lake": "parquet", "far": "parquet:///data/x"}})
    assert made.store_urls["lake"] == "iceberg:///lake" and made.store_urls["far"] == "iceberg:///far"
