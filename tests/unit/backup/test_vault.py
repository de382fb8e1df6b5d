"""A backup's objects in a folder: identity, keys, killed runs, old runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hub.backup.storage.manifest import Manifest, SavedPartition, SavedSegment, SavedTopic, UnreadableBackup
from hub.backup.storage.object_store import FolderStore, open_store
from hub.backup.storage.prune import plan_prune, prune
from hub.backup.storage.vault import Vault, open_or_make, open_vault, remove_orphans
from hub.errors import CallerError, ConfigError, Conflict, NotFound

KEY = bytes(range(32))


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return open_or_make(FolderStore(tmp_path / "backup"), None, "cluster-1", 5)


def stored(vault: Vault, name: str, offset: int, taken_at_ms: int = 0) -> SavedSegment:
    size, digest = vault.put(name, b"batches of %d" % offset)
    return SavedSegment(name, offset, offset + 5, 5, 12, size, digest, 0, taken_at_ms)


def run(number: int, *segments: SavedSegment, complete: bool = True, ended_at_ms: int = 0) -> Manifest:
    part = SavedPartition(0, 5 * len(segments), tuple(segments))
    topic = SavedTopic("shop.a", "id", 1, {}, (part,))
    return Manifest(number, 100 * number, ended_at_ms, {"shop.a": topic}, complete=complete)


def test_a_backup_is_found_again_and_is_of_one_cluster(vault: Vault) -> None:
    found = open_or_make(vault.store, None, "cluster-1", 9)
    assert found.head == vault.head
    with pytest.raises(Conflict, match="cluster-2"):
        open_or_make(vault.store, None, "cluster-2", 9)
    with pytest.raises(ConfigError, match="not encrypted"):
        open_vault(vault.store, KEY)


def test_an_encrypted_backup_opens_with_its_key_only(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    made = open_or_make(store, KEY, "cluster", 1)
    made.keep(run(1, stored(made, "segments/000001/a", 0)))
    assert open_vault(store, KEY).run(1).records == 5
    for key in (None, bytes(32)):
        with pytest.raises(ConfigError):
            open_vault(store, key)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"shop.a" in path.read_bytes()]


def test_a_place_without_a_backup_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no backup"):
        open_vault(FolderStore(tmp_path / "none"), None)
    with pytest.raises(ConfigError):
        open_store("ftp://host/x")
    (tmp_path / "file").write_text("")
    with pytest.raises(CallerError):
        FolderStore(tmp_path / "file").put("a/b", b"")


def test_a_run_is_visible_once_it_is_complete(vault: Vault) -> None:
    vault.keep(run(1))
    vault.keep(run(2, complete=False))
    assert vault.numbers() == [1]
    unfinished = vault.unfinished()
    assert unfinished is not None and unfinished.number == 2
    vault.keep(run(2))
    assert (vault.numbers(), vault.unfinished()) == ([1, 2], None)


def test_segments_that_a_killed_run_did_not_note_are_removed(vault: Vault) -> None:
    old, noted = stored(vault, "segments/000001/a", 0), stored(vault, "segments/000002/b", 5)
    stored(vault, "segments/000002/orphan", 10)
    removed: list[int] = []
    remove_orphans(vault, run(2, old, noted, complete=False), removed.append)
    assert removed == [1]
    assert vault.store.names("segments") == [old.name, noted.name]


def test_runs_around_a_time_are_found(vault: Vault) -> None:
    for number in range(1, 9):
        vault.keep(run(number))
    found = {at: [each.number for each in vault.around(at)] for at in (50, 100, 150, 800, 900)}
    assert found == {50: [1], 100: [1], 150: [1, 2], 800: [7, 8], 900: [8]}
    assert [each.number for each in vault.newest(3)] == [6, 7, 8]


def test_old_runs_go_with_the_segments_that_no_other_run_has(vault: Vault) -> None:
    first, second = stored(vault, "segments/000001/a", 0), stored(vault, "segments/000002/b", 5)
    fresh = stored(vault, "segments/000003/a", 0)
    vault.keep(run(1, first))
    vault.keep(run(2, first, second))
    vault.keep(run(3, fresh, second))
    plan = plan_prune(vault, 1)
    assert (plan.runs, plan.segments) == ((1, 2), (first.name,))
    prune(vault, plan)
    assert vault.numbers() == [3]
    assert vault.store.names("segments") == [second.name, fresh.name]
    assert plan_prune(vault, 1).segments == ()


def test_nothing_is_pruned_while_a_run_writes(vault: Vault) -> None:
    vault.keep(run(1))
    vault.keep(run(2, complete=False, ended_at_ms=1 << 50))
    with pytest.raises(Conflict, match="a run writes"):
        plan_prune(vault, 1)
    vault.keep(run(2, stored(vault, "segments/000002/a", 0), complete=False, ended_at_ms=1))
    assert plan_prune(vault, 1).segments == ()


def test_a_segment_that_was_changed_or_deleted_is_named_with_its_offsets(vault: Vault) -> None:
    segment = stored(vault, "segments/000001/a", 7)
    with pytest.raises(UnreadableBackup, match="SHA-256.*offsets 7 to 11"):
        vault.segment(replace(segment, digest="0" * 64))
    vault.store.delete(segment.name)
    with pytest.raises(UnreadableBackup, match="missing.*offsets 7 to 11"):
        vault.segment(segment)


def test_one_writer_holds_a_folder(vault: Vault) -> None:
    with vault.store.locked() as alone:
        assert alone
        with pytest.raises(Conflict, match="another run"), vault.store.locked():
            pass
