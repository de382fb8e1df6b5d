"""[core] Plans that a person confirms: one that was made in another situation is not carried out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from hub.errors import Conflict


def plan_digest(parts: Iterable[str]) -> str:
    """Return a short digest of a plan and of the situation that it was made in.

    >>> plan_digest(["a", "b"]) == plan_digest(["ab"])
    False
    """
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def require_same_plan(confirmed: str | None, digest: str, object_name: str) -> None:
    """Raise Conflict (HUB-1941) if another plan than this one was confirmed. ``confirmed``: its digest; None:
    the caller saw no plan. ``object_name``: the object, such as ``group "billing"``.
    """
    if confirmed is not None and confirmed != digest:
        raise Conflict(
            f"{object_name}: the situation has changed since this plan was made, so nothing was done",
            hint="look at the new plan, and confirm that one",
            code="HUB-1941",
        )
