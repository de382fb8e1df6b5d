"""[core] Judge a version of a format: nothing to do, upgrade in place, rebuild, or refuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Literal

from hub.errors import ConfigError
from hub.formats.stamps import FIRST, Stamp, own_stamp
from hub.formats.table import DurableFormat

Action = Literal["nothing", "upgrade", "rebuild", "refused"]
REFUSED = "HUB-1150"


def judge(format: DurableFormat, stamp: Stamp) -> Action:
    """Return what this release does with state of a version.

    >>> from hub.formats.table import DELTA, TOKENS
    >>> judge(TOKENS, Stamp(1)), judge(TOKENS, Stamp(2)), judge(DELTA, Stamp(1))
    ('nothing', 'refused', 'rebuild')
    """
    if stamp.version > format.version:
        return "refused"
    if stamp.version == format.version:
        return "nothing"
    if stamp.version < format.oldest and format.older != "rebuild":
        return "refused"
    return format.older


def refusal(format: DurableFormat, stamp: Stamp, place: str) -> ConfigError:
    """Return the error for state that this release does not read. ``place``: the state, such as a file."""
    newer = stamp.version > format.version
    by = f" (written by release {stamp.release})" if stamp.release else ""
    reads = str(format.version) if format.oldest == format.version else f"{format.oldest} to {format.version}"
    way = f"start {'that release or a newer one' if newer else 'the releases in between first'}"
    return ConfigError(
        f'{place}: format "{format.name}" has version {stamp.version}{by}; release {version("event-hub")} '
        f"reads {reads}",
        hint=f"{way}{f', or {format.way_out}' if format.way_out else ''}; hub upgrade --check shows all",
        code=REFUSED,
    )


def require_readable(format: DurableFormat, stamp: Stamp, place: str) -> None:
    """Raise ConfigError (HUB-1150) for state that this release does not read."""
    if judge(format, stamp) == "refused":
        raise refusal(format, stamp, place)


def stamps_to_note(
    formats: Iterable[DurableFormat], stamps: Mapping[str, Stamp], place: str
) -> Mapping[DurableFormat, Stamp]:
    """Return the stamps that a process notes before it writes these formats. ``stamps``: what is noted there.
    Raises ConfigError (HUB-1150) for the first format that this release does not read.
    """
    chosen = list(formats)
    for each in chosen:
        require_readable(each, stamps.get(each.name, FIRST), place)
    return {
        each: own_stamp(each.version)
        for each in chosen
        if each.name not in stamps or stamps[each.name].version < each.version
    }
