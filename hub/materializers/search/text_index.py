"""[core] A text index of a view: its fields, its language, and the words of a row within its limits.

The limits are those of a Postgres ``tsvector`` (16,383 places, 256 of each word, 1 MB), applied in every
store so that all find the same rows. A place whose word is left out keeps its number, so that phrases stay
right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import orjson

from hub.materializers.search.words import Language, words_of

MOST_FIELDS = 8
# Words of a row that are indexed, and their bytes.
MOST_WORDS = 10_000
MOST_BYTES = 600_000
# Places of one word in one field.
MOST_PLACES = 255
# A place without a word. No text and no query has this character in a word.
GAP = "\ue000"
_SPEC = "text:"
# Version of the rules of words and limits. An index that was noted with another one is built again.
_RULES = 1


@dataclass(frozen=True, slots=True)
class TextIndex:
    """The text fields of a view, the most important first. ``language``: of stems; ``simple`` has none."""

    fields: tuple[str, ...]
    language: Language = "simple"

    @property
    def spec(self) -> str:
        """The index as stores note it among a view's indexes. Earlier releases ignore it: no field has the
        name."""
        return _SPEC + orjson.dumps([_RULES, self.language, *self.fields]).decode()

    def words(self, values: Mapping[str, Any]) -> tuple[list[str], ...]:
        """Return the words of a row by field, in order; GAP for a place whose word is left out."""
        words, size = MOST_WORDS, MOST_BYTES
        found: list[list[str]] = []
        for name in self.fields:
            value = values.get(name)
            taken = words_of(value, self.language)[:words] if isinstance(value, str) else []
            words -= len(taken)
            if len(taken) > MOST_PLACES or sum(map(len, taken)) * 4 > size:
                taken, size = _within_limits(taken, size)
            else:
                size -= len("".join(taken).encode())
            found.append(taken)
        return tuple(found)


def _within_limits(words: list[str], size: int) -> tuple[list[str], int]:
    """Return the words with a GAP for each that exceeds a limit, and the bytes that are left."""
    counts: Counter[str] = Counter()
    kept: list[str] = []
    for word in words:
        counts[word] += 1
        size -= len(word.encode())
        if size < 0:
            return kept, 0
        kept.append(word if counts[word] <= MOST_PLACES else GAP)
    return kept, size


def text_index_of(indexes: Sequence[str]) -> TextIndex | None:
    """Return the text index among the noted indexes of a view; None without one, or with one of another
    release's rules."""
    for index in indexes:
        if index.startswith(_SPEC):
            rules, language, *fields = orjson.loads(index.removeprefix(_SPEC))
            if rules == _RULES and language in get_args(Language):
                return TextIndex(tuple(fields), language)
    return None


def field_indexes(indexes: Sequence[str]) -> list[str]:
    """Return the noted indexes that are fields: no field's name has a colon."""
    return [index for index in indexes if ":" not in index]
