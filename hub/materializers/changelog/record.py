"""[core] Key and version of a changelog record, from its bytes and headers."""

from __future__ import annotations

from hub.materializers.changelog.row_decoder import unreadable
from hub.record import Record

# hub.version is generation · 2⁴⁰ + events folded into the key.
GENERATION_SHIFT = 40


def version_of(record: Record) -> int:
    """Return the header hub.version. Raises HubFault for a record without it."""
    header = record.header("hub.version")
    if header is None or not header.isdigit() or len(header) > 18:
        raise unreadable(record, "it has no header hub.version that is a number")
    return int(header)


def key_of(record: Record) -> str:
    """Return the row's key. Raises HubFault when it is not text."""
    try:
        return (record.key or b"").decode()
    except UnicodeDecodeError:
        raise unreadable(record, "its key is not UTF-8 text") from None
