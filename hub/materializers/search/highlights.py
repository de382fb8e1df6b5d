"""[core] The parts of a text that a query found, as fragments: (text, whether it was found).

Fragments have no markup, so a reader escapes each as any text and marks the found ones. A long text is
shortened to a window around its first found words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hub.materializers.search.text_query import Term
from hub.materializers.search.words import Language, placed_words

# Characters of a window, and those before the first found word.
_WINDOW, _BEFORE = 240, 60
# Only this much of a text is looked through.
_SEARCHED = 100_000
_CUT = "…"

Fragment = tuple[str, bool]


def highlights(text: str, terms: Sequence[Term], language: Language) -> list[Fragment]:
    """Return the fragments of a text, shortened; [] if no term is in it.

    >>> highlights("Red shoes", [Term(("shoes",))], "simple")
    [('Red ', False), ('shoes', True)]
    """
    spans = _spans(text, terms, language)
    if not spans:
        return []
    begin, end = _window(text, spans[0][0])
    found: list[Fragment] = [(_CUT, False)] if begin else []
    at = begin
    for start, stop in spans:
        if start >= end:
            break
        if start > at:
            found.append((text[at:start], False))
        found.append((text[start : min(stop, end)], True))
        at = min(stop, end)
    if at < end:
        found.append((text[at:end], False))
    if end < len(text):
        found.append((_CUT, False))
    return found


def _window(text: str, first: int) -> tuple[int, int]:
    """Return the part of the text that is shown, from a word's beginning if one is near."""
    if len(text) <= _WINDOW:
        return 0, len(text)
    begin = max(0, first - _BEFORE)
    if begin:
        space = text.find(" ", begin, first)
        begin = begin if space < 0 else space + 1
    return begin, min(len(text), begin + _WINDOW)


def _spans(text: str, terms: Sequence[Term], language: Language) -> list[tuple[int, int]]:
    """Return the places of the terms, in order and without overlaps."""
    placed = list(placed_words(text[:_SEARCHED], language))
    words = [word for word, _, _ in placed]
    found = sorted(
        (placed[at][1], placed[at + len(term.words) - 1][2]) for term in terms for at in _places(words, term)
    )
    merged: list[tuple[int, int]] = []
    for start, end in found:
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _places(words: Sequence[str], term: Term) -> Iterator[int]:
    """Yield the places where the words of a term begin."""
    size, last = len(term.words), term.words[-1]
    for at in range(len(words) - size + 1):
        if any(words[at + n] != term.words[n] for n in range(size - 1)):
            continue
        word = words[at + size - 1]
        if word == last or (term.prefix and word.startswith(last)):
            yield at
