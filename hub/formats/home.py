"""[edge] Versions of the files in a home: ``<home>/formats/<name>.json``, one file for each format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson

from hub.files import not_written, read_bytes, replace_bytes
from hub.formats.stamps import Stamp, stamp_of
from hub.formats.table import written_by
from hub.formats.verdicts import stamps_to_note

FOLDER = "formats"
_MOST_BYTES = 1 << 12


def read_stamps(home: Path) -> Mapping[str, Stamp]:
    """Return the noted versions by format. Raises ConfigError (HUB-1151) for a file that has none."""
    found = {}
    for path in sorted((home / FOLDER).glob("*.json")):
        try:
            body = orjson.loads(read_bytes(path, _MOST_BYTES))
        except (OSError, ValueError):
            body = ""
        found[path.stem] = stamp_of(body, f'file "{path}"')
    return found


def admit_home(home: Path, process: str) -> None:
    """Note the versions of the files that a process writes. Call before it writes any.

    Raises ConfigError: HUB-1150 for a version that this release does not read, HUB-1151, HUB-1131.
    """
    stamps = read_stamps(home)
    for format, stamp in stamps_to_note(written_by(process, "home"), stamps, f'home folder "{home}"').items():
        path = home / FOLDER / f"{format.name}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_bytes(path, orjson.dumps(stamp.as_json()))
        except OSError as error:
            raise not_written(path, error) from None
