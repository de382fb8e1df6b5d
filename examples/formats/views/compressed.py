"""Bytes as their senders pack them."""

import gzip


def uncompressed(value: bytes | None) -> bytes | None:
    """Return the bytes that gzip compressed; None for other bytes: the event becomes a dead-letter record.

    The value of a tombstone is None.
    """
    try:
        return gzip.decompress(value or b"")
    except (OSError, EOFError):
        return None
