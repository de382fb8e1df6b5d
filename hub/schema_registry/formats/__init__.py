"""[core] One module a schema format; each is a ``Format``. Who may read whom is a list of ``SchemaDifference``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hub.errors import CallerError


class InvalidSchema(CallerError):
    """The text is no valid schema, or breaks a limit."""

    code = "HUB-1201"


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """One reason why a reader cannot read what a writer wrote.

    ``path`` leads into the reader as Confluent writes it (``/fields/1/type``), ``field`` in names (``item.qty``).
    """

    rule: str
    path: str
    field: str
    what: str
    fix: str


class Format(Protocol):
    """What the registry asks of a format. A parsed schema is opaque and brings what it references with it."""

    def parse(self, text: str, named: Mapping[str, Any]) -> Any:
        """``named``: parsed schemas by reference name, those they need themselves first. Raises InvalidSchema."""

    def canonical(self, schema: Any) -> str:
        """The text by which two schemas are the same: what is stored and served."""

    def normalized(self, schema: Any) -> str:
        """The text in which what means the same is written the same (``normalize=true``)."""

    def differences(self, reader: Any, writer: Any) -> list[SchemaDifference]:
        """Every reason, in the reader's order; [] when it can read."""
