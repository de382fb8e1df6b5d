"""The decisions that are mutated: the pure modules (``[core]``) of these packages."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

DECISIONS = (
    "hub/schema_registry/registry",
    "hub/schema_registry/compat",
    "hub/materializers/applying",
    "hub/materializers/engine",
    "hub/materializers/progress",
    "hub/materializers/snapshot_groups",
    "hub/materializers/versions",
    "hub/replication/clusters",
    "hub/replication/engine",
    "hub/replication/maps",
    "hub/replication/ownership",
    "hub/replication/status",
    "hub/topics/gateway",
    "hub/topics/dead_letters",
    "hub/observability/lag",
    "hub/completeness",
)


def core_modules(root: Path = ROOT) -> dict[str, Path]:
    """Return the paths of the mutated modules by their dotted names."""
    found = {}
    for folder in DECISIONS:
        for path in sorted((root / folder).rglob("*.py")):
            told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            if told.startswith("[core]") and path.name != "__init__.py":
                found[".".join(path.relative_to(root).with_suffix("").parts)] = path
    return found
