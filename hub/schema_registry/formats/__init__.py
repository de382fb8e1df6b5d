"""[core] Schema formats, one module each; each is a ``Format``.

Read compatibility is a list of differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hub.errors import CallerError


class InvalidSchema(CallerError):
    """The text is not a valid schema, or exceeds a limit."""

    code = "HUB-1201"


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """One reason why a reader cannot read a writer's data.

    ``path`` leads into the reader in Confluent's notation (``/fields/1/type``), ``field`` uses names
    (``item.qty``).
    """

    rule: str
    path: str
    field: str
    what: str
    fix: str


class Format(Protocol):
    """Port: a schema format. A parsed schema is opaque and includes the schemas that it references."""

    def parse(self, text: str, named: Mapping[str, Any]) -> Any:
        """Parse a text.

        ``named``: parsed schemas by reference name, dependencies first. Raises InvalidSchema.
        """

    def canonical(self, schema: Any) -> str:
        """Return the text that identifies a schema: it is stored and served."""

    def normalized(self, schema: Any) -> str:
        """Return the text that is equal for equivalent schemas (``normalize=true``)."""

    def differences(self, reader: Any, writer: Any) -> list[SchemaDifference]:
        """Return every reason why the reader cannot read, in the reader's order; [] when it can."""
