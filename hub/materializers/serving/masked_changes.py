"""[shell] Changes of a view as their subscriber sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio.to_thread

from hub.errors import PeerError
from hub.masking.shape import Visibility
from hub.materializers.stores.store import RowVersion


async def require_same(view: str, shape: Visibility, look: Callable[[], Visibility] | None) -> None:
    """Raise PeerError if the subscriber sees something else now than when it began. ``look`` None: it sees
    everything."""
    if look is not None and await anyio.to_thread.run_sync(look) != shape:
        raise PeerError(
            f'view "{view}": what you see of it has changed', hint="connect again", code="HUB-3079"
        )


def change_body(row: RowVersion, shape: Visibility) -> dict[str, Any]:
    """Return the body of a change's event."""
    values = row.values if row.values is None or shape.is_open else shape.row(row.values)
    return {"key": row.key, "row": values, "version": row.version}
