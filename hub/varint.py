"""[core] Variable-length integers: seven bits a byte, the lowest first; the high bit marks that more bytes
follow.

Avro and the records of Kafka write signed numbers in zigzag order (0, -1, 1, -2 …), so that small ones of
either sign are short. Kafka's compact lengths, and Protobuf's tags, are unsigned.

Readers take the buffer and a position, and return the number and the position after it. They raise IndexError
where the buffer ends within a number, and ``MalformedVarint`` for one of more than 64 bits.
"""

from __future__ import annotations


class MalformedVarint(ValueError):
    """A number of more than 64 bits; ``at`` is the position after it."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


def take_unsigned(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Read an unsigned number.

    >>> take_unsigned(bytes([0xAC, 0x02]), 0)
    (300, 2)
    """
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    number, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise MalformedVarint("a number of more than ten bytes", at)
    if number >> 64:
        raise MalformedVarint("a number of more than 64 bits", at)
    return number, at


def take_signed(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Read a zigzag number.

    >>> take_signed(bytes([3]), 0)
    (-2, 1)
    """
    byte = data[at]
    if byte < 128:  # nearly all of them, without a second call
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, at = take_unsigned(data, at)
    return (number >> 1) ^ -(number & 1), at


def put_unsigned(number: int, out: bytearray) -> None:
    """Append a number of 0 or more."""
    while number > 127:
        out.append((number & 127) | 128)
        number >>= 7
    out.append(number)


def put_signed(number: int, out: bytearray) -> None:
    """Append a number of up to 64 bits in zigzag order."""
    number = number << 1 if number >= 0 else ~(number << 1)
    while number > 127:
        out.append((number & 127) | 128)
        number >>= 7
    out.append(number)


def unsigned(number: int) -> bytes:
    """Return the bytes that ``put_unsigned`` appends."""
    out = bytearray()
    put_unsigned(number, out)
    return bytes(out)


def signed(number: int) -> bytes:
    """Return the bytes that ``put_signed`` appends."""
    out = bytearray()
    put_signed(number, out)
    return bytes(out)
