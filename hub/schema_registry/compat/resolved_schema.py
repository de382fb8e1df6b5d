"""[core] A schema's text with all its references: everything that parsing needs from the state, as a value.

Schemas are parsed and compared outside the state and its lock. Parsed schemas are cached up to a limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hub.schema_registry.formats import Format, InvalidSchema
from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.known import FORMATS, types
from hub.schema_registry.model.lru_cache import LruCache

# Characters of text. A parsed schema takes about ten times as much memory as its text.
_MOST_PARSED_CHARACTERS = 16_000_000


@dataclass(frozen=True, slots=True, eq=False)
class SchemaSource:
    """A schema and, in ``named``, the sources of its references by name. Equal when all texts are equal.

    ``rule_set`` and ``metadata`` are those it was registered with, if the caller loaded them.
    """

    schema_type: str
    text: str
    named: tuple[tuple[str, SchemaSource], ...]
    digest: bytes
    rule_set: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls, schema_type: str, text: str, named: tuple[tuple[str, SchemaSource], ...] = ()
    ) -> SchemaSource:
        parts = [schema_type.encode(), text.encode("utf-8", "surrogatepass")]
        for name, each in named:
            parts += [name.encode("utf-8", "surrogatepass"), each.digest]
        length_prefixed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return cls(schema_type, text, named, hashlib.sha256(length_prefixed).digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaSource) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def form(self) -> Format:
        """The schema's format. Raises InvalidSchema for an unknown type."""
        form = FORMATS.get(self.schema_type)
        if form is None:
            raise InvalidSchema(
                f"Invalid schema type {self.schema_type[:80]}: this registry knows {', '.join(types())}"
            )
        return form

    def parsed(self) -> Any:
        """Return the schema in its format's parsed form. Raises InvalidSchema."""
        cached = _PARSED.get(self.digest)
        if cached is None:
            if len(self.text) > avro.MOST_BYTES:
                raise InvalidSchema(
                    f"the schema has {len(self.text)} characters, {avro.MOST_BYTES} are allowed",
                    code="HUB-1209",
                )
            form, needed = self.form, list(self._needed())
            for name, each in needed:
                if each.schema_type != self.schema_type:
                    raise InvalidSchema(
                        f"reference '{name[:80]}' is of type {each.schema_type}, the schema of "
                        f"type {self.schema_type}"
                    )
            cached = form.parse(self.text, {name: each.parsed() for name, each in needed})
            _PARSED.put(self.digest, cached, len(self.text) + 100)
        return cached

    def canonical(self, *, normalize: bool = False) -> str:
        """Return the text to store. Raises InvalidSchema."""
        form, parsed = self.form, self.parsed()
        return form.normalized(parsed) if normalize else form.canonical(parsed)

    def spelled(self) -> str:
        """Return the canonical text of a stored schema, whichever registry wrote it. Cached.

        Returns the text unchanged when it cannot be parsed.
        """
        cached = _SPELLED.get(self.digest)
        if cached is None:
            try:
                cached = self.canonical()
            except InvalidSchema:
                cached = self.text
            _SPELLED.put(self.digest, cached, len(cached))
        return cached

    def is_spelled_so(self) -> None:
        """Record that the text is canonical already."""
        _SPELLED.put(self.digest, self.text, len(self.text))

    def _needed(self) -> Iterator[tuple[str, SchemaSource]]:
        """Return the references, dependencies first, each once."""
        visited: set[tuple[str, bytes]] = set()

        def walk(source: SchemaSource) -> Iterator[tuple[str, SchemaSource]]:
            for name, each in source.named:
                if (name, each.digest) not in visited:
                    visited.add((name, each.digest))
                    yield from walk(each)
                    yield name, each

        return walk(self)


_SPELLED: LruCache[bytes, str] = LruCache(_MOST_PARSED_CHARACTERS)
_PARSED: LruCache[bytes, Any] = LruCache(_MOST_PARSED_CHARACTERS)
