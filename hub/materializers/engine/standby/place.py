"""[edge] The system: the process behind a lease, and whether it has ended.

Only processes of this boot and this process namespace can be seen; of others nothing is known.
"""

from __future__ import annotations

import os
from pathlib import Path

from hub.supervisor import began_of

_NAMESPACE = Path("/proc/self/ns/pid")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def own_place() -> str:
    """Return namespace, number and start of this process; "" where the system does not show them."""
    number = os.getpid()
    try:
        return f"{os.readlink(_NAMESPACE)} {number} {began_of(number)}"
    except OSError:
        return ""


def has_ended(place: str) -> bool:
    """Return True if the process of ``own_place`` there is known to have ended."""
    try:
        namespace, number, began = place.split(" ")
        boot, _, _ = began.partition("/")
        if namespace != os.readlink(_NAMESPACE) or boot != _BOOT.read_text().strip():
            return False
    except (ValueError, OSError):
        return False
    try:
        return began_of(int(number)) != began
    except (ValueError, OSError):
        return True
