"""[core] Levels of compatibility, as Confluent's registry names them."""

from typing import Literal, get_args

Level = Literal[
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
]
LEVELS: tuple[str, ...] = get_args(Level)
