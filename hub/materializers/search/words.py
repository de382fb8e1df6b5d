"""[core] Words of a text, the same for every store: a word is a run of alphabetic characters and digits.

Case, accents and compatibility forms do not count (Unicode TR 15 NFKD, then case folding): ``Café`` is
``cafe``. Each character is treated by itself, so a place in the words has a place in the text. Han
characters and kana, which are written without spaces, are one word each; a query of several is a phrase.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import snowballstemmer

Language = Literal["simple", "english"]

# Longer words are cut here, in rows and in queries.
LONGEST_WORD = 64
_STEMS_KEPT = 50_000
_KANA = (0x3041, 0x30FF)
_HAN = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x3FFFF))
_HALF_WIDTH_KANA = (0xFF66, 0xFF9D)


class _Normal(dict[int, str]):
    """Map of each character to its part of a word, a space, or nothing; filled on use."""

    def __missing__(self, point: int) -> str:
        found = self[point] = _normal(chr(point))
        return found


def _normal(character: str) -> str:
    point = ord(character)
    kana = _within(point, _KANA) or _within(point, _HALF_WIDTH_KANA)
    # Kana keep their voicing marks, which change the word.
    text = unicodedata.normalize("NFKC" if kana else "NFKD", character).casefold()
    return "".join(map(_part, text))


def _part(character: str) -> str:
    point = ord(character)
    if 0x0300 <= point <= 0x036F or point in (0x3099, 0x309A):  # accents
        return ""
    if unicodedata.category(character)[0] not in "LNM":
        return " "
    alone = _within(point, _KANA) or any(_within(point, each) for each in _HAN)
    return f" {character} " if alone else character


def _within(point: int, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= point <= bounds[1]


_NORMAL = _Normal()
_ENGLISH = snowballstemmer.stemmer("english")
_STEMMING = threading.Lock()  # a stemmer keeps the word that it works on


def words_of(text: str, language: Language = "simple") -> list[str]:
    """Return the words of a text, in order.

    >>> words_of("Crème brûlée, 2 for 1!")
    ['creme', 'brulee', '2', 'for', '1']
    >>> words_of("Running shoes", "english")
    ['run', 'shoe']
    """
    found = [word[:LONGEST_WORD] for word in text.translate(_NORMAL).split()]
    return found if language == "simple" else [_stem(word) for word in found]


def placed_words(text: str, language: Language = "simple") -> Iterator[tuple[str, int, int]]:
    """Yield (word, start, end) for every word of ``words_of``: ``text[start:end]`` is the word as written."""
    parts: list[str] = []
    start = end = 0
    for place, character in enumerate(text):
        for part in _NORMAL[ord(character)]:
            if part != " ":
                start = start if parts else place
                end = place + 1
                parts.append(part)
            elif parts:
                yield _word(parts, language), start, end
                parts = []
        if parts and not _NORMAL[ord(character)]:
            end = place + 1  # a combining accent belongs to the character before it
    if parts:
        yield _word(parts, language), start, end


def _word(parts: list[str], language: Language) -> str:
    word = "".join(parts)[:LONGEST_WORD]
    return word if language == "simple" else _stem(word)


@lru_cache(_STEMS_KEPT)
def _stem(word: str) -> str:
    """Return the English stem of a word by the Snowball algorithm (Porter 2)."""
    with _STEMMING:
        return str(_ENGLISH.stemWord(word)) or word
