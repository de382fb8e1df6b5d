"""The list of decision records, by their headings."""

from __future__ import annotations

import re
from pathlib import Path

_INTRO = """# Decision records

A decision that binds others has a page: its context, the decision, the alternatives, the consequences, and the observations that
would make us revisit it.
"""  # noqa: E501


def page(root: Path) -> str:
    """Return the page."""
    lines = [_INTRO]
    for path in sorted((root / "docs/adr").glob("[0-9]*.md")):
        heading = path.read_text().splitlines()[0]
        title = re.sub(r"^#\s*(ADR\s*)?[0-9]+[.:]?\s*", "", heading).strip()
        lines.append(f"- [{path.name[:4]}]({path.name}) {title}")
    return "\n".join(lines)
