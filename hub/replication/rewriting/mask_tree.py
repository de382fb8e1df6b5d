"""[core] Masks of fields as a tree of names, and what a mask makes of a value."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

How = Literal["hash", "null", "redact"]


Edits = list[tuple[int, int, bytes]]


Masking = Callable[[bytes, int], bytes]
"""Function from (value, start of its body) to the value with its fields replaced. Raises Unmaskable."""


REDACTED = "***"


_HASH_BYTES = 16


class Unmaskable(Exception):
    """The bytes cannot be read, or the replacement of a field does not fit its type."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Replacement of a field; ``key`` is the secret of a hash."""

    how: How
    key: bytes = b""

    def digest(self, content: bytes, size: int = _HASH_BYTES) -> bytes:
        found = hmac.digest(self.key, content, "sha256")
        while len(found) < size:
            found += hmac.digest(self.key, found, "sha256")
        return found[:size]


Tree = dict[str, Any]
"""Tree of names; its leaves are masks."""


def tree_of(fields: Iterable[tuple[str, Mask]]) -> Tree:
    """Build a tree from dotted paths. A mask of a whole value excludes masks below it; of two masks of one
    path the first counts.

    >>> tree_of([("a.b", Mask("null")), ("a.b", Mask("hash"))])
    {'a': {'b': Mask(how='null', key=b'')}}
    """
    tree: Tree = {}
    for path, mask in fields:
        *above, last = path.split(".")
        node: Any = tree
        for name in above:
            node = node.setdefault(name, {})
            if isinstance(node, Mask):
                break
        else:
            if not isinstance(node.get(last), Mask):
                node[last] = mask
    return tree


def put_edit(content: bytes, edits: Edits) -> bytes:
    """Return the content with ranges replaced."""
    if not edits:
        return content
    made = bytearray()
    at = 0
    for start, end, edit in sorted(edits, key=lambda each: each[0]):
        made += content[at:start]
        made += edit
        at = end
    made += content[at:]
    return bytes(made)


def below_of(tree: Tree | Mask, name: str) -> Tree | Mask | None:
    """Return the masks of a member; a name with dots matches the path with these dots."""
    node: Any = tree
    for part in name.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node if isinstance(node, dict | Mask) else None
