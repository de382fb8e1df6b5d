"""The error catalog: errors.yaml, and the meaning of code ranges."""

from __future__ import annotations

from pathlib import Path

import yaml

from .text import table

CATALOG = Path(__file__).with_name("errors.yaml")
_GROUPS = (
    ("10", "General requests"),
    ("11", "Files, settings and start"),
    ("12", "Schemas and data rules"),
    ("13", "Writing events and dead-letter records"),
    ("14", "Reading views and SQL"),
    ("15", "Lineage"),
    ("16", "Mirrors: configuration and clusters"),
    ("17", "Access"),
    ("18", "Backups"),
    ("19", "Conflicts"),
    ("2", "View definitions"),
    ("30", "Kafka, stores, views and other systems"),
    ("36", "Mirrors: other clusters"),
    ("38", "Backups: storage and progress"),
    ("5", "Defects and corrupt data"),
)
_HEADS = ("code", "meaning", "way out")
_INTRO = """# Error catalog

Each error has a stable code, a message that names the object, and a hint with the way out. Programs find the code in
`error_code` or `code` of the JSON body; the command line prints `Error HUB-1410: …`.

| codes | whose fault | retry | HTTP status |
|---|---|---|---|
| HUB-1xxx, HUB-2xxx | the request, a file or a setting | fails again | 400; 404 not found, 409 conflict, 401, 403, 421, 422, 429 |
| HUB-3xxx | Kafka, a database or another server | may succeed | 503 |
| HUB-5xxx | the hub itself, or corrupt data | needs a person | 500 |

The codes of Confluent's registry API (40401, 42201, …) are in the [HTTP API](http-api.md).
"""  # noqa: E501


def catalog() -> dict[str, tuple[str, str]]:
    """Return (meaning, way out) by code."""
    return {code: tuple(entry) for code, entry in yaml.safe_load(CATALOG.read_text()).items()}


def page() -> str:
    """Return the page."""
    lines, entries, begun = [_INTRO], catalog(), set()
    for number, title in _GROUPS:
        rows = [
            (code, *entry)
            for code, entry in entries.items()
            if code.startswith(f"HUB-{number}") and code not in begun
        ]
        begun |= {code for code in entries if code.startswith(f"HUB-{number}")}
        lines += [f"## {title}", "", *table(_HEADS, rows)]
    rest = [(code, *entry) for code, entry in entries.items() if code not in begun]
    return "\n".join([*lines, *(["## Others", "", *table(_HEADS, rest)] if rest else [])])
