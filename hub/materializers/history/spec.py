"""[core] The kept time of a view's history, as stores note it among the view's indexes."""

from __future__ import annotations

from collections.abc import Sequence

_SPEC = "history:"


def noted_history(keep_ms: int | None) -> list[str]:
    """Return the note of a view that keeps versions for this time; [] for None. Earlier releases ignore it:
    no field has the name.

    >>> noted_history(3_600_000)
    ['history:3600000']
    """
    return [] if keep_ms is None else [f"{_SPEC}{keep_ms}"]


def kept_ms(indexes: Sequence[str]) -> int | None:
    """Return the kept time among the noted indexes of a view, in milliseconds; None without a history.

    >>> kept_ms(["city", "history:3600000"])
    3600000
    """
    return next((int(each.removeprefix(_SPEC)) for each in indexes if each.startswith(_SPEC)), None)
