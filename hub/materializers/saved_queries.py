"""[edge] Queries that a project keeps: ``queries/<name>.sql``, with named parameters (``:customer_id``).

Comment lines at the head of a file say what the query is for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hub.errors import ConfigError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_MOST_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """One file. ``sql`` is its text as it stands, ``doc`` the comment at its head."""

    name: str
    path: Path
    sql: str
    doc: str


def load_queries(project: Path) -> list[SavedQuery]:
    """All of a project, by name; [] when it has none. Raises ConfigError naming the file."""
    return [load_query(path) for path in sorted((project / "queries").glob("*.sql"))]


def load_query(path: Path) -> SavedQuery:
    """The query of one file. Raises ConfigError."""
    if not _NAME.fullmatch(path.stem):
        raise ConfigError(
            f'query "{path.stem}": a name has a-z, 0-9 and _ and begins with a letter', where=str(path)
        )
    try:
        data = path.read_bytes()
        sql = data[:_MOST_BYTES].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f'query "{path.stem}" cannot be read: {error}', where=str(path)) from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f'query "{path.stem}" has more than {_MOST_BYTES} bytes', where=str(path))
    head = []
    for line in sql.lstrip().splitlines():
        if not line.startswith("--"):
            break
        head.append(line.removeprefix("--").strip())
    return SavedQuery(path.stem, path, sql, " ".join(filter(None, head)))
