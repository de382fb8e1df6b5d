"""[core] Policy for copies of topics that were deleted at the source: ``on_delete: follow``, or with a delay,
``{do: follow, after: 1h}``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from hub.replication.config.amounts import DurationMs

DEFAULT_DELAY_MS = 3_600_000


class DeletionPolicy(BaseModel, extra="forbid", frozen=True):
    """``do`` keep: the copy stays. follow: the copy is deleted ``after`` the deletion at the source is
    certain, milliseconds.
    """

    do: Literal["keep", "follow"] = "keep"
    after: DurationMs = Field(DEFAULT_DELAY_MS, ge=1_000, le=90 * 86_400_000)


def _named(value: object) -> object:
    return {"do": value} if isinstance(value, str) else value


OnDelete = Annotated[DeletionPolicy, BeforeValidator(_named)]
