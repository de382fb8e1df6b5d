"""[core] Durations and sizes of mirrors.yaml: ``100ms``, ``20MiB``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator

_UNITS: Mapping[str, Mapping[str, int]] = {
    "duration": {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000},
    "size": {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30},
}


def _amount(kind: str, example: str) -> BeforeValidator:
    def read(value: object) -> object:
        match = re.fullmatch(r"(\d+)\s*([A-Za-z]+)", str(value))
        if isinstance(value, bool) or match is None or match.group(2) not in _UNITS[kind]:
            raise ValueError(f'"{value}" is not a {kind} such as {example}')
        return int(match.group(1)) * _UNITS[kind][match.group(2)]

    return BeforeValidator(read)


DurationMs = Annotated[int, _amount("duration", "100ms, 5s or 1h")]
SizeBytes = Annotated[int, _amount("size", "512KiB or 20MiB")]
