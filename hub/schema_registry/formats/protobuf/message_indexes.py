"""[core] The message indexes before a Protobuf message in Confluent's wire format: which message of its file
it is.

A count, then that many zigzag numbers: the index in the file, the index within that message, and so on. A
count of 0 is short for the file's first message.
"""

from __future__ import annotations

from hub.varint import MalformedVarint, take_signed

_MOST_INDEXES = 32


def message_indexes(value: bytes, at: int) -> tuple[list[int], int]:
    """Return (message indexes, offset of the message). Raises ValueError."""
    try:
        count, at = take_signed(value, at)
        if count == 0:
            return [0], at
        if not 0 < count <= _MOST_INDEXES:
            raise ValueError(f"{count} message indexes lead to no message of its file")
        found = []
        for _ in range(count):
            index, at = take_signed(value, at)
            if index < 0:
                raise ValueError(f"message index {index}")
            found.append(index)
    except (IndexError, MalformedVarint):
        raise ValueError("the message indexes are cut off") from None
    return found, at
