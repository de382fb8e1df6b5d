"""Faults of disks and files: full disks, and files corrupted while their process is down."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from fault_suite.faults import kind
from fault_suite.world import World

DISK = ("own disk",)
_VIEWS = ("customer_totals", "distinct_orders", "city_totals")


def _fill(folder: Path, leave_bytes: int) -> Path:
    """A file that takes all of the disk but ``leave_bytes``."""
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb") as file:
        while True:
            free = os.statvfs(folder)
            room = free.f_bavail * free.f_frsize - leave_bytes
            if room <= 0:
                break
            file.write(b"\0" * min(room, 1 << 20))
    return filler


@kind(
    "the home folder's disk is full", "disk", hits=("materializer", "mirror"), seconds=(4.0, 10.0), needs=DISK
)
def full_home(world: World, chance: Random) -> Iterator[None]:
    filler = _fill(world.settings.home, 0)
    try:
        yield
    finally:
        filler.unlink(missing_ok=True)


@kind(
    "the home folder's disk has little room",
    "disk",
    hits=("materializer", "mirror"),
    seconds=(4.0, 10.0),
    needs=DISK,
)
def narrow_home(world: World, chance: Random) -> Iterator[None]:
    filler = _fill(world.settings.home, chance.choice((4_096, 65_536, 1 << 20)))
    try:
        yield
    finally:
        filler.unlink(missing_ok=True)


@kind("a checkpoint's newest offsets are cut short", "damage", hits=("materializer",), seconds=(0.5, 1.0))
def cut_offsets(world: World, chance: Random) -> Iterator[None]:
    world.kill("materializer")
    folder = world.settings.checkpoints / chance.choice(_VIEWS) / "offsets"
    with suppress(OSError):
        newest = max(
            (each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name)
        )
        os.truncate(newest, newest.stat().st_size // 2)
    yield


@kind("files of a checkpoint's state are damaged", "damage", hits=("materializer",), seconds=(0.5, 1.0))
def damage_state(world: World, chance: Random) -> Iterator[None]:
    world.kill("materializer")
    folder = world.settings.checkpoints / chance.choice(_VIEWS) / "state"
    files = sorted(
        each for each in folder.rglob("*") if each.is_file() and each.suffix in (".changelog", ".zip")
    )
    for each in files[-6:]:
        _flip(each, chance)
    yield


@kind("a checkpoint is gone", "damage", hits=("materializer",), seconds=(0.5, 1.0))
def lose_checkpoint(world: World, chance: Random) -> Iterator[None]:
    world.kill("materializer")
    shutil.rmtree(world.settings.checkpoints / chance.choice(_VIEWS), ignore_errors=True)
    yield


@kind(
    "the serving store's file is gone",
    "damage",
    hits=("materializer", "reads"),
    seconds=(0.5, 1.0),
    alone=True,
)
def lose_store(world: World, chance: Random) -> Iterator[None]:
    world.kill("applier")
    world.kill("server")
    for each in world.settings.home.glob("store.db*"):
        each.unlink(missing_ok=True)
    yield


@kind(
    "the serving store's file is damaged",
    "damage",
    hits=("materializer", "reads"),
    seconds=(0.5, 1.0),
    alone=True,
)
def damage_store(world: World, chance: Random) -> Iterator[None]:
    world.kill("applier")
    world.kill("server")
    store = world.settings.home / "store.db"
    for _ in range(8):
        _flip(store, chance)
    yield


def _flip(path: Path, chance: Random) -> None:
    """Overwrite 64 bytes somewhere in the file."""
    with suppress(OSError), path.open("r+b") as file:
        file.seek(chance.randrange(max(1, path.stat().st_size - 64)))
        file.write(chance.randbytes(64))
