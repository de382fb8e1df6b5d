"""Functions for the views beside it. Each is a function of its arguments alone: the same on every replay."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc


def section(page: pa.Array) -> Annotated[pa.Array, "string"]:
    """The first part of a path, of a whole batch at once: ``/shop/tea`` is in ``shop``."""
    return pc.list_element(pc.split_pattern(pc.utf8_ltrim(page, "/"), "/"), 0)


def initials(name: str | None) -> str | None:
    """A value at a time, in Python: simple, and slower."""
    return "".join(part[0] for part in name.split()) if name else None
