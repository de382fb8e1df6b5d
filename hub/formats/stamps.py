"""[core] A noted version: ``{"version": 1, "release": "0.1.0"}``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Final

from hub.errors import ConfigError

# Key of the stamp among the progress records of a store.
STORE_KEY: Final = "format:store"
UNREADABLE = "HUB-1151"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Version of a format, and the release that noted it. ``release`` "": not known."""

    version: int
    release: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


FIRST = Stamp(1)
"""State without a version: releases before the versions wrote it."""


def own_stamp(number: int) -> Stamp:
    """Return the stamp that this release notes."""
    return Stamp(number, version("event-hub"))


def stamp_of(body: object, place: str) -> Stamp:
    """Return the stamp of parsed JSON; ``FIRST`` for None. ``place``: where it is noted. Raises ConfigError
    (HUB-1151).
    """
    if body is None:
        return FIRST
    if not isinstance(body, dict) or not isinstance(body.get("version"), int):
        raise ConfigError(
            f"{place}: this is not the version of a format",
            hint="restore it from a backup: the hub does not guess which release wrote its state",
            code=UNREADABLE,
        )
    return Stamp(body["version"], str(body.get("release", "")))
