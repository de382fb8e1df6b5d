"""Bytes as their senders pack them."""

import gzip


def uncompressed(value: bytes | None) -> bytes | None:
    """Return what gzip packed; None for anything else, which makes a dead-letter record of the event.

    A tombstone has no value, so this is called with None, too.
    """
    try:
        return gzip.decompress(value or b"")
    except (OSError, EOFError):
        return None
